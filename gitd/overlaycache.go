package gitd

import (
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
}

type cachedFile struct {
	inode              uint64
	size, mtime, ctime int64
	blob               Hash
	round              uint64 // when it was last of use
}

// Seen remembers that a file, which was written by the caller itself, is the blob: it will
// not be read as long as it does not change.
func (c *OverlayCache) Seen(e OverlayEntry, blob Hash) {
	c.put(e, blob, c.begin())
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

// is tells whether the file is known to be the blob.
func (c *OverlayCache) is(e *OverlayEntry, blob Hash, round uint64) bool {
	if c == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	f, ok := c.files[e.Path]
	if !ok || f.blob != blob || f.inode != e.Inode || f.size != e.Size || f.mtime != e.MTime || f.ctime != e.CTime {
		return false
	}
	f.round = round
	c.files[e.Path] = f
	return true
}

func (c *OverlayCache) put(e OverlayEntry, blob Hash, round uint64) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.files == nil {
		c.files = map[string]cachedFile{}
	}
	if _, known := c.files[e.Path]; !known && len(c.files) >= overlayCacheMax {
		for path, f := range c.files {
			if f.round < round {
				delete(c.files, path)
			}
		}
		if len(c.files) >= overlayCacheMax {
			return
		}
	}
	// The path may be a part of a longer text that would be kept with it.
	c.files[strings.Clone(e.Path)] = cachedFile{e.Inode, e.Size, e.MTime, e.CTime, blob, round}
}

// tick is how long a file system without fine times shows one and the same time.
const tick = 20 * time.Millisecond

// settled tells whether a file that was read at a time could not have changed afterwards
// without showing it: its change time is of an earlier tick, or each change shows.
func settled(e *OverlayEntry, read time.Time) bool {
	return fineTimes() || time.Unix(0, e.CTime).Add(tick).Before(read)
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
