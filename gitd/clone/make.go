package clone

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/ramus-dev/ramus/gitd/protocol"
	"golang.org/x/sys/unix"
)

const (
	// progressKept bounds the progress of git that is passed on to clients that follow.
	progressKept = 64 << 10
	// lastMax bounds the progress that later clients get when the reply is whole.
	lastMax = 4 << 10
)

// errBegun ends a wait for a git child that is no longer needed.
var errBegun = errors.New("another client began to make the reply")

// beginReply lets git make a reply, unless it has been begun. It reports whether this call began it.
func (c *Cache) beginReply(ctx context.Context, e *keptReply, req *Request) (begun bool, err error) {
	select {
	case <-e.begun:
		return false, nil
	default:
	}
	release, err := admitUnlessBegun(ctx, e, req.Client)
	if release == nil {
		return false, err
	}

	c.replies.mu.Lock()
	defer c.replies.mu.Unlock()
	e.mu.Lock()
	defer e.mu.Unlock()
	select {
	case <-e.begun:
		release()
		return false, nil
	default:
	}
	if e.file, err = os.OpenFile(e.path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600); err != nil {
		release()
		return false, fmt.Errorf("cannot keep an answer: %w", err)
	}
	if e.element == nil {
		os.Remove(e.path) // it was dropped before it began
	}
	making, leave, err := c.Requests.Enter(context.WithoutCancel(ctx))
	if err != nil {
		release()
		return false, err
	}
	making, e.cancel = context.WithCancelCause(making)
	e.making = true
	close(e.begun)
	go func() {
		defer leave()
		c.makeReply(making, e, req, release)
	}()
	return true, nil
}

// admitUnlessBegun waits for a git child of the client, or until another client has begun the reply, in
// which case release is nil. The first client that gets a child makes the reply for all, so
// a client that has used up its children does not keep the others waiting.
func admitUnlessBegun(ctx context.Context, e *keptReply, client Client) (release func(), err error) {
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
	release, err = client.Admit(wait)
	stop(nil)
	<-watched
	if err != nil {
		if context.Cause(wait) == errBegun {
			err = nil
		}
		return nil, err
	}
	return release, nil
}

// makeReply lets git make a reply.
func (c *Cache) makeReply(ctx context.Context, e *keptReply, req *Request, release func()) {
	c.packs.Add(1)
	err := req.Client.UploadPack(ctx, req.Fetch.Render(false), release, func(r io.Reader) error {
		return c.replies.keepAnswer(ctx, e, r)
	})

	c.replies.mu.Lock()
	defer c.replies.mu.Unlock()
	e.mu.Lock()
	if e.err = err; err == nil {
		e.whole, e.last = true, lastLines(e.told)
	}
	e.moved.Broadcast()
	e.mu.Unlock()
	e.making = false
	if err != nil {
		c.replies.drop(e)
	}
	if e.readers == 0 {
		c.replies.closeUnread(e)
	}
	e.cancel(nil)
}

// keepAnswer writes the answer of git to the file of e. It keeps progress apart, for clients that want it.
func (c *replyCache) keepAnswer(ctx context.Context, e *keptReply, in io.Reader) error {
	defer context.AfterFunc(ctx, e.wakeReaders)()
	lines := protocol.NewReader(bufio.NewReaderSize(in, 128<<10))
	for {
		raw, kind, err := lines.NextRaw()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("cannot read git's answer: %w", err)
		}
		if e.takeProgress(raw, kind) {
			continue
		}
		if _, err := e.file.WriteAt(raw, e.size); err != nil { // nobody else changes the two
			return fmt.Errorf("cannot keep an answer: %w", err)
		}
		kept := c.addBytes(e, int64(len(raw)))
		if err := e.advance(ctx, raw, kind, kept, c.max/4); err != nil {
			return err
		}
	}
}

// advance tells the readers of a packet that was written. It waits for slow readers of a large reply.
func (e *keptReply) advance(ctx context.Context, raw []byte, kind protocol.Kind, kept bool, room int64) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if kind == protocol.Flush && e.packAt > 0 {
		e.endAt = e.size
	}
	e.size += int64(len(raw))
	if kind == protocol.Data && e.packAt == 0 && string(raw[4:]) == "packfile\n" {
		e.packAt = e.size
	}
	e.large = e.large || !kept
	e.moved.Broadcast()
	if !e.large {
		return nil
	}
	return e.waitForReaders(ctx, room)
}

// takeProgress reports whether a packet is progress, which is no part of the reply, and keeps it.
func (e *keptReply) takeProgress(raw []byte, kind protocol.Kind) bool {
	if kind != protocol.Data || e.packAt == 0 || len(raw) > 5 && raw[4] != protocol.BandProgress {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.signs++; len(raw) > 5 && len(e.told)+len(raw) <= progressKept {
		e.told = append(e.told, raw...)
	}
	e.moved.Broadcast()
	return true
}

// wakeReaders lets all readers check whether their context has ended.
func (e *keptReply) wakeReaders() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.moved.Broadcast()
}

// waitForReaders waits until the slowest reader of a large reply has at most room bytes left to read, and
// releases the disk space that all have passed. The caller holds the lock of e.
func (e *keptReply) waitForReaders(ctx context.Context, room int64) error {
	for {
		read := e.size
		for _, at := range e.at {
			read = min(read, at)
		}
		if e.size-read <= max(room, 1<<20) {
			if read-e.released > 16<<20 {
				// A file system that cannot release it keeps it until all is sent.
				_ = unix.Fallocate(int(e.file.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, read)
				e.released = read
			}
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		e.moved.Wait()
	}
}

// lastLines returns the progress that stays on a terminal, in one packet. Of each line that is the text
// after the last carriage return.
func lastLines(told []byte) []byte {
	var text, last []byte
	lines := protocol.NewReader(bytes.NewReader(told))
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
		if !bytes.HasSuffix(line, []byte("\n")) || len(last)+len(line) > lastMax {
			break
		}
		last = append(last, line...)
	}
	return protocol.AppendBand(nil, protocol.BandProgress, last, protocol.MaxLine)
}
