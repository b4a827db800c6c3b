package agent

import (
	"sync"
	"time"
)

// Clock ends a turn that takes too long. It is stopped while a person is asked.
type Clock struct {
	mu    sync.Mutex // guards all below
	left  time.Duration
	since time.Time // when it was started the last time
	holds int
	timer *time.Timer
}

// NewClock starts a clock that calls end after d. If d is not positive it never does.
func NewClock(d time.Duration, end func()) *Clock {
	c := &Clock{left: d, since: time.Now()}
	if d > 0 {
		c.timer = time.AfterFunc(d, end)
	}
	return c
}

// Pause stops the clock until Resume is called as often.
func (c *Clock) Pause() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.holds++; c.timer != nil && c.holds == 1 && c.timer.Stop() {
		c.left -= time.Since(c.since)
	}
}

// Resume starts the clock again.
func (c *Clock) Resume() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.holds--; c.timer != nil && c.holds == 0 {
		c.since = time.Now()
		c.timer.Reset(max(c.left, 0))
	}
}
