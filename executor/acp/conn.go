package acp

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"

	sdk "github.com/coder/acp-go-sdk"
	"github.com/ramus-dev/ramus/internal/text"
)

// Client handles the messages of an agent. Update is called for one update at a time, in
// order. It returns before the connection returns the answer that the updates belong to.
// The other methods may be called concurrently. The context of a call ends when the agent
// cancels the request or the connection is closed.
type Client interface {
	Update(context.Context, Update)
	// Permit answers a request for permission with the id of one of its options. An empty
	// id tells the agent that the turn was cancelled.
	Permit(context.Context, Question) (option string, err error)
	ReadFile(context.Context, sdk.ReadTextFileRequest) (text string, err error)
	WriteFile(context.Context, sdk.WriteTextFileRequest) error
	StartTerminal(context.Context, sdk.CreateTerminalRequest) (id string, err error)
	TerminalOutput(ctx context.Context, id string) (sdk.TerminalOutputResponse, error)
	AwaitTerminal(ctx context.Context, id string) (sdk.TerminalExitStatus, error)
	KillTerminal(ctx context.Context, id string) error
	ReleaseTerminal(ctx context.Context, id string) error
}

// Options are the options of a connection.
type Options struct {
	// Name and Version identify the client to the agent.
	Name, Version string
	// Stray gets the agent's output that is not a message. Nil drops it. It is written to
	// from one goroutine.
	Stray io.Writer
}

// Agent describes an agent, in the agent's own words.
type Agent struct {
	Name, Version string
	Capabilities  sdk.AgentCapabilities
	Auth          []string // the ids of its ways to sign in
	Steers        bool     // it takes words into a turn that works, see [Conn.Steer]
}

// Conn is a connection to one agent. Methods are safe for concurrent use.
type Conn struct {
	Agent Agent

	conn    *sdk.Connection
	client  Client
	input   *input
	lines   *lines
	ctx     context.Context // ends when Close is called
	cancel  context.CancelFunc
	replays atomic.Bool // a session is being loaded, so its updates are old

	mu       sync.Mutex // guards closed, and handlers against their Wait
	closed   bool
	handlers sync.WaitGroup
}

// The kinds of error of this package, in addition to [ErrLine].
var (
	// ErrEnded means that the agent closed its standard input or output.
	ErrEnded = errors.New("the agent ended")
	// ErrAuth means that the agent requires authentication first.
	ErrAuth = errors.New("the agent asks for authentication")
	// ErrRefused means that the agent answered with an error.
	ErrRefused = errors.New("the agent refused")
	// ErrVersion means that the agent does not support version 1.
	ErrVersion = errors.New("the agent speaks another version of the protocol")
)

// Connect connects to the agent with the given standard input and output, and initializes
// the protocol. The caller closes both streams and the connection, also on error. Close
// waits for the client's calls, not for the streams.
func Connect(ctx context.Context, stdin io.Writer, stdout io.Reader, client Client, o Options) (*Conn, error) {
	c := &Conn{client: client, input: &input{to: stdin}}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	ready := make(chan struct{})
	stray := o.Stray
	if stray == nil {
		stray = io.Discard
	}
	c.lines = &lines{from: bufio.NewReaderSize(stdout, 64<<10), stray: stray, ready: ready, over: c.ctx.Done(),
		requests: make(chan struct{}, maxRequests), notes: make(chan struct{}, maxNotes)}
	c.conn = sdk.NewConnection(c.handle, c.input, c.lines)
	// The SDK logs each fault of a message, so the agent could fill the log.
	c.conn.SetLogger(slog.New(slog.DiscardHandler))
	close(ready)

	var hello struct {
		ProtocolVersion   int                   `json:"protocolVersion"`
		AgentCapabilities sdk.AgentCapabilities `json:"agentCapabilities"`
		AgentInfo         struct {
			Name    string `json:"name"`
			Version string `json:"version"`
		} `json:"agentInfo"`
		AuthMethods []struct {
			ID string `json:"id"`
		} `json:"authMethods"`
		Meta struct {
			Steering json.RawMessage `json:"steering"`
		} `json:"_meta"`
	}
	err := c.call(ctx, sdk.AgentMethodInitialize, sdk.InitializeRequest{
		ProtocolVersion: sdk.ProtocolVersionNumber,
		ClientInfo:      &sdk.Implementation{Name: o.Name, Version: cmp.Or(o.Version, "0")},
		ClientCapabilities: sdk.ClientCapabilities{Fs: sdk.FileSystemCapabilities{ReadTextFile: true,
			WriteTextFile: true}, Terminal: true},
	}, &hello)
	if err != nil {
		return c, fmt.Errorf("cannot begin with the agent: %w", err)
	}
	if hello.ProtocolVersion != sdk.ProtocolVersionNumber {
		return c, fmt.Errorf("cannot begin with the agent: %w: %d", ErrVersion, hello.ProtocolVersion)
	}
	c.Agent = Agent{Name: hello.AgentInfo.Name, Version: hello.AgentInfo.Version, Capabilities: hello.AgentCapabilities}
	var steering struct {
		Supported bool `json:"supported"`
	}
	c.Agent.Steers = json.Unmarshal(hello.Meta.Steering, &steering) == nil && steering.Supported
	for _, m := range hello.AuthMethods {
		c.Agent.Auth = append(c.Agent.Auth, m.ID)
	}
	return c, nil
}

