package gitd

import (
	"bufio"
	"bytes"
	"container/list"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/gitd/gitcmd"
	"github.com/ramus-dev/ramus/gitd/protocol"
	"golang.org/x/sys/unix"
)

// replyFolder below Root is where answers are kept; its name cannot be a repository's.
const replyFolder = ".ramus-replies"

const (
	replyCacheDefault = 2 << 30
	// repliesMax bounds the number of answers that are kept.
	repliesMax = 10_000
	// saidKept bounds what git said on the way that is told to those who follow.
	saidKept = 64 << 10
	// toldMax bounds what of it is told to those who come when the answer is whole.
	toldMax = 4 << 10
	// keepAlive is how long a client that wants no progress hears nothing while git works,
	// as with git itself.
	keepAlive = 5 * time.Second
	// tailBuffer is what a follower reads at once.
	tailBuffer = 32 << 10
)

// replyKey names an answer: the repository, the request in its one form, and what
// else the answer depends on.
type replyKey [sha256.Size]byte

// replyCache keeps answers to fetches in files: one git makes each, whoever asks for the
// same meanwhile reads along, and who comes later is served by the file. Those not used
// for longest go first.
type replyCache struct {
	root string // of the server
	max  int64  // bytes

	mu      sync.Mutex // guards the fields below; taken before the lock of an answer
	dir     string     // made at need; empty: not yet
	serial  int
	replies map[replyKey]*keptReply
	recent  list.List // of *keptReply, the last used in front
	bytes   int64     // of all in recent
}

// keptReply is an answer, whole or growing.
type keptReply struct {
	key  replyKey
	repo fileID
	// wants says which deleted refs make it worthless.
	wants []Hash
	path  string

	// Guarded by the cache's lock.
	place   *list.Element // nil: it is not kept
	readers int
	making  bool
	counted int64 // of cache.bytes

	begun chan struct{} // closed when somebody makes it

	mu     sync.Mutex // guards what follows
	moved  *sync.Cond // something of it changed
	file   *os.File   // what is read from while it grows, and by who came then
	cancel context.CancelCauseFunc
	size   int64  // of what is in the file; always whole packets
	packAt int64  // where the pack's packets begin; 0: not yet
	endAt  int64  // where they end, and nothing may be said any more; 0: not yet
	said   []byte // packets of progress, for those who follow
	alive  int    // how often git has said anything of it, or that it is still at work
	told   []byte // the last of said, for those who come when it is whole
	whole  bool
	err    error // it never will be whole
	// large: it is too large to be kept. What all readers have read is given back
	// to the disk, and git waits for the slowest.
	large   bool
	punched int64
	at      map[*replyReader]int64 // how far its readers have read
}

// replyReader is one who reads an answer.
type replyReader struct {
	*keptReply
	own *os.File // of an answer that was whole
}

// errNobodyReads ends a git that nobody waits for any more.
var errNobodyReads = errors.New("nobody reads the answer any more")

// join returns the answer called key, a new one if there is none; leave must be called once.
func (c *replyCache) join(key replyKey, repo fileID, wants []Hash) (*replyReader, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	rd := &replyReader{keptReply: c.replies[key]}
	if rd.keptReply != nil {
		rd.mu.Lock()
		if rd.whole {
			var err error
			if rd.own, err = os.Open(rd.path); err != nil {
				rd.mu.Unlock()
				c.drop(rd.keptReply) // somebody cleaned up
				rd.keptReply = nil
			}
		}
		if rd.keptReply != nil {
			rd.mu.Unlock()
			c.recent.MoveToFront(rd.place)
		}
	}
	if rd.keptReply == nil {
		dir, err := c.folder()
		if err != nil {
			return nil, err
		}
		c.serial++
		e := &keptReply{key: key, repo: repo, wants: wants, path: filepath.Join(dir, strconv.Itoa(c.serial)),
			begun: make(chan struct{}), at: map[*replyReader]int64{}}
		e.moved = sync.NewCond(&e.mu)
		if c.replies == nil {
			c.replies = map[replyKey]*keptReply{}
		}
		c.replies[key] = e
		e.place = c.recent.PushFront(e)
		c.shrink()
		rd.keptReply = e
	}
	rd.readers++
	rd.mu.Lock()
	rd.at[rd] = 0
	rd.mu.Unlock()
	return rd, nil
}

