package way

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// endpoint serves sessions to a socket that echoes, and returns the paths of both.
func endpoint(t *testing.T) (served *sessions, path, echo string) {
	t.Helper()
	dir := t.TempDir()
	listen := func(name string) net.Listener {
		l, err := net.Listen("unix", filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		return l
	}
	served = newSessions(dialSocket)
	go served.accept(listen("way"))
	e := listen("echo")
	go func() {
		for {
			c, err := e.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				io.Copy(c, c)
			}()
		}
	}()
	t.Cleanup(func() {
		served.mu.Lock()
		defer served.mu.Unlock()
		for name, one := range served.open {
			served.endLocked(name, one)
		}
	})
	return served, filepath.Join(dir, "way"), filepath.Join(dir, "echo")
}

// open opens a carrier, and returns it with the position up to which the other end has received.
func open(t *testing.T, path string, o Opening) (net.Conn, int64, error) {
	t.Helper()
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	c.SetDeadline(time.Now().Add(time.Minute))
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := (&FrameWriter{W: c}).Frame(FrameHello, text); err != nil {
		t.Fatal(err)
	}
	kind, data, err := ReadFrame(c, nil)
	if err != nil || kind != FrameHello {
		c.Close()
		return nil, 0, errors.Join(err, errors.New(string(data)))
	}
	return c, int64(binary.BigEndian.Uint64(data)), nil
}

// cutting is a carrier that breaks after a number of bytes.
type cutting struct {
	net.Conn
	mu   sync.Mutex
	left int // guarded by mu
}

func (c *cutting) use(n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n = min(n, c.left)
	c.left -= n
	return n
}

func (c *cutting) Read(p []byte) (int, error) {
	n := c.use(len(p))
	if n == 0 {
		c.Close()
		return 0, io.ErrUnexpectedEOF
	}
	return c.Conn.Read(p[:n])
}

func (c *cutting) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p[:c.use(len(p))])
	if err == nil && n < len(p) {
		c.Close()
		err = io.ErrClosedPipe
	}
	return n, err
}

// What is written comes back whole and once, however often the carrier breaks.
func TestStreamOutlivesItsCarriers(t *testing.T) {
	_, path, echo := endpoint(t)
	s := NewStream()
	carriers := 0
	done := make(chan struct{})
	go func() {
		defer close(done)
		for !s.Ended() {
			o := Opening{Session: "one", Engine: "test", Socket: echo, Received: s.Received()}
			c, position, err := open(t, path, o)
			if err != nil {
				s.Fail(err)
				return
			}
			carriers++
			s.Carry(&cutting{Conn: c, left: 1 + rand.IntN(1<<20)}, position)
		}
	}()
	const size = 8 << 20
	sent, got := sha256.New(), sha256.New()
	go func() {
		r := rand.NewChaCha8([32]byte{1})
		buf := make([]byte, 100_000)
		for left := size; left > 0; {
			n := min(left, 1+rand.IntN(len(buf)))
			r.Read(buf[:n])
			sent.Write(buf[:n])
			if _, err := s.Write(buf[:n]); err != nil {
				t.Error(err)
				return
			}
			left -= n
		}
	}()
	s.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := io.CopyN(got, s, size); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(sent.Sum(nil), got.Sum(nil)) {
		t.Error("the data that come back are not those that were sent")
	}
	s.CloseWrite()
	<-done
	if carriers < 10 {
		t.Errorf("only %d carriers were used", carriers)
	}
}

