package step

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/secret"
)

// guestWait is how long a step waits for guests that do not leave when asked to.
const guestWait = 30 * time.Second

// Enter makes a request a guest of the step that runs now. It returns false between steps. The guest's context ends
// with ctx and with the step's command, and the step does not end before Leave. So a process that a command left
// running cannot use models at the run's expense, and all use is recorded.
func (t *Target) Enter(ctx context.Context) (*Guest, bool) {
	w := t.AtWork()
	if w == nil {
		return nil, false
	}
	return w.guests.enter(ctx, w)
}

// Guest is a request at a container's door for which a run answers. Its cost is journalled in that run, however late it becomes
// known.
type Guest struct {
	w    *Work
	ctx  context.Context
	exit func()
}

// Context ends when the guest has to leave.
func (g *Guest) Context() context.Context { return g.ctx }

// Run returns the run as it is now.
func (g *Guest) Run() record.Run { return g.w.Run.Snapshot() }

// User returns the guest's run as a user of secrets, with the person that the step works for.
func (g *Guest) User() secret.User { return g.w.User() }

// Tell journals an event in the guest's run and step.
func (g *Guest) Tell(e record.Event) {
	e.Step = g.w.Info.ID
	_ = g.w.Run.Emit(e, false) // the run's own events will meet the same error
}

// Shell returns a shell for a task of the guest, in the container and on the branch of the step. Its commands have no part in
// the step's output. timeout bounds a command that names none.
func (g *Guest) Shell(timeout time.Duration) *TaskShell {
	return &TaskShell{W: g.w.forVisitor(), Timeout: timeout}
}

// Leave ends the visit. A second call does nothing.
func (g *Guest) Leave() { g.exit() }

// guests are the guests of one step.
type guests struct {
	mu     sync.Mutex // guards all below
	in     map[*Guest]context.CancelCauseFunc
	closed bool
	gone   chan struct{} // closed when the last one left after close
}

func (gs *guests) enter(ctx context.Context, w *Work) (*Guest, bool) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	if gs.closed {
		return nil, false
	}
	g := &Guest{w: w}
	var cancel context.CancelCauseFunc
	g.ctx, cancel = context.WithCancelCause(ctx)
	g.exit = sync.OnceFunc(func() {
		cancel(nil)
		gs.mu.Lock()
		defer gs.mu.Unlock()
		delete(gs.in, g)
		if gs.gone != nil && len(gs.in) == 0 {
			close(gs.gone)
		}
	})
	if gs.in == nil {
		gs.in = make(map[*Guest]context.CancelCauseFunc)
	}
	gs.in[g] = cancel
	return g, true
}

// close asks all guests to leave, waits until they have, and lets no other in. The use of a guest that does not leave in time may
// go unrecorded.
func (gs *guests) close() {
	gs.mu.Lock()
	if gs.closed {
		gs.mu.Unlock()
		return
	}
	gs.closed = true
	gone := make(chan struct{})
	if len(gs.in) == 0 {
		close(gone)
	} else {
		gs.gone = gone
	}
	for _, cancel := range gs.in {
		cancel(ErrStepOver)
	}
	gs.mu.Unlock()
	late := time.NewTimer(guestWait)
	defer late.Stop()
	select {
	case <-gone:
	case <-late.C:
	}
}

// forVisitor returns the step as a visitor's task sees it, with the same container and branch, commands of its own, and no part in
// the step's output.
func (w *Work) forVisitor() *Work {
	return &Work{Run: w.Run, Target: w.Target, Host: w.Host, Image: w.Image, Info: w.Info, Before: w.Before, Head: w.Head,
		ID: w.ID + ".v" + strconv.FormatInt(w.visits.Add(1), 10)}
}