// has says whether there is an answer, or somebody makes it.
func (c *replyCache) has(key replyKey) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.replies[key] != nil
}

// leave counts a reader out. Without readers nobody goes on making an answer.
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
		c.idle(e)
	}
}

// idle does what is to be done when nobody reads an answer; c.mu is held.
func (c *replyCache) idle(e *keptReply) {
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
		e.file.Close() // those who come open it for themselves
		e.file = nil
	}
}

// drop takes an answer out; who reads it has it open. c.mu is held.
func (c *replyCache) drop(e *keptReply) {
	if e.place == nil {
		return
	}
	c.recent.Remove(e.place)
	e.place = nil
	delete(c.replies, e.key)
	c.bytes -= e.counted
	e.counted = 0
	os.Remove(e.path)
}

// shrink drops what was not used for longest until the rest is small enough; c.mu is held.
// What is being read stays.
func (c *replyCache) shrink() {
	for at := c.recent.Back(); at != nil && (c.bytes > c.max || c.recent.Len() > repliesMax); {
		e := at.Value.(*keptReply)
		at = at.Prev()
		if e.readers == 0 {
			c.drop(e)
		}
	}
}

// grow counts what was added to an answer; false: it is not, or no longer, kept.
func (c *replyCache) grow(e *keptReply, n int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e.place == nil {
		return false
	}
	e.counted += n
	c.bytes += n
	if e.counted > c.max/2 {
		c.drop(e)
		return false
	}
	c.shrink()
	return true
}

// forget drops the answers of a repository that hold what deleted refs were at.
func (c *replyCache) forget(repo fileID, gone map[Hash]bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.replies {
		if e.repo == repo && slices.ContainsFunc(e.wants, func(h Hash) bool { return gone[h] }) {
			c.drop(e)
		}
	}
}

// folder makes the cache's folder, once; c.mu is held.
func (c *replyCache) folder() (string, error) {
	if c.dir != "" {
		return c.dir, nil
	}
	above := filepath.Join(c.root, replyFolder)
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

// close removes all answers. Nobody may read them any more.
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
	os.Remove(filepath.Dir(dir)) // stays where another server has it, too
	return nil
}

// begin lets git make the answer, unless it is made already: it takes a place among the
// git children for a's client. mine says that it was this call that began.
func (s *Server) begin(ctx context.Context, e *keptReply, a access, f *protocol.FetchRequest) (mine bool, err error) {
	select {
	case <-e.begun:
		return false, nil
	default:
	}
	// Whoever of those who wait gets a place first makes it for all: one client that
	// has used up its places must not keep the others waiting.
	wait, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-e.begun:
			stop(errBegun)
		case <-wait.Done():
		}
	}()
	give, err := s.slots.take(wait, a.client)
	stop(nil)
	<-watched
	if err != nil {
		if context.Cause(wait) == errBegun {
			return false, nil
		}
		return false, err
	}
	c := &s.replies
	c.mu.Lock()
	defer c.mu.Unlock()
	e.mu.Lock()
	defer e.mu.Unlock()
	select {
	case <-e.begun:
		give()
		return false, nil
	default:
	}
	if e.file, err = os.OpenFile(e.path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600); err != nil {
		give()
		return false, fmt.Errorf("cannot keep an answer: %w", err)
	}
	if e.place == nil {
		os.Remove(e.path) // it was dropped before it began
	}
	making, leave, err := s.requests.Enter(context.WithoutCancel(ctx))
	if err != nil {
		give()
		return false, err
	}
	making, e.cancel = context.WithCancelCause(making)
	e.making = true
	close(e.begun)
	go func() {
		defer leave()
		s.makeReply(making, e, a, f, give)
	}()
	return true, nil
}

