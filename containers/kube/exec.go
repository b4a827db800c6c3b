package kube

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"
)

// Command is a command in a container of a pod.
type Command struct {
	Namespace, Pod, Container string
	Args                      []string // the program and its arguments, without a shell
	Stderr                    io.Writer
	Input                     bool // the command has a stdin
}

// Streams of the protocol. Each message begins with the number of its stream.
const (
	streamStdin  = 0
	streamStdout = 1
	streamStderr = 2
	streamStatus = 3
	streamClose  = 255 // followed by the number of the stream that ends
)

// execProtocol is the first version of the protocol in which stdin can end.
const execProtocol = "v5.channel.k8s.io"

const (
	// maxPiece is the size of the messages of stdin.
	maxPiece = 32 << 10
	// readBuffer is the size of the buffer of received data. Longer data are read past it.
	readBuffer = 4 << 10
	// maxMessage bounds a message of the server. Kubelets send up to 32 KiB.
	maxMessage = 1 << 20
	maxStatus  = 64 << 10
	// handshakeWait bounds the time until the stream is open.
	handshakeWait = 30 * time.Second
)

// writeBuffers has the buffers of messages that are being sent. A command that waits has none.
var writeBuffers sync.Pool

// Exec is the stdin and stdout of a command as a connection. Write is stdin and Read is stdout. One goroutine may read
// while others write. Close ends the streams, and the command's stdin with them, and not the command.
type Exec struct {
	ws     *websocket.Conn
	stderr io.Writer

	writing  sync.Mutex                // one message at a time
	deadline atomic.Pointer[time.Time] // of Write

	reading sync.Mutex // one Read at a time; guards the fields below
	r       io.Reader  // the rest of a message of stdout
	end     error      // of Read
	code    int        // -1 until the command ended
}

// ExitError is the end of a command that did not end with 0.
type ExitError struct{ Code int }

func (e *ExitError) Error() string { return "exit status " + strconv.Itoa(e.Code) }

// Exec starts a command in a running container. Returns a [StatusError] if the server refuses.
func (c *Client) Exec(ctx context.Context, command Command) (*Exec, error) {
	q := url.Values{"container": {command.Container}, "command": command.Args,
		"stdin": {strconv.FormatBool(command.Input)}, "stdout": {"true"},
		"stderr": {"true"}}
	r, err := c.request(ctx, http.MethodGet, "/api/v1/namespaces/"+url.PathEscape(command.Namespace)+"/pods/"+
		url.PathEscape(command.Pod)+"/exec", q, nil)
	if err != nil {
		return nil, err
	}
	config := c.tls.Clone()
	config.NextProtos = []string{"http/1.1"}
	d := websocket.Dialer{Proxy: http.ProxyFromEnvironment, NetDialContext: c.config.Dial, TLSClientConfig: config,
		HandshakeTimeout: handshakeWait, Subprotocols: []string{execProtocol}, ReadBufferSize: readBuffer,
		WriteBufferSize: maxPiece + 16, WriteBufferPool: &writeBuffers}
	u := *r.URL
	u.Scheme = strings.Replace(u.Scheme, "http", "ws", 1)
	header := http.Header{"User-Agent": r.Header["User-Agent"]}
	if token := r.Header.Get("Authorization"); token != "" {
		header.Set("Authorization", token)
	}
	ws, resp, err := d.DialContext(ctx, u.String(), header)
	if resp != nil && errors.Is(err, websocket.ErrBadHandshake) {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, maxStatus))
		return nil, statusError(resp, text)
	}
	if err != nil {
		return nil, err
	}
	if ws.Subprotocol() != execProtocol {
		ws.Close()
		return nil, fmt.Errorf("the API server does not speak %s: Kubernetes 1.30 is the oldest that works",
			execProtocol)
	}
	ws.SetReadLimit(maxMessage)
	stderr := command.Stderr
	if stderr == nil {
		stderr = io.Discard
	}
	return &Exec{ws: ws, stderr: stderr, code: -1}, nil
}

