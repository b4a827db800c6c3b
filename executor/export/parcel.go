package export

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/store"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/bytesize"
)

// MaxArtifacts bounds the artifacts of the artifact store in one export, in bytes.
const MaxArtifacts = 1 << 30

// Runs has the records of runs.
type Runs interface {
	OpenFile(ctx context.Context, r record.Run, f record.ManifestFile) (*store.File, error)
	Events(ctx context.Context, run string, after int64, follow bool) iter.Seq2[record.Event, error]
	Output(ctx context.Context, run, step, stream string) (io.ReadCloser, error)
}

// Exporter makes parcels of the work in one repository. Its fields are required, unless they say otherwise.
type Exporter struct {
	Runs Runs
	Repo *gitd.Repo
	// Dir is where artifacts are until the parcel is closed. It is made if it is not there.
	Dir string
	Bot gitd.Person
	Now func() time.Time
	// Most bounds the artifacts, and the recordings of terminals, in bytes. 0 means [MaxArtifacts].
	Most int64
}

// Request describes an export.
type Request struct {
	// Runs are the runs of one caller that are exported, the oldest first.
	Runs []record.Run
	// One is true for the export of one run. Its branch ends where the run ended.
	One              bool
	WithoutArtifacts bool // of the artifact store
	// Origin, Version, By and Private are those of the manifest.
	Origin, Version, By string
	Private             bool
}

// Parcel is an export that is ready to be written.
type Parcel struct {
	Manifest Manifest
	repo     *gitd.Repo
	bundle   gitd.Bundle
	dir      string
}

// Close removes the copies of artifacts.
func (p *Parcel) Close() error { return os.RemoveAll(p.dir) }

// Write writes the file.
func (p *Parcel) Write(ctx context.Context, w io.Writer) error {
	return p.repo.WriteBundle(ctx, p.bundle, w)
}

// Prepare gathers an export. The caller closes the parcel. The error is a [gitd.ErrTooLarge] if the artifacts have more
// bytes than the bound.
func (e *Exporter) Prepare(ctx context.Context, q Request) (_ *Parcel, err error) {
	if len(q.Runs) == 0 {
		return nil, fmt.Errorf("cannot export: %w: there is no run", record.ErrNotFound)
	}
	last := q.Runs[len(q.Runs)-1]
	name := last.Caller.String()
	if q.One {
		name = last.Name()
	}
	p := &Parcel{repo: e.Repo, Manifest: Manifest{Format: format, Origin: q.Origin, Version: q.Version, By: q.By,
		Time: e.Now().UTC().Truncate(time.Second), Caller: last.Caller, Repo: e.Repo.Name(), Branch: last.Caller.Branch(),
		Base: last.Base, BaseCommit: last.BaseCommit, Private: q.Private}}
	if err := os.MkdirAll(e.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("cannot export %s: %w", name, err)
	}
	if p.dir, err = os.MkdirTemp(e.Dir, "export-"); err != nil {
		return nil, fmt.Errorf("cannot export %s: %w", name, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("cannot export %s: %w", name, err), p.Close())
		}
	}()
	w := &packing{Exporter: e, Parcel: p, Request: q, sums: make(map[string]bool)}
	if err := w.branch(ctx, last); err != nil {
		return nil, err
	}
	for _, r := range q.Runs {
		if err := w.run(ctx, r); err != nil {
			return nil, err
		}
	}
	if err := w.finish(); err != nil {
		return nil, err
	}
	return p, nil
}

// packing is the making of one parcel.
type packing struct {
	*Exporter
	*Parcel
	Request
	files []gitd.File // of the manifest's commit
	sums  map[string]bool
	bytes int64 // of artifacts
	out   int   // artifacts that were left out
	casts int64 // bytes of recordings

	unrecorded int // terminals whose recordings were left out
}

// add adds a ref, unless its commit is empty.
func (w *packing) add(name string, h gitd.Hash) {
	if h != "" {
		w.bundle.Refs = append(w.bundle.Refs, gitd.Ref{Name: name, Hash: h})
	}
}

// branch adds the branch of the caller, its base, and the work that the branch could not have.
func (w *packing) branch(ctx context.Context, last record.Run) error {
	m := &w.Manifest
	head := cmp.Or(last.Head, last.Start)
	if !w.One {
		tip, err := w.Exporter.Repo.Resolve(ctx, "refs/heads/"+m.Branch)
		if err != nil && !errors.Is(err, gitd.ErrNotFound) {
			return err
		}
		if head = cmp.Or(tip, head); tip == "" {
			m.LeftOut = append(m.LeftOut, "the branch was deleted; this is its last commit that is known")
		}
	}
	if head == "" {
		return fmt.Errorf("%w: it has no commit yet", record.ErrConflict)
	}
	m.Head = head
	w.bundle.Head = "refs/heads/" + m.Branch
	w.add(w.bundle.Head, head)
	if m.BaseCommit != head && m.Base != m.Branch {
		w.add("refs/heads/"+m.Base, m.BaseCommit)
	}
	if !w.One {
		comments, err := w.Exporter.Repo.Resolve(ctx, record.ReviewRef(m.Caller))
		if err != nil && !errors.Is(err, gitd.ErrNotFound) {
			return err
		}
		w.add(record.ReviewRef(m.Caller), comments)
	}
	kept, err := w.Exporter.Repo.Refs(ctx, record.ConflictRefs(m.Caller))
	for _, ref := range kept {
		if !w.One || strings.HasPrefix(ref.Name, record.ConflictRefs(m.Caller)+"/"+last.ID+"-") {
			w.add(ref.Name, ref.Hash)
		}
	}
	return err
}

