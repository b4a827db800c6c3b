package seal

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
)

// What is a kind of fault.
type What string

// The kinds of faults.
const (
	NoChain     What = "no chain"     // there are seals, and no chain
	BrokenChain What = "broken chain" // a link is gone, or cannot be read
	BadLink     What = "bad link"     // a link is not one that the signer made
	NotAfter    What = "cut"          // the chain does not contain a link that it had
	Missing     What = "missing seal" // the ref of a run is gone, and nobody pruned it
	Replaced    What = "replaced"     // the ref of a run is at another commit
	Unlisted    What = "not in chain" // a run has a seal that no link names
	BadSeal     What = "bad seal"     // a seal is not one that the signer made
	BadManifest What = "manifest"     // the manifest is not the sealed one
	BadFile     What = "file"         // a file is missing, or is not that of the manifest
	BadArtifact What = "artifact"     // the same of a file in the artifact store
)

// Fault is one thing that is wrong.
type Fault struct {
	What   What      `json:"what"`
	Run    string    `json:"run,omitempty"`    // CALLER/RUN as in the ref
	Commit gitd.Hash `json:"commit,omitempty"` // the seal or the link
	File   string    `json:"file,omitempty"`
	Text   string    `json:"text"`
}

// Report is the result of a check.
type Report struct {
	Repo string `json:"repo"`
	Run  string `json:"run,omitempty"` // empty for all
	// Head is the last link. Whoever notes it can later ask whether the chain still contains it.
	Head  gitd.Hash `json:"head,omitempty"`
	Links int       `json:"links"`
	Begin time.Time `json:"begin,omitzero"` // of the first link
	Last  time.Time `json:"last,omitzero"`
	// Runs were compared. Adopted ones of them are older than the chain, so that only their files were compared with their manifests.
	Runs    int `json:"runs"`
	Adopted int `json:"adopted,omitzero"`
	// Imported ones came from other servers. They are compared in the same way.
	Imported int `json:"imported,omitzero"`
	Pruned   int `json:"pruned,omitzero"`
	Working  int `json:"working,omitzero"` // have no seal yet
	Hidden   int `json:"hidden,omitzero"`  // of private callers; nothing of them was compared
	Files    int `json:"files"`
	// Elsewhere is the number of files in an artifact store that is not here.
	Elsewhere int     `json:"elsewhere,omitzero"`
	Faults    []Fault `json:"faults"`
	More      int     `json:"more,omitzero"` // faults that are not listed
}

// OK reports whether nothing is wrong.
func (r Report) OK() bool { return len(r.Faults) == 0 }

const (
	maxFaults = 1000
	// maxLinks bounds the links that are read.
	maxLinks = 1_000_000
)

// Check is a comparison of the runs of a repository with its chain. Its fields are set before Do.
type Check struct {
	Repo    *gitd.Repo
	Signers gitd.Signers
	// Ref limits the runs that are compared to one. The chain is always compared as a whole. Empty means all.
	Ref string
	// Since is a link that the chain had. Empty means none.
	Since gitd.Hash
	// Sees reports whether runs at a ref are shown. Nil means all.
	Sees func(ref string) bool
	// Open opens a file of the artifact store. It fails at reading if the content is not that of its hash. Nil means that
	// there is no store.
	Open func(ctx context.Context, f record.ManifestFile) (io.ReadCloser, error)

	report Report
	links  map[gitd.Hash]gitd.Hash // each with the link before
	last   map[string]entryOf      // by ref
}

// entryOf is the last statement about a ref.
type entryOf struct {
	Entry
	before gitd.Hash // of the link
	time   time.Time
}

// Do compares. It returns an error only if it cannot compare, for example because the artifact store does not answer.
func (c *Check) Do(ctx context.Context) (Report, error) {
	c.report = Report{Repo: c.Repo.Name(), Run: strings.TrimPrefix(c.Ref, record.RunsPrefix+"/"), Faults: []Fault{}}
	c.links, c.last = make(map[gitd.Hash]gitd.Hash), make(map[string]entryOf)
	if err := c.do(ctx); err != nil {
		return c.report, fmt.Errorf("cannot verify %s: %w", c.Repo.Name(), err)
	}
	return c.report, nil
}

