package gitd

import (
	"bytes"
	"crypto/sha1"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/gitd/pack/packtest"
)

// amplified returns a pack of a few KiB whose last delta makes a file of size bytes. Each delta copies its base
// many times. tip is a commit with the file.
func amplified(t testing.TB, size int) (pack []byte, tip string) {
	t.Helper()
	b := &packtest.Builder{}
	seed := []byte("0123456789abcdef")
	at, n := b.At(), len(seed)
	b.Object(3, uint64(n), seed)
	for n < size {
		times := min(size/n, 256)
		here := b.At()
		b.Delta(here-at, packtest.Copying(n, n*times))
		at, n = here, n*times
	}
	file := bytes.Repeat(seed, n/len(seed))
	tree := append([]byte("100644 f\x00"), hashObject("blob", file)...)
	b.Object(2, uint64(len(tree)), tree)
	commit := fmt.Appendf(nil, "tree %x\nauthor a <a@b> 0 +0000\ncommitter a <a@b> 0 +0000\n\nx\n", hashObject("tree", tree))
	b.Object(1, uint64(len(commit)), commit)
	return b.Pack(), fmt.Sprintf("%x", hashObject("commit", commit))
}

// hashObject returns an object's name.
func hashObject(kind string, data []byte) []byte {
	h := sha1.New()
	fmt.Fprintf(h, "%s %d\x00", kind, len(data))
	h.Write(data)
	return h.Sum(nil)
}

// peak measures the total resident memory of the git children until end is called.
func peak(t testing.TB) (end func() int64) {
	t.Helper()
	done := make(chan struct{})
	var most int64
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			var sum int64
			for _, pid := range gitChildren(t) {
				b, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/statm")
				if f := strings.Fields(string(b)); len(f) > 1 {
					pages, _ := strconv.ParseInt(f[1], 10, 64)
					sum += pages * int64(os.Getpagesize())
				}
			}
			most = max(most, sum)
			select {
			case <-done:
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	})
	return func() int64 {
		close(done)
		wg.Wait()
		return most
	}
}

// TestAmplifiedPushes pushes small packs whose deltas make a file of exactly the limit, alone and four
// concurrently. They are refused before git gets them.
func TestAmplifiedPushes(t *testing.T) {
	w := newWire(t, nil)
	dir := w.repo("app")
	pack, tip := amplified(t, 512<<20)
	t.Logf("the pack has %d bytes", len(pack))

	for _, n := range []int{1, 4} {
		started, end := time.Now(), peak(t)
		var refused atomic.Int32
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() {
				_, said := w.post("git-receive-pack", "app",
					bytes.NewReader(pushBody(fmt.Sprintf("refs/heads/n%d-%d", n, i), tip, pack)))
				if strings.Contains(said, "copy") {
					refused.Add(1)
				} else {
					t.Logf("%q", said)
				}
			})
		}
		wg.Wait()
		most := end()
		t.Logf("%d at once: %v, git children have at most %d MiB", n,
			time.Since(started).Round(10*time.Millisecond), most>>20)
		if int(refused.Load()) != n {
			t.Errorf("%d of %d pushes were refused", refused.Load(), n)
		}
	}
	if got := stock(t, dir, "for-each-ref", "refs/heads/n*"); got != "" {
		t.Errorf("refs of refused pushes: %s", got)
	}
}
