package gitd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/gitd/object"
	"github.com/ramus-dev/ramus/gitd/pack"
)

// withDefaults sets zero fields to their defaults.
func (l Limits) withDefaults() Limits {
	def := func(v *int64, d int64) {
		if *v <= 0 {
			*v = d
		}
	}
	dur := func(v *time.Duration, d time.Duration) {
		if *v <= 0 {
			*v = d
		}
	}
	def(&l.PackBytes, 2<<30)
	def(&l.Objects, 5_000_000)
	def(&l.ObjectBytes, 512<<20)
	def(&l.Memory, 4<<30)
	dur(&l.Time, time.Hour)
	dur(&l.CPU, 10*time.Minute)
	dur(&l.Idle, 2*time.Minute)
	if l.Processes <= 0 {
		l.Processes = 4 * runtime.NumCPU()
	}
	return l
}

// slotWait is the time that a request waits for a git child before it is told to try again.
const slotWait = 30 * time.Second

var errBusy = object.Refuse(ErrTooLarge, "the server is busy; try again in a minute")

// slots bounds the git children at work for all clients, and for each of them. A client that opens clones and
// reads nothing from them must not lock out all others.
type slots struct {
	all chan struct{}
	max int // of one client

	mu   sync.Mutex // guards each
	each map[string]int
}

func newSlots(n int) *slots {
	return &slots{all: make(chan struct{}, n), max: max(1, n*3/4), each: map[string]int{}}
}

// acquire waits for a git child of the client. release must be called once.
func (s *slots) acquire(ctx context.Context, client string) (release func(), err error) {
	timer := time.NewTimer(slotWait)
	defer timer.Stop()
	retry := time.NewTicker(20 * time.Millisecond)
	defer retry.Stop()
	for !s.addClient(client) {
		select {
		case <-retry.C:
		case <-timer.C:
			return nil, errBusy
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	select {
	case s.all <- struct{}{}:
	case <-timer.C:
		s.removeClient(client)
		return nil, errBusy
	case <-ctx.Done():
		s.removeClient(client)
		return nil, context.Cause(ctx)
	}
	return sync.OnceFunc(func() {
		<-s.all
		s.removeClient(client)
	}), nil
}

func (s *slots) addClient(client string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.each[client] >= s.max {
		return false
	}
	s.each[client]++
	return true
}

func (s *slots) removeClient(client string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.each[client]--; s.each[client] <= 0 {
		delete(s.each, client)
	}
}

// errIdle ends a transfer whose client neither sends nor reads anything.
var errIdle = errors.New("the client was idle for too long")

// httpBody reads the body of a request. Each Read may take no longer than idle.
type httpBody struct {
	body io.Reader
	ctl  *http.ResponseController
	idle time.Duration
	eof  bool
}

func (b *httpBody) Read(p []byte) (int, error) {
	// Connections that do not support deadlines, such as that of a container, are bounded by the time of the whole
	// request.
	_ = b.ctl.SetReadDeadline(time.Now().Add(b.idle))
	n, err := b.body.Read(p)
	b.eof = b.eof || err == io.EOF
	var timeout interface{ Timeout() bool }
	if errors.As(err, &timeout) && timeout.Timeout() {
		err = fmt.Errorf("cannot read the request: %w", errIdle)
	}
	return n, err
}

// clearDeadline removes the deadline at the end of the body. net/http continues to read in the background to
// notice a client that hangs up, and would mistake the deadline for that. If there is more to read, the deadline
// stays, because net/http reads the rest before it answers.
func (b *httpBody) clearDeadline() {
	if b.eof {
		_ = b.ctl.SetReadDeadline(time.Time{})
	}
}

// httpReply writes an answer. It sends the status with the first byte, so that an earlier failure can still be
// reported as one.
type httpReply struct {
	w     http.ResponseWriter
	ctl   *http.ResponseController
	idle  time.Duration
	until time.Time // the end of the request, however slowly the client reads
	begun bool
	sized bool // the client knows the length of the answer
}

// SetLength announces the length of the answer. An answer with a length need not be flushed.
func (r *httpReply) SetLength(n int64) {
	if !r.begun {
		r.w.Header().Set("Content-Length", strconv.FormatInt(n, 10))
		r.sized = true
	}
}

func (r *httpReply) beginReply() {
	end := time.Now().Add(r.idle)
	if end.After(r.until) {
		end = r.until
	}
	_ = r.ctl.SetWriteDeadline(end)
	if !r.begun {
		r.begun = true
		r.w.WriteHeader(http.StatusOK)
	}
}

func (r *httpReply) Write(p []byte) (int, error) {
	r.beginReply()
	n, err := r.w.Write(p)
	if err == nil && !r.sized {
		err = r.ctl.Flush()
	}
	return n, err
}

// copyBuffer is the number of bytes that are copied at once if the system cannot send a file.
const copyBuffer = 32 << 10

var copyBuffers = sync.Pool{New: func() any { return new([copyBuffer]byte) }}

// ReadFrom lets the system send a file if the connection supports it. A client must be able to read all of src
// within idle.
func (r *httpReply) ReadFrom(src io.Reader) (int64, error) {
	r.beginReply()
	in, ok := r.w.(io.ReaderFrom)
	if !ok {
		buf := copyBuffers.Get().(*[copyBuffer]byte)
		defer copyBuffers.Put(buf)
		return io.CopyBuffer(pack.WriterOnly{Writer: r}, src, buf[:])
	}
	n, err := in.ReadFrom(src)
	if err == nil && !r.sized {
		err = r.ctl.Flush()
	}
	return n, err
}
