package retry

import (
	"context"
	"sync"
	"time"
)

// Lanes limit requests of one kind. Each lane allows a number of requests at once, and none while the server asks for a
// pause. Now and Sleep are set before the first use. Methods are safe for concurrent use.
type Lanes struct {
	Now   func() time.Time
	Sleep func(ctx context.Context, d time.Duration) error

	mu    sync.Mutex // guards the fields below
	lanes map[string]*lane
}

type lane struct {
	users int // requests in the lane or waiting for it; the last one removes the lane
	slots chan struct{}
	until time.Time // no request before this
}

// Enter waits until the lane of key has room. width is the number of requests at once. leave frees the room again, and
// keeps the lane closed for the time after.
func (l *Lanes) Enter(ctx context.Context, key string, width int) (leave func(after time.Duration), err error) {
	l.mu.Lock()
	if l.lanes == nil {
		l.lanes = map[string]*lane{}
	}
	in := l.lanes[key]
	if in == nil {
		in = &lane{slots: make(chan struct{}, width)}
		l.lanes[key] = in
	}
	in.users++
	l.mu.Unlock()

	gone := func() {
		in.users--
		if in.users == 0 && !l.Now().Before(in.until) {
			delete(l.lanes, key)
		}
	}
	select {
	case in.slots <- struct{}{}:
	case <-ctx.Done():
		l.mu.Lock()
		defer l.mu.Unlock()
		gone()
		return nil, context.Cause(ctx)
	}
	leave = func(after time.Duration) {
		<-in.slots
		l.mu.Lock()
		defer l.mu.Unlock()
		if until := l.Now().Add(after); after > 0 && until.After(in.until) {
			in.until = until
		}
		gone()
	}
	for {
		l.mu.Lock()
		wait := in.until.Sub(l.Now())
		l.mu.Unlock()
		if wait <= 0 {
			return leave, nil
		}
		if err := l.Sleep(ctx, wait); err != nil {
			leave(0)
			return nil, err
		}
	}
}
