// Package retry waits between attempts to reach a server that is busy or unreachable. The pause is the one that the
// server asks for (Retry-After), or else grows with each failure.
package retry

import (
	"context"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Backoff returns the pause after a number of failures (1, 2, …). It doubles with each failure up to most, and is
// random within limits, so that many rejected clients do not return together.
func Backoff(failures int, most time.Duration) time.Duration {
	d := most
	if shift := max(failures, 1) - 1; shift < 16 {
		d = min(500*time.Millisecond<<shift, most)
	}
	return d/2 + rand.N(d/2+1)
}

// After returns the time from now in a Retry-After header (RFC 9110, section 10.2.3: seconds, also with a fraction, or
// a date), at most most. Returns 0 if the header has none.
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

// Sleep pauses for d. Returns the error of ctx if ctx ends first.
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
