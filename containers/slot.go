package containers

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/ramus-dev/ramus/containers/layer"
)

// A slot is one of the Capacity slots of a fleet. It belongs to one key from the decision to make a container until the last trace
// of the container is removed. [Fleet.mu] guards its fields.
type slot struct {
	key string
	// companionOf is the id of the container next to which this one works, or "". It never changes.
	companionOf string
	beyond      bool // see Request.Beyond; it never changes
	state       slotState
	since       time.Time
	// settled is closed when state is no longer slotStarting or slotStopping.
	settled chan struct{}
	err     error // why the container could not start
	// waiting is the number of callers that wait for the start. When the last one leaves, abandon ends the start.
	waiting   int
	abandon   context.CancelCauseFunc
	abandoned bool

	id     string
	dir    string
	made   Container
	host   *Host
	door   *door
	place  *Place // nil without a Keeper, and until the first connection
	bound  bool
	fresh  bool // new, and not leased yet
	leases int
	uses   int       // leases so far
	idle   time.Time // time from which there is no lease
	live   int       // running commands at the last count
	quota  *quota    // nil until the first start has ended
	mounts mounts
	misses int // times in a row that the runner did not answer
	// asked is closed when the current connection that a lock of [Fleet.lockRunner] allows has ended. It is nil if
	// there is none.
	asked chan struct{}
}

type slotState int

const (
	slotStarting slotState = iota // a container is being made or connected to
	slotReady                     // host is connected, or was
	slotOrphan                    // an earlier process left the container; not connected
	slotStopping
)

// counts reports whether the slot takes a place of the capacity.
func (b *slot) counts() bool { return b.companionOf == "" && !b.beyond }

// fillSlotLocked makes a slot, and starts filling it with a container of the pool or a new one.
func (f *Fleet) fillSlotLocked(r Request) {
	ctx, cancel := context.WithCancelCause(f.base)
	b := &slot{key: r.Key, companionOf: r.Labels[labelCompanion], beyond: r.Beyond, state: slotStarting, since: f.now(),
		settled: make(chan struct{}), abandon: cancel, fresh: true}
	var v *candidate
	if b.companionOf == "" {
		v = f.takePooledLocked(r)
	}
	if v == nil {
		v = newCandidate()
	}
	b.door = v.door
	b.door.set(r.Door)
	f.slots[r.Key] = b
	f.tasks.Go(func() {
		defer cancel(nil)
		f.fillSlot(ctx, b, v, r)
	})
}

// fillSlot gives a slot the container of a candidate. If that container died in the pool, fillSlot makes a new one.
func (f *Fleet) fillSlot(ctx context.Context, b *slot, v *candidate, r Request) {
	began := f.now()
	pooled := v.host != nil
	var err error
	if pooled && f.ended(v.made.ID) { // the end of the connection may not have been noticed yet
		err = ErrGone
	} else {
		err = f.prepare(ctx, v, r)
	}
	if err != nil && pooled && ctx.Err() == nil && (lost(v.host) || errors.Is(err, ErrGone) || errors.Is(err, layer.ErrGone)) {
		// It died in the pool. That is no reason to fail.
		old := v
		f.tasks.Go(func() { f.discardCandidate(old) })
		v, pooled = newCandidate(), false
		v.door = b.door
		err = f.prepare(ctx, v, r)
	}
	f.mu.Lock()
	if err == nil && ctx.Err() != nil { // closed, or everybody left, at the last moment
		err = context.Cause(ctx)
	}
	if err == nil {
		b.host, b.id, b.dir, b.made, b.idle = v.host, v.made.ID, f.folder(v.name), v.made, f.now()
		b.place, b.bound, b.quota, b.mounts = v.place, v.bound, v.quota, v.mounts
		f.event(FleetEvent{Key: b.key, What: "started", ID: b.id, Took: f.now().Sub(began)}) // before any later event of the slot
		f.settleSlotLocked(b, slotReady)
		if len(f.waiters) > 0 {
			f.makeRoomLocked() // there may be no caller for it any more
		}
		f.mu.Unlock()
		if pooled {
			f.assign(v)
		}
		return
	}
	f.mu.Unlock()
	f.discardCandidate(v)
	f.mu.Lock()
	b.err = fmt.Errorf("cannot start a container for %s: %w", b.key, err)
	f.settleSlotLocked(b, slotStopping)
	f.freeSlotLocked(b)
	f.mu.Unlock()
}

// settleSlotLocked ends the state slotStarting.
func (f *Fleet) settleSlotLocked(b *slot, s slotState) {
	b.state, b.since = s, f.now()
	close(b.settled)
	close(f.calm)
	f.calm = make(chan struct{})
}

