package mcp

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/standby"
	"github.com/ramus-dev/ramus/gateway/comment"
	"github.com/ramus-dev/ramus/gateway/engineer"
	"github.com/ramus-dev/ramus/gateway/export"
	"github.com/ramus-dev/ramus/gateway/gather"
	"github.com/ramus-dev/ramus/gateway/links"
	"github.com/ramus-dev/ramus/gateway/lookup"
	"github.com/ramus-dev/ramus/gateway/past"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gateway/share"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/redact"
)

// Executor is the part of the executor that the tools need.
type Executor interface {
	// AgentNames returns the names of the configured agents.
	AgentNames() []string
	Submit(ctx context.Context, r record.Request) (record.Run, error)
	Run(ctx context.Context, name string) (record.Run, error)
	// OfCaller returns the runs of a caller, the oldest first.
	OfCaller(caller record.Caller) []record.Run
	Stop(ctx context.Context, run string, by gitd.Person) error
	Decide(ctx context.Context, run string, d record.Decision) (record.Run, error)
	Events(ctx context.Context, run string, after int64, follow bool) iter.Seq2[record.Event, error]
	Manifest(ctx context.Context, run string) (record.Manifest, error)
}

// Prompts gives prompts to the agents of runs.
type Prompts interface {
	// Say sends a prompt to the agent of a run, for its next turn. The error wraps [record.ErrConflict] if the run has
	// ended.
	Say(ctx context.Context, run string, p record.Prompt) error
}

// API serves MCP to people's programs. Its exported fields are its options, which may be changed until the first
// request.
type API struct {
	Executor Executor
	Prompts  Prompts
	// Engineer takes tasks. If it is nil, there are no tools for tasks.
	Engineer *engineer.Engineer
	// Find finds the runs and callers that arguments name.
	Find *lookup.Lookup
	// Past explains lines of files. If it is nil, there is no tool for that.
	Past *past.API
	// Comments has the comments on lines. If it is nil, the tools for them are missing.
	Comments *comment.Comments
	// Leader lets stand-bys follow the server. If it is nil or lets none, the tool for them is missing.
	Leader *standby.Leader
	// Exports makes links to exports. If it is nil, the tool for them is missing.
	Exports *export.API
	// Shares makes links for people who do not sign in. If it is nil, the tools for them are missing.
	Shares *share.API
	// Desk asks the other replicas of the installation. Nil means that this is the only server.
	Desk *gather.Desk
	// Audit adds an action of a person to the log of actions. If it is nil, there is no log.
	Audit func(ctx context.Context, who route.Who, action, object string) error
	// Links makes links to evidence. If it is nil, runs have none.
	Links *links.Signer
	// URL is the URL at which people reach the server. CORS are the origins whose pages may use the server too.
	URL  string
	CORS []string
	// Version is the version that the server reports to clients.
	Version string
	// Secrets are removed from results.
	Secrets *redact.Secrets
	// MaxSessions limits the sessions of all bearers together. The default is 512. One bearer may have a quarter of
	// them.
	MaxSessions int
	// Idle is how long an unused session is kept. It is needed because few clients end their sessions. The default is
	// 1 h.
	Idle time.Duration
	Log  *slog.Logger
	Now  func() time.Time

	once    sync.Once
	front   *front
	lists   lists
	calls   openCalls
	cancels *gather.Question[callName, struct{}]
}

func (api *API) setUp() {
	api.once.Do(func() {
		if api.MaxSessions == 0 {
			api.MaxSessions = 512
		}
		if api.Idle == 0 {
			api.Idle = time.Hour
		}
		api.front = &front{api: api, sessions: map[string]*session{}}
		api.lists = api.newLists()
		api.cancels = api.newCancels()
	})
}

// Close ends all sessions and refuses new ones. A session with a request in progress ends after the request.
func (api *API) Close() {
	api.setUp()
	api.front.close()
}

// EndSessions ends all sessions, as a restart of the server does. New ones may begin.
func (api *API) EndSessions() {
	api.setUp()
	api.front.endSessions()
}

