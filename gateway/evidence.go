package gateway

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/store"
	"github.com/ramus-dev/ramus/gateway/links"
	"github.com/ramus-dev/ramus/gateway/page"
	"github.com/ramus-dev/ramus/gateway/render"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gitd"
)

// signedQuery is what a signed link carries; see [links.Signer].
type SignedQuery struct {
	Expires   string `json:"expires,omitempty" jsonschema:"of a signed link: when it ends, in seconds since 1970"`
	Signature string `json:"signature,omitempty" jsonschema:"of a signed link"`
}

type fileQuery struct {
	Expires   string `json:"expires,omitempty" jsonschema:"of a signed link: when it ends, in seconds since 1970"`
	Signature string `json:"signature,omitempty" jsonschema:"of a signed link"`
	View      bool   `json:"view,omitempty" jsonschema:"show it in a page instead of saving it"`
}

// EvidenceLink is a link that opens without a token.
type EvidenceLink struct {
	URL     string    `json:"url"`
	Status  string    `json:"status"` // to the run's status.json
	Expires time.Time `json:"expires"`
}

// EvidenceStatus is how a run stands, for whoever has a link to it.
type EvidenceStatus struct {
	Run       string         `json:"run"`
	State     record.State   `json:"state"`
	Reason    record.Reason  `json:"reason,omitempty"`
	Error     string         `json:"error,omitempty"`
	Verdict   record.Verdict `json:"verdict,omitempty"` // empty: the run goes on
	Repo      string         `json:"repo"`
	Branch    string         `json:"branch"`
	Base      string         `json:"base"`
	Head      gitd.Hash      `json:"head,omitempty"`
	Step      string         `json:"step,omitempty"`  // current or last
	Place     int            `json:"place,omitempty"` // in line for a container
	Waits     string         `json:"waits,omitempty"` // what a person is asked
	Usage     *record.Usage  `json:"usage,omitempty"`
	CreatedAt time.Time      `json:"created_at"`
	StartedAt time.Time      `json:"started_at,omitzero"`
	EndedAt   time.Time      `json:"ended_at,omitzero"`
}

// evidenceOf is the run that the path names, for whoever may see it. The name
// is taken as it stands: a link was signed for one run, never for what is like it.
func (s *Server) evidenceOf(c *route.Call) (record.Run, error) {
	name := c.R.PathValue("caller") + "/" + c.R.PathValue("run")
	r, err := s.Executor.Run(c.R.Context(), name)
	if errors.Is(err, record.ErrNotFound) || errors.Is(err, record.ErrAmbiguous) ||
		err == nil && (r.Name() != name || c.Until.IsZero() && !c.Who.SeesRun(r)) {
		return record.Run{}, route.NotFound("run", name)
	}
	return r, err
}

// manifestOf is the evidence of a run; nil when there is none yet.
func (s *Server) manifestOf(c *route.Call, r record.Run) (*record.Manifest, error) {
	if !r.Ended() && r.State != record.StateAwaitingReview {
		return nil, nil
	}
	m, err := s.Executor.Manifest(c.R.Context(), r.Name())
	if errors.Is(err, record.ErrNotFound) {
		return nil, nil // it is being written
	}
	return &m, err
}

func (s *Server) evidenceStatus(c *route.Call) error {
	var q SignedQuery
	if err := c.ReadQuery(&q); err != nil {
		return err
	}
	r, err := s.evidenceOf(c)
	if err != nil {
		return err
	}
	m, err := s.manifestOf(c, r)
	if err != nil {
		return err
	}
	status := EvidenceStatus{Run: r.Name(), State: r.State, Reason: r.Reason, Error: r.Error, Repo: r.Repo, Branch: r.Branch, Base: r.Base, Head: r.Head,
		Step: r.Step, Place: r.Place, Usage: r.Usage, CreatedAt: r.CreatedAt, StartedAt: r.StartedAt, EndedAt: r.EndedAt}
	if r.Gate != nil {
		status.Waits = r.Gate.Message
	}
	if m != nil {
		status.Verdict, status.Usage = m.Verdict, m.Usage
	}
	page.MarkPrivate(c.W.Header())
	c.MarkAttachment("status.json") // a page links to it, and it quotes what a container said
	return c.Reply(status)
}

func (s *Server) evidenceLink(c *route.Call) error {
	r, err := s.named(c)
	if err != nil {
		return err
	}
	if s.Links == nil {
		return route.NewProblem(route.KindConflict, "this server signs no links")
	}
	address := c.Address()
	if address == "" {
		address = s.Loopback
	}
	if address == "" {
		return route.NewProblem(route.KindConflict, "this server does not know where people reach it").WithHint("set `url` in the configuration")
	}
	until := s.Links.Expiry()
	return c.Reply(EvidenceLink{URL: address + s.Links.SignUntil(links.RunPath(r), until), Status: address + s.Links.SignUntil(links.RunPath(r)+"/status.json", until),
		Expires: until.UTC().Truncate(time.Second)})
}

