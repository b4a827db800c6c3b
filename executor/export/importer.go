package export

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/seal"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/bytesize"
	"github.com/ramus-dev/ramus/internal/text"
)

const (
	maxRecord  = 4 << 20
	maxJournal = 256 << 20
	maxEvents  = 1 << 20 // of a journal
	maxWords   = 4 << 10 // of a text of a run

	// An export can have the same file in many runs.
	maxRecords  = 256 << 20 // of all records and their manifests together
	maxJournals = 4 << 30   // of all journals together
)

// Store keeps large files.
type Store interface {
	Put(ctx context.Context, path, sum string, size int64) error
}

// Importer takes exports in. Its fields are required.
type Importer struct {
	Git   *gitd.Server
	Store Store
	// Dir is where artifacts are while they are checked. It is made if it is not there.
	Dir string
	// Taken reports whether a caller has runs in any repository.
	Taken func(record.Caller) bool
	// Claim says that the ref of a run is about to be made, and Index that it was made.
	Claim func(record.Run) error
	Index func(...record.Run) error
	// Chain has the chains of seals, which name the runs that came from another server.
	Chain *seal.Chain
	Bot   gitd.Person
	Now   func() time.Time
}

// Wish says where an export goes.
type Wish struct {
	// Repo is the repository, which has to have commits in common with the file. With New it is made.
	Repo string
	New  bool
	// Caller is the id of the caller here. If it is empty, it is that of the file, with a number if it is taken.
	Caller string
	// Dry checks the file and says where it would go. Nothing is changed.
	Dry bool
	By  gitd.Person
	// Hide makes the caller private before anybody sees it. It is called for a caller that was private on its server.
	Hide func(ctx context.Context, c record.Caller, repo string) error
}

// Imported describes an import.
type Imported struct {
	Caller  record.Caller `json:"caller"`
	Was     record.Caller `json:"was"` // its name in the file
	Repo    string        `json:"repo"`
	Created bool          `json:"created,omitempty"` // the repository
	Branch  string        `json:"branch"`
	Head    gitd.Hash     `json:"head"`
	Origin  string        `json:"origin,omitempty"`
	Runs    []string      `json:"runs"` // CALLER/RUN
	// LeftOut are the sentences of the file about work that it lacks.
	LeftOut []string `json:"left_out,omitempty"`
}

// Import takes a file in. All of its content is hostile: the objects are checked as those of a push are, names and
// records are checked, and of the records only the parts that people read are kept. Nobody gets a right by it. The refs change all
// together.
func (i *Importer) Import(ctx context.Context, in io.Reader, w Wish) (Imported, error) {
	done, err := i.importBundle(ctx, in, w)
	if err != nil {
		return Imported{}, fmt.Errorf("cannot import: %w", err)
	}
	return done, nil
}

func (i *Importer) importBundle(ctx context.Context, in io.Reader, w Wish) (Imported, error) {
	b, err := i.Git.ReceiveBundle(ctx, in)
	if err != nil {
		return Imported{}, err
	}
	defer b.Close()
	o := &opened{bundle: b, refs: make(map[string]gitd.Hash)}
	if err := o.open(ctx); err != nil {
		return Imported{}, err
	}
	to := &place{Importer: i, opened: o, wish: w}
	if err := to.choose(ctx); err != nil {
		return Imported{}, err
	}
	if w.Dry {
		return to.plan(), nil
	}
	if err := to.keepArtifacts(ctx); err != nil {
		return Imported{}, err
	}
	return to.write(ctx)
}

// opened is a file that was received.
type opened struct {
	bundle   *gitd.Received
	refs     map[string]gitd.Hash
	at       gitd.Hash // the manifest's commit
	manifest Manifest
	runs     []openedRun
	records  int64 // bytes that were read of records
	journals int64 // bytes that were read of journals
}

// openedRun is a run of a file. The manifest is nil if the file does not have its record.
type openedRun struct {
	Run
	run      record.Run
	manifest *record.Manifest
}

