package step

import (
	"runtime"
	"sync"
	"weak"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/worktree"
	"github.com/ramus-dev/ramus/gitd"
)

// Targets has one target for each caller. A target is known as long as a run, a container's door or anything else holds it.
// Then it is forgotten, with its knowledge of the container. Methods are safe for concurrent use.
type Targets struct {
	// Runner makes targets. It is set before the first call of Of.
	Runner *Runner

	mu    sync.Mutex // guards known
	known map[record.Caller]weak.Pointer[Target]
}

// Of returns the target of a caller of a repository. It makes one if none is known.
func (ts *Targets) Of(c record.Caller, repo *gitd.Repo, base string) *Target {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	t := ts.known[c].Value()
	if t == nil || t.Repo.Name() != repo.Name() {
		t = ts.Runner.NewTarget(c, repo, base)
		if ts.known == nil {
			ts.known = make(map[record.Caller]weak.Pointer[Target])
		}
		ts.known[c] = weak.Make(t)
		runtime.AddCleanup(t, ts.forget, c)
	}
	return t
}

// forget removes a caller's target that nobody holds.
func (ts *Targets) forget(c record.Caller) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if ts.known[c].Value() == nil {
		delete(ts.known, c)
	}
}

// Tree returns the work tree of a caller, or nil if nobody holds it.
func (ts *Targets) Tree(c record.Caller) *worktree.Tree {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if t := ts.known[c].Value(); t != nil {
		return t.Tree
	}
	return nil
}

// Len returns the number of callers whose target is known.
func (ts *Targets) Len() int {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	return len(ts.known)
}