// verifyFirst is up to which size a file is compared with its hash before an answer begins.
const verifyFirst = 16 << 20

// evidenceFile serves one file: to be saved, or in a page of its own.
func (s *Server) evidenceFile(c *route.Call) error {
	var q fileQuery
	if err := c.ReadQuery(&q); err != nil {
		return err
	}
	r, err := s.evidenceOf(c)
	if err != nil {
		return err
	}
	if c.R.PathValue("name") == manifestName {
		return s.evidenceManifest(c, r)
	}
	f, err := s.Executor.Artifact(c.R.Context(), r.Name(), c.R.PathValue("name"))
	if err != nil {
		return err
	}
	defer f.Close()
	if f.Size <= verifyFirst { // a larger one is compared while it is sent, and its answer cut short
		if err := f.Verify(); err != nil {
			return err
		}
	}
	page.MarkPrivate(c.W.Header())
	if q.View {
		return s.viewFile(c, r, f)
	}
	c.MarkAttachment(path.Base(f.Name))
	if media := render.Showable(f.Type); media != "" {
		c.W.Header().Set("Content-Type", media)
	}
	c.W.Header().Set("ETag", `"`+f.SHA256+`"`)
	in := &watchedFile{File: f}
	http.ServeContent(c.W, c.R, "", time.Time{}, in)
	if in.err != nil {
		return c.CutShort(in.err)
	}
	return nil
}

func (s *Server) evidenceManifest(c *route.Call, r record.Run) error {
	m, err := s.Executor.Manifest(c.R.Context(), r.Name())
	if err != nil {
		return err
	}
	page.MarkPrivate(c.W.Header())
	c.MarkAttachment("manifest.json")
	return c.Reply(m)
}

// watchedFile keeps the error of a read, which http.ServeContent does not tell.
type watchedFile struct {
	*store.File
	err error
}

func (f *watchedFile) Read(p []byte) (int, error) {
	n, err := f.File.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		f.err = err
	}
	return n, err
}

// evidenceBundle streams all files, the manifest first.
func (s *Server) evidenceBundle(c *route.Call) error {
	var q SignedQuery
	if err := c.ReadQuery(&q); err != nil {
		return err
	}
	r, err := s.evidenceOf(c)
	if err != nil {
		return err
	}
	m, err := s.Executor.Manifest(c.R.Context(), r.Name())
	if err != nil {
		return err
	}
	page.MarkPrivate(c.W.Header())
	c.MarkAttachment(strings.NewReplacer(":", "-", "/", "-").Replace(r.Name()) + ".tar.gz")
	c.W.Header().Set("Content-Type", "application/gzip")
	z := gzip.NewWriter(c.W)
	t := tar.NewWriter(z)
	if err := s.bundle(c, c.R.Context(), t, r, m); err != nil {
		return c.CutShort(err) // without its end nobody takes it for whole
	}
	if err := errors.Join(t.Close(), z.Close()); err != nil {
		return c.CutShort(err)
	}
	return nil
}

func (s *Server) bundle(c *route.Call, ctx context.Context, t *tar.Writer, r record.Run, m record.Manifest) error {
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	header := func(name string, size int64) error {
		return t.WriteHeader(&tar.Header{Name: r.ID + "/" + FileName(name), Size: size, Mode: 0o644, ModTime: m.EndedAt, Format: tar.FormatPAX})
	}
	if err := header("evidence/manifest.json", int64(len(text))); err != nil {
		return err
	}
	if _, err := t.Write(text); err != nil {
		return err
	}
	for _, f := range m.Files {
		in, err := s.Executor.OpenFile(ctx, r, f)
		if err != nil {
			return err
		}
		if err = header(f.Name, f.Size); err == nil {
			_, err = io.Copy(t, in)
		}
		if err := errors.Join(err, in.Close()); err != nil {
			return fmt.Errorf("cannot bundle %q: %w", f.Name, err)
		}
	}
	return nil
}

// FileName is a name of the manifest as a file should be called where somebody
// saves it: in a folder called .git a container's file would be a program of theirs.
func FileName(name string) string {
	parts := strings.Split(strings.ToValidUTF8(name, "\uFFFD"), "/")
	for i, part := range parts {
		if lower := strings.ToLower(part); strings.HasPrefix(lower, ".git") || strings.HasPrefix(lower, "git~") {
			parts[i] = "_" + part
		}
	}
	return strings.Join(parts, "/")
}
