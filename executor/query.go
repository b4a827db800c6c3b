package executor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"

	"github.com/ramus-dev/ramus/executor/archive"
	"github.com/ramus-dev/ramus/executor/index"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/store"
	"github.com/ramus-dev/ramus/gitd"
)

// current returns every run, the ones at work as they are now and the others as sealed.
func (x *Executor) current() []record.Run {
	// Look at live runs before the index. A run that ends is in the index before it leaves them.
	live := x.runs.all()
	runs := x.index.All()
	for i := range runs {
		if l := live[runs[i].Name()]; l != nil && l.Initial.Repo == runs[i].Repo {
			runs[i] = l.Snapshot()
		}
	}
	return runs
}

// Runs returns runs, newest first.
func (x *Executor) Runs(_ context.Context, f record.Filter) ([]record.Run, error) {
	all := x.current()
	runs := []record.Run{}
	for _, r := range all {
		if f.Match(r) {
			runs = append(runs, r)
		}
	}
	sort.SliceStable(runs, func(i, j int) bool { return newer(runs[i], runs[j]) })
	if f.Max <= 0 {
		f.Max = 100
	}
	return runs[:min(len(runs), f.Max)], nil
}

func newer(a, b record.Run) bool {
	if !a.CreatedAt.Equal(b.CreatedAt) {
		return a.CreatedAt.After(b.CreatedAt)
	}
	return a.Name() > b.Name()
}

// Run returns a run by "CALLER/RUN", by caller (its latest run), by id, or by a unique part of one.
func (x *Executor) Run(ctx context.Context, name string) (record.Run, error) {
	if name == "" {
		return record.Run{}, fmt.Errorf("%w run: it has no name", record.ErrInvalid)
	}
	caller, id, both := strings.Cut(name, "/")
	like := func(c record.Caller) bool { return strings.Contains(c.String(), caller) }
	if c, err := record.ParseCaller(caller); both && err == nil {
		if r, known := x.Find(c, id); known {
			return r, nil
		}
		like = func(other record.Caller) bool { return other == c }
	}
	all := x.current()
	var found []record.Run
	for _, r := range all {
		if both && r.Caller.Is(caller) && r.ID == id || !both && r.ID == name {
			return r, nil
		}
		if both && like(r.Caller) && strings.Contains(r.ID, id) || !both && strings.Contains(r.ID, name) {
			found = append(found, r)
		}
	}
	if !both {
		if c, err := x.Caller(ctx, name); err == nil {
			return c.Last, nil
		} else if !errors.Is(err, record.ErrNotFound) {
			return record.Run{}, err
		}
	}
	switch len(found) {
	case 0:
		return record.Run{}, fmt.Errorf("run %q: %w; `ramus ps` lists them", name, record.ErrNotFound)
	case 1:
		return found[0], nil
	}
	return record.Run{}, fmt.Errorf("run %q: %w: %s and %d more", name, record.ErrAmbiguous, found[0].Name(), len(found)-1)
}

// Callers returns callers, the most recently active first.
func (x *Executor) Callers(ctx context.Context, f record.Filter) ([]CallerStatus, error) {
	list := x.callers(f)
	if err := x.lookAt(ctx, list); err != nil {
		return nil, err
	}
	return list, nil
}

// callers returns Callers without the fields that come from git and from containers.
func (x *Executor) callers(f record.Filter) []CallerStatus {
	all := x.current
	if c, err := record.ParseCaller(f.Caller); err == nil {
		all = func() []record.Run { return x.OfCaller(c) } // in thousands of threads each asks for its own
	}
	byCaller := make(map[string]*CallerStatus)
	list := []*CallerStatus{}
	for _, r := range all() {
		key := r.Repo + " " + r.Caller.String()
		c := byCaller[key]
		if c == nil {
			c = &CallerStatus{Caller: r.Caller, Repo: r.Repo, Branch: r.Branch, Last: r}
			byCaller[key] = c
			list = append(list, c)
		}
		c.Runs++
		for _, a := range r.With {
			if at, have := slices.BinarySearch(c.With, a.Repo); !have {
				c.With = slices.Insert(c.With, at, a.Repo)
			}
		}
		if a, b := c.Last.Aside(), r.Aside(); a && !b || a == b && newer(r, c.Last) {
			c.Last = r
		}
	}
	kept := []CallerStatus{}
	sort.SliceStable(list, func(i, j int) bool { return newer(list[i].Last, list[j].Last) })
	if f.Max <= 0 {
		f.Max = 100
	}
	for _, c := range list {
		if !f.Match(c.Last) {
			continue
		}
		if len(kept) == f.Max {
			break
		}
		kept = append(kept, *c)
	}
	return kept
}

