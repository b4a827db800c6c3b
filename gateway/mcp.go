package gateway

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/engineer"
	"github.com/ramus-dev/ramus/gateway/links"
	"github.com/ramus-dev/ramus/gateway/lookup"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/internal/redact"
)

// mcpAPI serves MCP to people's programs.
type mcpAPI struct {
	Executor *executor.Executor
	Engineer *engineer.Engineer // nil: no tasks are taken
	find     *lookup.Lookup
	Links    *links.Signer
	URL      string
	CORS     []string
	Version  string
	Secrets  *redact.Secrets
	Log      *slog.Logger
	Now      func() time.Time

	mcpFront *mcpFront
}

// MCPPath is where MCP is served, to people's programs and, at a container's door, to agents.
const MCPPath = "/mcp"

// Bounds of MCP. A session that nobody speaks in for mcpIdle is ended: few
// clients say that they go.
const (
	mcpBody     = 2 << 20 // of one message; JSON may write a byte as six
	mcpIdle     = time.Hour
	mcpSessions = 512 // of all bearers together, and of one of them a quarter as many
)

// firstWithoutSessions is the first version of the protocol whose requests stand each
// for itself: https://modelcontextprotocol.io/specification. The client says in
// a header which version it speaks, once that is agreed on.
const (
	firstWithoutSessions = "2026-07-28"
	mcpVersionHeader     = "Mcp-Protocol-Version"
	mcpSessionHeader     = "Mcp-Session-Id"
)

// mcpRoutes are the rows of MCP's one address. Who may use which tool is a
// column of the table of tools.
func (api *mcpAPI) Routes() []route.Route {
	row := func(method, summary string) route.Route {
		return route.Route{Method: method, Pattern: MCPPath, Access: route.AccessRead, Summary: summary, Media: route.MediaSSE, Body: mcpBody, Handle: api.mcp}
	}
	post := row("POST", "Model Context Protocol, streamable HTTP: a message to the server \"engineer\"")
	post.Request = json.RawMessage{}
	end := row("DELETE", "End a session of the Model Context Protocol")
	end.Media = ""
	return []route.Route{post, row("GET", "What the server says in a session of the Model Context Protocol by itself"), end}
}

