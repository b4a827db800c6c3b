package evidence

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/store"
	"github.com/ramus-dev/ramus/gateway/links"
	"github.com/ramus-dev/ramus/gateway/lookup"
	"github.com/ramus-dev/ramus/gateway/page"
	"github.com/ramus-dev/ramus/gateway/render"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gitd"
)

// Executor is the part of the executor that the pages of evidence need.
type Executor interface {
	Run(ctx context.Context, name string) (record.Run, error)
	Events(ctx context.Context, run string, after int64, follow bool) iter.Seq2[record.Event, error]
	Output(ctx context.Context, run, step, stream string) (io.ReadCloser, error)
	// Manifest returns the evidence of a run that has ended or waits. Until it is written the error wraps
	// [record.ErrNotFound].
	Manifest(ctx context.Context, run string) (record.Manifest, error)
	Artifact(ctx context.Context, run, name string) (*store.File, error)
	OpenFile(ctx context.Context, run record.Run, f record.ManifestFile) (*store.File, error)
	// TraceViewer returns the files of Playwright's trace viewer.
	TraceViewer(ctx context.Context) (fs.FS, error)
}

// Programs knows the programs in containers.
type Programs interface {
	// Ports returns the ports that something listens at in the container of a caller.
	Ports(ctx context.Context, caller record.Caller) ([]int, error)
}

// API serves the routes of evidence. Its fields are its options.
type API struct {
	Executor Executor
	Programs Programs
	// Find finds the runs that paths name.
	Find *lookup.Lookup
	// Links signs the links. If it is nil, all evidence needs a token.
	Links *links.Signer
	// Loopback is the base URL of links for a person at the unix socket if no other URL is known. Empty means none.
	Loopback string
	// Content is the origin of the trace viewer ("https://content.example.org"), which is this server under another host.
	// Empty means that there is none.
	Content string
	// Sessions is true if people have sessions by cookies. Then the trace viewer needs Content.
	Sessions bool
	Now      func() time.Time
}

