package shared

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

// TestSyncsAreShared checks that no caller returns before a sync that began after its
// call. All callers that come during a sync share the next one.
func TestSyncsAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Call
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
		come := func() {
			own := written.Add(1)
			if err := s.Do(call); err != nil || synced.Load() < own {
				t.Errorf("write %d returned when %d were on disk: %v", own, synced.Load(), err)
			}
		}
		go come()
		synctest.Wait() // its call has begun
		for range 49 {
			go come()
		}
		synctest.Wait() // all of them wait for the next one
		close(busy)
		synctest.Wait()
		if n := calls.Load(); n != 2 {
			t.Errorf("%d calls for one who came first and 49 who came during its call", n)
		}
	})
}