// mcp serves one request.
func (api *mcpAPI) mcp(c *route.Call) error {
	if !c.Who.Local { // no page of a browser reaches the socket
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
	return api.mcpFront.serve(c.W, c.R, c.Who)
}

// rebound refuses what a page of another site sends through the browser of somebody
// who is let in: a name of its own that was made to lead here (DNS rebinding), or
// an Origin that is not ours. Programs send no Origin.
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

// ownHost tells whether a host, with its port or without, is this server: as it is configured,
// by a name of the loopback, or by the address that the request came to.
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

// mcpFront is MCP over streamable HTTP: sessions of the versions that have them,
// and single requests of those that have none. A session belongs to the bearer
// who began it, and to nobody else: its tools were chosen for that bearer.
type mcpFront struct {
	// server makes the server that a bearer sees, for the session of that id. What
	// it does ends with ctx.
	server   func(ctx context.Context, who route.Who, session string) *mcp.Server
	most     int
	idle     time.Duration
	now      func() time.Time
	mu       sync.Mutex // guards all below
	sessions map[string]*mcpSession
	closed   bool
}

// mcpSession is one session. The front's mu guards busy and used.
type mcpSession struct {
	id      string
	bearer  string
	server  *mcp.Server
	handler http.Handler
	busy    int // requests under way
	used    time.Time
}

// live tells whether the session has not ended.
func (s *mcpSession) live() bool {
	for range s.server.Sessions() {
		return true
	}
	return false
}

// end ends the session and all that goes on in it.
func (s *mcpSession) end() {
	for session := range s.server.Sessions() {
		_ = session.Close() // it has no connection of its own that could fail
	}
}

func newMCPFront(server func(context.Context, route.Who, string) *mcp.Server, now func() time.Time) *mcpFront {
	return &mcpFront{server: server, most: mcpSessions, idle: mcpIdle, now: now, sessions: map[string]*mcpSession{}}
}

// bearer names who a session belongs to: a token with other rights is another bearer.
func bearer(w route.Who) string {
	return fmt.Sprintf("%q %q %q %q %q %t", w.Subject, w.Repo, w.Scopes, w.Read, w.Write, w.Local)
}

// serve answers one request of a bearer who was let in. What the protocol's
// library refuses before there is a message is a [route.Problem] like all others.
func (f *mcpFront) serve(w http.ResponseWriter, r *http.Request, who route.Who) error {
	out := &mcpWriter{ResponseWriter: w, rc: http.NewResponseController(w)}
	switch id := r.Header.Get(mcpSessionHeader); {
	case r.Header.Get(mcpVersionHeader) >= firstWithoutSessions:
		if answered, err := pong(out, r); answered || err != nil {
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
		s, err := f.begin(r, who)
		if err != nil {
			return err
		}
		defer f.release(s)
		s.handler.ServeHTTP(out, r)
	}
	return out.problem()
}

// pong answers a ping, and tells whether the request was one. The versions without sessions have no ping,
// and the protocol's library refuses it there, but clients of theirs send it all the same.
func pong(w http.ResponseWriter, r *http.Request) (bool, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return false, err
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
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
	_, err = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{}}`+"\n", message.ID)
	return true, err
}

// single serves requests that stand each for itself. They end with ctx.
func (f *mcpFront) single(ctx context.Context, who route.Who) http.Handler {
	server := f.server(ctx, who, "")
	return mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{
		Stateless: true, PropagateRequestCancellation: true, DisableLocalhostProtection: true, MaxRequestBodyBytes: mcpBody,
	})
}

// begin makes a session for a request that names none.
func (f *mcpFront) begin(r *http.Request, who route.Who) (*mcpSession, error) {
	if r.Method != http.MethodPost {
		return nil, route.NewProblem(route.KindInvalid, "this request is of no session").WithHint("a session begins with a POST of `initialize`; its id goes into " + mcpSessionHeader)
	}
	// The session outlives the request that begins it.
	s := &mcpSession{id: rand.Text(), bearer: bearer(who), busy: 1}
	s.server = f.server(context.WithoutCancel(r.Context()), who, s.id)
	s.handler = mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s.server }, &mcp.StreamableHTTPOptions{
		SessionTimeout: f.idle, DisableLocalhostProtection: true, MaxRequestBodyBytes: mcpBody,
	})
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil, record.ErrClosed
	}
	own, oldest := 0, (*mcpSession)(nil)
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
	if own >= max(1, f.most/4) || len(f.sessions) >= f.most {
		if oldest == nil {
			return nil, route.NewProblem(route.KindStreams, "%s has %d sessions at work, and there may be no more", who.Subject, own)
		}
		// Most clients go without a word: what was left behind gives way.
		delete(f.sessions, oldest.id)
		oldest.end()
	}
	f.sessions[s.id] = s
	return s, nil
}

// find finds a bearer's session. Another's is not there.
func (f *mcpFront) find(id string, who route.Who) (*mcpSession, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.sessions[id]
	if s == nil || s.bearer != bearer(who) || s.busy == 0 && !s.live() {
		return nil, route.NewProblem(route.KindNotFound, "there is no such session, or it has ended").WithHint("begin a new one with `initialize`")
	}
	s.busy++
	return s, nil
}

// release ends a request of a session.
func (f *mcpFront) release(s *mcpSession) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s.busy--
	s.used = f.now()
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

// close ends all sessions, those with a request under way when that is answered,
// and begins no new ones.
func (f *mcpFront) close() {
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

// mcpWriter writes an answer piece by piece, each with a deadline of its own, and
// holds back refusals in plain text, which are told as problems.
type mcpWriter struct {
	http.ResponseWriter
	rc      *http.ResponseController
	refused int
	text    []byte
}

func (w *mcpWriter) WriteHeader(status int) {
	if status >= 400 && strings.HasPrefix(w.Header().Get("Content-Type"), "text/plain") {
		w.refused = status
		return
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *mcpWriter) Write(b []byte) (int, error) {
	if w.refused != 0 {
		w.text = append(w.text, b[:min(len(b), 1000-min(1000, len(w.text)))]...)
		return len(b), nil
	}
	_ = w.rc.SetWriteDeadline(time.Now().Add(route.SlowestRead)) // only a recorder in a test has none
	defer func() { _ = w.rc.SetWriteDeadline(time.Time{}) }()
	return w.ResponseWriter.Write(b)
}

// Flush sends what was written.
func (w *mcpWriter) Flush() {
	if w.refused != 0 {
		return
	}
	_ = w.rc.SetWriteDeadline(time.Now().Add(route.SlowestRead))
	_ = w.rc.Flush() // a reader who is gone shows at the next write
	_ = w.rc.SetWriteDeadline(time.Time{})
}

// Unwrap lets http.ResponseController reach the connection.
func (w *mcpWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// problem is the refusal that was held back, if there was one.
func (w *mcpWriter) problem() error {
	if w.refused == 0 {
		return nil
	}
	kind := route.KindInvalid
	for _, k := range []route.Kind{route.KindDenied, route.KindNotFound, route.KindMethod, route.KindConflict, route.KindTooLarge, route.KindInternal} {
		if k.Status() == w.refused {
			kind = k
		}
	}
	return route.NewProblem(kind, "%s", strings.TrimSpace(string(w.text)))
}
