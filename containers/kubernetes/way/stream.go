package way

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// Kinds of frames between the two ends of a [Stream].
const (
	FrameHello   = 16 // to the host, first: the position up to which the other end has received, in eight bytes
	FrameRefused = 17 // to the host, in place of FrameHello: why not
	FrameData    = 18
	FrameAck     = 19 // the position up to which the data were read, in eight bytes; also a sign of life
	FrameBye     = 20 // the last data were sent
)

const (
	// streamWindow bounds the data that one end has sent and the other has not read, in bytes.
	streamWindow = 1 << 20
	// ackAfter is the number of bytes after which a reader lets the other end forget them.
	ackAfter = 64 << 10
	// idleBuffer is the size of a buffer until there are more data at once, in bytes. Most of a thousand streams are idle.
	idleBuffer = 4 << 10
	// aliveEvery is the pause between two signs of life on a carrier. A carrier that is silent for silence is given up.
	aliveEvery = 5 * time.Second
	silence    = 20 * time.Second
)

// Stream is one end of a stream of bytes in both directions that outlives its carriers. A carrier is a connection, such
// as the streams of an exec. While there is none, Read waits and Write keeps up to a window of data. Nothing is lost or
// repeated when the next carrier comes. All methods may be called concurrently. Make one with [NewStream].
type Stream struct {
	mu      sync.Mutex // guards the fields below
	changed *sync.Cond // one of the fields has changed
	out     []byte     // written, and not known to be received
	outAt   int64      // the position of out[0]
	readAt  int64      // the position up to which the other end is known to have read
	in      []byte     // received, and not read
	inAt    int64      // the position of in[0]
	over    bool       // the other end has sent its last byte
	closing bool       // nothing more is written
	told    bool       // the other end knows that
	err     error      // the stream has failed
	carrier io.Closer  // nil without one
	readBy  time.Time
	writeBy time.Time
}

// NewStream returns a stream without a carrier.
func NewStream() *Stream {
	s := &Stream{}
	s.changed = sync.NewCond(&s.mu)
	return s
}

// Received returns the position up to which data were received. The other end goes on there on the next carrier.
func (s *Stream) Received() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.inAt + int64(len(s.in))
}

// Read reads the bytes of the other end. Returns [io.EOF] after its last byte.
func (s *Stream) Read(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.in) == 0 {
		switch {
		case s.err != nil:
			return 0, s.err
		case s.over:
			return 0, io.EOF
		case expired(s.readBy):
			return 0, os.ErrDeadlineExceeded
		}
		s.changed.Wait()
	}
	n := copy(p, s.in)
	s.in = s.in[n:]
	s.inAt += int64(n)
	s.changed.Broadcast()
	return n, nil
}

// Write keeps data until the other end has received them. It waits while a window of data is not read.
func (s *Stream) Write(p []byte) (n int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(p) > 0 {
		switch {
		case s.err != nil:
			return n, s.err
		case s.closing:
			return n, net.ErrClosed
		case expired(s.writeBy):
			return n, os.ErrDeadlineExceeded
		}
		k := min(len(p), int(streamWindow-(s.outAt+int64(len(s.out))-s.readAt)))
		if k <= 0 {
			s.changed.Wait()
			continue
		}
		s.out = append(s.out, p[:k]...)
		n, p = n+k, p[k:]
		s.changed.Broadcast()
	}
	return n, nil
}

// CloseWrite has the other end read [io.EOF] after all that was written.
func (s *Stream) CloseWrite() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closing = true
	s.changed.Broadcast()
}

// Told waits until the other end was told of [Stream.CloseWrite], the stream has failed or has no carrier, or a time is
// over.
func (s *Stream) Told(within time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	until := time.Now().Add(within)
	defer s.wake(until)()
	for !s.told && s.err == nil && s.carrier != nil && !expired(until) {
		s.changed.Wait()
	}
}

// Fail ends the stream at this end. Read returns err after the data that were received.
func (s *Stream) Fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
	}
	if s.carrier != nil {
		s.carrier.Close()
	}
	s.changed.Broadcast()
}

// Ended reports whether no carrier is needed any more: the stream has failed, or both ends have sent their last byte,
// or the other end has, and this one does not write.
func (s *Stream) Ended() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.endedLocked()
}

func (s *Stream) endedLocked() bool { return s.err != nil || s.told || s.over }

// Detach closes the carrier and waits until [Stream.Carry] has returned.
func (s *Stream) Detach() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.carrier != nil {
		s.carrier.Close()
		s.changed.Wait()
	}
}

// Carry passes data over a carrier until that breaks or the stream ends, and closes the carrier. received is the
// position up to which the other end has received. Only one carrier is used at a time. An error means that the carrier
// broke; see [Stream.Ended].
func (s *Stream) Carry(c io.ReadWriteCloser, received int64) error {
	s.mu.Lock()
	if s.carrier != nil || received < s.outAt || received > s.outAt+int64(len(s.out)) {
		defer s.mu.Unlock()
		c.Close()
		return fmt.Errorf("cannot go on at position %d: the data from %d to %d are here", received, s.outAt,
			s.outAt+int64(len(s.out)))
	}
	s.carrier = c
	s.forgetLocked(received)
	s.mu.Unlock()

	var sending sync.WaitGroup
	var sent error
	stop := make(chan struct{})
	sending.Go(func() {
		if sent = s.send(c, received, stop); sent != nil {
			c.Close()
		}
	})
	err := s.receive(c)
	close(stop)
	c.Close()
	s.mu.Lock()
	s.changed.Broadcast()
	s.mu.Unlock()
	sending.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.carrier = nil
	s.changed.Broadcast()
	if s.endedLocked() {
		return nil
	}
	return errors.Join(sent, err)
}

