package client

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"github.com/ramus-dev/ramus/executor/shell"
	"github.com/ramus-dev/ramus/gateway/terminal"
)

// Terminals returns a caller's terminals.
func (c *Client) Terminals(ctx context.Context, caller string) ([]shell.TerminalStatus, error) {
	return get[[]shell.TerminalStatus](ctx, c, "/api/callers/"+segment(caller)+"/terminals")
}

// OpenTerminal opens a terminal.
func (c *Client) OpenTerminal(ctx context.Context, caller string, r terminal.Request) (shell.TerminalStatus, error) {
	return post[shell.TerminalStatus](ctx, c, "/api/callers/"+segment(caller)+"/terminals", r)
}

// CloseTerminal ends a terminal's program, and forgets the terminal.
func (c *Client) CloseTerminal(ctx context.Context, caller, name string) error {
	return c.do(ctx, http.MethodDelete, "/api/callers/"+segment(caller)+"/terminals/"+segment(name), nil, nil)
}

// TerminalConn is a connection to a terminal. One goroutine calls Read. Write is safe for concurrent use.
type TerminalConn struct {
	conn *websocket.Conn

	mu sync.Mutex // held while a frame is written
}

const (
	socketHandshake = 10 * time.Second
	socketWrite     = 10 * time.Second
	// socketSilence is the time after which a silent server counts as gone. It sends pings far more often.
	socketSilence = 45 * time.Second
	// socketMessage bounds a message of the server, in bytes.
	socketMessage = 1 << 20
)

// DialTerminal connects to a terminal and says hello.
func (c *Client) DialTerminal(ctx context.Context, caller string, hello terminal.Hello) (*TerminalConn, error) {
	d := websocket.Dialer{HandshakeTimeout: socketHandshake, Subprotocols: []string{terminal.Subprotocol},
		Proxy: http.ProxyFromEnvironment}
	if c.Dial != nil {
		d.Proxy = nil
		d.NetDialContext = func(ctx context.Context, _, _ string) (net.Conn, error) { return c.Dial(ctx) }
	}
	header := http.Header{}
	if c.Token != "" {
		header.Set("Authorization", "Bearer "+c.Token)
	}
	address := "ws" + strings.TrimPrefix(strings.TrimSuffix(c.address(), "/"), "http") + "/api/callers/" +
		url.PathEscape(caller) + "/shell"
	conn, resp, err := d.DialContext(ctx, address, header)
	if err != nil {
		if resp != nil && errors.Is(err, websocket.ErrBadHandshake) {
			defer resp.Body.Close()
			return nil, readProblem(resp)
		}
		return nil, err
	}
	conn.SetReadLimit(socketMessage)
	s := &TerminalConn{conn: conn}
	alive := func(text string) error {
		_ = conn.WriteControl(websocket.PongMessage, []byte(text), time.Now().Add(socketWrite))
		return conn.SetReadDeadline(time.Now().Add(socketSilence))
	}
	conn.SetPingHandler(alive)
	if err := conn.SetReadDeadline(time.Now().Add(socketSilence)); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	if err := s.Write(terminal.Frame{Type: terminal.FrameHello, Hello: hello}); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Read reads the next frame.
func (s *TerminalConn) Read() (terminal.Frame, error) {
	_, message, err := s.conn.ReadMessage()
	if err != nil {
		return terminal.Frame{}, err
	}
	return terminal.Decode(message)
}

// Write sends a frame.
func (s *TerminalConn) Write(f terminal.Frame) error {
	b, err := f.Encode()
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.conn.SetWriteDeadline(time.Now().Add(socketWrite)); err != nil {
		return err
	}
	return s.conn.WriteMessage(websocket.BinaryMessage, b)
}

// Close closes the connection.
func (s *TerminalConn) Close() error { return s.conn.Close() }