// open reads the manifest and the records, and compares them with the refs.
func (o *opened) open(ctx context.Context) error {
	for _, ref := range o.bundle.Refs {
		o.refs[ref.Name] = ref.Hash
		if strings.HasPrefix(ref.Name, Refs+"/") {
			if o.at != "" {
				return fmt.Errorf("%w file: it has two exports", record.ErrInvalid)
			}
			o.at = ref.Hash
		}
	}
	if o.at == "" {
		return fmt.Errorf("%w file: it is a bundle, and no export of ramus", record.ErrInvalid)
	}
	text, err := o.bundle.Repo.ReadFile(ctx, string(o.at), ManifestFile, MaxManifest)
	if err != nil {
		return fmt.Errorf("%w file: %w", record.ErrInvalid, err)
	}
	if o.manifest, err = ParseManifest(text); err != nil {
		return err
	}
	m := o.manifest
	switch {
	case o.refs[Refs+"/"+m.Caller.Slug()] != o.at:
		return fmt.Errorf("%w file: its manifest is not that of %s", record.ErrInvalid, m.Caller)
	case o.refs["refs/heads/"+m.Branch] != m.Head:
		return fmt.Errorf("%w file: its branch is not at %s", record.ErrInvalid, m.Head)
	case m.BaseCommit != "":
		if _, err := o.bundle.Repo.TreeOf(ctx, m.BaseCommit); err != nil {
			return fmt.Errorf("%w file: its base: %w", record.ErrInvalid, err)
		}
	}
	for _, r := range m.Runs {
		if err := o.openRun(ctx, r); err != nil {
			return fmt.Errorf("%w record of %s: %w", record.ErrInvalid, r.ID, err)
		}
	}
	return nil
}

// read reads a file of a record. have has the bytes of all such files, which are at most all.
func (o *opened) read(ctx context.Context, r Run, name string, most int64, have *int64, all int64) ([]byte, error) {
	text, err := o.bundle.Repo.ReadFile(ctx, string(r.Record), name, most)
	if *have += int64(len(text)); err == nil && *have > all {
		return nil, fmt.Errorf("%s: such files have more than %s together: %w", name, bytesize.Text(all), gitd.ErrTooLarge)
	}
	return text, err
}

// openRun reads the record of a run.
func (o *opened) openRun(ctx context.Context, r Run) error {
	out := openedRun{Run: r}
	defer func() { o.runs = append(o.runs, out) }()
	if r.Record == "" {
		return nil
	}
	if o.refs[record.RunRef(o.manifest.Caller, r.ID)] != r.Record {
		return errors.New("its ref is elsewhere")
	}
	repo := o.bundle.Repo
	text, err := o.read(ctx, r, "run.json", maxRecord, &o.records, maxRecords)
	if err == nil {
		err = json.Unmarshal(text, &out.run)
	}
	if err != nil {
		return err
	}
	// Of commits that the file does not have nothing is said, because the repository may have them for somebody else.
	for _, h := range []*gitd.Hash{&out.run.Start, &out.run.Head, &out.run.BaseCommit} {
		if gitd.CheckHash(*h) != nil {
			*h = ""
		} else if _, err := repo.TreeOf(ctx, *h); err != nil {
			*h = ""
		}
	}
	if out.run.Caller != o.manifest.Caller || out.run.ID != r.ID {
		return fmt.Errorf("it is that of %s", out.run.Name())
	}
	out.manifest = new(record.Manifest)
	text, err = o.read(ctx, r, record.ManifestPath, record.MaxManifest, &o.records, maxRecords)
	if err == nil {
		err = json.Unmarshal(text, out.manifest)
	}
	if err != nil {
		return err
	}
	journal, err := o.read(ctx, r, "journal.jsonl", maxJournal, &o.journals, maxJournals)
	if errors.Is(err, gitd.ErrNotFound) {
		return nil
	}
	if err == nil {
		err = record.CheckJournal(journal, maxEvents)
	}
	return err
}

// place is where a file goes.
type place struct {
	*Importer
	*opened
	wish   Wish
	repo   *gitd.Repo // nil if it is to be made
	base   string     // the branch of the repository from which the caller's is said to begin
	caller record.Caller
	have   map[string]bool // the artifacts that the file has
}