// forgetLocked drops the data that the other end has.
func (s *Stream) forgetLocked(upto int64) {
	s.out = s.out[upto-s.outAt:]
	s.outAt = upto
}

// receive takes over the frames of a carrier until it breaks.
func (s *Stream) receive(c io.Reader) error {
	buf := make([]byte, 0, idleBuffer)
	r := bufio.NewReaderSize(c, idleBuffer) // longer data are read past it
	deadline, _ := c.(interface{ SetReadDeadline(time.Time) error })
	for {
		if deadline != nil {
			_ = deadline.SetReadDeadline(time.Now().Add(silence))
		}
		kind, data, err := ReadFrame(r, buf)
		if err == nil {
			err = s.takeFrame(kind, data)
		}
		if err != nil {
			return err
		}
		buf = data[:0]
	}
}

func (s *Stream) takeFrame(kind byte, data []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch kind {
	case FrameData:
		if s.over || len(s.in)+len(data) > streamWindow {
			return errors.New("the other end sends more than it may")
		}
		s.in = append(s.in, data...)
	case FrameAck:
		upto, err := position(data)
		if err != nil {
			return err
		}
		if upto > s.outAt+int64(len(s.out)) {
			return fmt.Errorf("the other end has read up to %d, and nothing was sent there", upto)
		}
		s.readAt = max(s.readAt, upto)
		s.forgetLocked(max(s.outAt, upto))
	case FrameBye:
		s.over = true
	default:
		return fmt.Errorf("the other end sends a frame of kind %d", kind)
	}
	s.changed.Broadcast()
	if kind == FrameBye {
		return io.EOF // the last frame
	}
	return nil
}

// send writes the frames of a carrier from a position of out, until it breaks or stop is closed.
func (s *Stream) send(c io.Writer, at int64, stop <-chan struct{}) error {
	w := &FrameWriter{W: c}
	buf := make([]byte, 0, idleBuffer)
	acked := int64(-1) // the first frame is a sign of life
	var alive time.Time
	for {
		kind, data, err := s.next(&at, &acked, &alive, buf, stop)
		if err != nil || kind == 0 {
			return err
		}
		if err := w.Frame(kind, data); err != nil {
			return err
		}
		buf = data[:0]
		if kind == FrameBye {
			s.mu.Lock()
			s.told = true
			s.changed.Broadcast()
			s.mu.Unlock()
			return nil
		}
	}
}

// next waits for the next frame to send. Kind 0 means that the carrier has ended.
func (s *Stream) next(at, acked *int64, alive *time.Time, buf []byte, stop <-chan struct{}) (byte, []byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.wake(*alive)()
	for {
		select {
		case <-stop:
			return 0, nil, nil
		default:
		}
		if s.err != nil {
			return 0, nil, s.err
		}
		end := s.outAt + int64(len(s.out))
		switch {
		case s.inAt-*acked >= ackAfter || expired(*alive) || *acked < 0:
			*acked, *alive = s.inAt, time.Now().Add(aliveEvery)
			return FrameAck, binary.BigEndian.AppendUint64(buf[:0], uint64(s.inAt)), nil
		case *at < end:
			from := s.out[max(0, *at-s.outAt):]
			buf = append(buf[:0], from[:min(len(from), maxFrame)]...)
			*at = max(*at, s.outAt) + int64(len(buf))
			return FrameData, buf, nil
		case s.closing:
			return FrameBye, nil, nil
		}
		s.changed.Wait()
	}
}

// wake has all that wait look at the time when it has come. The stream is locked.
func (s *Stream) wake(at time.Time) (stop func()) {
	if at.IsZero() {
		return func() {}
	}
	timer := time.AfterFunc(time.Until(at)+time.Millisecond, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.changed.Broadcast()
	})
	return func() { timer.Stop() }
}

func expired(t time.Time) bool { return !t.IsZero() && !time.Now().Before(t) }

// SetReadDeadline bounds the wait of Read. The zero value means no limit.
func (s *Stream) SetReadDeadline(t time.Time) error { return s.setDeadline(&s.readBy, t) }

// SetWriteDeadline bounds the wait of Write. The zero value means no limit.
func (s *Stream) SetWriteDeadline(t time.Time) error { return s.setDeadline(&s.writeBy, t) }

func (s *Stream) setDeadline(which *time.Time, t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	*which = t
	s.wake(t) // a timer that is too early or too late wakes nobody who has nothing to do
	s.changed.Broadcast()
	return nil
}

// position reads a position in a frame.
func position(data []byte) (int64, error) {
	if len(data) != 8 {
		return 0, fmt.Errorf("a position has %d bytes", len(data))
	}
	n := int64(binary.BigEndian.Uint64(data))
	if n < 0 {
		return 0, errors.New("a position is too large")
	}
	return n, nil
}
