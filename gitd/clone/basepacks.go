package clone

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/gitd/object"
)

const (
	// basesMax and basesBytes bound the base packs of a server.
	basesMax   = 64
	basesBytes = 8 << 30
	// basesEach bounds those of a repository for one kind of clone. One is of the base as it is, the other
	// as it was when branches were made that are still in use.
	basesEach = 2
	// baseIdle is the time after which an unused base pack releases its disk space.
	baseIdle = time.Hour
	// baseRetry is the time after which a base pack that could not be made is tried again.
	baseRetry = 10 * time.Minute
	// basesPending bounds those that wait to be made.
	basesPending = 16
)

// basePacks are the base packs of a server.
type basePacks struct {
	making sync.Mutex // held while one is made

	mu      sync.Mutex                // guards the fields below
	list    []*basePack               // the most recently used first
	pending map[baseKey]chan struct{} // closed when it is made, or cannot be
	failed  map[baseKey]time.Time
	closed  bool
}

// acquire returns the base packs of a repository, the most recently used first. Each must be released.
func (s *basePacks) acquire(repo Repo, kind Kind) []*basePack {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []*basePack
	for _, p := range s.list {
		if p.repo == repo && p.kind == kind {
			p.users++
			found = append(found, p)
		}
	}
	return found
}

// release ends the use of a base pack. used reports whether it was of use.
func (s *basePacks) release(p *basePack, used bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if used && p.kept {
		s.list = slices.DeleteFunc(s.list, func(q *basePack) bool { return q == p })
		s.list = slices.Insert(s.list, 0, p)
		p.idle.Reset(baseIdle)
	}
	p.users--
	p.closeUnused()
}

// put keeps a base pack and removes others that have no room left.
func (s *basePacks) put(p *basePack) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		p.closeUnused()
		return
	}
	p.kept = true
	p.idle = time.AfterFunc(baseIdle, func() { s.remove(func(q *basePack) bool { return q == p }) })
	s.list = slices.Insert(s.list, 0, p)

	each, bytes := 0, int64(0)
	s.removeLocked(func(q *basePack) bool {
		if bytes += q.size; q == p {
			return false
		}
		if q.baseKey == p.baseKey {
			return true
		}
		if q.repo == p.repo && q.kind == p.kind {
			each++
		}
		return each >= basesEach && q.repo == p.repo && q.kind == p.kind || bytes > basesBytes
	})
	if len(s.list) > basesMax {
		last := s.list[len(s.list)-1]
		s.removeLocked(func(q *basePack) bool { return q == last })
	}
}

// remove removes the base packs for which which returns true.
func (s *basePacks) remove(which func(*basePack) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.removeLocked(which)
}

// removeLocked is remove for callers that hold the lock. It calls which for each base pack, in order.
func (s *basePacks) removeLocked(which func(*basePack) bool) {
	s.list = slices.DeleteFunc(s.list, func(p *basePack) bool {
		if !which(p) {
			return false
		}
		p.kept = false
		p.idle.Stop()
		p.closeUnused()
		return true
	})
}

// close removes all base packs. Later ones are not kept.
func (s *basePacks) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.removeLocked(func(*basePack) bool { return true })
}

// closeUnused closes the files if nobody needs them. The caller holds the lock of basePacks, or the base pack
// was never kept.
func (p *basePack) closeUnused() {
	if p.users == 0 && !p.kept {
		p.frames.Close()
		p.index.Close()
	}
}

// beginMaking reports whether a base pack should be made, and records that it is being made.
func (s *basePacks) beginMaking(key baseKey, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.pending[key] != nil || len(s.pending) >= basesPending {
		return false
	}
	for failed, at := range s.failed {
		if now.Sub(at) > baseRetry {
			delete(s.failed, failed)
		}
	}
	if _, ok := s.failed[key]; ok || slices.ContainsFunc(s.list, func(p *basePack) bool { return p.baseKey == key }) {
		return false
	}
	if s.pending == nil {
		s.pending = map[baseKey]chan struct{}{}
	}
	s.pending[key] = make(chan struct{})
	return true
}

// endMaking records that a base pack was made, or cannot be.
func (s *basePacks) endMaking(key baseKey, err error, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.pending[key])
	delete(s.pending, key)
	if err == nil || s.closed {
		return
	}
	if s.failed == nil {
		s.failed = map[baseKey]time.Time{}
	}
	s.failed[key] = now
}

// prepareLater makes a base pack in the background, unless it exists or is being made. Closing [Cache.Git]
// ends it.
func (c *Cache) prepareLater(repo Repo, base object.Hash, kind Kind) {
	key := baseKey{repo, base, kind}
	if !c.bases.beginMaking(key, c.Now()) {
		return
	}
	ctx, done, err := c.Git.Enter(context.Background())
	if err != nil {
		c.bases.endMaking(key, err, c.Now())
		return
	}
	go func() {
		defer done()
		err := c.Prepare(ctx, repo, base, kind)
		if err != nil && ctx.Err() == nil {
			c.Log.Warn("cannot prepare clones", "repo", repo.Name(), "base", base, "err", err)
		}
		c.bases.endMaking(key, err, c.Now())
	}()
}