// choose finds the repository, and a free name. Nothing is changed.
func (p *place) choose(ctx context.Context) (err error) {
	p.base = p.manifest.Base
	if p.repo, err = p.Git.Repo(p.wish.Repo); p.wish.New {
		if err == nil {
			return fmt.Errorf("repository %s: %w", p.wish.Repo, gitd.ErrExists)
		}
		if !errors.Is(err, gitd.ErrNotFound) {
			return err
		}
		p.repo = nil
		if p.manifest.BaseCommit == "" {
			return fmt.Errorf("%w file: it has no base, from which a repository could be made", record.ErrInvalid)
		}
	} else if err != nil {
		return err
	} else if err := p.compare(ctx); err != nil {
		return err
	}
	if p.wish.Caller != "" {
		if p.caller, err = record.RunCaller(strings.TrimPrefix(p.wish.Caller, "run:")); err != nil {
			return err
		}
		free, err := p.free(ctx, p.caller)
		if err == nil && !free {
			err = fmt.Errorf("the name %s is taken: %w", p.caller, record.ErrConflict)
		}
		return err
	}
	for n := 1; n < 1000; n++ {
		name := p.manifest.Caller.ID()
		if n > 1 {
			name += "-" + strconv.Itoa(n)
		}
		// It is never a conversation, because those belong to threads of this server.
		if p.caller, err = record.RunCaller(name); err != nil {
			return err
		}
		if free, err := p.free(ctx, p.caller); free || err != nil {
			return err
		}
	}
	return fmt.Errorf("the name %s is taken: %w", p.manifest.Caller, record.ErrConflict)
}

// compare returns an error if the repository has nothing in common with the file.
func (p *place) compare(ctx context.Context) error {
	base, err := p.repo.Base(ctx)
	if err != nil {
		return err
	}
	if _, err := p.repo.Resolve(ctx, "refs/heads/"+p.base); errors.Is(err, gitd.ErrNotFound) {
		p.base = base
	} else if err != nil {
		return err
	}
	log, err := p.bundle.Repo.Log(ctx, string(p.manifest.Head), gitd.LogOptions{Max: 100_000})
	if err != nil {
		return err
	}
	for _, c := range log {
		if _, err := p.repo.TreeOf(ctx, c.Hash); err == nil {
			return nil
		}
	}
	return fmt.Errorf("the repository %s has no commit in common with the file; --new makes another one: %w", p.repo.Name(),
		record.ErrConflict)
}

// free reports whether nobody has the name of a caller.
func (p *place) free(ctx context.Context, c record.Caller) (bool, error) {
	if p.Taken(c) {
		return false, nil
	}
	if p.repo == nil {
		return true, nil
	}
	for _, name := range []string{"refs/heads/" + c.Branch(), record.RunsPrefix + "/" + c.Slug(), record.ConflictRefs(c),
		record.WIPRef(c)} {
		refs, err := p.repo.Refs(ctx, name)
		if err != nil || len(refs) > 0 {
			return false, err
		}
	}
	return true, nil
}

// keepArtifacts puts the files of the artifact store into that of this server.
func (p *place) keepArtifacts(ctx context.Context) error {
	p.have = make(map[string]bool)
	if len(p.manifest.Artifacts) == 0 {
		return nil
	}
	if err := os.MkdirAll(p.Dir, 0o700); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(p.Dir, "import-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	for _, a := range p.manifest.Artifacts {
		if p.have[a.SHA256] {
			continue
		}
		path := filepath.Join(dir, a.SHA256)
		if err := p.copyArtifact(ctx, a, path); err != nil {
			return fmt.Errorf("%w artifact %s: %w", record.ErrInvalid, a.SHA256, err)
		}
		if err := p.Store.Put(ctx, path, a.SHA256, a.Size); err != nil {
			return err
		}
		if err := os.Remove(path); err != nil {
			return err
		}
		p.have[a.SHA256] = true
	}
	return nil
}

