package gitd

import (
	"sync"
	"sync/atomic"
	"testing"
)

// TestSyncsAreShared: nobody returns before a call that began after they came,
// and a crowd makes fewer calls than it has members.
func TestSyncsAreShared(t *testing.T) {
	var s syncer
	var written, synced, calls atomic.Int64
	busy := make(chan struct{})
	first := sync.OnceFunc(func() { <-busy })
	call := func() error {
		upTo := written.Load()
		first()
		calls.Add(1)
		synced.Store(upTo)
		return nil
	}
	var wg sync.WaitGroup
	come := func() {
		own := written.Add(1)
		if err := s.wait(call); err != nil || synced.Load() < own {
			t.Errorf("write %d returned when %d were on disk: %v", own, synced.Load(), err)
		}
	}
	for range 50 {
		wg.Go(come)
	}
	for {
		// The first call has begun and all others that came wait.
		s.mu.Lock()
		waiting := s.next != nil
		s.mu.Unlock()
		if waiting && written.Load() == 50 {
			break
		}
	}
	close(busy)
	wg.Wait()
	if n := calls.Load(); n > 25 {
		t.Errorf("%d calls for 50 who came together", n)
	}
}