// Session describes a session to open.
type Session struct {
	ID  string // of a session to continue; empty for a new one
	Dir string // absolute, in the agent's container
	MCP []sdk.McpServer
	// Mode is set if the agent has a mode of that id. If Mode is empty the agent's
	// default stays.
	Mode string
	// Auth is the id of the method to authenticate by if the agent requires
	// authentication.
	Auth string
}

// Open begins a session, or continues one, and returns its id. The error is [ErrRefused]
// if the agent cannot continue it.
func (c *Conn) Open(ctx context.Context, s Session) (id string, err error) {
	id, err = c.open(ctx, s)
	if errors.Is(err, ErrAuth) && s.Auth != "" {
		if err := c.call(ctx, sdk.AgentMethodAuthenticate, sdk.AuthenticateRequest{MethodId: s.Auth}, nil); err != nil {
			return "", fmt.Errorf("cannot authenticate by %s: %w", s.Auth, err)
		}
		id, err = c.open(ctx, s)
	}
	if err != nil {
		return "", err
	}
	if s.Mode == "" {
		return id, nil
	}
	err = c.call(ctx, sdk.AgentMethodSessionSetMode,
		sdk.SetSessionModeRequest{SessionId: sdk.SessionId(id), ModeId: sdk.SessionModeId(s.Mode)}, nil)
	if err != nil {
		return "", fmt.Errorf("cannot set the session's mode to %s: %w", s.Mode, err)
	}
	return id, nil
}

func (c *Conn) open(ctx context.Context, s Session) (string, error) {
	servers := s.MCP
	if servers == nil {
		servers = []sdk.McpServer{} // the agent refuses null
	}
	can := c.Agent.Capabilities
	switch {
	case s.ID == "":
		var got struct {
			SessionID string `json:"sessionId"`
		}
		if err := c.call(ctx, sdk.AgentMethodSessionNew, sdk.NewSessionRequest{Cwd: s.Dir, McpServers: servers}, &got); err != nil {
			return "", fmt.Errorf("cannot begin a session: %w", err)
		}
		if got.SessionID == "" || len(got.SessionID) > maxSessionID {
			return "", fmt.Errorf("cannot begin a session: %w: its id has %d bytes", ErrRefused, len(got.SessionID))
		}
		return got.SessionID, nil
	case can.SessionCapabilities.Resume != nil:
		err := c.call(ctx, sdk.AgentMethodSessionResume,
			sdk.ResumeSessionRequest{SessionId: sdk.SessionId(s.ID), Cwd: s.Dir, McpServers: servers}, nil)
		if err == nil || !can.LoadSession || !errors.Is(err, ErrRefused) {
			return s.ID, wrap("cannot resume the session", err)
		}
	}
	if !can.LoadSession {
		return "", fmt.Errorf("cannot load the session: %w: it cannot load any", ErrRefused)
	}
	// The agent sends all earlier updates of the session before it answers.
	c.replays.Store(true)
	defer c.replays.Store(false)
	err := c.call(ctx, sdk.AgentMethodSessionLoad,
		sdk.LoadSessionRequest{SessionId: sdk.SessionId(s.ID), Cwd: s.Dir, McpServers: servers}, nil)
	return s.ID, wrap("cannot load the session", err)
}

// maxSessionID bounds the id of a session, in bytes.
const maxSessionID = 512

func wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

// Prompt sends a prompt to a session and waits until the agent has ended its turn. stop
// is the reason, one of "end_turn", "max_tokens", "max_turn_requests", "refusal" and
// "cancelled". If ctx ends first the agent continues until [Conn.Cancel].
func (c *Conn) Prompt(ctx context.Context, session string, said []sdk.ContentBlock) (stop string, err error) {
	var got struct {
		StopReason string `json:"stopReason"`
	}
	err = c.call(ctx, sdk.AgentMethodSessionPrompt, sdk.PromptRequest{SessionId: sdk.SessionId(session), Prompt: said}, &got)
	return stopReason(got.StopReason), err
}

// stopReason returns the reason of an agent for the end of its turn as it is journalled. The words are the agent's, so they are bounded.
func stopReason(words string) string { return text.OneLine(words, 60) }