// Path is the path of MCP, for people's programs and for agents at the door of their container.
const Path = "/mcp"

// maxBody limits one message, in bytes. JSON may encode one byte as six.
const maxBody = 2 << 20

// firstWithoutSessions is the first version of the protocol whose requests are independent of each other
// (https://modelcontextprotocol.io/specification). After the version is agreed on, the client sends it in a header.
const (
	firstWithoutSessions = "2026-07-28"
	versionHeader        = "Mcp-Protocol-Version"
	sessionHeader        = "Mcp-Session-Id"
)

// Routes returns the routes of MCP. All tools share one path. The access that a tool needs is part of the table of
// tools.
func (api *API) Routes() []route.Route {
	api.setUp()
	row := func(method, summary string) route.Route {
		return route.Route{Method: method, Pattern: Path, Access: route.AccessRead, Summary: summary,
			Media: route.MediaSSE, Body: maxBody, Handle: api.serve}
	}
	post := row("POST", "Model Context Protocol, streamable HTTP: a message to the server \"engineer\"")
	post.Request = json.RawMessage{}
	end := row("DELETE", "End a session of the Model Context Protocol")
	end.Media = ""
	return []route.Route{post, row("GET", "What the server says in a session of the Model Context Protocol by itself"), end}
}

// serve answers one request.
func (api *API) serve(c *route.Call) error {
	if !c.Who.Local && route.Via(c.R.Context()) == "" { // pages in a browser reach neither the socket nor a replica
		if err := rebound(c.R, api.URL, api.CORS); err != nil {
			return err
		}
	}
	if c.R.Method == http.MethodGet {
		done, err := c.OpenStream()
		if err != nil {
			return err
		}
		defer done()
		ctx, cancel := context.WithCancel(c.R.Context())
		defer cancel()
		defer context.AfterFunc(c.Draining(), cancel)()
		c.R = c.R.WithContext(ctx)
	}
	lift := c.LimitReading()
	body, err := io.ReadAll(c.R.Body)
	lift()
	if err != nil {
		return err
	}
	c.R.Body = io.NopCloser(bytes.NewReader(body))
	m := readMessage(body)
	if m.isCancel() {
		api.cancelCall(c, m)
	}
	passed, foreign := api.elsewhere(c, m)
	if passed != nil || foreign {
		defer api.calls.beginCall(c, m)()
	}
	if passed != nil {
		servePassed(passed, c)
		return nil
	}
	if foreign {
		c.R.Header.Del(sessionHeader)
		return api.front.serveAlone(c.W, c.R, c.Who)
	}
	return api.front.serve(c.W, c.R, c.Who, body)
}

// rebound returns a problem for a request that a page of another site may have sent through the browser of a person
// with access. Such a request has a host name of the page that resolves to this server (DNS rebinding), or a foreign
// Origin. Programs send no Origin.
func rebound(r *http.Request, own string, origins []string) error {
	if !ownHost(r, own, r.Host) {
		return route.NewProblem(route.KindDenied, "this server does not go by the name %.200q", r.Host).
			WithHint("set `url` in the configuration to the address that people use")
	}
	for _, origin := range r.Header.Values("Origin") {
		u, err := url.Parse(origin)
		if err == nil && (u.Scheme == "http" || u.Scheme == "https") && ownHost(r, own, u.Host) || slices.Contains(origins, origin) {
			continue
		}
		return route.NewProblem(route.KindDenied, "pages of %.200q may not use this server", origin).
			WithHint("`cors` in the configuration lists the origins that may")
	}
	return nil
}

