package containers

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// poolKind is what containers must have in common to be interchangeable.
type poolKind struct {
	image  string
	env    string // joined by NUL
	limits Limits
}

func kindOf(r Request) poolKind {
	return poolKind{r.Image, strings.Join(r.Env, "\x00"), r.Limits.WithDefaults()}
}

// A pool is the containers of one kind that wait for callers. Its fields are guarded
// by the fleet's mutex.
type pool struct {
	like    Request // image, environment, limits and Warm of the latest request
	ready   []*candidate
	asked   time.Time // for one of these, latest
	kept    bool      // asked for by [Fleet.Warm]: however long ago
	fails   int       // in a row
	err     error     // the latest failure
	after   time.Time // when the next is tried
	changed chan struct{}
}

const (
	// poolLinger is how long a pool is kept that nobody takes from.
	poolLinger = time.Hour
	// maxPools is how many kinds are kept: images that tasks name are many, and each
	// that waits takes memory.
	maxPools = 8
	// poolRest is how long nobody may have taken a container before the next is made. Where
	// callers never cease to take them it is waited for poolRestMax in all, until the pools
	// are full again; while one is being made for a caller, none is for a pool.
	poolRest, poolRestMax = 300 * time.Millisecond, 2 * time.Second
	// poolPause is the wait after a container for the pool could not be made; twice as long
	// each time, up to maxPoolPause.
	poolPause, maxPoolPause = 5 * time.Second, 5 * time.Minute
)

func (p *pool) changedLocked() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// poolLocked is the pool for a request, made when there is none, in the place of the one
// that was asked for the longest ago; nil when there can be none.
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

// giveUpPoolLocked empties the pool that was asked for the longest ago.
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

// takePooledLocked takes a container that fits out of its pool; nil when none waits.
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

// shortLocked is the pool that lacks a container the longest; nil when none does.
func (f *Fleet) shortLocked() *pool {
	var short *pool
	for _, p := range f.pools {
		if len(p.ready) < f.Pool && !p.after.After(f.now()) && (short == nil || len(p.ready) < len(short.ready)) {
			short = p
		}
	}
	return short
}

// fillLocked sees to it that the pools are filled.
func (f *Fleet) fillLocked() {
	if f.filling || f.closed || f.shortLocked() == nil {
		return
	}
	f.filling = true
	f.lacking = time.Now()
	f.tasks.Go(f.fill)
}

// yieldLocked waits once, the mutex given up meanwhile, where a caller's container is
// being made, or was taken a moment ago: those who come want the machine for their first
// commands. It tells whether it waited. since is from when on there is something to do.
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

// fill makes containers for the pools, one after another, when callers leave it the machine.
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
			p.ready = append(p.ready, v)
			p.fails, p.err = 0, nil
			p.changedLocked()
		}
		f.mu.Unlock()
		if err == nil {
			f.event(FleetEvent{What: "pooled", ID: v.made.ID, Took: f.now().Sub(began)})
		} else {
			if f.base.Err() == nil {
				f.log().Warn("the pool lacks a container", "image", like.Image, "err", err)
			}
			f.discardCandidate(v)
		}
		f.mu.Lock()
	}
}

// startingLocked tells whether a container is being made, or found again, for a caller.
func (f *Fleet) startingLocked() bool {
	for _, b := range f.slots {
		if b.state == slotStarting {
			return true
		}
	}
	return false
}

// tidyPools does what time brings to the pools: what died in them is removed, pools
// that nobody asks for are given up, what could not be made is tried again.
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

// drain empties the pools for good.
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

// Warm makes the pool for requests like r ready, and keeps it so until Close. It returns
// when the pool is full, at once where the fleet has none; when a container cannot be
// made it returns why, and when ctx ends first, its error: the fleet goes on all the same.
// Of the request only Image, Env, Limits and Warm count.
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

// Pooled tells how many containers wait for callers, and how many should.
func (f *Fleet) Pooled() (ready, want int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range f.pools {
		ready += len(p.ready)
		want += f.Pool
	}
	return ready, want
}
