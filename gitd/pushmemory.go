package gitd

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/gitd/object"
	"github.com/ramus-dev/ramus/gitd/pack"
)

// pushConfig is the configuration of the git children of a push. With it a push needs no more memory than
// [pack.Stats.Memory] estimates.
var pushConfig = []string{
	fmt.Sprintf("core.deltaBaseCacheLimit=%d", pack.DeltaCache),
	fmt.Sprintf("core.bigFileThreshold=%d", pack.BigFile),
	"pack.threads=1",
}

// errFull refuses a push that waited too long for memory.
var errFull = object.Refuse(ErrTooLarge,
	"the server has no memory left for this push while it takes others; try again in a minute")

// shares divides memory among pushes in the order of their arrival.
type shares struct {
	all int64

	mu      sync.Mutex // guards the fields below
	used    int64
	waiting []*share
}

// share is a push that waits for memory.
type share struct {
	bytes int64
	ready chan struct{} // closed once the push has the bytes
}

// acquire waits for bytes, or for all memory if that is less. It gives up with ctx and after slotWait. release
// must be called once.
func (s *shares) acquire(ctx context.Context, bytes int64) (release func(), err error) {
	w := &share{bytes: min(bytes, s.all), ready: make(chan struct{})}
	s.mu.Lock()
	s.waiting = append(s.waiting, w)
	s.admit()
	s.mu.Unlock()
	release = sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.used -= w.bytes
		s.admit()
	})

	timer := time.NewTimer(slotWait)
	defer timer.Stop()
	select {
	case <-w.ready:
		return release, nil
	case <-timer.C:
		err = errFull
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-w.ready: // at the same moment
		s.used -= w.bytes
	default:
		s.waiting = removeShare(s.waiting, w)
	}
	s.admit()
	return nil, err
}

// admit admits the first pushes that wait, as far as the memory suffices. The caller holds the lock.
func (s *shares) admit() {
	for len(s.waiting) > 0 && s.used+s.waiting[0].bytes <= s.all {
		s.used += s.waiting[0].bytes
		close(s.waiting[0].ready)
		s.waiting = s.waiting[1:]
	}
}

// removeShare returns list without one.
func removeShare(list []*share, one *share) []*share {
	var rest []*share
	for _, w := range list {
		if w != one {
			rest = append(rest, w)
		}
	}
	return rest
}