// steerMethod is an extension of the protocol that the adapters of Claude Code and Codex have.
const steerMethod = "_session/steering"

// Steer puts words into the turn that works in a session. taken is false if the agent did not take them. Then the words have had no
// effect. The agent must have said that it [Agent.Steers].
func (c *Conn) Steer(ctx context.Context, session string, said []sdk.ContentBlock) (taken bool, err error) {
	var got struct {
		Outcome string `json:"outcome"`
	}
	err = c.call(ctx, steerMethod, map[string]any{"sessionId": session, "prompt": said,
		"_meta": map[string]any{"steering": map[string]any{"idleBehavior": "promptRequired"}}}, &got)
	if err != nil {
		return false, fmt.Errorf("cannot steer: %w", err)
	}
	return got.Outcome == "injected" || got.Outcome == "startedNewTurn", nil
}

// Cancel asks the agent to end its turn in a session. The Prompt that waits for the turn
// then returns.
func (c *Conn) Cancel(session string) error {
	err := c.conn.SendNotification(c.ctx, sdk.AgentMethodSessionCancel,
		sdk.CancelNotification{SessionId: sdk.SessionId(session)})
	return wrap("cannot cancel", err)
}

// Between calls f between two messages of the agent, with the number of bytes of the agent's output before the second one. The
// client has handled all updates before, and gets none until f returns. f must not use the connection. The error is that of ctx, or
// [ErrEnded].
func (c *Conn) Between(ctx context.Context, f func(at int64)) error {
	return c.lines.between(ctx, c.conn.Done(), f)
}

// Done returns a channel that is closed when the agent has closed its end.
func (c *Conn) Done() <-chan struct{} { return c.conn.Done() }

// Close ends the client's calls and waits for them. Nothing reaches the client afterwards.
func (c *Conn) Close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.cancel()
	c.handlers.Wait()
}

// call sends a request to the agent and decodes the result into answer. Only the decoding
// checks the result.
func (c *Conn) call(ctx context.Context, method string, params, answer any) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(c.ctx, func() { cancel(ErrEnded) })()
	raw, err := sdk.SendRequest[json.RawMessage](c.conn, ctx, method, params)
	var refused *sdk.RequestError
	switch {
	case err == nil && answer == nil:
		return nil
	case err == nil:
		if err := json.Unmarshal(raw, answer); err != nil {
			return fmt.Errorf("cannot read the agent's answer to %s: %w", method, err)
		}
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	// The SDK has no error for the end of the connection.
	broken := !errors.As(err, &refused) || refused.Code == codeInternal
	if broken && c.ended() {
		if c.lines.tooLong.Load() {
			return ErrLine
		}
		return ErrEnded
	}
	if refused == nil {
		return err
	}
	if refused.Code == codeAuth {
		return fmt.Errorf("%w; it knows: %s", ErrAuth, cmp.Or(strings.Join(c.Agent.Auth, ", "), "no way"))
	}
	return fmt.Errorf("%w %s: %s", ErrRefused, method, inWords(refused))
}

// ended reports whether the agent has closed its standard input or output. The input of an agent that ends may be closed
// before the end of its output is read.
func (c *Conn) ended() bool {
	select {
	case <-c.conn.Done():
		return true
	default:
		return c.input.closed.Load()
	}
}

// input is the standard input of an agent.
type input struct {
	to     io.Writer
	closed atomic.Bool // a write failed
}

func (in *input) Write(p []byte) (int, error) {
	n, err := in.to.Write(p)
	if err != nil {
		in.closed.Store(true)
	}
	return n, err
}

// Codes of errors. codeInternal is "internal error" of JSON-RPC, codeAuth is
// "authentication required" of the protocol.
const (
	codeInternal = -32603
	codeAuth     = -32000
)

// inWords formats an agent's error for people. It adds the error's data, which often has
// the cause.
func inWords(e *sdk.RequestError) string {
	text := e.Message
	if e.Data != nil {
		if data, err := json.Marshal(e.Data); err == nil {
			text += " " + string(data)
		}
	}
	if len(text) > 2<<10 {
		text = strings.ToValidUTF8(text[:2<<10], "") + "…"
	}
	return fmt.Sprintf("%s (%d)", text, e.Code)
}

// countCall counts a call to the client. Returns false if the connection is closed.
func (c *Conn) countCall() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.handlers.Add(1)
	return true
}

// handle answers one message of the agent. It is called once for each message that lines
// passes on.
func (c *Conn) handle(ctx context.Context, method string, params json.RawMessage) (any, *sdk.RequestError) {
	defer c.lines.handled(method == sdk.ClientMethodSessionUpdate)
	if !c.countCall() {
		return nil, sdk.NewRequestCancelled(nil)
	}
	defer c.handlers.Done()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.ctx, cancel)()
	return c.dispatch(ctx, method, params)
}
