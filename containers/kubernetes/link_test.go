package kubernetes

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/containers/kubernetes/way"
)

// carried is a carrier over a WebSocket, as the first container of a pod sees it.
type carried struct {
	*websocket.Conn
	rest []byte
}

func (c *carried) Read(p []byte) (int, error) {
	for len(c.rest) == 0 {
		_, m, err := c.ReadMessage()
		if err != nil {
			return 0, err
		}
		if m[0] == 0 {
			c.rest = m[1:]
		}
	}
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

func (c *carried) Write(p []byte) (int, error) {
	return len(p), c.WriteMessage(websocket.BinaryMessage, append([]byte{1}, p...))
}

// echo plays pods whose runner echoes. It cuts connections.
type echo struct {
	mu       sync.Mutex // guards the fields below
	sessions map[string]*way.Stream
	ws       map[*websocket.Conn]bool
}

func (e *echo) serve(ws *websocket.Conn, _, _ string, args []string) {
	var o way.Opening
	if err := json.Unmarshal([]byte(args[3]), &o); err != nil {
		return
	}
	c := &carried{Conn: ws}
	w := &way.FrameWriter{W: c}
	e.mu.Lock()
	s := e.sessions[o.Session]
	if s == nil && o.Received > 0 {
		e.mu.Unlock()
		w.Frame(way.FrameRefused, []byte("the session is over"))
		return
	}
	if s == nil {
		s = way.NewStream()
		e.sessions[o.Session] = s
		go func() {
			io.Copy(s, s)
			s.CloseWrite()
		}()
	}
	e.ws[ws] = true
	e.mu.Unlock()
	s.Detach()
	w.Frame(way.FrameHello, binary.BigEndian.AppendUint64(nil, uint64(s.Received())))
	s.Carry(c, o.Received)
	e.mu.Lock()
	delete(e.ws, ws)
	e.mu.Unlock()
}

func (e *echo) cut() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for ws := range e.ws {
		ws.NetConn().Close()
	}
}

// A connection goes on when its streams break, and nothing is lost or repeated. It ends with its pod.
func TestLinkOutlivesItsStreams(t *testing.T) {
	play := &echo{sessions: map[string]*way.Stream{}, ws: map[*websocket.Conn]bool{}}
	_, e, c, conn := dialled(t, play.serve)
	conn.SetDeadline(time.Now().Add(time.Minute))
	stop, cutting := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(cutting)
		for {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
				play.cut()
			}
		}
	}()
	text := bytes.Repeat([]byte("0123456789abcdef"), 256<<10)
	go conn.Write(text)
	got := make([]byte, len(text))
	if _, err := io.ReadFull(conn, got); err != nil || !bytes.Equal(got, text) {
		t.Errorf("it is not what was sent, or %v", err)
	}
	close(stop)
	<-cutting
	if err := e.Remove(bounded(t), c.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(got); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("after the end of its pod: %v", err)
	}
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
	if _, err := e.Dial(bounded(t), c.ID); !errors.Is(err, containers.ErrGone) {
		t.Errorf("dialled after its end: %v", err)
	}
}

// A pod that has forgotten a connection, because its first container has ended, loses it.
func TestLinkThatThePodForgot(t *testing.T) {
	play := &echo{sessions: map[string]*way.Stream{}, ws: map[*websocket.Conn]bool{}}
	_, e, c, conn := dialled(t, play.serve)
	conn.SetDeadline(time.Now().Add(time.Minute))
	if _, err := conn.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	play.mu.Lock()
	clear(play.sessions)
	play.mu.Unlock()
	play.cut()
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, errRefused) || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("Read: %v", err)
	}
	// A command of it may go on, so nothing of the pod is used again.
	if _, err := e.Dial(bounded(t), c.ID); !errors.Is(err, containers.ErrGone) {
		t.Errorf("dialled after that: %v", err)
	}
	if err := e.Remove(bounded(t), c.ID); err != nil {
		t.Error(err)
	}
}
