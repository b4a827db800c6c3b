package retry

import (
	"context"
	"sync"
	"time"
)

// Lanes keep requests of one kind from crowding: so many are under way at once,
// and none while the server wants to be left alone. Now and Sleep are set before
// the first use; methods are safe for concurrent use.
type Lanes struct {
	Now   func() time.Time
	Sleep func(ctx context.Context, d time.Duration) error

	mu    sync.Mutex // guards everything below
	lanes map[string]*lane
}

type lane struct {
	users int // in it or waiting for it; the last one takes the lane away
	slots chan struct{}
	until time.Time // no request before this
}

// Enter waits for a place in the lane of key, which is width wide. leave gives
// it back, and keeps the lane closed for as long as after says.
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
