package client

import (
	"context"
	"time"
)

// pause waits before another attempt, longer after each failure. Returns false if ctx has ended.
func pause(ctx context.Context, failures int) bool {
	t := time.NewTimer(min(time.Duration(failures)*200*time.Millisecond, 2*time.Second))
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
