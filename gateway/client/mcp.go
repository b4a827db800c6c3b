package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/gateway/mcp"
	"github.com/ramus-dev/ramus/gateway/route"
)

// Bounds on MCP over standard input and output.
const (
	longestMessage = 8 << 20 // bytes of one message
	mostCalls      = 256     // requests in progress at once; further ones wait
	// lastCalls bounds the time for calls in progress after the end of the input, and goodbye the time for ending the
	// session on the server.
	lastCalls = 30 * time.Second
	goodbye   = 5 * time.Second
)

// MCP is a transparent bridge between the two transports of the Model Context Protocol
// (https://modelcontextprotocol.io/specification). It reads messages from in, one per line, sends each to the server
// over streamable HTTP, and writes the answers to out, one per line. It returns when in ends.
//
// If the server has lost a session because it was restarted, MCP starts it again with the client's own messages, which
// the client does not notice. If the server cannot be reached, the client's requests get that as their error. The
// server sends nothing on its own, so no stream is kept open. note gets problems with messages that have no answer.
//
// If ctx ends, MCP returns although a read of in may still be in progress.
func (c *Client) MCP(ctx context.Context, in io.Reader, out io.Writer, note func(error)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	b := &bridge{client: c, out: out, note: note}
	lines, ended := make(chan []byte), make(chan error, 1)
	go func() {
		s := bufio.NewScanner(in)
		s.Buffer(nil, longestMessage)
		for s.Scan() {
			select {
			case lines <- bytes.Clone(s.Bytes()):
			case <-ctx.Done():
				return
			}
		}
		ended <- s.Err()
	}()
	var calls sync.WaitGroup
	places := make(chan struct{}, mostCalls)
	err := func() error {
		for {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case err := <-ended:
				if errors.Is(err, bufio.ErrTooLong) {
					err = fmt.Errorf("a message has more than %d bytes", longestMessage)
				}
				return err
			case line := <-lines:
				if len(bytes.TrimSpace(line)) == 0 {
					continue
				}
				m := read(line)
				if !m.call() || m.Method == "initialize" {
					b.forward(ctx, m) // later messages depend on it
					continue
				}
				select {
				case places <- struct{}{}:
				case <-ctx.Done():
					return ctx.Err()
				}
				calls.Go(func() {
					defer func() { <-places }()
					b.forward(ctx, m)
				})
			}
		}
	}()
	late := time.AfterFunc(lastCalls, cancel)
	calls.Wait()
	late.Stop()
	b.goodbye(context.WithoutCancel(ctx))
	return errors.Join(err, b.err)
}

// bridge connects one client with the server.
type bridge struct {
	client *Client
	note   func(error)

	write sync.Mutex // guards out and err
	out   io.Writer
	err   error // the first error of writing; later output is not read by anybody

	mu       sync.Mutex // guards the fields below
	session  string     // as named by the server; empty if there is none
	version  string     // the agreed version of the protocol
	opening  message    // the client's initialize
	opened   message    // the client's message after the answer to initialize
	reopened sync.Mutex // held while a lost session is started again
}

// message is a message of the client, with the parts that the transport needs.
type message struct {
	text   []byte
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		Name string `json:"name"`
		URI  string `json:"uri"`
		Meta struct {
			Version string `json:"io.modelcontextprotocol/protocolVersion"`
		} `json:"_meta"`
	} `json:"params"`
}

// read parses a line. The server will refuse one that is not a message.
func read(line []byte) message {
	m := message{text: line}
	if err := json.Unmarshal(line, &m); err != nil {
		return message{text: line}
	}
	return m
}

// call reports whether the message needs an answer.
func (m message) call() bool {
	return m.Method != "" && len(m.ID) > 0 && string(m.ID) != "null" || bytes.HasPrefix(bytes.TrimSpace(m.text), []byte("["))
}

// forward sends a message and writes its answer.
func (b *bridge) forward(ctx context.Context, m message) {
	err := b.exchange(ctx, m)
	if err == nil || ctx.Err() != nil {
		return
	}
	if !m.call() || len(m.ID) == 0 {
		b.note(err)
		return
	}
	text := err.Error()
	var p *route.Problem
	if errors.As(err, &p) && p.Hint != "" {
		text += " (" + p.Hint + ")"
	}
	answer, err := json.Marshal(struct {
		Version string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Error   any             `json:"error"`
	}{"2.0", m.ID, struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	}{-32000, text}})
	if err != nil {
		b.note(err)
		return
	}
	b.line(answer)
}

// exchange is forward without the handling of errors.
func (b *bridge) exchange(ctx context.Context, m message) error {
	session, version := b.agreed()
	resp, err := b.post(ctx, m, session, version)
	if lost(err) && session != "" && m.Method != "initialize" {
		if session, version, err = b.reopen(ctx, session); err == nil {
			resp, err = b.post(ctx, m, session, version)
		}
	}
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if m.Method == "notifications/initialized" {
		b.mu.Lock()
		b.opened = m
		b.mu.Unlock()
	}
	return b.answers(resp, func(text []byte) {
		if m.Method == "initialize" {
			b.agree(m, resp, text)
		}
		b.line(text)
	})
}

func (b *bridge) agreed() (session, version string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.session, b.version
}

