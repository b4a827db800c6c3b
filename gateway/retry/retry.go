// Package retry is how ramus waits before it asks a server again that was busy
// or away: as long as the server says (Retry-After), or else longer each time.
package retry

import (
	"context"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Backoff is the pause after so many failures (1, 2, …): twice as long each
// time up to most, spread so that many who were turned away together do not come
// back together.
func Backoff(failures int, most time.Duration) time.Duration {
	d := most
	if shift := max(failures, 1) - 1; shift < 16 {
		d = min(500*time.Millisecond<<shift, most)
	}
	return d/2 + rand.N(d/2+1)
}

// After reads a Retry-After header (RFC 9110, section 10.2.3; seconds, with a
// fraction too, or a date) as a time from now, at most most; 0 when it says nothing.
func After(header string, now time.Time, most time.Duration) time.Duration {
	header = strings.TrimSpace(header)
	var d time.Duration
	if n, err := strconv.ParseFloat(header, 64); err == nil && n >= 0 {
		d = time.Duration(min(n, most.Seconds()) * float64(time.Second))
	} else if t, err := http.ParseTime(header); err == nil {
		d = t.Sub(now)
	}
	return max(0, min(d, most))
}

// Sleep pauses; the error is the context's when that ends first.
func Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
