// Package acptest is a stand-in of a coding agent. It implements the agent's side of the Agent Client Protocol, stores
// its sessions in files, asks for permission, and uses the client's files and terminals. A [Brain] decides about its
// actions. [Script] performs the lines of a prompt, and internal/standin/acp-standin calls a model.
package acptest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"time"

	sdk "github.com/coder/acp-go-sdk"
)

// Agent is one agent process. Its fields are its options and may change until Serve.
type Agent struct {
	Name  string // its name in the protocol; default "stand-in"
	Brain Brain
	// Dir is the folder of the sessions. If it is empty, sessions end with the process.
	Dir string
	// Ask lists the kinds of tool calls for which the agent asks permission ("edit", "execute").
	Ask []string
	// Modes are the ids of the session modes.
	Modes []string
	// Auth, when set, is the way to sign in that is required before a session.
	Auth string
	// NoLoad disables the continuation of a session. Resume enables it by session/resume as well.
	NoLoad, Resume bool
	// HTTP enables MCP servers by HTTP.
	HTTP bool
	// Images enables pictures in a prompt.
	Images bool
	// Steer enables prompts in a turn that works, by the extension that the adapters of Claude Code and Codex have.
	Steer bool

	conn     *sdk.AgentSideConnection
	out      io.Writer
	mu       sync.Mutex // guards the fields below
	client   sdk.ClientCapabilities
	signedIn bool
	sessions map[string]*session
}

// Brain decides about the next action of an agent.
type Brain interface {
	// Next is called until it returns a step without calls, which ends the turn.
	Next(ctx context.Context, s View) (Step, error)
}

// View is the part of a session that a brain sees.
type View struct {
	History []Entry // all events so far
	Servers []sdk.McpServer
}

// Step is one step of an agent, texts and calls.
type Step struct {
	Text  string
	Pause time.Duration // between two words of Text
	Plan  []string
	Calls []Call
	Stop  string              // the reason for the end of the turn; the default without calls is "end_turn"
	Raw   []sdk.SessionUpdate // sent without a change
	Print string              // written to the standard output without a change, outside of the protocol
	Exit  *int                // ends the process
	Hang  bool                // waits until the turn is cancelled
	Deaf  bool                // does not end even then
}

// Call is a call of a tool.
type Call struct {
	ID   string            `json:"id"`
	Tool string            `json:"tool"` // "read", "edit", "bash"
	Args map[string]string `json:"args"`
}

// Entry is one event of a session.
type Entry struct {
	Role   string `json:"role"` // "user", "agent", "tool"
	Text   string `json:"text,omitempty"`
	Calls  []Call `json:"calls,omitempty"`  // of "agent"
	CallID string `json:"call,omitempty"`   // of "tool", the call whose result it is
	Failed bool   `json:"failed,omitempty"` // of "tool"
}

// session is one conversation.
type session struct {
	ID      string          `json:"id"`
	Dir     string          `json:"dir"`
	Mode    string          `json:"mode,omitempty"`
	Servers []sdk.McpServer `json:"-"`
	History []Entry         `json:"history"`
	InTurn  bool            `json:"in_turn,omitempty"` // in a file, the process ended within a turn

	cancel  context.CancelFunc // of the running turn
	steered []string           // prompts for the running turn
	always  map[string]bool    // kinds of tool calls that are permitted for good
}

// Serve serves the protocol over a pair of pipes until the client closes its end.
func (a *Agent) Serve(in io.Reader, out io.Writer) error {
	if a.Name == "" {
		a.Name = "stand-in"
	}
	a.sessions = make(map[string]*session)
	gate := make(chan struct{})
	a.out = &locked{to: out}
	a.conn = sdk.NewAgentSideConnection(a, a.out, gated{in, gate})
	a.conn.SetLogger(slog.New(slog.DiscardHandler))
	close(gate)
	<-a.conn.Done()
	return nil
}

// gated delays reads until the connection is set up.
type gated struct {
	io.Reader
	open <-chan struct{}
}

func (g gated) Read(p []byte) (int, error) {
	<-g.open
	return g.Reader.Read(p)
}

// locked keeps a brain's direct output from splitting messages.
type locked struct {
	mu sync.Mutex
	to io.Writer
}

func (l *locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.to.Write(p)
}