func (c *Check) do(ctx context.Context) error {
	// The runs first. A run that is sealed meanwhile would otherwise be one that no link names.
	refs, err := c.Repo.Refs(ctx, record.RunsPrefix)
	if err != nil {
		return err
	}
	at := make(map[string]gitd.Hash, len(refs))
	for _, r := range refs {
		at[r.Name] = r.Hash
	}
	if c.report.Head, err = head(ctx, c.Repo); err != nil {
		c.fault(Fault{What: BrokenChain, Text: fmt.Sprintf("the last link cannot be read: %v", err)})
	}
	if err := c.walk(ctx); err != nil {
		return err
	}
	if _, ok := c.links[c.Since]; !ok && c.Since != "" {
		c.fault(Fault{What: NotAfter, Commit: c.Since, Text: "the chain does not contain this link: links were taken out"})
	}
	names := make(map[string]bool)
	for name := range at {
		names[name] = true
	}
	for name := range c.last {
		names[name] = true
	}
	if c.Ref != "" {
		names = map[string]bool{c.Ref: true}
	}
	list := make([]string, 0, len(names))
	for name := range names {
		list = append(list, name)
	}
	slices.Sort(list)
	unlisted := 0
	for _, name := range list {
		if c.Sees != nil && !c.Sees(name) {
			c.report.Hidden++
			continue
		}
		e, listed := c.last[name]
		if listed {
			if err := c.run(ctx, name, e, at); err != nil {
				return err
			}
			continue
		}
		_, err := c.Repo.Entry(ctx, string(at[name]), record.ManifestPath)
		switch {
		case errors.Is(err, gitd.ErrNotFound):
			c.report.Working++
		case c.report.Head == "":
			unlisted++
		default:
			c.fault(Fault{What: Unlisted, Run: runOf(name), Commit: at[name], Text: "no link of the chain names this seal"})
		}
	}
	if unlisted > 0 {
		c.fault(Fault{What: NoChain, Text: fmt.Sprintf("%d runs have a seal, and %s is not there", unlisted, Ref)})
	}
	return nil
}

// walk reads the chain from its last link to its first.
func (c *Check) walk(ctx context.Context) error {
	for at := c.report.Head; at != ""; c.report.Links++ {
		if c.report.Links == maxLinks {
			return fmt.Errorf("the chain has more than %d links: %w", maxLinks, gitd.ErrTooLarge)
		}
		if err := context.Cause(ctx); err != nil {
			return err
		}
		s, err := c.Repo.CheckCommit(ctx, at, c.Signers)
		if err != nil {
			c.fault(Fault{What: BrokenChain, Commit: at, Text: fmt.Sprintf("this link cannot be read, so the ones before it are unknown: %v", err)})
			return nil
		}
		if s.Fault != nil {
			c.fault(Fault{What: BadLink, Commit: at, Text: s.Fault.Error()})
		}
		entries, err := parseEntries(s.Message)
		if err != nil {
			c.fault(Fault{What: BadLink, Commit: at, Text: err.Error()})
		}
		before := gitd.Hash("")
		switch len(s.Parents) {
		case 0:
		case 1:
			before = s.Parents[0]
		default:
			c.fault(Fault{What: BadLink, Commit: at, Text: "it has several parents"})
			return nil
		}
		for _, e := range slices.Backward(entries) {
			if _, later := c.last[e.Ref]; !later {
				c.last[e.Ref] = entryOf{e, before, s.Time}
			}
		}
		if c.report.Last.IsZero() {
			c.report.Last = s.Time
		}
		c.report.Begin = s.Time
		c.links[at] = before
		at = before
	}
	return nil
}

