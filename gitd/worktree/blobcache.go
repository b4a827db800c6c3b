package worktree

import (
	"cmp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/gitd/object"
	"golang.org/x/sys/unix"
)

// cachedFilesMax is the number of files that a [BlobCache] remembers.
const cachedFilesMax = 200_000

// BlobCache remembers the blob of a file by path, inode, size and times, as git's index does for a file that was
// added. The zero value is empty and ready for use. It remembers at most 200,000 files. Without it, files are read
// again, and nothing else changes. BlobCache is safe for concurrent use.
type BlobCache struct {
	mu    sync.Mutex // guards the fields below
	files map[string]cachedFile
	round uint64 // counts the snapshots
	max   int    // zero means cachedFilesMax
}

// cachedFile is a file that a cache remembers.
type cachedFile struct {
	fileState
	blob  object.Hash
	round uint64 // when it was last of use
}

// fileState changes when a file does.
type fileState struct {
	inode              uint64
	size, mtime, ctime int64
	// lower is, in place of the others, the blob of a lower file.
	lower object.Hash
}

func stateOf(e *OverlayEntry) fileState {
	return fileState{inode: e.Inode, size: e.Size, mtime: e.MTime, ctime: e.CTime}
}

// Add remembers the blob of a file that the caller wrote before e was read from the disk. The file will not be
// read as long as it does not change.
func (c *BlobCache) Add(e OverlayEntry, blob object.Hash) {
	if s := stateOf(&e); isSettled(s, time.Now()) {
		c.put(e.Path, s, blob, c.nextRound())
	}
}

// nextRound counts a snapshot.
func (c *BlobCache) nextRound() uint64 {
	if c == nil {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.round++
	return c.round
}

// isKnown reports whether a file in this state is known to be the blob.
func (c *BlobCache) isKnown(path string, state fileState, blob object.Hash, round uint64) bool {
	if c == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	f, ok := c.files[path]
	if !ok || f.blob != blob || f.fileState != state {
		return false
	}
	if f.round != round {
		f.round = round
		c.files[path] = f
	}
	return true
}

// put remembers a file. If the cache is full, it forgets the files that were of no use in this round.
func (c *BlobCache) put(path string, state fileState, blob object.Hash, round uint64) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.files == nil {
		c.files = map[string]cachedFile{}
	}
	limit := cmp.Or(c.max, cachedFilesMax)
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
	// The path may be a part of a longer text, which would stay in memory with it.
	c.files[strings.Clone(path)] = cachedFile{state, blob, round}
}

// clockTick is the time for which a file system with coarse times shows the same time.
const clockTick = 20 * time.Millisecond

// isSettled reports whether a file that was read at a time would show any later change. Its change time
// is of an earlier tick, or each change shows.
func isSettled(s fileState, read time.Time) bool {
	return hasFineTimes() || time.Unix(0, s.ctime).Add(clockTick).Before(read)
}

// hasFineTimes reports whether a change that follows a stat of a file gives it another change time. That is
// the case since Linux 6.13 on ext4, XFS, btrfs and tmpfs.
var hasFineTimes = sync.OnceValue(func() bool {
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