// lookAt sets the fields of callers that come from git and from their containers.
func (x *Executor) lookAt(ctx context.Context, list []CallerStatus) error {
	keys := make([]string, len(list))
	at := make(map[string][]*CallerStatus, len(list))
	for i := range list {
		c := &list[i]
		keys[i] = c.Caller.String()
		at[keys[i]] = append(at[keys[i]], c)
		repo, err := x.Git.Repo(c.Repo)
		if err != nil {
			continue
		}
		if c.Head, err = repo.Resolve(ctx, "refs/heads/"+c.Branch); err != nil && !errors.Is(err, gitd.ErrNotFound) {
			return err
		}
		if c.Kept, err = repo.Resolve(ctx, record.WIPRef(c.Caller)); err != nil && !errors.Is(err, gitd.ErrNotFound) {
			return err
		}
	}
	if len(keys) == 0 {
		return nil // List would return all
	}
	hosts := x.Fleet.List(ctx, keys...)
	for i := range hosts {
		for _, c := range at[hosts[i].Key] {
			c.Container = &hosts[i]
		}
	}
	return nil
}

// Caller returns a caller by "run:ID", by "ID", by its branch, or by a unique part of these. "run:ID" is a whole
// name, so it never matches a caller with a longer name.
func (x *Executor) Caller(ctx context.Context, name string) (CallerStatus, error) {
	c, err := x.Named(name)
	if err != nil {
		return c, err
	}
	found := []CallerStatus{c}
	err = x.lookAt(ctx, found)
	return found[0], err
}

// Named is [Executor.Caller] from the index alone, without branch and container. It takes no time, also if the container has just
// been lost.
func (x *Executor) Named(name string) (CallerStatus, error) {
	if name == "" {
		return CallerStatus{}, fmt.Errorf("%w caller: it has no name", record.ErrInvalid)
	}
	name = strings.TrimPrefix(name, "ramus/")
	f := record.Filter{Max: 1 << 30}
	if _, err := record.ParseCaller(name); err == nil {
		f.Caller = name // the others need not be looked at
	}
	var found []CallerStatus
	for _, c := range x.callers(f) {
		if c.Caller.Is(name) {
			found = []CallerStatus{c}
			break
		}
		if strings.Contains(c.Caller.String(), name) {
			found = append(found, c)
		}
	}
	switch len(found) {
	case 0:
		return CallerStatus{}, fmt.Errorf("caller %q: %w; `ramus ps` lists them", name, record.ErrNotFound)
	case 1:
		return found[0], nil
	}
	return CallerStatus{}, fmt.Errorf("caller %q: %w: %s and %d more", name, record.ErrAmbiguous, found[0].Caller,
		len(found)-1)
}

// Events follows a run from after a sequence number. It yields the journal's events, then the output so far of steps that began
// after that number and are at work, then new events and live output, until the run has ended or waits for a person, or ctx ends.
// Without follow it stops at the journal's end.
func (x *Executor) Events(ctx context.Context, run string, after int64, follow bool) iter.Seq2[record.Event, error] {
	return x.events(ctx, run, after, record.Span{}, follow)
}

// EventsFrom is Events with follow, for a reader that has the standard output of the step that began with have.Seq up to the byte
// have.To. The next output of that step begins there, or later. [Executor.Words] reads the words between the two.
func (x *Executor) EventsFrom(ctx context.Context, run string, after int64, have record.Span) iter.Seq2[record.Event, error] {
	return x.events(ctx, run, after, have, true)
}

