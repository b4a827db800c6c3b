package containers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// A waiter is a key in the queue. Several callers may wait for the same key.
type waiter struct {
	key     string
	req     Request
	callers int
	since   time.Time
}

// Acquire returns the host of a caller. It makes a container if there is none. One caller may hold several leases at once. Image,
// Env, Limits and Labels of later requests do not change a container that exists.
//
// The error is [ErrBusy] if too many callers wait, and that of ctx if ctx is done first.
func (f *Fleet) Acquire(ctx context.Context, r Request) (*Lease, error) {
	if r.Key == "" {
		return nil, errors.New("cannot acquire a container: a key is needed")
	}
	if err := f.engineKnown(ctx, engineAwaits); err != nil {
		return nil, fmt.Errorf("cannot acquire a container for %s: %w", r.Key, err)
	}
	var w *waiter // the position in the queue
	told := 0
	f.mu.Lock()
	for {
		if !f.open || f.closed {
			f.leaveQueueLocked(w)
			f.mu.Unlock()
			return nil, fmt.Errorf("cannot acquire a container for %s: %w", r.Key, errClosed)
		}
		if b := f.slots[r.Key]; b != nil {
			w = nil // the slot has replaced w, if there was one
			lease, err, again := f.leaseWhenReadyLocked(ctx, b, r)
			if !again {
				if lease != nil && !lease.Fresh {
					f.event(FleetEvent{Key: r.Key, What: "warm", ID: lease.Host.Container().ID})
				}
				f.mu.Unlock()
				return lease, err
			}
			continue
		}
		if w == nil {
			if i := slices.IndexFunc(f.waiters, func(w *waiter) bool { return w.key == r.Key }); i >= 0 {
				w = f.waiters[i]
				w.callers++
			} else if r.Beyond || len(f.waiters) == 0 && f.takenLocked() < f.capacity() {
				f.fillSlotLocked(r)
				continue
			} else if len(f.waiters) >= f.queueLimit() {
				f.mu.Unlock()
				return nil, fmt.Errorf("cannot acquire a container for %s: %w", r.Key, ErrBusy)
			} else {
				w = &waiter{key: r.Key, req: r, callers: 1, since: f.now()}
				f.waiters = append(f.waiters, w)
				f.makeRoomLocked()
			}
		}
		position := slices.Index(f.waiters, w) + 1
		if position == 0 { // not in the queue any more; the slot was made, and may be gone again
			w = nil
			continue
		}
		moved := f.queueMoved
		f.mu.Unlock()
		if position != told {
			if told == 0 {
				f.event(FleetEvent{Key: r.Key, What: "queued", Place: position})
			}
			told = position
			if r.Waiting != nil {
				r.Waiting(position, "")
			}
		}
		select {
		case <-moved:
		case <-ctx.Done():
			f.mu.Lock()
			f.leaveQueueLocked(w)
			f.mu.Unlock()
			return nil, fmt.Errorf("cannot acquire a container for %s: %w", r.Key, context.Cause(ctx))
		}
		f.mu.Lock()
	}
}

// leaveQueueLocked removes a caller from the queue. A nil waiter is not in the queue.
func (f *Fleet) leaveQueueLocked(w *waiter) {
	if w == nil {
		return
	}
	w.callers--
	if i := slices.Index(f.waiters, w); i >= 0 && w.callers == 0 {
		f.waiters = slices.Delete(f.waiters, i, i+1)
		f.queueMovedLocked()
	}
}

// queueMovedLocked wakes all callers in the queue, so that they read their positions again.
func (f *Fleet) queueMovedLocked() {
	close(f.queueMoved)
	f.queueMoved = make(chan struct{})
}

// makeRoomLocked starts putting hosts to sleep for the callers in the queue.
func (f *Fleet) makeRoomLocked() {
	if f.making {
		f.again = true
		return
	}
	f.making = true
	f.tasks.Go(func() {
		for {
			f.mu.Lock()
			f.again = false
			list := f.restingLocked()
			f.mu.Unlock()
			for _, r := range list {
				f.mu.Lock()
				stopping := 0
				for _, b := range f.slots {
					if b.state == slotStopping && b.counts() {
						stopping++
					}
				}
				free := f.capacity() - f.takenLocked() + stopping // below 0 after an adoption
				need := !f.closed && len(f.waiters) > 0 && free < len(f.waiters)
				f.mu.Unlock()
				if !need {
					break
				}
				f.sleepSlot(r) // not awaited, so that a removal that hangs does not delay the others
			}
			f.mu.Lock()
			if !f.again || f.closed {
				f.making = false
				f.mu.Unlock()
				return
			}
			f.mu.Unlock()
		}
	})
}

// Room returns the number of callers that would get a container without waiting, and without a host put to sleep for them.
func (f *Fleet) Room() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return max(f.capacity()-f.takenLocked()-len(f.waiters), 0)
}
