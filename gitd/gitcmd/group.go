package gitcmd

import (
	"context"
	"errors"
	"sync"
)

// ErrClosed is the cause of work that ends because its [Group] was closed.
var ErrClosed = errors.New("the Git server is closed")

// Group counts work in progress, so that Close can end it and wait for its end. The zero value
// is ready for use.
type Group struct {
	mu     sync.Mutex // guards closed, ctx, cancel and additions to live
	closed bool
	ctx    context.Context // made at first use, ended by Close
	cancel context.CancelCauseFunc
	live   sync.WaitGroup
}

// Enter adds one piece of work. The context that it returns ends with ctx or with the group.
// done must be called once, when the work has ended.
func (g *Group) Enter(ctx context.Context) (_ context.Context, done func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, context.Cause(ctx)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil, nil, ErrClosed
	}
	if g.ctx == nil {
		g.ctx, g.cancel = context.WithCancelCause(context.Background())
	}
	g.live.Add(1)
	ctx, cancel := context.WithCancelCause(ctx)
	home := g.ctx
	stop := context.AfterFunc(home, func() { cancel(context.Cause(home)) })
	return ctx, func() {
		stop()
		cancel(nil)
		g.live.Done()
	}, nil
}

// Err returns [ErrClosed] after Close.
func (g *Group) Err() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return ErrClosed
	}
	return nil
}

// Close ends all work and waits for it. It may be called more than once.
func (g *Group) Close() {
	g.mu.Lock()
	g.closed = true
	if g.cancel != nil {
		g.cancel(ErrClosed)
	}
	g.mu.Unlock()
	g.live.Wait()
}