// errBegun ends a wait for a place that is not needed any more.
var errBegun = errors.New("another makes it")

// makeReply lets git make an answer.
func (s *Server) makeReply(ctx context.Context, e *keptReply, a access, f *protocol.FetchRequest, give func()) {
	s.stats.packs.Add(1)
	// What is made is for all who may see the wants: nothing may depend on who asked first.
	a.grant = Grant{}
	err := s.limitedChild(ctx, a, gitcmd.Command{
		Args: []string{"upload-pack", "--stateless-rpc", a.dir},
		Env:  []string{"GIT_PROTOCOL=version=2"},
		In:   struct{ io.Reader }{bytes.NewReader(f.Render(false))},
	}, give, func(r io.Reader, _ context.CancelCauseFunc) error { return s.keep(ctx, e, r) })
	c := &s.replies
	c.mu.Lock()
	defer c.mu.Unlock()
	e.mu.Lock()
	if e.err = err; err == nil {
		e.whole, e.told = true, lastSaid(e.said)
	}
	e.moved.Broadcast()
	e.mu.Unlock()
	e.making = false
	if err != nil {
		c.drop(e)
	}
	if e.readers == 0 {
		c.idle(e)
	}
	e.cancel(nil)
}

// keep writes git's answer to e's file. What is said on the way is kept apart, for those who
// want to hear it.
func (s *Server) keep(ctx context.Context, e *keptReply, in io.Reader) error {
	defer context.AfterFunc(ctx, e.wake)()
	lines := protocol.NewReader(bufio.NewReaderSize(in, 128<<10))
	for {
		raw, kind, err := lines.NextRaw()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("cannot read git's answer: %w", err)
		}
		if e.hears(raw, kind) {
			continue
		}
		if _, err := e.file.WriteAt(raw, e.size); err != nil { // nobody else changes the two
			return fmt.Errorf("cannot keep an answer: %w", err)
		}
		kept := s.replies.grow(e, int64(len(raw)))
		e.mu.Lock()
		if kind == protocol.Flush && e.packAt > 0 {
			e.endAt = e.size
		}
		e.size += int64(len(raw))
		if kind == protocol.Data && e.packAt == 0 && string(raw[4:]) == "packfile\n" {
			e.packAt = e.size
		}
		e.large = e.large || !kept
		e.moved.Broadcast()
		if e.large {
			err = e.throttle(ctx, s.replies.max/4)
		}
		e.mu.Unlock()
		if err != nil {
			return err
		}
	}
}

// hears takes what is no part of the answer: what git says on the way.
func (e *keptReply) hears(raw []byte, kind protocol.Kind) bool {
	if kind != protocol.Data || e.packAt == 0 || len(raw) > 5 && raw[4] != protocol.BandProgress {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.alive++; len(raw) > 5 && len(e.said)+len(raw) <= saidKept {
		e.said = append(e.said, raw...)
	}
	e.moved.Broadcast()
	return true
}

// wake lets everybody look whether their context has ended.
func (e *keptReply) wake() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.moved.Broadcast()
}