// Read reads stdout. Returns [io.EOF] when the command ended with 0, and an [ExitError] when it ended with another
// status. Read passes stderr on.
func (e *Exec) Read(p []byte) (int, error) {
	e.reading.Lock()
	defer e.reading.Unlock()
	for {
		if e.end != nil {
			return 0, e.end
		}
		if e.r != nil {
			n, err := e.r.Read(p)
			if err != nil {
				e.r = nil
				if err != io.EOF {
					e.end = err
				}
			}
			if n > 0 || len(p) == 0 {
				return n, nil
			}
			continue
		}
		e.end = e.next()
	}
}

// next reads the next message. The error is the end of stdout.
func (e *Exec) next() error {
	_, r, err := e.ws.NextReader()
	if err != nil {
		if websocket.IsCloseError(err, websocket.CloseNormalClosure) {
			return io.ErrUnexpectedEOF // the status of the command comes before an intended end
		}
		return err
	}
	var kind [1]byte
	if _, err := io.ReadFull(r, kind[:]); err == io.EOF {
		return nil
	} else if err != nil {
		return err
	}
	switch kind[0] {
	case streamStdout:
		e.r = r
	case streamStderr:
		if _, err := io.Copy(e.stderr, r); err != nil {
			return fmt.Errorf("cannot pass on its stderr: %w", err)
		}
	case streamStatus:
		text, err := io.ReadAll(io.LimitReader(r, maxStatus))
		if err != nil {
			return err
		}
		if e.code, err = parseExit(text); err != nil {
			return err
		}
		if e.code != 0 {
			return &ExitError{e.code}
		}
		return io.EOF
	}
	return nil
}

// parseExit returns the exit code of a Status.
func parseExit(text []byte) (int, error) {
	var s status
	if err := json.Unmarshal(text, &s); err != nil {
		return -1, fmt.Errorf("cannot read the end of a command: %w", err)
	}
	if s.Status == "Success" {
		return 0, nil
	}
	if s.Reason == "NonZeroExitCode" {
		for _, cause := range s.Details.Causes {
			if n, err := strconv.Atoi(cause.Message); cause.Reason == "ExitCode" && err == nil && n > 0 && n < 256 {
				return n, nil
			}
		}
	}
	return -1, &StatusError{Code: s.Code, Reason: s.Reason,
		Message: cmp.Or(s.Message, "the command failed for no given reason")}
}

// Write writes stdin.
func (e *Exec) Write(p []byte) (n int, err error) {
	e.writing.Lock()
	defer e.writing.Unlock()
	if t := e.deadline.Load(); t != nil {
		_ = e.ws.SetWriteDeadline(*t)
	}
	for len(p) > 0 {
		k := min(len(p), maxPiece)
		w, err := e.ws.NextWriter(websocket.BinaryMessage)
		if err != nil {
			return n, err
		}
		if _, err = w.Write([]byte{streamStdin}); err == nil {
			_, err = w.Write(p[:k])
		}
		if cerr := w.Close(); err == nil {
			err = cerr
		}
		if err != nil {
			return n, err
		}
		n, p = n+k, p[k:]
	}
	return n, nil
}

// CloseWrite ends stdin.
func (e *Exec) CloseWrite() error {
	e.writing.Lock()
	defer e.writing.Unlock()
	return e.ws.WriteMessage(websocket.BinaryMessage, []byte{streamClose, streamStdin})
}

// Close closes the streams at once.
func (e *Exec) Close() error { return e.ws.Close() }

// LocalAddr returns the address of this side of the connection to the API server.
func (e *Exec) LocalAddr() net.Addr { return e.ws.LocalAddr() }

// RemoteAddr returns the address of the API server.
func (e *Exec) RemoteAddr() net.Addr { return e.ws.RemoteAddr() }

// SetDeadline sets both deadlines. A deadline that expired ends the streams.
func (e *Exec) SetDeadline(t time.Time) error {
	return cmp.Or(e.SetReadDeadline(t), e.SetWriteDeadline(t))
}

// SetReadDeadline sets the deadline of Read.
func (e *Exec) SetReadDeadline(t time.Time) error { return e.ws.SetReadDeadline(t) }

// SetWriteDeadline sets the deadline of Write.
func (e *Exec) SetWriteDeadline(t time.Time) error {
	e.deadline.Store(&t)
	return e.ws.NetConn().SetWriteDeadline(t) // for a Write in progress
}