// Initialize implements sdk.Agent.
func (a *Agent) Initialize(_ context.Context, r sdk.InitializeRequest) (sdk.InitializeResponse, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.client = r.ClientCapabilities
	resp := sdk.InitializeResponse{ProtocolVersion: sdk.ProtocolVersionNumber,
		AgentInfo: &sdk.Implementation{Name: a.Name, Version: "1"},
		AgentCapabilities: sdk.AgentCapabilities{LoadSession: !a.NoLoad,
			McpCapabilities:    sdk.McpCapabilities{Http: a.HTTP},
			PromptCapabilities: sdk.PromptCapabilities{Image: a.Images}}, AuthMethods: []sdk.AuthMethod{}}
	if a.Steer {
		resp.Meta = map[string]any{"steering": map[string]any{"supported": true}}
	}
	if a.Resume {
		resp.AgentCapabilities.SessionCapabilities.Resume = &sdk.SessionResumeCapabilities{}
	}
	if a.Auth != "" {
		resp.AuthMethods = append(resp.AuthMethods, sdk.AuthMethod{Agent: &sdk.AuthMethodAgent{Id: a.Auth, Name: a.Auth}})
	}
	return resp, nil
}

// Authenticate implements sdk.Agent.
func (a *Agent) Authenticate(_ context.Context, r sdk.AuthenticateRequest) (sdk.AuthenticateResponse, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if r.MethodId != a.Auth {
		return sdk.AuthenticateResponse{}, sdk.NewInvalidParams(map[string]any{"methodId": r.MethodId})
	}
	a.signedIn = true
	return sdk.AuthenticateResponse{}, nil
}

var sessionID = regexp.MustCompile(`^sess-[0-9a-z-]{1,64}$`)

// NewSession implements sdk.Agent.
func (a *Agent) NewSession(_ context.Context, r sdk.NewSessionRequest) (sdk.NewSessionResponse, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.Auth != "" && !a.signedIn {
		return sdk.NewSessionResponse{}, sdk.NewAuthRequired(nil)
	}
	s := &session{ID: fmt.Sprintf("sess-%d-%d", os.Getpid(), len(a.sessions)+1), Dir: r.Cwd, Servers: r.McpServers}
	if a.Dir != "" {
		for n := 1; ; n++ { // ids of earlier processes are in use
			s.ID = "sess-" + strconv.Itoa(n)
			if _, err := os.Stat(a.file(s.ID)); errors.Is(err, os.ErrNotExist) && a.sessions[s.ID] == nil {
				break
			}
		}
	}
	a.sessions[s.ID] = s
	if err := a.save(s); err != nil {
		return sdk.NewSessionResponse{}, err
	}
	return sdk.NewSessionResponse{SessionId: sdk.SessionId(s.ID), Modes: a.modes(s)}, nil
}

func (a *Agent) modes(s *session) *sdk.SessionModeState {
	if len(a.Modes) == 0 {
		return nil
	}
	if s.Mode == "" {
		s.Mode = a.Modes[0]
	}
	state := &sdk.SessionModeState{CurrentModeId: sdk.SessionModeId(s.Mode)}
	for _, m := range a.Modes {
		state.AvailableModes = append(state.AvailableModes, sdk.SessionMode{Id: sdk.SessionModeId(m), Name: m})
	}
	return state
}

func (a *Agent) file(id string) string { return filepath.Join(a.Dir, id+".json") }

func (a *Agent) save(s *session) error {
	if a.Dir == "" {
		return nil
	}
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(a.Dir, 0o700); err != nil {
		return err
	}
	next := a.file(s.ID) + ".next"
	if err := os.WriteFile(next, text, 0o600); err != nil {
		return err
	}
	return os.Rename(next, a.file(s.ID))
}

func (a *Agent) find(id string) (*session, error) {
	if s := a.sessions[id]; s != nil {
		return s, nil
	}
	if a.Dir == "" || !sessionID.MatchString(id) {
		return nil, sdk.NewInvalidParams(map[string]any{"sessionId": id, "error": "there is no such session"})
	}
	text, err := os.ReadFile(a.file(id))
	s := &session{}
	if err == nil {
		err = json.Unmarshal(text, s)
	}
	if err != nil {
		return nil, sdk.NewInvalidParams(map[string]any{"sessionId": id, "error": err.Error()})
	}
	a.sessions[id] = s
	return s, nil
}

