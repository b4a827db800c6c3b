package proc

import (
	"context"
	"time"
)

// Await calls done every 10 ms until it returns true. It returns early after d, when ended is closed, or when ctx is done. A nil ended is
// never closed.
func Await(ctx context.Context, d time.Duration, ended <-chan struct{}, done func() bool) {
	deadline := time.NewTimer(d)
	defer deadline.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-ended:
			return
		case <-deadline.C:
			return
		case <-ctx.Done():
			return
		}
	}
}