// run adds the record of a run.
func (w *packing) run(ctx context.Context, r record.Run) error {
	ref := record.RunRef(r.Caller, r.ID)
	out := Run{ID: r.ID, Kind: r.Kind, State: r.State}
	text, err := w.Exporter.Repo.ReadFile(ctx, ref, record.ManifestPath, record.MaxManifest)
	if err != nil && !errors.Is(err, gitd.ErrNotFound) {
		return err
	}
	if err == nil {
		if out.Record, err = w.Exporter.Repo.Resolve(ctx, ref); err != nil {
			return err
		}
		w.add(ref, out.Record)
		w.add(tags+r.Caller.Slug()+"/run/"+r.ID, out.Record)
		var m record.Manifest
		if err := json.Unmarshal(text, &m); err != nil {
			return fmt.Errorf("the evidence of %s: %w", r.ID, err)
		}
		if err := w.artifacts(ctx, r, m.Files); err != nil {
			return err
		}
	}
	if r.Kind == record.KindTerminal && out.Record != "" {
		if err := w.record(ctx, r); err != nil {
			return err
		}
	}
	if !r.Ended() {
		note := fmt.Sprintf("run %s has not ended (%s): its commits so far are here", r.ID, r.State)
		if out.Record == "" {
			note += ", its record is not"
		} else {
			note += ", and its record is that of the time when it waited"
		}
		w.Manifest.LeftOut = append(w.Manifest.LeftOut, note)
	}
	for _, a := range r.With {
		w.Manifest.LeftOut = append(w.Manifest.LeftOut, fmt.Sprintf("run %s also worked in the repository %s", r.ID, a.Repo))
	}
	w.Manifest.Runs = append(w.Manifest.Runs, out)
	return nil
}

// record adds the recording of a terminal in which a command was typed. After the bound it adds none.
func (w *packing) record(ctx context.Context, r record.Run) error {
	if w.casts >= w.most() {
		w.unrecorded++
		return nil
	}
	name := r.ID + ".cast"
	f, err := os.Create(filepath.Join(w.dir, name))
	if err != nil {
		return err
	}
	commands, err := Cast(ctx, w.Exporter.Runs, r, f)
	if size, seekErr := f.Seek(0, io.SeekCurrent); seekErr == nil {
		w.casts += size
	}
	if err = errors.Join(err, f.Close()); err != nil || commands == 0 {
		return err
	}
	w.files = append(w.files, gitd.File{Path: terminalFolder + name, Source: f.Name()})
	w.Manifest.Terminals = append(w.Manifest.Terminals, Terminal{Run: r.ID, File: terminalFolder + name})
	return nil
}

func (w *packing) most() int64 { return cmp.Or(w.Most, MaxArtifacts) }

// artifacts copies the files of a run that are in the artifact store.
func (w *packing) artifacts(ctx context.Context, r record.Run, files []record.ManifestFile) error {
	most := w.most()
	for _, f := range files {
		if !f.Stored || w.sums[f.SHA256] {
			continue
		}
		w.sums[f.SHA256] = true
		if w.WithoutArtifacts {
			w.out++
			continue
		}
		if w.bytes += f.Size; w.bytes > most {
			return fmt.Errorf("its large artifacts have more than the %s that an export may have; --without-artifacts leaves them out: %w",
				bytesize.Text(most), gitd.ErrTooLarge)
		}
		place := filepath.Join(w.dir, f.SHA256)
		if err := w.copy(ctx, r, f, place); err != nil {
			return err
		}
		w.files = append(w.files, gitd.File{Path: artifactFolder + f.SHA256, Source: place})
		w.Manifest.Artifacts = append(w.Manifest.Artifacts, Artifact{SHA256: f.SHA256, Size: f.Size})
	}
	return nil
}

func (w *packing) copy(ctx context.Context, r record.Run, f record.ManifestFile, place string) error {
	in, err := w.Exporter.Runs.OpenFile(ctx, r, f)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(place, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// finish adds the commit of the manifest.
func (w *packing) finish() error {
	m := &w.Manifest
	if w.out > 0 {
		m.LeftOut = append(m.LeftOut, fmt.Sprintf("large artifacts (%d)", w.out))
	}
	if w.unrecorded > 0 {
		m.LeftOut = append(m.LeftOut, fmt.Sprintf("recordings of terminals (%d)", w.unrecorded))
	}
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	if len(text) > MaxManifest {
		return fmt.Errorf("its manifest has more than %d bytes: %w", MaxManifest, gitd.ErrTooLarge)
	}
	files := slices.Concat([]gitd.File{{Path: ManifestFile, Content: append(text, '\n')}}, w.files)
	ref := Refs + "/" + m.Caller.Slug()
	w.bundle.Extra = map[string]gitd.NewCommit{ref: {Put: files, Author: w.Bot, When: m.Time,
		Message: fmt.Sprintf("Export %s\n\n%d runs, made by %s", m.Caller, len(m.Runs), m.By)}}
	w.bundle.Tags = map[string]string{tags + m.Caller.Slug() + "/export": ref}
	return nil
}
