// Package shared makes one call for many callers, such as a sync of a file system for all pushes that wait for it.
package shared

import "sync"

// Call lets callers share calls of a function, of which one is made at a time. The zero Call is ready for use. A Call is
// safe for concurrent use.
type Call struct {
	mu   sync.Mutex // guards the rounds
	last *round     // the call that began last, nil if none has
	next *round     // the call that has not begun, nil if nobody waits
}

type round struct {
	done chan struct{}
	err  error // valid when done is closed
}

// Do returns the result of a call that begins after Do did. The first caller that waits for a round makes
// the call.
func (c *Call) Do(call func() error) error {
	c.mu.Lock()
	if r := c.next; r != nil {
		c.mu.Unlock()
		<-r.done
		return r.err
	}
	r, last := &round{done: make(chan struct{})}, c.last
	c.next = r
	c.mu.Unlock()

	if last != nil {
		<-last.done
	}
	c.mu.Lock()
	c.last, c.next = r, nil // later callers may have written something that the call misses
	c.mu.Unlock()
	r.err = call()
	close(r.done)
	return r.err
}
