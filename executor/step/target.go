package step

import (
	"context"
	"strings"
	"sync"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/executor/addition"
	"github.com/ramus-dev/ramus/executor/browse"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/services"
	"github.com/ramus-dev/ramus/executor/settings"
	"github.com/ramus-dev/ramus/executor/worktree"
	"github.com/ramus-dev/ramus/gitd"
)

// Target is the work tree of a caller, with the runs and steps that use it. A fan-out line with a branch of its own
// has a target of its own.
type Target struct {
	*worktree.Tree
	runner *Runner
	turns  chan struct{} // holds one token, because commands run one after another
	Site   *browse.Site  // the container as browsers see it
	// Services run next to the container.
	Services *services.Set

	mu      sync.Mutex         // guards all below
	listen  func(record.Event) // gets events of egress and refusals for the run at work; nil if none is at work
	step    *Work              // the step that runs now; nil for none
	stepped chan struct{}      // closed when step changes; nil if nobody waits
	// deps lists the dependencies that the newest container found in its cache, until a step journals them.
	deps string
	// found lists the ecosystems of these dependencies.
	found []string
	// last has the settings as they were last read. prepared is the id of the container that is prepared by them.
	last     *settings.Settings
	prepared string
	readOnly bool           // its container may not push
	Others   addition.Trees // of the caller's additional repositories; it guards itself
}

// Acquire waits for the caller's turn, and takes a free one even if ctx has ended. The returned function gives it back.
func (t *Target) Acquire(ctx context.Context) (func(), error) {
	select {
	case t.turns <- struct{}{}:
		return sync.OnceFunc(func() { <-t.turns }), nil
	default:
	}
	select {
	case t.turns <- struct{}{}:
		return sync.OnceFunc(func() { <-t.turns }), nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Tell gives e to the run at work. Between runs it is dropped.
func (t *Target) Tell(e record.Event) {
	t.mu.Lock()
	f := t.listen
	t.mu.Unlock()
	if f != nil {
		f(e)
	}
}

// SetListen sets the receiver of Tell, or nil.
func (t *Target) SetListen(f func(record.Event)) {
	t.mu.Lock()
	t.listen = f
	t.mu.Unlock()
}

// AtWork returns the step that runs now, or nil between steps.
func (t *Target) AtWork() *Work {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.step
}

// SetAtWork sets the step that runs now, or nil.
func (t *Target) SetAtWork(w *Work) {
	t.mu.Lock()
	t.step = w
	if t.stepped != nil {
		close(t.stepped)
		t.stepped = nil
	}
	t.mu.Unlock()
}

// watchWork returns the step that runs now, or nil, and a channel that is closed when another one does.
func (t *Target) watchWork() (*Work, <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stepped == nil {
		t.stepped = make(chan struct{})
	}
	return t.step, t.stepped
}

// Interject lets somebody commit who has no turn. It returns the head of the step that works in the container now, or a
// head with at "" together with the turn. Nobody else commits until free is called.
func (t *Target) Interject(ctx context.Context) (h *Head, own bool, free func(), err error) {
	for {
		w, changed := t.watchWork()
		turn := t.turns
		if w != nil && w.Head != nil {
			w.Head.mu.Lock()
			if !w.Head.Over {
				return w.Head, false, w.Head.mu.Unlock, nil
			}
			w.Head.mu.Unlock()
			turn = nil // it still has it
		}
		select {
		case turn <- struct{}{}:
			return &Head{}, true, func() { <-t.turns }, nil
		case <-changed:
		case <-ctx.Done():
			return nil, false, nil, context.Cause(ctx)
		}
	}
}

// RunName returns the name of the run at work, or "" between steps.
func (t *Target) RunName() string {
	if w := t.AtWork(); w != nil {
		return w.Run.Initial.Name()
	}
	return ""
}

// runID returns the id of the run at work, or "" between steps.
func (t *Target) runID() string {
	if w := t.AtWork(); w != nil {
		return w.Run.Initial.ID
	}
	return ""
}

// foresee announces to the run at work a commit that is about to become the branch's tip.
func (t *Target) foresee(commit gitd.Hash) {
	if w := t.AtWork(); w != nil {
		w.Run.Owner.Foresee(commit)
	}
}

// leaked journals that a secret was taken out of the work tree.
func (t *Target) leaked(l gitd.Leak) error {
	w := t.AtWork()
	if w == nil {
		return nil
	}
	return w.Run.Removed(w.Info.ID, record.SecretInCommit, []string{l.Secret}, l.Where())
}

// furnish puts dependencies into the cache of a new container.
func (t *Target) furnish(ctx context.Context, h *containers.Host, p *containers.Place, at gitd.Hash) {
	found := t.runner.Deps.Furnish(ctx, t.Tree, h, p, at)
	t.mu.Lock()
	t.deps, t.found = strings.Join(found, ", "), found
	t.mu.Unlock()
}

// TakeDeps returns once the dependencies that a new container found in its cache.
func (t *Target) TakeDeps() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	found := t.deps
	t.deps = ""
	return found
}

// SetReadOnly says whether pushes of the target's container are refused.
func (t *Target) SetReadOnly(on bool) {
	t.mu.Lock()
	t.readOnly = on
	t.mu.Unlock()
}

// ReadOnly reports whether pushes of the target's container are refused.
func (t *Target) ReadOnly() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.readOnly
}