// LoadSession implements sdk.AgentLoader.
func (a *Agent) LoadSession(ctx context.Context, r sdk.LoadSessionRequest) (sdk.LoadSessionResponse, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.NoLoad {
		return sdk.LoadSessionResponse{}, sdk.NewMethodNotFound(sdk.AgentMethodSessionLoad)
	}
	s, err := a.find(string(r.SessionId))
	if err != nil {
		return sdk.LoadSessionResponse{}, err
	}
	s.Dir, s.Servers = r.Cwd, r.McpServers
	for _, e := range s.History {
		switch e.Role {
		case "user":
			err = a.tell(ctx, s, sdk.UpdateUserMessageText(e.Text))
		case "agent":
			err = a.tell(ctx, s, sdk.UpdateAgentMessageText(e.Text))
		}
		if err != nil {
			return sdk.LoadSessionResponse{}, err
		}
	}
	return sdk.LoadSessionResponse{Modes: a.modes(s)}, nil
}

// ResumeSession implements sdk.Agent.
func (a *Agent) ResumeSession(_ context.Context, r sdk.ResumeSessionRequest) (sdk.ResumeSessionResponse, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.Resume {
		return sdk.ResumeSessionResponse{}, sdk.NewMethodNotFound(sdk.AgentMethodSessionResume)
	}
	s, err := a.find(string(r.SessionId))
	if err != nil {
		return sdk.ResumeSessionResponse{}, err
	}
	s.Dir, s.Servers = r.Cwd, r.McpServers
	return sdk.ResumeSessionResponse{Modes: a.modes(s)}, nil
}

// HandleExtensionMethod implements sdk.ExtensionMethodHandler. It takes a prompt into the running turn.
func (a *Agent) HandleExtensionMethod(_ context.Context, method string, params json.RawMessage) (any, error) {
	if !a.Steer || method != "_session/steering" {
		return nil, sdk.NewMethodNotFound(method)
	}
	var r sdk.PromptRequest
	if err := json.Unmarshal(params, &r); err != nil {
		return nil, sdk.NewInvalidParams(map[string]any{"error": err.Error()})
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.sessions[string(r.SessionId)]
	if s == nil || s.cancel == nil {
		return map[string]any{"outcome": "promptRequired", "reason": "noRunningTurn"}, nil
	}
	s.steered = append(s.steered, promptText(r.Prompt))
	return map[string]any{"outcome": "injected"}, nil
}

// CloseSession implements sdk.Agent.
func (a *Agent) CloseSession(context.Context, sdk.CloseSessionRequest) (sdk.CloseSessionResponse, error) {
	return sdk.CloseSessionResponse{}, sdk.NewMethodNotFound(sdk.AgentMethodSessionClose)
}

// ListSessions implements sdk.Agent.
func (a *Agent) ListSessions(context.Context, sdk.ListSessionsRequest) (sdk.ListSessionsResponse, error) {
	return sdk.ListSessionsResponse{}, sdk.NewMethodNotFound(sdk.AgentMethodSessionList)
}

// SetSessionConfigOption implements sdk.Agent.
func (a *Agent) SetSessionConfigOption(context.Context, sdk.SetSessionConfigOptionRequest) (sdk.SetSessionConfigOptionResponse, error) {
	return sdk.SetSessionConfigOptionResponse{}, sdk.NewMethodNotFound(sdk.AgentMethodSessionSetConfigOption)
}

// SetSessionMode implements sdk.Agent.
func (a *Agent) SetSessionMode(_ context.Context, r sdk.SetSessionModeRequest) (sdk.SetSessionModeResponse, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s, err := a.find(string(r.SessionId))
	if err != nil {
		return sdk.SetSessionModeResponse{}, err
	}
	if !slices.Contains(a.Modes, string(r.ModeId)) {
		return sdk.SetSessionModeResponse{}, sdk.NewInvalidParams(map[string]any{"modeId": r.ModeId})
	}
	s.Mode = string(r.ModeId)
	return sdk.SetSessionModeResponse{}, a.save(s)
}

// Cancel implements sdk.Agent.
func (a *Agent) Cancel(_ context.Context, r sdk.CancelNotification) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s := a.sessions[string(r.SessionId)]; s != nil && s.cancel != nil {
		s.cancel()
	}
	return nil
}

func (a *Agent) tell(ctx context.Context, s *session, u sdk.SessionUpdate) error {
	return a.conn.SessionUpdate(ctx, sdk.SessionNotification{SessionId: sdk.SessionId(s.ID), Update: u})
}
