package containers

import (
	"context"
	"fmt"
	"sync"
)

// Lease is the use of a host. The container stays awake until Release.
type Lease struct {
	Host  *Host
	Fresh bool // the call made the container
	// Container is the engine's record from the time when the container was started or found.
	Container Container
	// Place is the way to the work tree of the container from outside. It is nil if the fleet has no Keeper.
	Place *Place
	Bound bool // the work tree was bound from outside
	// Release gives back the host. Idle time starts then. A second call does nothing.
	Release func()
}

// Adopt connects to the container of a caller if one runs, including one of an earlier process. It makes no container.
// Returns nil, nil if there is none.
func (f *Fleet) Adopt(ctx context.Context, r Request) (*Lease, error) {
	if err := f.engineKnown(ctx, f.startTimeout()); err != nil {
		return nil, fmt.Errorf("cannot adopt the container of %s: %w", r.Key, err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for {
		if !f.open || f.closed {
			return nil, fmt.Errorf("cannot adopt the container of %s: %w", r.Key, errClosed)
		}
		b := f.slots[r.Key]
		if b == nil || b.state == slotStopping {
			return nil, nil
		}
		if lease, err, again := f.leaseWhenReadyLocked(ctx, b, r); !again {
			return lease, err
		}
	}
}

// leaseWhenReadyLocked waits until a slot is ready and returns a lease. If again is true, the slot is gone or was abandoned, and
// the caller is to look for its slot again.
func (f *Fleet) leaseWhenReadyLocked(ctx context.Context, b *slot, r Request) (_ *Lease, err error, again bool) {
	switch b.state {
	case slotReady:
		if !lost(b.host) {
			return f.leaseLocked(b, r), nil, false
		}
		f.reconnectSlotLocked(b, r)
	case slotOrphan:
		f.reconnectSlotLocked(b, r)
	}
	b.waiting++
	settled := b.settled
	stopping := b.state == slotStopping
	f.mu.Unlock()
	select {
	case <-settled:
	case <-ctx.Done():
		err = fmt.Errorf("cannot acquire a container for %s: %w", r.Key, context.Cause(ctx))
	}
	f.mu.Lock()
	b.waiting--
	if err != nil {
		if b.waiting == 0 && b.state == slotStarting && b.abandon != nil {
			b.abandoned = true
			b.abandon(errLeft)
		}
		return nil, err, false
	}
	if b.err != nil && !b.abandoned && !stopping {
		return nil, b.err, false
	}
	return nil, nil, true
}

// leaseLocked returns a lease of a slot that is ready.
func (f *Fleet) leaseLocked(b *slot, r Request) *Lease {
	b.door.set(r.Door)
	b.leases++
	b.uses++
	fresh := b.fresh
	b.fresh = false
	release := sync.OnceFunc(func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		b.leases--
		if b.leases == 0 {
			b.idle = f.now()
			if len(f.waiters) > 0 && !f.closed {
				f.makeRoomLocked()
			}
		}
	})
	l := &Lease{Host: b.host, Fresh: fresh, Container: b.made, Bound: b.bound, Release: release}
	if b.place != nil {
		place := *b.place
		l.Place = &place
	}
	return l
}
