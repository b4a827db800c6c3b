package containers

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// poolKind is the set of properties that interchangeable containers have in common.
type poolKind struct {
	image  string
	env    string // joined by NUL
	limits Limits
}

func kindOf(r Request) poolKind {
	return poolKind{r.Image, strings.Join(r.Env, "\x00"), r.Limits.WithDefaults()}
}

// A pool has the containers of one kind that wait for callers. The fleet's mutex guards its fields.
type pool struct {
	like    Request // image, environment, limits and Warm of the latest request
	ready   []*candidate
	asked   time.Time // time of the latest request of this kind
	kept    bool      // requested by [Fleet.Warm], so it never expires
	fails   int       // in a row
	err     error     // the latest failure
	after   time.Time // time of the next attempt
	changed chan struct{}
}

const (
	// poolLinger is the time after which an unrequested pool is dropped.
	poolLinger = time.Hour
	// maxPools is the number of kinds with a pool. Tasks name many images, and each waiting container takes memory.
	maxPools = 8
	// poolRest is the time without a container taken from a pool after which the next one is made. If callers never
	// stop taking containers, filling waits poolRestMax in all, until the pools are full again. While a container is
	// being made for a caller, none is made for a pool.
	poolRest, poolRestMax = 300 * time.Millisecond, 2 * time.Second
	// poolPause is the pause after a container for the pool could not be made. It doubles with each failure, up to
	// maxPoolPause.
	poolPause, maxPoolPause = 5 * time.Second, 5 * time.Minute
)

func (p *pool) changedLocked() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// poolLocked returns the pool for a request. It makes a missing pool, if necessary in place of the pool that was not
// requested for the longest time. Returns nil if there can be none.
func (f *Fleet) poolLocked(r Request) *pool {
	if f.Pool <= 0 {
		return nil
	}
	kind := kindOf(r)
	p := f.pools[kind]
	if p == nil {
		if len(f.pools) >= maxPools && !f.giveUpPoolLocked() {
			return nil
		}
		p = &pool{changed: make(chan struct{})}
		f.pools[kind] = p
	}
	p.asked = f.now()
	p.like = Request{Image: r.Image, Env: slices.Clone(r.Env), Limits: r.Limits, Warm: r.Warm}
	return p
}

// giveUpPoolLocked empties the pool that was not requested for the longest time. Returns false if all pools are kept.
func (f *Fleet) giveUpPoolLocked() bool {
	var last *pool
	for _, p := range f.pools {
		if !p.kept && (last == nil || p.asked.Before(last.asked)) {
			last = p
		}
	}
	if last == nil {
		return false
	}
	delete(f.pools, kindOf(last.like))
	last.changedLocked()
	f.tasks.Go(func() { f.discardCandidates(last.ready) })
	return true
}

func (f *Fleet) discardCandidates(list []*candidate) {
	for _, v := range list {
		f.discardCandidate(v)
	}
}

// takePooledLocked takes a fitting container out of its pool. Returns nil if none waits.
func (f *Fleet) takePooledLocked(r Request) *candidate {
	p := f.poolLocked(r)
	if p == nil {
		return nil
	}
	var v *candidate
	for v == nil && len(p.ready) > 0 {
		v, p.ready = p.ready[0], p.ready[1:]
		if lost(v.host) {
			dead := v
			v = nil
			f.tasks.Go(func() { f.discardCandidate(dead) })
		}
	}
	p.changedLocked()
	f.taken = time.Now()
	f.fillLocked()
	return v
}

// shortLocked returns the pool with the fewest containers that lacks one. Returns nil if no pool does.
func (f *Fleet) shortLocked() *pool {
	var short *pool
	for _, p := range f.pools {
		if len(p.ready) < f.Pool && !p.after.After(f.now()) && (short == nil || len(p.ready) < len(short.ready)) {
			short = p
		}
	}
	return short
}

// fillLocked starts filling the pools if one lacks a container.
func (f *Fleet) fillLocked() {
	if f.filling || f.closed || f.shortLocked() == nil {
		return
	}
	f.filling = true
	f.lacking = time.Now()
	f.tasks.Go(f.fill)
}

// yieldLocked waits once if a container is being made for a caller, or was taken a moment ago, because new callers need
// the machine for their first commands. It unlocks the mutex while it waits, and reports whether it waited. since is
// the time from which the caller of yieldLocked has had work to do.
func (f *Fleet) yieldLocked(since time.Time) bool {
	var wait <-chan time.Time
	var calm <-chan struct{}
	if f.startingLocked() {
		calm = f.calm
	} else if rest := min(time.Until(f.taken.Add(poolRest)), time.Until(since.Add(poolRestMax))); rest > 0 {
		wait = time.After(rest)
	} else {
		return false
	}
	f.mu.Unlock()
	defer f.mu.Lock()
	select {
	case <-wait:
	case <-calm:
	case <-f.base.Done():
	}
	return true
}

