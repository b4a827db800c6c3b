package containers

import (
	"io"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"
)

// channelConn makes a [net.Conn] of an SSH channel. It adds deadlines, which channels of the SSH library lack. Without
// them an HTTP server cannot hand over a connection (CONNECT, websockets). An expired write deadline closes the
// connection.
type channelConn struct {
	ch     ssh.Channel
	peer   string
	closed chan struct{}
	once   sync.Once

	data  chan []byte   // from pump to Read
	taken chan struct{} // from Read to pump, when Read has used the last piece

	reading sync.Mutex // one Read at a time; guards rest
	rest    []byte

	read  deadline
	write deadline
}

func newChannelConn(ch ssh.Channel, reqs <-chan *ssh.Request, peer string) *channelConn {
	c := &channelConn{ch: ch, peer: peer, closed: make(chan struct{}), data: make(chan []byte),
		taken: make(chan struct{}, 1)}
	c.read.expired = make(chan struct{})
	c.write.expired = make(chan struct{})
	go ssh.DiscardRequests(reqs) // returns when the channel is closed
	go c.pump()
	return c
}

// pump reads the channel until the channel or the connection is closed.
func (c *channelConn) pump() {
	defer close(c.data)
	buf := make([]byte, 32<<10)
	for {
		n, err := c.ch.Read(buf)
		if n > 0 {
			select {
			case c.data <- buf[:n]:
			case <-c.closed:
				return
			}
			select {
			case <-c.taken:
			case <-c.closed:
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (c *channelConn) Read(p []byte) (int, error) {
	c.reading.Lock()
	defer c.reading.Unlock()
	expired := c.read.wait()
	select {
	case <-expired:
		return 0, os.ErrDeadlineExceeded
	case <-c.closed:
		return 0, net.ErrClosed
	default:
	}
	if len(p) == 0 {
		return 0, nil
	}
	if len(c.rest) == 0 {
		select {
		case b, ok := <-c.data:
			if !ok {
				return 0, io.EOF
			}
			c.rest = b
		case <-expired:
			return 0, os.ErrDeadlineExceeded
		case <-c.closed:
			return 0, net.ErrClosed
		}
	}
	n := copy(p, c.rest)
	if c.rest = c.rest[n:]; len(c.rest) == 0 {
		c.taken <- struct{}{}
	}
	return n, nil
}

func (c *channelConn) Write(p []byte) (int, error) {
	expired := c.write.wait()
	select {
	case <-expired:
		return 0, os.ErrDeadlineExceeded
	case <-c.closed:
		return 0, net.ErrClosed
	default:
	}
	n, err := c.ch.Write(p)
	if err == nil {
		return n, nil
	}
	select {
	case <-c.write.wait():
		return n, os.ErrDeadlineExceeded
	case <-c.closed:
		return n, net.ErrClosed
	default:
		return n, err
	}
}

// CloseWrite tells the other side that no more data follows.
func (c *channelConn) CloseWrite() error { return c.ch.CloseWrite() }

func (c *channelConn) Close() error {
	c.once.Do(func() {
		close(c.closed)
		c.read.set(time.Time{}, nil)
		c.write.set(time.Time{}, nil)
		c.ch.Close()
	})
	return nil
}

func (c *channelConn) LocalAddr() net.Addr  { return channelAddr("host") }
func (c *channelConn) RemoteAddr() net.Addr { return channelAddr(c.peer) }

func (c *channelConn) SetDeadline(t time.Time) error {
	_ = c.SetReadDeadline(t)
	return c.SetWriteDeadline(t)
}

func (c *channelConn) SetReadDeadline(t time.Time) error {
	c.read.set(t, nil)
	return nil
}

func (c *channelConn) SetWriteDeadline(t time.Time) error {
	// Closing the channel is the only way to interrupt a Write that waits for the window.
	c.write.set(t, func() { c.ch.Close() })
	return nil
}

// channelAddr is the address of one side of an SSH channel.
type channelAddr string

func (channelAddr) Network() string  { return "ssh" }
func (a channelAddr) String() string { return string(a) }

// deadline has a channel that is closed at a time. The time may be moved.
type deadline struct {
	mu      sync.Mutex // guards all fields
	timer   *time.Timer
	round   int // timers of earlier rounds do nothing
	expired chan struct{}
}

func (d *deadline) wait() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.expired
}

func (d *deadline) set(t time.Time, also func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.round++
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	isExpired := false
	select {
	case <-d.expired:
		isExpired = true
	default:
	}
	wait := time.Until(t)
	if !t.IsZero() && wait <= 0 {
		if !isExpired {
			close(d.expired)
		}
		return
	}
	if isExpired {
		d.expired = make(chan struct{})
	}
	if t.IsZero() {
		return
	}
	round := d.round
	d.timer = time.AfterFunc(wait, func() {
		d.mu.Lock()
		mine := d.round == round
		if mine {
			close(d.expired)
		}
		d.mu.Unlock()
		if mine && also != nil {
			also()
		}
	})
}
