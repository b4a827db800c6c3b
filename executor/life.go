package executor

import (
	"context"
	"sync"

	"github.com/ramus-dev/ramus/executor/record"
)

// lifetime is the time from Open to Close, with the goroutines that work in it. The zero value has not begun.
type lifetime struct {
	ctx    context.Context // ends with cause ErrClosed
	cancel context.CancelCauseFunc
	wg     sync.WaitGroup // the goroutines

	mu   sync.Mutex // guards over
	over bool
}

// beginLife begins the lifetime, with the values of ctx.
func (l *lifetime) beginLife(ctx context.Context) {
	l.ctx, l.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
}

// err returns [record.ErrClosed] if the lifetime is over.
func (l *lifetime) err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over {
		return record.ErrClosed
	}
	return nil
}

// enter adds a goroutine, which calls leave at its end. It adds none, and returns false, if the lifetime is over.
func (l *lifetime) enter() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over {
		return false
	}
	l.wg.Add(1)
	return true
}

// leave ends a goroutine.
func (l *lifetime) leave() { l.wg.Done() }

// do runs f in a goroutine. It does not, and returns false, if the lifetime is over.
func (l *lifetime) do(f func()) bool {
	if !l.enter() {
		return false
	}
	go func() {
		defer l.leave()
		f()
	}()
	return true
}

// end ends the lifetime. It returns false if it was over before. It does not wait for the goroutines.
func (l *lifetime) end() bool {
	l.mu.Lock()
	was := l.over
	l.over = true
	l.mu.Unlock()
	if was {
		return false
	}
	l.cancel(record.ErrClosed)
	return true
}
