package worktree

import (
	"fmt"
	"testing"
	"time"
)

func TestBlobCacheIsBounded(t *testing.T) {
	c := BlobCache{max: 1000}
	const blob = "1234567890123456789012345678901234567890"
	file := func(n int) string { return fmt.Sprint(n) }
	for n := range c.max {
		c.put(file(n), fileState{}, blob, c.round)
	}
	round := c.nextRound()
	kept := file(7)
	if !c.isKnown(kept, fileState{}, blob, round) {
		t.Error("forgotten")
	}
	for n := range 100 {
		c.put(file(c.max+n), fileState{}, blob, round)
	}
	if n := len(c.files); n > 200 || !c.isKnown(kept, fileState{}, blob, round) {
		t.Errorf("%d files are remembered", n)
	}
	coarse := fileState{ctime: time.Unix(100, 0).UnixNano()}
	if !hasFineTimes() && isSettled(coarse, time.Unix(100, 1e6)) || !isSettled(coarse, time.Unix(101, 0)) {
		t.Error("times")
	}
}