func TestSessions(t *testing.T) {
	served, path, echo := endpoint(t)
	count := func() int {
		served.mu.Lock()
		defer served.mu.Unlock()
		return len(served.open)
	}
	await := func(n int) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); count() != n; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%d sessions, not %d", count(), n)
			}
		}
	}
	if _, _, err := open(t, path, Opening{Session: "x", Engine: "a", Socket: echo, Received: 5}); err == nil ||
		!strings.Contains(err.Error(), "over") {
		t.Errorf("a session that is not known goes on: %v", err)
	}
	if _, _, err := open(t, path, Opening{Session: "x", Engine: "a", Socket: echo + "no"}); err == nil ||
		!strings.Contains(err.Error(), "runner") {
		t.Errorf("a runner that is not there: %v", err)
	}
	first, _, err := open(t, path, Opening{Session: "x", Engine: "a", Socket: echo})
	if err != nil {
		t.Fatal(err)
	}
	// The first carrier is lost without a sign of it here.
	second, _, err := open(t, path, Opening{Session: "x", Engine: "a", Socket: echo})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, first); err != nil {
		t.Errorf("the first carrier: %v", err)
	}
	await(1)
	// A session of a process that has ended does not outlive the next process.
	second.Close()
	third, _, err := open(t, path, Opening{Session: "y", Engine: "b", Socket: echo})
	if err != nil {
		t.Fatal(err)
	}
	defer third.Close()
	for deadline := time.Now().Add(time.Minute); count() != 1; time.Sleep(time.Millisecond) {
		served.mu.Lock()
		served.forgetLocked("b")
		served.mu.Unlock()
		if time.Now().After(deadline) {
			t.Fatal("the session of another process stays")
		}
	}
	// A stream that is closed ends its session.
	s := NewStream()
	s.CloseWrite()
	c, position, err := open(t, path, Opening{Session: "z", Engine: "b", Socket: echo})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Carry(c, position); err != nil {
		t.Error(err)
	}
	await(1)
	var carriers []net.Conn
	for n := range maxSessions - 1 {
		c, _, err := open(t, path, Opening{Session: string(rune('a' + n)), Engine: "b", Socket: echo})
		if err != nil {
			t.Fatal(err)
		}
		carriers = append(carriers, c)
	}
	if _, _, err := open(t, path, Opening{Session: "more", Engine: "b", Socket: echo}); err == nil {
		t.Error("sessions are not bounded")
	}
	for _, c := range carriers {
		c.Close()
	}
}

// A stream that waits takes little memory, because a server has one for each of a thousand containers. Data of any length pass it.
func TestIdleStreamTakesLittle(t *testing.T) {
	const pairs, most = 100, 48 << 10 // bytes for both ends, with the stacks of their goroutines
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc + m.StackInuse
	}
	before := heap()
	var ends []*Stream
	var carrying sync.WaitGroup
	for range pairs {
		here, there := net.Pipe()
		a, b := NewStream(), NewStream()
		carrying.Go(func() { a.Carry(here, 0) })
		carrying.Go(func() { b.Carry(there, 0) })
		ends = append(ends, a, b)
		if _, err := a.Write([]byte("a word")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(b, make([]byte, 6)); err != nil {
			t.Fatal(err)
		}
	}
	if each := (heap() - before) / pairs; each > most {
		t.Errorf("an idle stream takes %d bytes; at most %d are expected", each, most)
	}
	text := bytes.Repeat([]byte("0123456789"), 30_000)
	go ends[0].Write(text)
	got := make([]byte, len(text))
	if _, err := io.ReadFull(ends[1], got); err != nil || !bytes.Equal(got, text) {
		t.Errorf("long data: %v", err)
	}
	for _, s := range ends {
		s.Fail(net.ErrClosed)
	}
	carrying.Wait()
}

