package runs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/executor/index"
	"github.com/ramus-dev/ramus/executor/live"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/store"
	"github.com/ramus-dev/ramus/gitd"
)

// Reader reads the runs of all callers. Its fields are set before the first use, and all are required. Methods are safe for
// concurrent use.
type Reader struct {
	// Context ends with the server. Watch ends with it too.
	Context context.Context
	Git     *gitd.Server
	// Fleet tells the containers of callers.
	Fleet  *containers.Fleet
	Index  *index.Index
	Folder *live.Folder
	// Artifacts has the files that are too large for git.
	Artifacts *store.Store
	// Live has the runs at work.
	Live Live
}

// Live are the runs that work in this process, or wait in line.
type Live interface {
	// AtWork returns one of them, or nil.
	AtWork(c record.Caller, id string) *live.Run
	// AllAtWork returns all of them by name.
	AllAtWork() map[string]*live.Run
}

// Current returns every run, the ones at work as they are now and the others as sealed.
func (rd *Reader) Current() []record.Run {
	// Look at live runs before the index. A run that ends is in the index before it leaves them.
	live := rd.Live.AllAtWork()
	runs := rd.Index.All()
	for i := range runs {
		if l := live[runs[i].Name()]; l != nil && l.Initial.Repo == runs[i].Repo {
			runs[i] = l.Snapshot()
		}
	}
	return runs
}

// Runs returns runs, newest first.
func (rd *Reader) Runs(_ context.Context, f record.Filter) ([]record.Run, error) {
	all := rd.Current()
	runs := []record.Run{}
	for _, r := range all {
		if f.Match(r) {
			runs = append(runs, r)
		}
	}
	sort.SliceStable(runs, func(i, j int) bool { return Newer(runs[i], runs[j]) })
	if f.Max <= 0 {
		f.Max = 100
	}
	return runs[:min(len(runs), f.Max)], nil
}

// Run returns a run by "CALLER/RUN", by caller (its latest run), by id, or by a unique part of one.
func (rd *Reader) Run(ctx context.Context, name string) (record.Run, error) {
	if name == "" {
		return record.Run{}, fmt.Errorf("%w run: it has no name", record.ErrInvalid)
	}
	caller, id, both := strings.Cut(name, "/")
	like := func(c record.Caller) bool { return strings.Contains(c.String(), caller) }
	if c, err := record.ParseCaller(caller); both && err == nil {
		if r, known := rd.Find(c, id); known {
			return r, nil
		}
		like = func(other record.Caller) bool { return other == c }
	}
	all := rd.Current()
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
		if c, err := rd.Caller(ctx, name); err == nil {
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

// Find returns the run of a caller with this id, in any repository. Unlike [Reader.Run] it looks nowhere else, and takes no
// time.
func (rd *Reader) Find(c record.Caller, id string) (record.Run, bool) {
	// Look at live runs before the index. An ending run is written to the index first and leaves Live second, so the other
	// order could return it as it was when it began.
	l := rd.Live.AtWork(c, id)
	r, known := rd.Index.Get(c, id)
	if !known {
		return record.Run{}, false
	}
	if l != nil && l.Initial.Repo == r.Repo {
		return l.Snapshot(), true
	}
	return r, true
}

// OfCaller returns a caller's runs as they are now, oldest first.
func (rd *Reader) OfCaller(c record.Caller) []record.Run {
	runs := rd.Index.OfCaller(c)
	for i := range runs {
		if now, ok := rd.Find(c, runs[i].ID); ok && now.Repo == runs[i].Repo {
			runs[i] = now
		}
	}
	sort.SliceStable(runs, func(i, j int) bool { return Newer(runs[j], runs[i]) })
	return runs
}

// Untold returns the runs with an Origin that may not know of their end, oldest first. They are claimed, at work,
// waiting for a person, or ended.
func (rd *Reader) Untold(context.Context) ([]record.Run, error) {
	var runs []record.Run
	for _, r := range rd.Current() {
		if r.Origin != nil && r.Told == nil && !r.Sub {
			runs = append(runs, r)
		}
	}
	sort.SliceStable(runs, func(i, j int) bool { return Newer(runs[j], runs[i]) })
	return runs, nil
}

// WorksIn returns the names of the additional repositories in which a caller has worked, from the index alone.
func (rd *Reader) WorksIn(c record.Caller) []string {
	var names []string
	for _, r := range rd.OfCaller(c) {
		for _, a := range r.With {
			if !slices.Contains(names, a.Repo) {
				names = append(names, a.Repo)
			}
		}
	}
	return names
}

// Standing returns the runs of KindConversation, oldest first.
func (rd *Reader) Standing() []record.Run {
	runs := slices.DeleteFunc(rd.Index.All(), func(r record.Run) bool { return r.Kind != record.KindConversation })
	sort.SliceStable(runs, func(i, j int) bool { return Newer(runs[j], runs[i]) })
	return runs
}

// HomeRepo returns a caller's repository and base. Runs that were only requested determine neither, because everybody who
// may write in a thread can name a base.
func (rd *Reader) HomeRepo(ctx context.Context, c record.Caller) (*gitd.Repo, string, error) {
	runs := rd.Index.OfCaller(c)
	without := map[string]bool{} // repositories
	for _, r := range slices.Backward(runs) {
		if r.Passive() || without[r.Repo] {
			continue
		}
		repo, err := rd.Git.Repo(r.Repo)
		if err != nil {
			continue // removed since, so another repository may have the caller
		}
		if _, err := repo.Resolve(ctx, "refs/heads/"+c.Branch()); err == nil {
			return repo, r.Base, nil
		}
		without[r.Repo] = true
	}
	return nil, "", fmt.Errorf("caller %s: %w", c, record.ErrNotFound)
}

// Newer reports whether a run was made after another one. Runs of one moment are ordered by name.
func Newer(a, b record.Run) bool {
	if !a.CreatedAt.Equal(b.CreatedAt) {
		return a.CreatedAt.After(b.CreatedAt)
	}
	return a.Name() > b.Name()
}

// Meant returns the runs that a name means, one run or all live ones of a caller.
func (rd *Reader) Meant(ctx context.Context, name string) ([]record.Run, record.Caller, error) {
	if !strings.Contains(name, "/") {
		c, err := rd.Caller(ctx, name)
		if err == nil {
			runs, err := rd.Runs(ctx, record.Filter{Caller: c.Caller.String(), Live: true, Max: 10000})
			return runs, c.Caller, err
		}
		if !errors.Is(err, record.ErrNotFound) {
			return nil, record.Caller{}, err
		}
	}
	r, err := rd.Run(ctx, name)
	return []record.Run{r}, record.Caller{}, err
}

// WithKey returns the run of a request that names a key and no caller, if the same person made it before. The request
// that began the run drew its caller.
func (rd *Reader) WithKey(repo, key string, by gitd.Person) (record.Run, bool) {
	for _, r := range rd.Index.All() {
		if r.ID == key && r.Repo == repo && samePerson(r.Asker, by) && r.Drawn {
			if now, ok := rd.Find(r.Caller, r.ID); ok {
				return now, true
			}
		}
	}
	return record.Run{}, false
}

// samePerson reports whether two requests come from one person. Records of earlier versions have no ids.
func samePerson(a, b gitd.Person) bool {
	if a.ID != "" && b.ID != "" {
		return a.ID == b.ID
	}
	return a.Name == b.Name && a.Email == b.Email
}