// reconnectSlotLocked starts connecting to the runner of a slot whose connection was lost or never made.
func (f *Fleet) reconnectSlotLocked(b *slot, r Request) {
	ctx, cancel := context.WithCancelCause(f.base)
	b.state, b.since = slotStarting, f.now()
	b.settled, b.err, b.abandon, b.abandoned = make(chan struct{}), nil, cancel, false
	b.door.set(r.Door)
	f.tasks.Go(func() {
		defer cancel(nil)
		old := b.host // only this goroutine writes it while the state is slotStarting
		if old != nil {
			old.Close()
		}
		host, err := f.dial(ctx, dialTimeout, b.door, filepath.Base(b.dir), b.id)
		var place *Place
		if err == nil {
			if place, err = f.locate(ctx, b.made, filepath.Base(b.dir), host); err != nil {
				host.Close()
			}
		}
		f.slotReconnected(ctx, b, host, place, err)
	})
}

// slotReconnected ends the state slotStarting after a try to connect.
func (f *Fleet) slotReconnected(ctx context.Context, b *slot, host *Host, place *Place, err error) {
	f.mu.Lock()
	switch {
	case err == nil:
		b.host, b.place, b.idle, b.misses = host, place, f.now(), 0
		f.event(FleetEvent{Key: b.key, What: "adopted", ID: b.id})
		f.settleSlotLocked(b, slotReady)
		f.mu.Unlock()
	case ctx.Err() != nil || !errors.Is(err, ErrGone) && !errors.Is(err, ErrImpostor) && b.missed(err):
		// The state of the container is not known. It may be alive.
		b.err = fmt.Errorf("cannot reach the container of %s: %w", b.key, err)
		if b.host == nil {
			f.settleSlotLocked(b, slotOrphan)
		} else {
			f.settleSlotLocked(b, slotReady) // with a host that is lost
		}
		f.mu.Unlock()
	default:
		// The container is gone, or another program answers in its place. In both cases its files are lost, and the
		// next Acquire makes a new one.
		f.log().Info("a container is lost", "key", b.key, "id", b.id, "err", err)
		settled := b.settled
		f.stopSlotLocked(b)
		close(settled)
		close(f.calm)
		f.calm = make(chan struct{})
		f.mu.Unlock()
		f.endSlot(b, "lost")
	}
}

// missed counts a runner that did not answer. It reports whether the runner may be asked again. An engine that does not
// answer does not count.
func (b *slot) missed(err error) bool {
	if !errors.Is(err, ErrUnavailable) {
		b.misses++
	}
	return b.misses < maxMisses
}

// stopSlotLocked sets the state slotStopping. The caller must call endSlot next.
func (f *Fleet) stopSlotLocked(b *slot) {
	b.state, b.since, b.settled = slotStopping, f.now(), make(chan struct{})
}

// endSlot removes the container of a slot that is stopping, and frees the slot.
func (f *Fleet) endSlot(b *slot, what string) error {
	if f.Ending != nil && what != "lost" && !lost(b.host) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(f.base), fleetRemoving)
		f.Ending(ctx, b.key, b.host)
		cancel()
	}
	if b.host != nil {
		b.host.Close()
	}
	// Before the container itself, so that a process that dies in between finds them by it.
	companions := f.endCompanions(b.id)
	vacate := func() {
		f.mu.Lock()
		close(b.settled)
		f.freeSlotLocked(b)
		f.mu.Unlock()
		f.event(FleetEvent{Key: b.key, What: what, ID: b.id})
	}
	name := filepath.Base(b.dir)
	if what == "lost" && f.ended(b.id) {
		// No process of the container runs, so the slot is free. A caller in the queue does not have to wait for the
		// engine.
		f.salvage(name)
		vacate()
		b.mounts.release() // after vacate, so that the caller in the queue does not wait for it
		return errors.Join(companions, f.discard(b.id, remains{name, false}))
	}
	b.mounts.release()
	if what == "lost" {
		err := f.discard(b.id, remains{name, true}) // discard salvages; a new container of the key waits for that
		vacate()
		return errors.Join(companions, err)
	}
	discarded := make(chan error, 1)
	f.tasks.Go(func() { discarded <- f.discard(b.id, remains{name, false}) })
	// discard deletes the files in volumes of the engine, which may take long. The slot is freed before that.
	tick := time.NewTicker(endedAgain)
	defer tick.Stop()
	for {
		select {
		case err := <-discarded:
			vacate()
			return errors.Join(companions, err)
		case <-tick.C:
			if f.ended(b.id) {
				vacate()
				return errors.Join(companions, <-discarded)
			}
		}
	}
}

// freeSlotLocked removes a slot and gives free slots to the first in the queue.
func (f *Fleet) freeSlotLocked(b *slot) {
	if f.slots[b.key] == b {
		delete(f.slots, b.key)
	}
	for len(f.waiters) > 0 && f.takenLocked() < f.capacity() && !f.closed {
		w := f.waiters[0]
		f.waiters = slices.Delete(f.waiters, 0, 1)
		if f.slots[w.key] == nil {
			f.fillSlotLocked(w.req)
		}
	}
	f.queueMovedLocked()
}
