package containers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"time"
)

// labelCompanion is the label of a container that works next to another one. Its value is the id of that container.
const labelCompanion = "ramus.companion"

// companionWait is the time that AcquireCompanions waits for room, if its context sets no earlier end. Containers next to others wait for
// each other without an order, so the wait must end.
const companionWait = 5 * time.Minute

// companionPause is the pause between two looks for idle containers.
const companionPause = time.Second

// AcquireCompanions returns the hosts of containers that work next to the container of a lease, in the order of the requests. It makes
// the ones that do not exist. They have no door and no pool, take none of the Capacity slots, and end with the other container. At
// most [Fleet].Companions containers of that kind exist at once. If there are too many, AcquireCompanions puts idle containers to sleep that
// have some, and waits. The error is then [ErrBusy] after five minutes.
//
// The callers release the leases at the end of their use, which does not end the containers. [Fleet.Remove] does.
func (f *Fleet) AcquireCompanions(ctx context.Context, of *Lease, requests []Request) (leases []*Lease, err error) {
	id := of.Host.Container().ID
	defer func() {
		if err != nil {
			for _, l := range leases {
				l.Release()
			}
			leases, err = nil, fmt.Errorf("cannot start containers next to %s: %w", id, err)
		}
	}()
	if err := f.startCompanions(ctx, id, requests); err != nil {
		return nil, err
	}
	for _, r := range requests {
		l, err := f.awaitCompanion(ctx, id, r)
		if err != nil {
			return leases, err
		}
		leases = append(leases, l)
	}
	return leases, nil
}

// startCompanions starts the containers of requests that do not exist, once there is room for all of them.
func (f *Fleet) startCompanions(ctx context.Context, id string, requests []Request) error {
	ctx, cancel := context.WithTimeoutCause(ctx, companionWait,
		fmt.Errorf("%w: all %d containers next to others are in use", ErrBusy, f.Companions))
	defer cancel()
	f.mu.Lock()
	defer f.mu.Unlock()
	for {
		if !f.open || f.closed {
			return errClosed
		}
		var missing []Request
		for _, r := range requests {
			if f.slots[r.Key] == nil {
				missing = append(missing, r)
			}
		}
		if len(missing) > f.Companions {
			return fmt.Errorf("%w: it wants %d, and there may be %d at once", ErrBusy, len(missing), f.Companions)
		}
		if b := f.byIDLocked(id); b == nil || b.state != slotReady {
			return fmt.Errorf("container %s: %w", id, ErrGone)
		}
		if f.companionsLocked()+len(missing) <= f.Companions {
			for _, r := range missing {
				r.Labels = maps.Clone(r.Labels)
				if r.Labels == nil {
					r.Labels = map[string]string{}
				}
				r.Labels[labelCompanion] = id
				f.fillSlotLocked(r)
			}
			return nil
		}
		list := f.restingLocked()
		moved := f.queueMoved
		f.mu.Unlock()
		for _, r := range list {
			if f.hasCompanions(r.b.id) {
				f.sleepSlot(r)
				break
			}
		}
		again := time.NewTimer(companionPause)
		select {
		case <-moved:
		case <-again.C: // a container may have become idle
		case <-ctx.Done():
		}
		again.Stop()
		f.mu.Lock()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

// awaitCompanion returns a lease of a container that startCompanions started or found.
func (f *Fleet) awaitCompanion(ctx context.Context, id string, r Request) (*Lease, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for {
		if !f.open || f.closed {
			return nil, errClosed
		}
		b := f.slots[r.Key]
		if b == nil {
			return nil, fmt.Errorf("%s: %w", r.Key, ErrGone)
		}
		if b.companionOf != id {
			return nil, fmt.Errorf("%s belongs to another container: %w", r.Key, ErrGone)
		}
		if lease, err, again := f.leaseWhenReadyLocked(ctx, b, r); !again {
			return lease, err
		}
	}
}

// companionsLocked returns the number of slots of containers that work next to others.
func (f *Fleet) companionsLocked() int {
	n := 0
	for _, b := range f.slots {
		if b.companionOf != "" {
			n++
		}
	}
	return n
}

// takenLocked returns the number of slots that count against Capacity.
func (f *Fleet) takenLocked() (n int) {
	for _, b := range f.slots {
		if b.counts() {
			n++
		}
	}
	return n
}

// byIDLocked returns the slot of a container, or nil.
func (f *Fleet) byIDLocked(id string) *slot {
	for _, b := range f.slots {
		if b.id == id {
			return b
		}
	}
	return nil
}

func (f *Fleet) hasCompanions(id string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, b := range f.slots {
		if b.companionOf != "" && b.companionOf == id {
			return true
		}
	}
	return false
}

// endCompanions removes the containers that work next to one that ends. It returns when nothing is left of them.
func (f *Fleet) endCompanions(id string) error {
	if id == "" {
		return nil
	}
	f.mu.Lock()
	var ending []*slot
	for _, b := range f.slots {
		if b.companionOf != id {
			continue
		}
		switch b.state {
		case slotStarting:
			b.abandoned = true
			b.abandon(errRemoved)
		case slotReady, slotOrphan:
			f.stopSlotLocked(b)
			ending = append(ending, b)
		}
	}
	f.mu.Unlock()
	var errs []error
	for _, b := range ending {
		errs = append(errs, f.endSlot(b, "removed"))
	}
	return errors.Join(errs...)
}

// dropStraysLocked removes the slots of containers that an earlier process left next to containers that are gone.
func (f *Fleet) dropStraysLocked() {
	ids := map[string]bool{}
	for _, b := range f.slots {
		ids[b.id] = true
	}
	for key, b := range f.slots {
		if b.companionOf != "" && !ids[b.companionOf] {
			delete(f.slots, key)
			f.unclean[b.id] = remains{folder: filepath.Base(b.dir)}
		}
	}
}