// agree keeps the answer to an initialize.
func (b *bridge) agree(m message, resp *http.Response, text []byte) {
	var a struct {
		Result struct {
			Version string `json:"protocolVersion"`
		} `json:"result"`
	}
	if json.Unmarshal(text, &a) != nil || a.Result.Version == "" {
		return // the server refused it
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.opening, b.session, b.version = m, resp.Header.Get("Mcp-Session-Id"), a.Result.Version
}

// lost reports whether err means that a session no longer exists.
func lost(err error) bool {
	var p *route.Problem
	return errors.As(err, &p) && p.Kind == route.KindNotFound
}

// reopen starts the client's session again, unless that happened meanwhile.
func (b *bridge) reopen(ctx context.Context, old string) (session, version string, err error) {
	b.reopened.Lock()
	defer b.reopened.Unlock()
	b.mu.Lock()
	session, version = b.session, b.version
	opening, opened := b.opening, b.opened
	b.mu.Unlock()
	if session != old {
		return session, version, nil
	}
	resp, err := b.post(ctx, opening, "", "")
	if err != nil {
		return "", "", err
	}
	defer resp.Body.Close()
	if err := b.answers(resp, func(text []byte) { b.agree(opening, resp, text) }); err != nil {
		return "", "", err
	}
	if session, version = b.agreed(); session == old {
		return "", "", errors.New("the server lost the session and begins no new one")
	}
	if opened.Method != "" {
		resp, err := b.post(ctx, opened, session, version)
		if err != nil {
			return "", "", err
		}
		resp.Body.Close()
	}
	return session, version, nil
}

// post sends a message. Its answer is a success, or an error of the protocol itself.
func (b *bridge) post(ctx context.Context, m message, session, version string) (*http.Response, error) {
	header := http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}}
	if session != "" {
		header.Set("Mcp-Session-Id", session)
	}
	// Versions without sessions repeat in every message the facts that others agree on once. They require these, and
	// the subject of the message, in the header too.
	if v := m.Params.Meta.Version; v != "" {
		version = v
		header.Set("Mcp-Method", m.Method)
		if name := m.Params.Name + m.Params.URI; name != "" {
			header.Set("Mcp-Name", name)
		}
	}
	if version != "" {
		header.Set("Mcp-Protocol-Version", version)
	}
	resp, err := b.client.exchange(ctx, "POST", mcp.Path, bytes.NewReader(m.text), header)
	if err != nil || resp.StatusCode < 300 || media(resp) == "application/json" {
		return resp, err
	}
	defer resp.Body.Close()
	return nil, readProblem(resp)
}

func media(resp *http.Response) string {
	t, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	return t
}

// answers passes the messages of an answer to take, one by one.
func (b *bridge) answers(resp *http.Response, take func([]byte)) error {
	switch {
	case resp.StatusCode == http.StatusAccepted:
		return nil
	case media(resp) == "application/json":
		text, err := io.ReadAll(io.LimitReader(resp.Body, longestMessage+1))
		if err != nil || len(text) > longestMessage {
			return cmpError(err, errLongAnswer)
		}
		if len(bytes.TrimSpace(text)) > 0 {
			take(text)
		}
		return nil
	}
	// In server-sent events, a message is the data of one event.
	s := bufio.NewScanner(resp.Body)
	s.Buffer(nil, longestMessage)
	var data []byte
	heard := false
	for s.Scan() {
		line := s.Bytes()
		switch rest, isData := bytes.CutPrefix(line, []byte("data:")); {
		case isData && len(data)+len(rest) > longestMessage:
			return errLongAnswer
		case isData:
			data = append(append(data, bytes.TrimPrefix(rest, []byte(" "))...), '\n')
		case len(line) == 0 && len(bytes.TrimSpace(data)) > 0:
			take(bytes.TrimSpace(data))
			heard = heard || answer(data)
			data = nil
		}
	}
	switch err := s.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return errLongAnswer
	case heard:
		return nil
	default:
		return fmt.Errorf("the connection to the ramus server broke, and whether the call was carried out is not known: %w", cmpError(err, io.ErrUnexpectedEOF))
	}
}

// answer reports whether a message answers a request.
func answer(text []byte) bool {
	m := read(bytes.TrimSpace(text))
	return m.Method == "" && len(m.ID) > 0 || bytes.HasPrefix(bytes.TrimSpace(text), []byte("["))
}

var errLongAnswer = fmt.Errorf("the server's answer has more than %d bytes", longestMessage)

func cmpError(err, otherwise error) error {
	if err != nil {
		return err
	}
	return otherwise
}

// line writes a message on one line.
func (b *bridge) line(text []byte) {
	var one bytes.Buffer
	if json.Compact(&one, text) != nil {
		return // the server writes JSON, and other text would break the client's reading
	}
	one.WriteByte('\n')
	b.write.Lock()
	defer b.write.Unlock()
	if b.err != nil {
		return
	}
	if _, err := b.out.Write(one.Bytes()); err != nil {
		b.err = fmt.Errorf("cannot write to the client: %w", err)
	}
}

// goodbye ends the session, so that the server does not have to keep it.
func (b *bridge) goodbye(ctx context.Context) {
	session, version := b.agreed()
	if session == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, goodbye)
	defer cancel()
	resp, err := b.client.exchange(ctx, "DELETE", mcp.Path, nil,
		http.Header{"Mcp-Session-Id": {session}, "Mcp-Protocol-Version": {version}})
	if err == nil {
		resp.Body.Close() // the session also ends by itself
	}
}