func (x *Executor) events(ctx context.Context, run string, after int64, have record.Span, follow bool) iter.Seq2[record.Event, error] {
	return func(yield func(record.Event, error) bool) {
		r, err := x.Run(ctx, run)
		if err != nil {
			yield(record.Event{}, err)
			return
		}
		l := x.runs.alive(r.Caller, r.ID)
		if l == nil {
			events, err := x.sealedEvents(ctx, r)
			if err != nil {
				yield(record.Event{}, err)
				return
			}
			for _, e := range events {
				if e.Seq > after && !yield(e, nil) {
					return
				}
			}
			return
		}
		if !follow {
			for _, e := range l.Journalled() {
				if e.Seq > after && !yield(e, nil) {
					return
				}
			}
			return
		}
		f := l.Follow(after, have)
		defer l.Unfollow(f)
		for e := range f.Events(ctx) {
			if !yield(e, nil) {
				return
			}
		}
	}
}

// sealedEvents returns the journal of a run that is not at work here.
func (x *Executor) sealedEvents(ctx context.Context, r record.Run) ([]record.Event, error) {
	repo, err := x.Git.Repo(r.Repo)
	if err != nil {
		return nil, err
	}
	text, err := repo.ReadFile(ctx, record.RunRef(r.Caller, r.ID), archive.JournalFile, 1<<30)
	if errors.Is(err, gitd.ErrNotFound) {
		// It is not sealed, because the server that worked on it ended. Its journal is in live/.
		text, err = os.ReadFile(x.folder.Journal(r))
		if errors.Is(err, os.ErrNotExist) {
			return nil, nil
		}
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the journal of %s: %w", r.Name(), err)
	}
	return record.ParseJournal(text)
}

// Watch follows the events of every run from now on, or of every run of one caller.
func (x *Executor) Watch(ctx context.Context, caller string) iter.Seq2[record.Event, error] {
	return func(yield func(record.Event, error) bool) {
		var c record.Caller
		if caller != "" {
			status, err := x.Caller(ctx, caller)
			if err != nil {
				yield(record.Event{}, err)
				return
			}
			c = status.Caller
		}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(x.ctx, cancel)()
		f := x.folder.Watch(c)
		defer x.folder.Unwatch(f)
		for e := range f.Events(ctx) {
			if !yield(e, nil) {
				return
			}
		}
	}
}

// Output opens a command's whole output. stream is "stdout" or "stderr". Of a command that is at work it gives the output so far.
func (x *Executor) Output(ctx context.Context, run, step, stream string) (io.ReadCloser, error) {
	if stream != "stdout" && stream != "stderr" {
		return nil, fmt.Errorf("%w stream %q: stdout or stderr", record.ErrInvalid, stream)
	}
	r, err := x.Run(ctx, run)
	if err != nil {
		return nil, err
	}
	var seq int64 = -1
	for e, err := range x.Events(ctx, r.Name(), 0, false) {
		if err != nil {
			return nil, err
		}
		if e.Step == step && e.Type == record.EventStepStarted {
			seq = e.Seq
		}
	}
	if seq < 0 {
		return nil, fmt.Errorf("step %q of %s: %w", step, r.Name(), record.ErrNotFound)
	}
	name := fmt.Sprintf("%04d-%s.%s", seq, record.FileName(step), stream)
	f, err := os.Open(filepath.Join(x.folder.Output(r), name))
	if err == nil {
		return f, nil
	}
	out, err := x.Artifact(ctx, r.Name(), "output/"+name)
	if errors.Is(err, record.ErrNotFound) {
		return io.NopCloser(bytes.NewReader(nil)), nil // it printed nothing
	}
	return out, err
}