// fill makes containers for the pools, one at a time, while callers do not need the machine.
func (f *Fleet) fill() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for {
		p := f.shortLocked()
		if p == nil || f.closed {
			f.filling = false
			return
		}
		if f.yieldLocked(f.lacking) {
			continue
		}
		like := p.like
		f.mu.Unlock()
		v := newCandidate()
		began := f.now()
		err := f.build(f.base, v, like)
		f.mu.Lock()
		switch {
		case err != nil:
			p.fails++
			p.err = fmt.Errorf("cannot start a container for the pool: %w", err)
			p.after = f.now().Add(min(poolPause<<min(p.fails-1, 10), maxPoolPause))
			p.changedLocked()
		case f.closed || f.pools[kindOf(like)] != p || len(p.ready) >= f.Pool:
			err = errClosed
		default:
			v.since = f.now()
			f.event(FleetEvent{What: "pooled", ID: v.made.ID, Took: v.since.Sub(began)})
			p.ready = append(p.ready, v)
			p.fails, p.err = 0, nil
			p.changedLocked()
		}
		f.mu.Unlock()
		if err != nil {
			if f.base.Err() == nil {
				f.log().Warn("the pool lacks a container", "image", like.Image, "err", err)
			}
			f.discardCandidate(v)
		}
		f.mu.Lock()
	}
}

// startingLocked reports whether a container is being made, or found again, for a caller.
func (f *Fleet) startingLocked() bool {
	for _, b := range f.slots {
		if b.state == slotStarting {
			return true
		}
	}
	return false
}

// tidyPools removes dead containers from the pools, drops pools that nobody requests, and retries containers that could
// not be made.
func (f *Fleet) tidyPools() {
	f.mu.Lock()
	var gone []*candidate
	for kind, p := range f.pools {
		p.ready = slices.DeleteFunc(p.ready, func(v *candidate) bool {
			if lost(v.host) {
				gone = append(gone, v)
				return true
			}
			return false
		})
		if !p.kept && f.now().Sub(p.asked) > poolLinger {
			gone = append(gone, p.ready...)
			delete(f.pools, kind)
			p.changedLocked()
		}
	}
	f.fillLocked()
	f.mu.Unlock()
	f.discardCandidates(gone)
}

// drain empties the pools and returns their containers. The fleet makes no pools afterwards.
func (f *Fleet) drain() []*candidate {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []*candidate
	for _, p := range f.pools {
		all = append(all, p.ready...)
	}
	f.pools = nil
	return all
}

// Warm fills the pool for requests like r, and keeps it full until Close. Warm returns when the pool is full, or at
// once if the fleet has no pools. Returns the cause if a container cannot be made, and the error of ctx if ctx ends
// first. The fleet continues to fill the pool in both cases. Only Image, Env, Limits and Warm of the request count.
func (f *Fleet) Warm(ctx context.Context, r Request) error {
	wrap := func(err error) error { return fmt.Errorf("cannot fill the pool of containers: %w", err) }
	if err := f.engineKnown(ctx, engineAwaits); err != nil {
		return wrap(err)
	}
	for {
		f.mu.Lock()
		if f.closed {
			f.mu.Unlock()
			return wrap(errClosed)
		}
		p := f.poolLocked(r)
		if p == nil || len(p.ready) >= f.Pool {
			if p != nil {
				p.kept = true
			}
			f.mu.Unlock()
			return nil
		}
		p.kept = true
		if p.err != nil && p.after.After(f.now()) {
			err := p.err
			f.mu.Unlock()
			return err
		}
		f.fillLocked()
		changed := p.changed
		f.mu.Unlock()
		select {
		case <-changed:
		case <-f.base.Done():
			return wrap(errClosed)
		case <-ctx.Done():
			return wrap(context.Cause(ctx))
		}
	}
}

// Expect has the pool for requests like r filled, without waiting for it. The pool is emptied after an hour without such a request. Only
// Image, Env, Limits and Warm of the request count.
func (f *Fleet) Expect(r Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.open && !f.closed && f.poolLocked(r) != nil {
		f.fillLocked()
	}
}

// Pooled returns how many containers wait for callers, and how many should.
func (f *Fleet) Pooled() (ready, want int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range f.pools {
		ready += len(p.ready)
		want += f.Pool
	}
	return ready, want
}
