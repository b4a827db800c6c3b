package way

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

// Sessions is the socket at which the first container of a pod serves sessions. Only root may enter its folder.
const Sessions = Run + "/way.sock"

const (
	// SessionWait is the time for which a session without a carrier is kept.
	SessionWait = 10 * time.Minute
	// aloneWait is the time after which a pod ends by itself if nobody had a session. Its ramus is gone for good.
	aloneWait = 24 * time.Hour
	// aloneTick is the pause between two looks.
	aloneTick = time.Minute
	// maxSessions bounds the sessions of a pod, and so the memory of their windows.
	maxSessions = 12
	// maxOpening bounds the description of a session, in bytes.
	maxOpening = 1 << 10
	// openingWait bounds the time until a description has arrived.
	openingWait = 10 * time.Second
)

// Opening opens a session, which is a connection to a socket of the pod, or goes on with it over another carrier.
type Opening struct {
	Session  string
	Engine   string // the process that opens it; see [Sidecar]
	Socket   string
	Received int64 // the position up to which that process has received
}

func (o Opening) valid() bool {
	return o.Session != "" && o.Engine != "" && o.Socket != "" && o.Received >= 0 &&
		len(o.Session)+len(o.Engine)+len(o.Socket) < maxOpening/2
}

// sessions are the connections of a pod to its runner.
type sessions struct {
	dial func(socket string) (net.Conn, error) // to a socket of the pod

	mu   sync.Mutex // guards the fields below, and those of the sessions
	open map[string]*session
	last time.Time // when a session was carried
}

type session struct {
	stream  *Stream
	to      net.Conn
	engine  string
	carried bool
	expiry  *time.Timer // nil while it is carried
}

// serve is process 1 of the first container of a pod. It serves sessions, reaps all processes, and ends with SIGTERM.
func serve() error {
	l, err := net.Listen("unix", Sessions)
	if err != nil {
		return fmt.Errorf("cannot serve sessions: %w", err)
	}
	s := newSessions(dialSocket)
	go s.accept(l) // ends with the process, as does the next
	go s.awaitAlone()
	reapUntilEnd()
	return l.Close()
}

func newSessions(dial func(socket string) (net.Conn, error)) *sessions {
	return &sessions{dial: dial, open: map[string]*session{}, last: time.Now()}
}

// dialSocket connects with a socket of this container.
func dialSocket(socket string) (net.Conn, error) { return net.DialTimeout("unix", socket, connectWait) }

// awaitAlone ends the pod when nobody had a session for long. The other containers end when [Program] is missing.
func (s *sessions) awaitAlone() {
	tick := time.NewTicker(aloneTick)
	defer tick.Stop()
	for now := range tick.C {
		if s.aloneAt(now) {
			_ = os.Remove(Program)
			os.Exit(0)
		}
	}
}

// aloneAt reports whether nobody had a session for aloneWait.
func (s *sessions) aloneAt(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.open {
		if one.carried {
			s.last = now
		}
	}
	return now.Sub(s.last) > aloneWait
}

func (s *sessions) accept(l net.Listener) {
	for {
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(100 * time.Millisecond) // too many open files, for example
			continue
		}
		go s.carry(c)
	}
}

// carry serves one carrier.
func (s *sessions) carry(c net.Conn) {
	defer c.Close()
	_ = c.SetReadDeadline(time.Now().Add(openingWait))
	kind, data, err := ReadFrame(c, nil)
	if err != nil || kind != FrameHello {
		return
	}
	if o, err := parseOpening(data); err == nil {
		s.carrySession(o, c)
	}
}

func parseOpening(text []byte) (o Opening, err error) {
	if len(text) > maxOpening || json.Unmarshal(text, &o) != nil || !o.valid() {
		return o, errors.New("cannot open a session: its description is not valid")
	}
	return o, nil
}

// carrySession has a carrier carry a session until it breaks or the session ends, and closes it.
func (s *sessions) carrySession(o Opening, c io.ReadWriteCloser) {
	defer c.Close()
	w := &FrameWriter{W: c}
	one, err := s.find(o)
	if err != nil {
		_ = w.Frame(FrameRefused, []byte(err.Error()))
		return
	}
	if w.Frame(FrameHello, binary.BigEndian.AppendUint64(nil, uint64(one.stream.Received()))) == nil {
		_ = one.stream.Carry(c, o.Received) // the next carrier goes on
	}
	s.leave(o.Session, one)
}

