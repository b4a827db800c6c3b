package gitd

import (
	"cmp"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// overlayCacheMax is how many files an [OverlayCache] remembers.
const overlayCacheMax = 200_000

// OverlayCache remembers which blob a file is, by path, inode, size and times: what git's
// index remembers of a file that was added. Its zero value is empty. Safe for concurrent
// use; bounded to 200,000 files. Losing it costs the reading of the files, no more.
type OverlayCache struct {
	mu    sync.Mutex // guards the fields below
	files map[string]cachedFile
	round uint64 // counts the snapshots
	max   int    // 0: overlayCacheMax
}

type cachedFile struct {
	cachedState
	blob  Hash
	round uint64 // when it was last of use
}

// cachedState changes when a file does.
type cachedState struct {
	inode              uint64
	size, mtime, ctime int64
	// under is, instead, the blob of a file that shows through from below.
	under Hash
}

func stateOf(e *OverlayEntry) cachedState {
	return cachedState{inode: e.Inode, size: e.Size, mtime: e.MTime, ctime: e.CTime}
}

// Seen remembers that a file, which was written by the caller itself before it was looked at, is
// the blob: it will not be read as long as it does not change.
func (c *OverlayCache) Seen(e OverlayEntry, blob Hash) {
	if s := stateOf(&e); settled(s, time.Now()) {
		c.put(e.Path, s, blob, c.begin())
	}
}

// begin counts a snapshot.
func (c *OverlayCache) begin() uint64 {
	if c == nil {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.round++
	return c.round
}

// is tells whether a file in this state is known to be the blob.
func (c *OverlayCache) is(path string, state cachedState, blob Hash, round uint64) bool {
	if c == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	f, ok := c.files[path]
	if !ok || f.blob != blob || f.cachedState != state {
		return false
	}
	if f.round != round {
		f.round = round
		c.files[path] = f
	}
	return true
}

func (c *OverlayCache) put(path string, state cachedState, blob Hash, round uint64) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.files == nil {
		c.files = map[string]cachedFile{}
	}
	limit := cmp.Or(c.max, overlayCacheMax)
	if _, known := c.files[path]; !known && len(c.files) >= limit {
		for path, f := range c.files {
			if f.round < round {
				delete(c.files, path)
			}
		}
		if len(c.files) >= limit {
			return
		}
	}
	// The path may be a part of a longer text that would be kept with it.
	c.files[strings.Clone(path)] = cachedFile{state, blob, round}
}

// tick is how long a file system without fine times shows one and the same time.
const tick = 20 * time.Millisecond

// settled tells whether a file that was read at a time could not have changed afterwards
// without showing it: its change time is of an earlier tick, or each change shows.
func settled(s cachedState, read time.Time) bool {
	return fineTimes() || time.Unix(0, s.ctime).Add(tick).Before(read)
}

// fineTimes: since Linux 6.13 a change that follows on somebody's look at a file's times
// (on ext4, XFS, btrfs and tmpfs) gives it another change time.
var fineTimes = sync.OnceValue(func() bool {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return false
	}
	parts := strings.FieldsFunc(unix.ByteSliceToString(u.Release[:]), func(r rune) bool { return r < '0' || r > '9' })
	if len(parts) < 2 {
		return false
	}
	major, _ := strconv.Atoi(parts[0])
	minor, _ := strconv.Atoi(parts[1])
	return major > 6 || major == 6 && minor >= 13
})