// run compares a run with the last statement about it.
func (c *Check) run(ctx context.Context, ref string, e entryOf, at map[string]gitd.Hash) error {
	now, there := at[ref]
	f := Fault{Run: runOf(ref), Commit: e.Commit}
	switch {
	case !there && e.Kind == Pruned:
		c.report.Pruned++
		return nil
	case !there:
		f.What, f.Text = Missing, fmt.Sprintf("it was sealed at %s, and its ref is gone although nobody pruned it", e.time.Format(time.RFC3339))
		c.fault(f)
		return nil
	case now != e.Commit:
		// A run may have been sealed since the refs were read.
		if again, err := c.Repo.Resolve(ctx, ref); err == nil && again == e.Commit {
			break
		}
		f.What, f.Text = Replaced, fmt.Sprintf("its ref is at %s, and the last seal is %s", now, e.Commit)
		c.fault(f)
		return nil
	}
	c.report.Runs++
	s, err := c.Repo.CheckCommit(ctx, e.Commit, c.Signers)
	if err != nil {
		f.What, f.Text = BadSeal, fmt.Sprintf("it cannot be read: %v", err)
		c.fault(f)
		return nil
	}
	link := after(s.Message)
	switch {
	case e.Kind == Sealed:
		if s.Fault != nil {
			f.What, f.Text = BadSeal, s.Fault.Error()
			c.fault(f)
		}
		if link != e.before {
			f.What, f.Text = BadSeal, fmt.Sprintf("it names %q as the link before its own, and that is %q", link, e.before)
			c.fault(f)
		}
	case e.Kind == Import:
		c.report.Imported++
	case e.Kind == Adopted:
		c.report.Adopted++
		fallthrough
	default:
		if _, known := c.links[link]; link != "" && !known {
			f.What, f.Text = BrokenChain, fmt.Sprintf("it names the link %s, which is gone: the chain was begun again", link)
			c.fault(f)
		}
	}
	return c.files(ctx, e)
}

// files compares the files of a seal with its manifest, and that with the chain.
func (c *Check) files(ctx context.Context, e entryOf) error {
	f := Fault{Run: runOf(e.Ref), Commit: e.Commit, File: record.ManifestPath}
	text, err := c.Repo.ReadFile(ctx, string(e.Commit), record.ManifestPath, record.MaxManifest)
	var m record.Manifest
	if err == nil {
		err = json.Unmarshal(text, &m)
	}
	if err != nil {
		f.What, f.Text = BadManifest, fmt.Sprintf("it cannot be read: %v", err)
		c.fault(f)
		return nil
	}
	sum := sha256.Sum256(text)
	if is := hex.EncodeToString(sum[:]); e.Kind == Sealed && is != e.Manifest {
		f.What, f.Text = BadManifest, fmt.Sprintf("its SHA-256 is %s, and the chain has %s", is, e.Manifest)
		c.fault(f)
		return nil
	}
	for _, file := range m.Files {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if file.Stored && c.Open == nil {
			c.report.Elsewhere++
			continue
		}
		c.report.Files++
		f.What, f.File = BadFile, file.Name
		var in io.ReadCloser
		if file.Stored {
			f.What = BadArtifact
			in, err = c.Open(ctx, file)
		} else {
			in, _, err = c.Repo.OpenFile(ctx, string(e.Commit), file.Name)
		}
		h := sha256.New()
		size := int64(0)
		if err == nil {
			size, err = io.Copy(h, in)
			err = errors.Join(err, in.Close())
		}
		switch is := hex.EncodeToString(h.Sum(nil)); {
		case errors.Is(err, record.ErrStoreAway):
			return err
		case err != nil:
			f.Text = fmt.Sprintf("it cannot be read: %v", err)
		case is != file.SHA256 || size != file.Size:
			f.Text = fmt.Sprintf("it has %d bytes with the SHA-256 %s, and the manifest has %d bytes with %s", size, is, file.Size, file.SHA256)
		default:
			continue
		}
		c.fault(f)
	}
	return nil
}

// fault adds a fault to the report.
func (c *Check) fault(f Fault) {
	if len(c.report.Faults) == maxFaults {
		c.report.More++
		return
	}
	c.report.Faults = append(c.report.Faults, f)
}

// runOf returns a run as its ref has it.
func runOf(ref string) string { return strings.TrimPrefix(ref, record.RunsPrefix+"/") }

// CallerOf returns the slug of the caller of a run, by the ref of the run.
func CallerOf(ref string) string {
	slug, _, _ := strings.Cut(runOf(ref), "/")
	return slug
}