// throttle waits until the slowest reader of a large answer is not further behind than
// room, and gives back to the disk what all have read. e.mu is held.
func (e *keptReply) throttle(ctx context.Context, room int64) error {
	for {
		read := e.size
		for _, at := range e.at {
			read = min(read, at)
		}
		if e.size-read <= max(room, 1<<20) {
			if read-e.punched > 16<<20 {
				// A file system that cannot do so keeps it until all is sent.
				_ = unix.Fallocate(int(e.file.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, read)
				e.punched = read
			}
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		e.moved.Wait()
	}
}

// answer is where an answer goes.
type answer interface {
	io.Writer
	// length announces how long the answer is; what is not announced is sent as it comes.
	length(n int64)
}

// send sends the answer, as far as it is there and as it grows.
func (rd *replyReader) send(ctx context.Context, progress bool, out answer) error {
	if rd.own == nil {
		return rd.follow(ctx, progress, out)
	}
	p := &reply{pieces: []replyPiece{{file: rd.own, n: rd.size}}}
	if progress && len(rd.told) > 0 {
		p.pieces = []replyPiece{{file: rd.own, n: rd.packAt}, {data: rd.told}, {file: rd.own, off: rd.packAt, n: rd.size - rd.packAt}}
	}
	out.length(p.size())
	return writeReply(out, p)
}

// emptyPkt says that there is something coming.
var emptyPkt = []byte("0005\x01")

// tails are the buffers of those who follow.
var tails = sync.Pool{New: func() any { return new([tailBuffer]byte) }}

func (rd *replyReader) follow(ctx context.Context, progress bool, out answer) error {
	buf := tails.Get().(*[tailBuffer]byte)
	defer tails.Put(buf)
	defer context.AfterFunc(ctx, rd.wake)()
	var at int64
	said, alive, last := 0, 0, time.Now()
	for {
		rd.mu.Lock()
		rd.at[rd] = at
		if rd.large {
			rd.moved.Broadcast()
		}
		for at == rd.size && alive == rd.alive && !rd.whole && rd.err == nil && ctx.Err() == nil {
			rd.moved.Wait()
		}
		if at == rd.size && alive == rd.alive {
			err := rd.err
			if err == nil && !rd.whole {
				err = context.Cause(ctx)
			}
			rd.mu.Unlock()
			return err
		}
		to := rd.size
		var packets []byte
		switch {
		case at < rd.packAt:
			to = rd.packAt // what was said belongs behind it
		case alive != rd.alive:
			// What is there ends between two packets.
			if rd.endAt > 0 {
				to = rd.endAt
			}
			if at > to {
				alive = rd.alive // too late
			} else if at == to {
				alive = rd.alive
				if progress && len(rd.said) > said {
					packets, said = rd.said[said:], len(rd.said)
				} else if time.Since(last) > keepAlive {
					packets = emptyPkt
				}
			}
		}
		rd.mu.Unlock()
		if packets != nil {
			last = time.Now()
			if _, err := out.Write(packets); err != nil {
				return fmt.Errorf("cannot send an answer: %w", err)
			}
			continue
		}
		for at < to {
			n, err := rd.file.ReadAt(buf[:min(to-at, tailBuffer)], at)
			if n == 0 {
				return fmt.Errorf("cannot read an answer: %w", err)
			}
			if _, err := out.Write(buf[:n]); err != nil {
				return fmt.Errorf("cannot send an answer: %w", err)
			}
			at, last = at+int64(n), time.Now()
			rd.mu.Lock()
			if rd.at[rd] = at; rd.large {
				rd.moved.Broadcast()
			}
			rd.mu.Unlock()
		}
	}
}

// lastSaid is what stays on a terminal of what was said: of each line what it said last,
// in one packet.
func lastSaid(said []byte) []byte {
	var text, last []byte
	lines := protocol.NewReader(bytes.NewReader(said))
	for {
		raw, _, err := lines.NextRaw()
		if err != nil {
			break
		}
		if len(raw) > 5 {
			text = append(text, raw[5:]...)
		}
	}
	for line := range bytes.Lines(text) {
		line = line[bytes.LastIndexByte(line, '\r')+1:]
		if !bytes.HasSuffix(line, []byte("\n")) || len(last)+len(line) > toldMax {
			break
		}
		last = append(last, line...)
	}
	return protocol.AppendBand(nil, protocol.BandProgress, last, protocol.MaxLine)
}