// Routes returns the routes of evidence.
func (api *API) Routes() []route.Route {
	return []route.Route{
		{Method: "POST", Pattern: "/api/runs/{run}/link", Access: route.AccessRead,
			Summary:  "Make a link to the page of a run's evidence that opens without a token until it expires",
			Response: EvidenceLink{}, Handle: api.evidenceLink},
		{Method: "GET", Pattern: "/evidence/{caller}/{run}", Access: route.AccessSigned,
			Summary: "The page of a run with its request, commands, changes and checks", Query: links.Query{},
			Media: route.MediaHTML, Handle: api.evidencePage},
		{Method: "GET", Pattern: "/evidence/{caller}/{run}/status.json", Access: route.AccessSigned,
			Summary: "The state of a run", Query: links.Query{}, Response: EvidenceStatus{}, Handle: api.evidenceStatus},
		{Method: "GET", Pattern: "/evidence/{caller}/{run}/bundle.tar.gz", Access: route.AccessSigned,
			Summary: "All files of a run's evidence, once the run has ended or waits", Query: links.Query{},
			Media: "application/gzip", Handle: api.evidenceBundle},
		{Method: "GET", Pattern: "/evidence/{caller}/{run}/files/{name...}", Access: route.AccessSigned,
			Summary: "One file of a run's evidence, by its name in the manifest; view=1 shows text, pictures and films in a page",
			Query:   fileQuery{}, Media: route.MediaBytes, Handle: api.evidenceFile},
		{Method: "GET", Pattern: links.TracePath + "{file...}", Access: route.AccessPublic,
			Summary: "Playwright's trace viewer; index.html?trace=LINK opens a trace of this server's",
			Media:   route.MediaBytes, Handle: api.trace},
	}
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

// EvidenceStatus is the state of a run for people who have a link to it.
type EvidenceStatus struct {
	Run       string         `json:"run"`
	State     record.State   `json:"state"`
	Reason    record.Reason  `json:"reason,omitempty"`
	Error     string         `json:"error,omitempty"`
	Verdict   record.Verdict `json:"verdict,omitempty"` // empty while the run goes on
	Repo      string         `json:"repo"`
	Branch    string         `json:"branch"`
	Base      string         `json:"base"`
	Head      gitd.Hash      `json:"head,omitempty"`
	Step      string         `json:"step,omitempty"`  // current or last
	Place     int            `json:"place,omitempty"` // position in the queue for a container
	Waits     string         `json:"waits,omitempty"` // the question to a person
	Usage     *record.Usage  `json:"usage,omitempty"`
	CreatedAt time.Time      `json:"created_at"`
	StartedAt time.Time      `json:"started_at,omitzero"`
	EndedAt   time.Time      `json:"ended_at,omitzero"`
}

// evidenceOf returns the run that the path names if the caller may see it. The name must be complete, because a link
// is signed for one run and not for runs with similar names.
func (api *API) evidenceOf(c *route.Call) (record.Run, error) {
	name := c.R.PathValue("caller") + "/" + c.R.PathValue("run")
	r, err := api.Executor.Run(c.R.Context(), name)
	if errors.Is(err, record.ErrNotFound) || errors.Is(err, record.ErrAmbiguous) ||
		err == nil && (r.Name() != name || c.Until.IsZero() && !c.Who.SeesRun(r)) {
		return record.Run{}, route.NotFound("run", name)
	}
	return r, err
}

// manifestOf returns the manifest of a run. Returns nil if the manifest is not written yet.
func (api *API) manifestOf(c *route.Call, r record.Run) (*record.Manifest, error) {
	if !r.Ended() && r.State != record.StateAwaitingReview {
		return nil, nil
	}
	m, err := api.Executor.Manifest(c.R.Context(), r.Name())
	if errors.Is(err, record.ErrNotFound) {
		return nil, nil // the manifest is being written
	}
	return &m, err
}

func (api *API) evidenceStatus(c *route.Call) error {
	var q links.Query
	if err := c.ReadQuery(&q); err != nil {
		return err
	}
	r, err := api.evidenceOf(c)
	if err != nil {
		return err
	}
	m, err := api.manifestOf(c, r)
	if err != nil {
		return err
	}
	status := EvidenceStatus{Run: r.Name(), State: r.State, Reason: r.Reason, Error: r.Error, Repo: r.Repo,
		Branch: r.Branch, Base: r.Base, Head: r.Head,
		Step: r.Step, Place: r.Place, Usage: r.Usage, CreatedAt: r.CreatedAt, StartedAt: r.StartedAt, EndedAt: r.EndedAt}
	if r.Gate != nil {
		status.Waits = r.Gate.Message
	}
	if m != nil {
		status.Verdict, status.Usage = m.Verdict, m.Usage
	}
	page.MarkPrivate(c.W.Header())
	c.MarkAttachment("status.json") // a page links to the status, and the status quotes the output of a container
	return c.Reply(status)
}

func (api *API) evidenceLink(c *route.Call) error {
	r, err := api.Find.PathRun(c)
	if err != nil {
		return err
	}
	if api.Links == nil {
		return route.NewProblem(route.KindConflict, "this server signs no links")
	}
	address := c.Address()
	if address == "" {
		address = api.Loopback
	}
	if address == "" {
		return route.NewProblem(route.KindConflict,
			"this server does not know where people reach it").WithHint("set `url` in the configuration")
	}
	until := api.Links.Expiry()
	return c.Reply(EvidenceLink{URL: address + api.Links.SignUntil(links.RunPath(r), until),
		Status:  address + api.Links.SignUntil(links.RunPath(r)+"/status.json", until),
		Expires: until.UTC().Truncate(time.Second)})
}

// verifyFirst is the largest size, in bytes, of a file whose hash is checked before the answer begins.
const verifyFirst = 16 << 20

// evidenceFile serves one file, as an attachment or in a page of its own.
func (api *API) evidenceFile(c *route.Call) error {
	var q fileQuery
	if err := c.ReadQuery(&q); err != nil {
		return err
	}
	r, err := api.evidenceOf(c)
	if err != nil {
		return err
	}
	if c.R.PathValue("name") == manifestName {
		return api.evidenceManifest(c, r)
	}
	f, err := api.Executor.Artifact(c.R.Context(), r.Name(), c.R.PathValue("name"))
	if err != nil {
		return err
	}
	defer f.Close()
	if f.Size <= verifyFirst { // a larger file is checked while it is sent, and a wrong hash cuts the answer short
		if err := f.Verify(); err != nil {
			return err
		}
	}
	page.MarkPrivate(c.W.Header())
	if q.View {
		return api.viewFile(c, r, f)
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

// SendPicture sends a picture of the evidence of a run, by its name in the manifest. The caller of SendPicture has checked that the person of
// c may see the run.
func (api *API) SendPicture(c *route.Call, r record.Run, name string) error {
	f, err := api.Executor.Artifact(c.R.Context(), r.Name(), name)
	if err != nil {
		return err
	}
	defer f.Close()
	media := render.Showable(f.Type)
	if !strings.HasPrefix(media, "image/") || f.Size > verifyFirst {
		return route.NotFound("picture", name)
	}
	if err := f.Verify(); err != nil {
		return err
	}
	page.MarkPrivate(c.W.Header())
	c.MarkAttachment(path.Base(f.Name))
	c.W.Header().Set("Content-Type", media)
	c.W.Header().Set("Cache-Control", "no-store") // the link may be revoked
	http.ServeContent(c.W, c.R, "", time.Time{}, f)
	return nil
}

func (api *API) evidenceManifest(c *route.Call, r record.Run) error {
	m, err := api.Executor.Manifest(c.R.Context(), r.Name())
	if err != nil {
		return err
	}
	page.MarkPrivate(c.W.Header())
	c.MarkAttachment("manifest.json")
	return c.Reply(m)
}

// watchedFile keeps the error of a Read, because http.ServeContent does not return it.
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

// evidenceBundle streams all files as a tar, with the manifest first.
func (api *API) evidenceBundle(c *route.Call) error {
	var q links.Query
	if err := c.ReadQuery(&q); err != nil {
		return err
	}
	r, err := api.evidenceOf(c)
	if err != nil {
		return err
	}
	m, err := api.Executor.Manifest(c.R.Context(), r.Name())
	if err != nil {
		return err
	}
	page.MarkPrivate(c.W.Header())
	c.MarkAttachment(strings.NewReplacer(":", "-", "/", "-").Replace(r.Name()) + ".tar.gz")
	c.W.Header().Set("Content-Type", "application/gzip")
	z := gzip.NewWriter(c.W)
	t := tar.NewWriter(z)
	if err := api.bundle(c, c.R.Context(), t, r, m); err != nil {
		return c.CutShort(err) // without its end the archive is invalid, so nobody takes it for complete
	}
	if err := errors.Join(t.Close(), z.Close()); err != nil {
		return c.CutShort(err)
	}
	return nil
}

func (api *API) bundle(c *route.Call, ctx context.Context, t *tar.Writer, r record.Run, m record.Manifest) error {
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	header := func(name string, size int64) error {
		return t.WriteHeader(&tar.Header{Name: r.ID + "/" + FileName(name), Size: size, Mode: 0o644, ModTime: m.EndedAt,
			Format: tar.FormatPAX})
	}
	if err := header("evidence/manifest.json", int64(len(text))); err != nil {
		return err
	}
	if _, err := t.Write(text); err != nil {
		return err
	}
	for _, f := range m.Files {
		in, err := api.Executor.OpenFile(ctx, r, f)
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

// FileName returns a name of the manifest as a name that is safe to save. It renames parts of the name like .git,
// because git could run a container's file in such a folder as a program.
func FileName(name string) string {
	parts := strings.Split(strings.ToValidUTF8(name, "\uFFFD"), "/")
	for i, part := range parts {
		if lower := strings.ToLower(part); strings.HasPrefix(lower, ".git") || strings.HasPrefix(lower, "git~") {
			parts[i] = "_" + part
		}
	}
	return strings.Join(parts, "/")
}