// ownHost reports whether a host, with or without a port, is this server. It may be the configured host, a name of the
// loopback interface, or the local address of the connection.
func ownHost(r *http.Request, own, host string) bool {
	name := route.HostName(host)
	if name == "" {
		return false
	}
	if u, err := url.Parse(own); err == nil && own != "" && strings.EqualFold(name, u.Hostname()) {
		return true
	}
	if strings.EqualFold(name, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(name)
	if err != nil {
		return false
	}
	if ip = ip.Unmap(); ip.IsLoopback() {
		return true
	}
	local, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	return ok && local.AddrPort().Addr().Unmap().WithZone("") == ip.WithZone("")
}

// front serves MCP over streamable HTTP. Versions of the protocol with sessions get sessions, and versions without
// them get single requests. A session belongs to the bearer that began it and to no other, because its tools were
// chosen for that bearer.
type front struct {
	api *API

	mu       sync.Mutex // guards all fields below
	sessions map[string]*session
	closed   bool
}

// session is one session. The front's mu guards busy and used.
type session struct {
	id      string
	bearer  string
	server  *sdk.Server
	handler http.Handler
	busy    int // requests in progress
	used    time.Time
}

// live reports whether the session has not ended.
func (s *session) live() bool {
	for range s.server.Sessions() {
		return true
	}
	return false
}

// end ends the session and all calls in it.
func (s *session) end() {
	for session := range s.server.Sessions() {
		_ = session.Close() // it has no connection of its own that could fail
	}
}

// endSessions ends all sessions.
func (f *front) endSessions() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for id, s := range f.sessions {
		s.end()
		delete(f.sessions, id)
	}
}

// bearer returns a string that identifies the bearer of a request. A token with other rights is another bearer.
func bearer(w route.Who) string {
	return fmt.Sprintf("%q %q %q %q %q %t", w.Subject, w.Repo, w.Scopes, w.Read, w.Write, w.Local)
}

// serve answers one request of an authenticated bearer. A refusal by the protocol's library before there is a message
// becomes a [route.Problem].
func (f *front) serve(w http.ResponseWriter, r *http.Request, who route.Who, body []byte) error {
	out := &writer{ResponseWriter: w, rc: http.NewResponseController(w)}
	switch id := r.Header.Get(sessionHeader); {
	case r.Header.Get(versionHeader) >= firstWithoutSessions:
		if answered, err := pong(out, r, body); answered || err != nil {
			return err
		}
		f.single(r.Context(), who).ServeHTTP(out, r)
	case id != "":
		s, err := f.find(id, who)
		if err != nil {
			return err
		}
		defer f.release(s)
		s.handler.ServeHTTP(out, r)
	default:
		s, err := f.beginSession(r, who)
		if err != nil {
			return err
		}
		defer f.release(s)
		s.handler.ServeHTTP(out, r)
	}
	return out.problem()
}

// serveAlone answers one request without a session.
func (f *front) serveAlone(w http.ResponseWriter, r *http.Request, who route.Who) error {
	out := &writer{ResponseWriter: w, rc: http.NewResponseController(w)}
	f.single(r.Context(), who).ServeHTTP(out, r)
	return out.problem()
}