// A server in another process than the pod's serves what the pod would, over any carrier, and its end is that of the pod.
func TestServer(t *testing.T) {
	_, _, echo := endpoint(t)
	const socket = "/inside/runner.sock"
	s := NewServer(func(path string) (net.Conn, error) {
		if path != socket {
			return nil, errors.New("no such socket in the pod")
		}
		return dialSocket(echo)
	})
	connect := func(o Opening) net.Conn {
		t.Helper()
		text, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		here, there := net.Pipe()
		t.Cleanup(func() { here.Close() })
		here.SetDeadline(time.Now().Add(time.Minute))
		go s.Connect(string(text), there)
		return here
	}
	c := connect(Opening{Session: "x", Engine: "a", Socket: "/etc/passwd"})
	if kind, data, err := ReadFrame(c, nil); kind != FrameRefused || !strings.Contains(string(data), "no such socket") {
		t.Errorf("another socket: %d, %q, %v", kind, data, err)
	}
	c = connect(Opening{Session: "x", Engine: "a", Socket: socket})
	if kind, _, err := ReadFrame(c, nil); kind != FrameHello {
		t.Fatalf("%d, %v", kind, err)
	}
	stream := NewStream()
	go func() { stream.Carry(c, 0) }()
	if _, err := stream.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 5)
	if _, err := io.ReadFull(stream, got); err != nil || string(got) != "hello" {
		t.Errorf("%q, %v", got, err)
	}
	// The next carrier goes on in the same session.
	c = connect(Opening{Session: "x", Engine: "a", Socket: socket, Received: 5})
	if kind, data, err := ReadFrame(c, nil); kind != FrameHello || binary.BigEndian.Uint64(data) != 5 {
		t.Errorf("%d, %v, %v", kind, data, err)
	}
	s.Close()
	if _, err := io.Copy(io.Discard, c); err != nil {
		t.Errorf("after the end of the pod: %v", err)
	}
	c = connect(Opening{Session: "x", Engine: "a", Socket: socket, Received: 5})
	if kind, data, err := ReadFrame(c, nil); kind != FrameRefused {
		t.Errorf("a session goes on after the end of its pod: %d, %q, %v", kind, data, err)
	}
	here, there := net.Pipe()
	defer here.Close()
	if err := s.Connect(`{"Session":""}`, there); err == nil {
		t.Error("an opening that is not valid is served")
	}
}

// A pod ends by itself if its ramus is gone for good, and not before.
func TestAlone(t *testing.T) {
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	s := &sessions{open: map[string]*session{"x": {carried: true}}, last: begin}
	if s.aloneAt(begin.Add(10 * aloneWait)) {
		t.Error("a pod with a session ends")
	}
	s.open["x"].carried = false
	if s.aloneAt(begin.Add(11*aloneWait)) || !s.aloneAt(begin.Add(11*aloneWait+time.Minute)) {
		t.Error("it does not end a day after its last session")
	}
}

func TestStreamRefuses(t *testing.T) {
	frame := func(kind byte, data []byte) []byte {
		var b bytes.Buffer
		(&FrameWriter{W: &b}).Frame(kind, data)
		return b.Bytes()
	}
	for name, text := range map[string][]byte{
		"kind":     frame(99, nil),
		"ahead":    frame(FrameAck, binary.BigEndian.AppendUint64(nil, 10)),
		"negative": frame(FrameAck, bytes.Repeat([]byte{0xff}, 8)),
		"short":    frame(FrameAck, []byte{1}),
		"flood":    bytes.Repeat(frame(FrameData, make([]byte, maxFrame)), streamWindow/maxFrame+1),
	} {
		t.Run(name, func(t *testing.T) {
			s := NewStream()
			here, there := net.Pipe()
			go io.Copy(io.Discard, there)
			go there.Write(text)
			if err := s.Carry(here, 0); err == nil {
				t.Error("it is taken")
			}
		})
	}
	here, there := net.Pipe()
	defer there.Close()
	if err := NewStream().Carry(here, 7); err == nil {
		t.Error("a position that nothing has reached is taken")
	}
}

func FuzzStream(f *testing.F) {
	f.Add([]byte{FrameData, 0, 0, 0, 1, 'x', FrameAck, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, FrameBye, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, text []byte) {
		s := NewStream()
		r := bytes.NewReader(text)
		for {
			kind, data, err := ReadFrame(r, nil)
			if err != nil || s.takeFrame(kind, data) != nil {
				return
			}
			if len(s.in) > streamWindow {
				t.Fatalf("%d bytes are kept", len(s.in))
			}
		}
	})
}
