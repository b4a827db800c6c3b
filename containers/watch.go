package containers

import (
	"cmp"
	"errors"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// watchIdle puts idle hosts to sleep until the fleet is closed. Its first sweep also removes the dead containers that
// Open found.
func (f *Fleet) watchIdle() {
	f.sweepOnce()
	tick := time.NewTicker(min(max(f.sleepAfter()/4, 20*time.Millisecond), 30*time.Second))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			f.sweepOnce()
		case <-f.base.Done():
			return
		}
	}
}

// sweepOnce puts idle hosts to sleep, removes containers that died by themselves, and tries failed removals again.
func (f *Fleet) sweepOnce() {
	f.mu.Lock()
	var due, missing []resting
	for _, r := range f.restingLocked() {
		if f.now().Sub(r.idle) >= f.sleepAfter() {
			due = append(due, r)
		}
	}
	for _, b := range f.slots {
		if b.state == slotOrphan || b.state == slotReady && lost(b.host) {
			missing = append(missing, resting{b, b.host, b.idle, b.uses})
		}
	}
	f.clearLocked()
	unclean := f.unclean // discarding a container in two goroutines would salvage it twice
	f.unclean = map[string]remains{}
	if len(f.waiters) > 0 && !f.closed {
		f.makeRoomLocked()
	}
	f.mu.Unlock()

	var group sync.WaitGroup
	for _, r := range due {
		group.Go(func() {
			if gone := f.sleepSlot(r); gone != nil {
				<-gone
			}
		})
	}
	for id, left := range unclean {
		group.Go(func() { f.discard(id, left) })
	}
	group.Go(f.tidyPools)
	group.Wait()
	if len(missing) > 0 {
		f.removeDead(missing)
	}
}

// removeDead removes the containers that do not run according to the engine.
func (f *Fleet) removeDead(missing []resting) {
	list, err := f.listEngine(f.base)
	if err != nil {
		return // the state is not known, and the next sweep asks again
	}
	running := map[string]bool{}
	for _, c := range list {
		running[c.ID] = c.Running
	}
	for _, r := range missing {
		f.mu.Lock()
		gone := !running[r.b.id] && f.slots[r.b.key] == r.b && !f.closed && r.b.host == r.host &&
			(r.b.state == slotReady || r.b.state == slotOrphan)
		if gone {
			f.stopSlotLocked(r.b)
		}
		f.mu.Unlock()
		if gone {
			f.endSlot(r.b, "lost")
		}
	}
}

// resting is a copy of the fields of a slot without a lease, made under the lock.
type resting struct {
	b    *slot
	host *Host
	idle time.Time
	uses int
}

// restingLocked returns the slots without a lease, the longest idle first. Containers next to others end with those.
func (f *Fleet) restingLocked() []resting {
	var list []resting
	for _, b := range f.slots {
		if (b.state == slotReady || b.state == slotOrphan) && b.leases == 0 && b.companionOf == "" {
			list = append(list, resting{b, b.host, b.idle, b.uses})
		}
	}
	slices.SortFunc(list, func(a, b resting) int {
		return cmp.Or(a.idle.Compare(b.idle), cmp.Compare(a.b.key, b.b.key))
	})
	return list
}

// sleepSlot removes the container of a slot, unless it was used since r was made or has a live process. The channel is
// closed when nothing is left of the container. It is nil if the container stays.
func (f *Fleet) sleepSlot(r resting) <-chan struct{} {
	b := r.b
	live, err := f.countLive(b, r.host)
	f.mu.Lock()
	if f.closed || errors.Is(err, errElsewhere) || !b.settledLocked() || b.leases > 0 || b.uses != r.uses || f.slots[b.key] != b {
		f.mu.Unlock()
		return nil
	}
	b.live = live
	switch {
	case live > 0:
		b.idle, b.misses = f.now(), 0
		f.mu.Unlock()
		return nil
	case err != nil && !errors.Is(err, ErrGone) && !errors.Is(err, ErrImpostor) && b.missed(err):
		f.mu.Unlock()
		return nil
	}
	f.stopSlotLocked(b)
	f.mu.Unlock()
	what := "asleep"
	if errors.Is(err, ErrGone) || errors.Is(err, ErrImpostor) {
		what = "lost"
	}
	gone := b.settled
	f.tasks.Go(func() { f.endSlot(b, what) })
	return gone
}

// countLive returns the number of commands that run in a container without a lease. After an error the number is not
// known.
func (f *Fleet) countLive(b *slot, host *Host) (int, error) {
	host, done, err := f.reach(b, host)
	if err != nil {
		return 0, err
	}
	defer done()
	return countRunning(f, host)
}

// errElsewhere means that a slot got a lease, or lost its container, before its runner could be asked.
var errElsewhere = errors.New("the container has another user")

// reach returns the host of a slot, or connects to one until done is called. Only one goroutine connects at a time, and none to a
// container that is being removed or connected to for a caller.
func (f *Fleet) reach(b *slot, host *Host) (*Host, func(), error) {
	if !lost(host) {
		return host, func() {}, nil
	}
	done, err := f.lockRunner(b)
	if err != nil {
		return nil, nil, err
	}
	h, err := f.dial(f.base, dialTimeout, b.door, filepath.Base(b.dir), b.id)
	if err != nil {
		done()
		return nil, nil, err
	}
	return h, func() { h.Close(); done() }, nil
}

// lockRunner waits until no other goroutine connects to the runner of a slot. The caller may connect until it calls done.
func (f *Fleet) lockRunner(b *slot) (done func(), err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for b.asked != nil {
		asked := b.asked
		f.mu.Unlock()
		select {
		case <-asked:
		case <-f.base.Done():
		}
		f.mu.Lock()
		if f.base.Err() != nil {
			return nil, errClosed
		}
	}
	if !b.settledLocked() || f.slots[b.key] != b {
		return nil, errElsewhere
	}
	asked := make(chan struct{})
	b.asked = asked
	return func() {
		f.mu.Lock()
		b.asked = nil
		f.mu.Unlock()
		close(asked)
	}, nil
}

// countRunning returns the number of commands that run.
func countRunning(f *Fleet, host *Host) (int, error) {
	list, err := bounded(f, f.base, askTimeout, host.Commands, nil)
	n := 0
	for _, c := range list {
		if c.Running && !c.serves() {
			n++
		}
	}
	return n, err
}

// lost reports whether a connection is nil or has ended.
func lost(h *Host) bool {
	if h == nil {
		return true
	}
	select {
	case <-h.Done():
		return true
	default:
		return false
	}
}