// copyArtifact copies an artifact of the file, and compares it with its name.
func (p *place) copyArtifact(ctx context.Context, a Artifact, path string) error {
	in, size, err := p.bundle.Repo.OpenFile(ctx, string(p.at), artifactFolder+a.SHA256)
	if err != nil {
		return err
	}
	defer in.Close()
	if size != a.Size {
		return fmt.Errorf("it has %d bytes, not %d", size, a.Size)
	}
	out, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	sum := sha256.New()
	_, err = io.Copy(io.MultiWriter(out, sum), in)
	if err = errors.Join(err, out.Close()); err != nil {
		return err
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != a.SHA256 {
		return fmt.Errorf("its SHA-256 is %s", got)
	}
	return nil
}

// plan describes the import.
func (p *place) plan() Imported {
	m := p.manifest
	plan := Imported{Caller: p.caller, Was: m.Caller, Repo: p.wish.Repo, Created: p.repo == nil, Branch: p.caller.Branch(), Head: m.Head,
		Origin: m.Origin, LeftOut: m.LeftOut}
	for _, o := range p.runs {
		plan.Runs = append(plan.Runs, record.Run{Caller: p.caller, ID: o.ID}.Name())
	}
	return plan
}

// write makes the repository if it is to be made, and the commits and refs of the caller.
func (p *place) write(ctx context.Context) (Imported, error) {
	m, done := p.manifest, p.plan()
	var err error
	if p.repo == nil {
		p.repo, err = p.Git.CreateFrom(ctx, p.wish.Repo, p.bundle, m.Base, m.BaseCommit)
	} else {
		err = p.repo.Adopt(ctx, p.bundle)
	}
	if err != nil {
		return done, err
	}
	done.Repo = p.repo.Name()
	none := gitd.Hash("")
	updates := []gitd.RefUpdate{{Name: "refs/heads/" + done.Branch, New: m.Head, Old: &none}}
	for name, h := range p.refs {
		if rest, ok := strings.CutPrefix(name, record.ConflictRefs(m.Caller)+"/"); ok {
			updates = append(updates, gitd.RefUpdate{Name: record.ConflictRefs(p.caller) + "/" + rest, New: h, Old: &none})
		}
	}
	var runs []record.Run
	var refs []gitd.Ref
	for _, o := range p.runs {
		r, commit, err := p.writeRun(ctx, o)
		if err != nil {
			return done, err
		}
		runs = append(runs, r)
		refs = append(refs, gitd.Ref{Name: record.RunRef(r.Caller, r.ID), Hash: commit})
	}
	if m.Private && p.wish.Hide != nil {
		if err := p.wish.Hide(ctx, p.caller, done.Repo); err != nil {
			return done, err
		}
	}
	for _, r := range runs {
		if err := p.Claim(r); err != nil {
			return done, err
		}
	}
	if err := p.Chain.Import(ctx, p.repo, refs, updates...); err != nil {
		return done, err
	}
	return done, p.Index(runs...)
}

// writeRun writes the record of a run as this server has it, on top of the one in the file.
func (p *place) writeRun(ctx context.Context, o openedRun) (record.Run, gitd.Hash, error) {
	r, m := p.rewrite(o)
	c := gitd.NewCommit{Author: p.wish.By.Or(p.Bot), Committer: p.Bot, When: p.Now(), Unsigned: true,
		Message: fmt.Sprintf("%s: imported\n\n%s: %s\n%s: %s\n%s: %s\n", r.Name(), record.TrailerCaller, r.Caller,
			record.TrailerRun, r.ID, record.TrailerImported, r.Imported.Run)}
	if o.Record != "" {
		c.From, c.Parents = o.Record, []gitd.Hash{o.Record}
	} else {
		c.Parents = []gitd.Hash{p.manifest.Head}
	}
	for name, v := range map[string]any{"run.json": r, record.ManifestPath: m} {
		text, err := json.MarshalIndent(v, "", "  ")
		if err != nil {
			return r, "", err
		}
		c.Put = append(c.Put, gitd.File{Path: name, Content: text})
	}
	h, err := p.repo.WriteCommit(ctx, c)
	return r, h, err
}

// rewrite returns the run and its evidence as this server keeps them. Of the run only the fields stay that people
// read: no session, no origin, no other repository, no secret and no question. It has ended.
func (p *place) rewrite(o openedRun) (record.Run, record.Manifest) {
	was, from := o.run, p.manifest
	r := record.Run{ID: o.ID, Caller: p.caller, Kind: o.Kind, Repo: p.repo.Name(), Base: p.base, BaseCommit: from.BaseCommit,
		Branch: p.caller.Branch(), Head: from.Head, Asker: p.wish.By.Or(p.Bot), State: record.StateFailed,
		Reason: record.ReasonInterrupted, Error: "it had not ended when it was exported", CreatedAt: from.Time, EndedAt: from.Time,
		Imported: &record.Imported{Origin: from.Origin, Run: from.Caller.String() + "/" + o.ID, Exported: from.By,
			Asker: text.Clip(was.Asker.Name, maxText), By: p.wish.By, Time: p.Now().UTC().Truncate(time.Second)}}
	if o.manifest == nil || !slices.Contains(kinds, r.Kind) {
		r.Kind = record.KindExec
	}
	m := record.Manifest{Commands: []record.ManifestCommand{}, Changed: []gitd.Change{}, Files: []record.ManifestFile{}}
	if o.manifest != nil {
		m = *o.manifest
		r.Start, r.Head, r.BaseCommit = was.Start, was.Head, was.BaseCommit
		r.Workflow, r.Command = text.Clip(was.Workflow, maxText), text.Clip(was.Command, maxWords)
		r.Step, r.Exit, r.Image, r.Usage = text.Clip(was.Step, maxText), was.Exit, text.Clip(was.Image, maxText), was.Usage
		r.CreatedAt, r.StartedAt, r.EndedAt = was.CreatedAt, was.StartedAt, was.EndedAt
		if was.Ended() {
			r.State, r.Reason, r.Error = was.State, was.Reason, text.Clip(was.Error, maxWords)
		}
		r.Imported.Verdict = m.Verdict
	}
	switch r.Kind {
	case record.KindExec:
		r.Exec = &record.Command{Shell: r.Command}
	case record.KindTask:
		r.Task = &record.TaskCall{Name: r.Command}
		if was.Task != nil {
			r.Task.Name = text.Clip(was.Task.Name, maxText)
		}
	case record.KindAgent:
		r.Agent = new(record.AgentCall)
		if a := was.Agent; a != nil {
			r.Agent = &record.AgentCall{Name: text.Clip(a.Name, maxText), Prompt: text.Clip(a.Prompt, 64<<10),
				Title: text.Clip(a.Title, maxText)}
		}
	case record.KindTerminal:
		r.Terminal = new(record.TerminalCall)
	}
	p.clean(&m, r)
	return r, m
}

// kinds are the kinds of runs that an import keeps. A conversation belongs to its server.
var kinds = []record.Kind{record.KindWorkflow, record.KindExec, record.KindTask, record.KindAgent, record.KindTerminal}

// clean makes evidence of another server evidence of an import, which verifies nothing here.
func (p *place) clean(m *record.Manifest, r record.Run) {
	m.Run, m.Kind, m.State, m.Reason, m.Error = r.Name(), r.Kind, r.State, r.Reason, r.Error
	m.Repo, m.Branch, m.Base, m.BaseCommit, m.Start, m.Head = r.Repo, r.Branch, r.Base, r.BaseCommit, r.Start, r.Head
	m.CreatedAt, m.StartedAt, m.EndedAt = r.CreatedAt, r.StartedAt, r.EndedAt
	m.Merged, m.Pull, m.Policy, m.With, m.Imported = "", nil, nil, nil, r.Imported
	m.Verdict = record.VerdictUnverified
	m.Unverified = append([]string{"another server made this evidence, and this one has not checked it"}, m.Unverified...)
	files, lost := []record.ManifestFile{}, 0
	for _, f := range m.Files {
		switch {
		case !isSum(f.SHA256) || f.Size < 0 || f.Stored && !p.have[f.SHA256]:
			lost++
		default:
			files = append(files, f)
		}
	}
	if m.Files = files; lost > 0 {
		m.Unverified = append(m.Unverified, fmt.Sprintf("files that are not in the file that was imported (%d)", lost))
	}
}
