package executor

import (
	"context"
	"runtime"
	"strings"
	"sync"
	"weak"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/executor/addition"
	"github.com/ramus-dev/ramus/executor/browse"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/services"
	"github.com/ramus-dev/ramus/executor/settings"
	"github.com/ramus-dev/ramus/executor/worktree"
	"github.com/ramus-dev/ramus/gitd"
)

// target is the work tree of a caller, with the runs and steps that use it. A fan-out line with a branch of its own
// has a target of its own.
type target struct {
	*worktree.Tree
	x    *Executor
	turn chan struct{} // holds one token, because commands run one after another
	site *browse.Site  // the container as browsers see it
	// services run next to the container.
	services *services.Set

	mu      sync.Mutex         // guards all below
	listen  func(record.Event) // gets events of egress and refusals for the run at work; nil if none is at work
	step    *work              // the step that runs now; nil for none
	stepped chan struct{}      // closed when step changes; nil if nobody waits
	// deps lists the dependencies that the newest container found in its cache, until a step journals them.
	deps string
	// found lists the ecosystems of these dependencies.
	found []string
	// last is what the settings were when they were read last. prepared is the id of the container that needs no
	// preparation.
	last     *settings.Settings
	prepared string
	others   addition.Trees // of the caller's additional repositories; it guards itself
}

// newTarget returns a target that the executor does not remember.
func (x *Executor) newTarget(c record.Caller, repo *gitd.Repo, base string) *target {
	t := &target{x: x, turn: make(chan struct{}, 1), site: browse.NewSite()}
	t.Tree = x.trees.NewTree(c, repo, base)
	t.services = t.newServices()
	t.Hooks = worktree.Hooks{Door: t.door, Furnish: t.furnish, Run: t.runID, Foresee: t.foresee, OnLeak: t.leaked,
		Container: t.container, Installed: t.installed}
	return t
}

// target returns the caller's target. It is the same one as long as a run, a container's door or anything else holds
// it. Then the executor forgets the target and its knowledge of the container.
func (x *Executor) target(c record.Caller, repo *gitd.Repo, base string) *target {
	x.mu.Lock()
	defer x.mu.Unlock()
	t := x.targets[c].Value()
	if t == nil || t.Repo.Name() != repo.Name() {
		t = x.newTarget(c, repo, base)
		x.targets[c] = weak.Make(t)
		runtime.AddCleanup(t, x.forgetTarget, c)
	}
	return t
}

// forgetTarget removes a caller's target that nobody holds.
func (x *Executor) forgetTarget(c record.Caller) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.targets[c].Value() == nil {
		delete(x.targets, c)
	}
}

// findTree returns the work tree of a caller, or nil if nobody holds it.
func (x *Executor) findTree(c record.Caller) *worktree.Tree {
	x.mu.Lock()
	defer x.mu.Unlock()
	if t := x.targets[c].Value(); t != nil {
		return t.Tree
	}
	return nil
}

// acquire waits for the caller's turn, and takes a free one even if ctx has ended. The returned function gives it back.
func (t *target) acquire(ctx context.Context) (func(), error) {
	select {
	case t.turn <- struct{}{}:
		return sync.OnceFunc(func() { <-t.turn }), nil
	default:
	}
	select {
	case t.turn <- struct{}{}:
		return sync.OnceFunc(func() { <-t.turn }), nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// tell gives e to the run at work. Between runs it is dropped.
func (t *target) tell(e record.Event) {
	t.mu.Lock()
	f := t.listen
	t.mu.Unlock()
	if f != nil {
		f(e)
	}
}

func (t *target) setListen(f func(record.Event)) {
	t.mu.Lock()
	t.listen = f
	t.mu.Unlock()
}

// atWork returns the step that runs now, or nil between steps.
func (t *target) atWork() *work {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.step
}

func (t *target) setAtWork(w *work) {
	t.mu.Lock()
	t.step = w
	if t.stepped != nil {
		close(t.stepped)
		t.stepped = nil
	}
	t.mu.Unlock()
}

// watchWork returns the step that runs now, or nil, and a channel that is closed when another one does.
func (t *target) watchWork() (*work, <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stepped == nil {
		t.stepped = make(chan struct{})
	}
	return t.step, t.stepped
}

// interject lets somebody commit who has no turn. It returns the head of the step that works in the container now, or a
// head with at "" together with the turn. Nobody else commits until free is called.
func (t *target) interject(ctx context.Context) (h *head, own bool, free func(), err error) {
	for {
		w, changed := t.watchWork()
		turn := t.turn
		if w != nil && w.head != nil {
			w.head.mu.Lock()
			if !w.head.over {
				return w.head, false, w.head.mu.Unlock, nil
			}
			w.head.mu.Unlock()
			turn = nil // it still has it
		}
		select {
		case turn <- struct{}{}:
			return &head{}, true, func() { <-t.turn }, nil
		case <-changed:
		case <-ctx.Done():
			return nil, false, nil, context.Cause(ctx)
		}
	}
}

// runName returns the name of the run at work, or "" between steps.
func (t *target) runName() string {
	if w := t.atWork(); w != nil {
		return w.l.Initial.Name()
	}
	return ""
}

// runID returns the id of the run at work, or "" between steps.
func (t *target) runID() string {
	if w := t.atWork(); w != nil {
		return w.l.Initial.ID
	}
	return ""
}

// foresee announces to the run at work a commit that is about to become the branch's tip.
func (t *target) foresee(commit gitd.Hash) {
	if w := t.atWork(); w != nil {
		w.l.entry.Foresee(commit)
	}
}

// leaked journals that a secret was taken out of the work tree.
func (t *target) leaked(l gitd.Leak) error {
	w := t.atWork()
	if w == nil {
		return nil
	}
	return w.l.Removed(w.s.ID, record.SecretInCommit, []string{l.Secret}, l.Where())
}

// furnish puts dependencies into the cache of a new container.
func (t *target) furnish(ctx context.Context, h *containers.Host, p *containers.Place, at gitd.Hash) {
	found := t.x.deps.Furnish(ctx, t.Tree, h, p, at)
	t.mu.Lock()
	t.deps, t.found = strings.Join(found, ", "), found
	t.mu.Unlock()
}

// takeDeps returns once the dependencies that a new container found in its cache.
func (t *target) takeDeps() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	found := t.deps
	t.deps = ""
	return found
}
