package kubernetes

import (
	"context"
	"sync"
)

// turns bounds how many do something at once. The zero value is ready.
type turns struct {
	once sync.Once
	room chan struct{}
}

// takeTurn waits until fewer than most have a turn, and returns the end of its own. most is the same in all calls. Returns the
// cause of ctx if that ends first.
func (t *turns) takeTurn(ctx context.Context, most int) (leave func(), err error) {
	t.once.Do(func() { t.room = make(chan struct{}, most) })
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	select {
	case t.room <- struct{}{}:
		return func() { <-t.room }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