// pong answers a ping and reports whether the request was one. The versions without sessions have no ping, and the
// protocol's library refuses it there. However, clients of these versions send it.
func pong(w http.ResponseWriter, r *http.Request, body []byte) (bool, error) {
	var message struct {
		Version string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Method  string          `json:"method"`
	}
	if r.Method != http.MethodPost || json.Unmarshal(body, &message) != nil || message.Method != "ping" {
		return false, nil
	}
	var id any
	if err := json.Unmarshal(message.ID, &id); err != nil {
		return false, nil
	}
	switch id.(type) {
	case string, float64:
	default:
		return false, nil
	}
	if message.Version != "2.0" {
		return false, nil
	}
	w.Header().Set("Content-Type", "application/json")
	_, err := fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{}}`+"\n", message.ID)
	return true, err
}

// single returns a handler of independent requests. Their work ends with ctx.
func (f *front) single(ctx context.Context, who route.Who) http.Handler {
	server := f.api.newServer(ctx, who, "")
	return sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server }, &sdk.StreamableHTTPOptions{
		Stateless: true, PropagateRequestCancellation: true, DisableLocalhostProtection: true, MaxRequestBodyBytes: maxBody,
	})
}

// beginSession begins a session for a request without a session id.
func (f *front) beginSession(r *http.Request, who route.Who) (*session, error) {
	if r.Method != http.MethodPost {
		return nil, route.NewProblem(route.KindInvalid,
			"this request is of no session").WithHint("a session begins with a POST of `initialize`; its id goes into " + sessionHeader)
	}
	// The session outlives the request that begins it.
	s := &session{id: f.api.newSessionID(rand.Text()), bearer: bearer(who), busy: 1}
	s.server = f.api.newServer(context.WithoutCancel(r.Context()), who, s.id)
	s.handler = sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return s.server }, &sdk.StreamableHTTPOptions{
		SessionTimeout: f.api.Idle, DisableLocalhostProtection: true, MaxRequestBodyBytes: maxBody,
	})
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil, record.ErrClosed
	}
	own, oldest := 0, (*session)(nil)
	for id, other := range f.sessions {
		switch {
		case other.busy == 0 && !other.live():
			delete(f.sessions, id)
		case other.bearer == s.bearer:
			own++
			if other.busy == 0 && (oldest == nil || other.used.Before(oldest.used)) {
				oldest = other
			}
		}
	}
	if own >= max(1, f.api.MaxSessions/4) || len(f.sessions) >= f.api.MaxSessions {
		if oldest == nil {
			return nil, route.NewProblem(route.KindStreams, "%s has %d sessions at work, and there may be no more",
				who.Subject, own)
		}
		// Most clients do not end their sessions, so the oldest idle session of the bearer is ended.
		delete(f.sessions, oldest.id)
		oldest.end()
	}
	f.sessions[s.id] = s
	return s, nil
}

// find returns a session of the bearer. A session of another bearer is not found.
func (f *front) find(id string, who route.Who) (*session, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.sessions[id]
	if s == nil || s.bearer != bearer(who) || s.busy == 0 && !s.live() {
		return nil, route.NewProblem(route.KindNotFound,
			"there is no such session, or it has ended").WithHint("begin a new one with `initialize`")
	}
	s.busy++
	return s, nil
}

// release ends a request of a session.
func (f *front) release(s *session) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s.busy--
	s.used = f.api.Now()
	if s.busy > 0 {
		return
	}
	if f.closed {
		s.end()
	}
	if !s.live() {
		delete(f.sessions, s.id)
	}
}

// close ends all sessions and refuses new ones. It leaves a session with a request in progress, which release ends
// after the request.
func (f *front) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	for id, s := range f.sessions {
		if s.busy == 0 {
			s.end()
			delete(f.sessions, id)
		}
	}
}

// writer writes an answer in pieces and sets a deadline for each piece. It holds back refusals in plain text, which
// problem returns.
type writer struct {
	http.ResponseWriter
	rc      *http.ResponseController
	refused int
	text    []byte
}

func (w *writer) WriteHeader(status int) {
	if status >= 400 && strings.HasPrefix(w.Header().Get("Content-Type"), "text/plain") {
		w.refused = status
		return
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *writer) Write(b []byte) (int, error) {
	if w.refused != 0 {
		w.text = append(w.text, b[:min(len(b), 1000-min(1000, len(w.text)))]...)
		return len(b), nil
	}
	_ = w.rc.SetWriteDeadline(time.Now().Add(route.SlowestRead)) // only the recorder of a test has no deadline
	defer func() { _ = w.rc.SetWriteDeadline(time.Time{}) }()
	return w.ResponseWriter.Write(b)
}

// Flush sends the written data.
func (w *writer) Flush() {
	if w.refused != 0 {
		return
	}
	_ = w.rc.SetWriteDeadline(time.Now().Add(route.SlowestRead))
	_ = w.rc.Flush() // the next write fails if the reader has gone
	_ = w.rc.SetWriteDeadline(time.Time{})
}

// Unwrap lets http.ResponseController reach the connection.
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// problem returns the refusal that was held back. Returns nil if there was none.
func (w *writer) problem() error {
	if w.refused == 0 {
		return nil
	}
	kind := route.KindInvalid
	for _, k := range []route.Kind{route.KindDenied, route.KindNotFound, route.KindMethod, route.KindConflict,
		route.KindTooLarge, route.KindInternal} {
		if k.Status() == w.refused {
			kind = k
		}
	}
	return route.NewProblem(kind, "%s", strings.TrimSpace(string(w.text)))
}
