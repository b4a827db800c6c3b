package runner

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// Carrier is a unix connection that carries open files along with its bytes. So the output of a command does not have
// to go through SSH, where each byte would be encrypted, decrypted and copied several times between two processes that
// share a page cache. Files are numbered from 1 in the order in which they are sent. Messages in the bytes refer to
// these numbers. One goroutine reads and one writes. All goroutines may call the other methods.
type Carrier struct {
	*net.UnixConn

	mu     sync.Mutex // guards the fields below
	closed bool
	queued []int // descriptors to send with the next bytes
	sent   uint64
	taken  uint64              // the highest number received
	files  map[uint64]*os.File // received, and not taken yet
	oob    []byte
}

// maxCarried is the number of files that may wait on one side. The other side sends a file and then a message about it,
// so there are never more than channels.
const maxCarried = 256

// NewCarrier returns a Carrier over conn.
func NewCarrier(conn *net.UnixConn) *Carrier {
	return &Carrier{UnixConn: conn, files: map[uint64]*os.File{}, oob: make([]byte, unix.CmsgSpace(4*maxCarried))}
}

// Send queues a descriptor and returns its number. Send takes over the descriptor. It travels with the next written
// bytes at the latest.
func (c *Carrier) Send(fd int) (uint64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || len(c.queued) >= maxCarried/2 {
		unix.Close(fd)
		return 0, errors.New("cannot send a file: the connection takes no more")
	}
	c.queued = append(c.queued, fd)
	c.sent++
	return c.sent, nil
}

// Take returns the file with number n, once. The bytes sent with it must have been read.
func (c *Carrier) Take(n uint64) (*os.File, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.files[n]
	if f == nil {
		return nil, fmt.Errorf("file %d did not arrive", n)
	}
	delete(c.files, n)
	return f, nil
}

func (c *Carrier) Write(p []byte) (int, error) {
	c.mu.Lock()
	fds := c.queued
	c.queued = nil
	c.mu.Unlock()
	if len(fds) == 0 || len(p) == 0 {
		return c.UnixConn.Write(p)
	}
	n, _, err := c.WriteMsgUnix(p, unix.UnixRights(fds...), nil)
	for _, fd := range fds {
		unix.Close(fd)
	}
	if err != nil || n == len(p) {
		return n, err
	}
	m, err := c.UnixConn.Write(p[n:])
	return n + m, err
}

func (c *Carrier) Read(p []byte) (int, error) {
	n, oobn, flags, _, err := c.ReadMsgUnix(p, c.oob)
	if oobn > 0 {
		if kerr := c.keep(c.oob[:oobn], flags); kerr != nil && err == nil {
			err = kerr
		}
	}
	if errors.Is(err, io.EOF) || n == 0 && err == nil && len(p) > 0 {
		err = io.EOF // unwrapped, as readers expect it
	}
	return max(n, 0), err
}

func (c *Carrier) keep(oob []byte, flags int) error {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return fmt.Errorf("cannot read the files of a message: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range messages {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			continue
		}
		for _, fd := range fds {
			c.taken++
			if c.closed || len(c.files) >= maxCarried {
				unix.Close(fd)
				continue
			}
			c.files[c.taken] = os.NewFile(uintptr(fd), "carried")
		}
	}
	if len(c.files) >= maxCarried || flags&unix.MSG_CTRUNC != 0 {
		return errors.New("too many files arrived that were not taken")
	}
	return nil
}

// Close closes the connection and the files that were not taken.
func (c *Carrier) Close() error {
	c.mu.Lock()
	c.closed = true
	for _, fd := range c.queued {
		unix.Close(fd)
	}
	c.queued = nil
	for n, f := range c.files {
		f.Close()
		delete(c.files, n)
	}
	c.mu.Unlock()
	return c.UnixConn.Close()
}