// Artifact opens a file of a run's evidence by its name in the manifest, such as "artifacts/report.html". The run must have ended
// or wait for a person.
func (x *Executor) Artifact(ctx context.Context, run, name string) (*store.File, error) {
	r, err := x.Run(ctx, run)
	if err != nil {
		return nil, err
	}
	m, err := x.Manifest(ctx, r.Name())
	if err != nil {
		return nil, err
	}
	for _, f := range m.Files {
		if f.Name == name {
			return x.OpenFile(ctx, r, f)
		}
	}
	return nil, fmt.Errorf("artifact %q of %s: %w", name, r.Name(), record.ErrNotFound)
}

// OpenFile opens a file that a run's manifest names, from git or the artifact store.
func (x *Executor) OpenFile(ctx context.Context, r record.Run, f record.ManifestFile) (*store.File, error) {
	if f.Stored {
		return x.artifacts.Open(ctx, f)
	}
	repo, err := x.Git.Repo(r.Repo)
	if err != nil {
		return nil, err
	}
	return store.OpenFile(f, func() (io.ReadCloser, error) {
		in, _, err := repo.OpenFile(ctx, record.RunRef(r.Caller, r.ID), f.Name)
		if errors.Is(err, gitd.ErrNotFound) {
			err = fmt.Errorf("cannot open %q: %w: it is not in the run's ref", f.Name, record.ErrDamaged)
		}
		return in, err
	})
}

// Manifest returns the evidence of a run that has ended or waits for a person.
func (x *Executor) Manifest(ctx context.Context, run string) (record.Manifest, error) {
	r, err := x.Run(ctx, run)
	if err != nil {
		return record.Manifest{}, err
	}
	repo, err := x.Git.Repo(r.Repo)
	if err != nil {
		return record.Manifest{}, err
	}
	var m record.Manifest
	text, err := repo.ReadFile(ctx, record.RunRef(r.Caller, r.ID), record.ManifestPath, record.MaxManifest)
	if errors.Is(err, gitd.ErrNotFound) {
		return m, fmt.Errorf("the evidence of %s: %w: it is made when the run ends", r.Name(), record.ErrNotFound)
	}
	if err == nil {
		err = json.Unmarshal(text, &m)
	}
	if err != nil {
		return m, fmt.Errorf("cannot read the evidence of %s: %w", r.Name(), err)
	}
	return m, nil
}

// Reindex rebuilds the index from refs alone.
func (x *Executor) Reindex(ctx context.Context) (int, error) {
	return x.index.Rebuild(func() ([]record.Run, error) { return index.ReadRuns(ctx, x.Git) })
}

// Stats returns the numbers of /metrics and /health.
func (x *Executor) Stats() Stats {
	trees := x.trees.Counts()
	s := Stats{
		Runs:         x.runs.counts(),
		Hosts:        make(map[string]int),
		Commands:     x.commands.Load(),
		Commits:      x.commits.Load(),
		Capacity:     x.Fleet.Places(),
		EngineAway:   !x.Fleet.Answered(),
		Bound:        trees.Bound,
		Snapshots:    trees.Snapshots,
		Hashed:       trees.Hashed,
		Portable:     trees.Portable,
		Layers:       trees.Layers,
		BranchLayers: trees.BranchLayers,
		Salvaged:     trees.Salvaged,
	}
	s.Mounted, s.Unpacked = x.deps.Counts()
	s.ChecksRun, s.ChecksReused = x.checksRun.Load(), x.checksReused.Load()
	w := &x.warming
	s.WarmUps = WarmUps{Begun: w.begun.Load(), Refused: w.refused.Load(), Taken: w.taken.Load(), GivenBack: w.givenBack.Load()}
	s.Cleared, s.Clearing = x.Fleet.Cleared()
	for _, h := range x.Fleet.List(x.ctx) {
		s.Hosts[h.State]++
		if h.State == "queued" {
			s.Queue++
		}
	}
	return s
}

// countCheck counts a check that has ended.
func (x *Executor) countCheck(reused bool) {
	if reused {
		x.checksReused.Add(1)
	} else {
		x.checksRun.Add(1)
	}
}

func (x *Executor) count(committed bool) {
	x.commands.Add(1)
	if committed {
		x.commits.Add(1)
	}
}