// find returns a session without a carrier, which may be a new one.
func (s *sessions) find(o Opening) (*session, error) {
	s.mu.Lock()
	s.forgetLocked(o.Engine)
	one := s.open[o.Session]
	if one == nil {
		defer s.mu.Unlock()
		if o.Received > 0 {
			return nil, errors.New("the session is over")
		}
		if len(s.open) >= maxSessions {
			return nil, fmt.Errorf("the pod has %d connections, and no more are possible", len(s.open))
		}
		to, err := s.dial(o.Socket)
		if err != nil {
			return nil, fmt.Errorf("cannot reach the runner: %w", err)
		}
		one = &session{stream: NewStream(), to: to, engine: o.Engine, carried: true}
		s.open[o.Session] = one
		one.connect()
		return one, nil
	}
	// The earlier carrier may be lost without a sign of it here.
	for one.carried {
		s.mu.Unlock()
		one.stream.Detach()
		time.Sleep(time.Millisecond) // its goroutine takes notice meanwhile
		s.mu.Lock()
	}
	defer s.mu.Unlock()
	if s.open[o.Session] != one {
		return nil, errors.New("the session is over")
	}
	one.carried = true
	one.expiry.Stop()
	return one, nil
}

// forgetLocked ends the sessions of other processes that have no carrier. Those processes have ended, because only one
// works with a pod, and the runner learns so that nobody reads.
func (s *sessions) forgetLocked(engine string) {
	for name, one := range s.open {
		if one.engine != engine && !one.carried {
			s.endLocked(name, one)
		}
	}
}

// leave takes notice of the end of a carrier.
func (s *sessions) leave(name string, one *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one.carried, s.last = false, time.Now()
	if one.stream.Ended() {
		s.endLocked(name, one)
		return
	}
	one.expiry = time.AfterFunc(SessionWait, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !one.carried && s.open[name] == one {
			s.endLocked(name, one)
		}
	})
}

func (s *sessions) endLocked(name string, one *session) {
	delete(s.open, name)
	if one.expiry != nil {
		one.expiry.Stop()
	}
	one.stream.Fail(net.ErrClosed)
	_ = one.to.Close()
}

// connect passes data between a stream and the runner until one of them ends.
func (one *session) connect() {
	go func() { // ends with the stream
		_, _ = io.Copy(one.to, one.stream)
		// The host closed its side, or is gone. Nobody reads the runner's further output.
		_ = one.to.Close()
	}()
	go func() { // ends with the runner's connection
		_, _ = io.Copy(one.stream, one.to)
		one.stream.CloseWrite()
	}()
}

// connect passes the carrier of a session on: a stream of this process, which is an exec in the pod.
func connect(path, opening string, in io.Reader, out io.Writer) error {
	c, err := net.DialTimeout("unix", path, connectWait)
	if err != nil {
		return fmt.Errorf("cannot reach the sessions of the pod: %w", err)
	}
	defer c.Close()
	if err := (&FrameWriter{W: c}).Frame(FrameHello, []byte(opening)); err != nil {
		return fmt.Errorf("cannot open a session: %w", err)
	}
	go func() { // ends with the process, because a Read of stdin cannot be interrupted
		_, _ = io.Copy(c, in)
		_ = c.Close()
	}()
	if _, err = io.Copy(out, c); errors.Is(err, net.ErrClosed) {
		err = nil
	}
	return err
}

// reapUntilEnd is process 1 of a container. It reaps all processes and ends with SIGTERM, or when [Program] is gone.
func reapUntilEnd() {
	if _, err := os.Lstat(Program); err == nil {
		go func() { // ends with the process
			for range time.Tick(aloneTick) {
				if _, err := os.Lstat(Program); errors.Is(err, os.ErrNotExist) {
					os.Exit(0)
				}
			}
		}()
	}
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGCHLD)
	for s := range signals {
		if s != syscall.SIGCHLD {
			return
		}
		for {
			if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); pid <= 0 || err != nil {
				break
			}
		}
	}
}
