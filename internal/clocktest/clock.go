// Package clocktest has a clock for tests that only the test moves.
package clocktest

import (
	"sync"
	"time"
)

// Clock is a time that passes only by [Clock.Add]. The zero value is at the zero time. Methods are safe for concurrent use.
type Clock struct {
	mu  sync.Mutex // guards now
	now time.Time
}

// At returns a Clock at a time.
func At(t time.Time) *Clock { return &Clock{now: t} }

// Now returns the time of the clock.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Add moves the clock, and returns its new time.
func (c *Clock) Add(d time.Duration) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
	return c.now
}
