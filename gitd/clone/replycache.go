package clone

import (
	"container/list"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"

	"github.com/ramus-dev/ramus/gitd/object"
)

// maxReplies bounds the number of kept replies.
const maxReplies = 10_000

// replyKey names a reply by the repository, the normalized request, and all else that the reply depends on.
type replyKey [sha256.Size]byte

// replyCache keeps replies in files. The least recently used ones go first.
type replyCache struct {
	root string // of the server
	max  int64  // bytes

	mu      sync.Mutex // guards the fields below, taken before the lock of a reply
	dir     string     // made at first use
	serial  int
	replies map[replyKey]*keptReply
	recent  list.List // of *keptReply, the most recently used first
	bytes   int64     // of all in recent
}

// keptReply is a reply, whole or growing.
type keptReply struct {
	key  replyKey
	repo Repo
	// wants are the objects whose deleted refs make the reply worthless.
	wants []object.Hash
	path  string

	// Guarded by the lock of the cache.
	element *list.Element // nil if the reply is not kept
	readers int
	making  bool
	counted int64 // of replyCache.bytes

	begun chan struct{} // closed when git begins to make it

	mu     sync.Mutex // guards the fields below
	moved  *sync.Cond // signals any change of them
	file   *os.File   // read while the reply grows, and by clients that joined then
	cancel context.CancelCauseFunc
	size   int64  // bytes in the file, always whole packets
	packAt int64  // where the packets of the pack begin, 0 if not yet known
	endAt  int64  // where they end, after which no progress may be sent, 0 if not yet known
	told   []byte // packets of progress, for clients that follow
	signs  int    // how often git reported progress, or that it is still at work
	last   []byte // the last progress, for clients that come when the reply is whole
	whole  bool
	err    error // the reply will never be whole
	// large means that the reply is too large to be kept. The disk space that all readers have passed is
	// released, and git waits for the slowest reader.
	large    bool
	released int64
	at       map[*replyReader]int64 // the position of each reader
}

// replyReader is a client that reads a reply.
type replyReader struct {
	*keptReply
	own *os.File // set if the reply was whole when the client joined
}

// errNobodyReads ends a git whose reply has no readers left.
var errNobodyReads = errors.New("no client reads the answer")

// join returns a reader of the reply called key. It makes a new reply if there is none. leave must be called once.
func (c *replyCache) join(key replyKey, repo Repo, wants []object.Hash) (*replyReader, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	rd := c.openReply(key)
	if rd == nil {
		e, err := c.addReply(key, repo, wants)
		if err != nil {
			return nil, err
		}
		rd = &replyReader{keptReply: e}
	}
	rd.readers++
	rd.mu.Lock()
	rd.at[rd] = 0
	rd.mu.Unlock()
	return rd, nil
}

// openReply returns a reader of a kept reply, or nil if there is none. The caller holds the lock.
func (c *replyCache) openReply(key replyKey) *replyReader {
	e := c.replies[key]
	if e == nil {
		return nil
	}
	rd := &replyReader{keptReply: e}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.whole {
		var err error
		if rd.own, err = os.Open(e.path); err != nil {
			c.drop(e) // somebody removed the file
			return nil
		}
	}
	c.recent.MoveToFront(e.element)
	return rd
}

// addReply adds a reply that is still to be made. The caller holds the lock.
func (c *replyCache) addReply(key replyKey, repo Repo, wants []object.Hash) (*keptReply, error) {
	dir, err := c.folder()
	if err != nil {
		return nil, err
	}
	c.serial++
	e := &keptReply{
		key: key, repo: repo, wants: wants, path: filepath.Join(dir, strconv.Itoa(c.serial)),
		begun: make(chan struct{}), at: map[*replyReader]int64{},
	}
	e.moved = sync.NewCond(&e.mu)
	if c.replies == nil {
		c.replies = map[replyKey]*keptReply{}
	}
	c.replies[key] = e
	e.element = c.recent.PushFront(e)
	c.evict()
	return e, nil
}

// hasReply reports whether there is a reply, or one is being made.
func (c *replyCache) hasReply(key replyKey) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.replies[key] != nil
}

// size returns the bytes of kept replies.
func (c *replyCache) size() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bytes
}

// leave removes a reader. A reply without readers is not made any further.
func (c *replyCache) leave(rd *replyReader) {
	if rd.own != nil {
		rd.own.Close()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	e := rd.keptReply
	e.mu.Lock()
	delete(e.at, rd)
	e.moved.Broadcast()
	e.mu.Unlock()
	if e.readers--; e.readers == 0 {
		c.closeUnread(e)
	}
}

// closeUnread releases the resources of a reply without readers. The caller holds the lock.
func (c *replyCache) closeUnread(e *keptReply) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.whole {
		c.drop(e)
	}
	if e.making {
		e.cancel(errNobodyReads)
		return
	}
	if e.file != nil {
		e.file.Close() // later readers open it for themselves
		e.file = nil
	}
}

// drop removes a reply. Its readers have the file open. The caller holds the lock.
func (c *replyCache) drop(e *keptReply) {
	if e.element == nil {
		return
	}
	c.recent.Remove(e.element)
	e.element = nil
	delete(c.replies, e.key)
	c.bytes -= e.counted
	e.counted = 0
	os.Remove(e.path)
}

// evict drops the least recently used replies until the rest is within the bounds. It keeps replies that are
// being read. The caller holds the lock.
func (c *replyCache) evict() {
	for at := c.recent.Back(); at != nil && (c.bytes > c.max || c.recent.Len() > maxReplies); {
		e := at.Value.(*keptReply)
		at = at.Prev()
		if e.readers == 0 {
			c.drop(e)
		}
	}
}

// addBytes counts n further bytes of a reply. It reports false if the reply is not, or no longer, kept.
func (c *replyCache) addBytes(e *keptReply, n int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e.element == nil {
		return false
	}
	e.counted += n
	c.bytes += n
	if e.counted > c.max/2 {
		c.drop(e)
		return false
	}
	c.evict()
	return true
}

// forget drops the replies of a repository for wants at which deleted refs were.
func (c *replyCache) forget(repo Repo, deleted map[object.Hash]bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.replies {
		if e.repo == repo && slices.ContainsFunc(e.wants, func(h object.Hash) bool { return deleted[h] }) {
			c.drop(e)
		}
	}
}

// folder makes the folder of the cache once. The caller holds the lock.
func (c *replyCache) folder() (string, error) {
	if c.dir != "" {
		return c.dir, nil
	}
	above := filepath.Join(c.root, Folder)
	if err := os.MkdirAll(above, 0o700); err != nil {
		return "", fmt.Errorf("cannot keep answers: %w", err)
	}
	dir, err := os.MkdirTemp(above, "")
	if err != nil {
		return "", fmt.Errorf("cannot keep answers: %w", err)
	}
	c.dir = dir
	return dir, nil
}

// close removes all replies. They must no longer be read.
func (c *replyCache) close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.replies {
		c.drop(e)
	}
	if c.dir == "" {
		return nil
	}
	dir := c.dir
	c.dir = ""
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("cannot remove the answers that were kept: %w", err)
	}
	os.Remove(filepath.Dir(dir)) // stays if another server uses it, too
	return nil
}
