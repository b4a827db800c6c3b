// Package modeltest is a stand-in of the model APIs of Anthropic, OpenAI and Google. It is an HTTP server with state
// that implements their protocols, streams, counts tokens, refuses the requests that the providers refuse, and
// complains about misuse.
//
// It counts words as tokens. The answer is the result of [Server.Reply] for the text, or the result of [Server.Answer]
// for the question, which has a text and calls of the client's tools. [Play] returns an Answer that lets coding agents
// do a piece of work. A [Fault] makes the server busy, slow or down, or interrupts a stream.
package modeltest

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
)

// Key is the default API key of every provider.
const Key = "sk-stand-in-0123456789abcdefghij"

// Server is the stand-in, an http.Handler that serves /anthropic, /openai/v1 and /gemini. Its exported fields are its
// options and may change until the first request. It is safe for concurrent use.
type Server struct {
	// Key is the key that requests must carry. The default is [Key].
	Key string
	// Keys are further keys that requests may carry. OAuth is a token that they may carry as a Bearer token in place of a
	// key. Anthropic wants the feature oauth-2025-04-20 with it. Empty accepts none.
	Keys  []string
	OAuth string
	// Reply returns the text of an answer. If it is nil, the answer repeats the text.
	Reply func(said string) string
	// Answer, when set, replaces Reply, and may call tools. It is called from several goroutines, and again for a
	// repeated request.
	Answer func(Question) Answer
	// CacheRead and CacheWrite are the tokens that each answer reports as read from, and written to, a cache, in
	// addition to the words of the request.
	CacheRead, CacheWrite int64
	// Split writes streams in pieces of so many bytes and flushes each. 0 means one event at a time.
	Split int
	// Pause is the time between the events of a stream.
	Pause time.Duration

	mu         sync.Mutex // guards the fields below
	calls      []Call
	faults     []Fault
	complaints []string
	ids        int
}

// Call is a request as received.
type Call struct {
	Provider string // "anthropic", "openai", "gemini"
	Method   string
	Path     string // below the provider
	Query    url.Values
	Header   http.Header
	Body     []byte
	Status   int
	// Input and Output are the reported tokens, including those of caches. For an interrupted stream they are the
	// tokens of the whole stream.
	Input, Output int64
}

// Fault is the failure of one request.
type Fault struct {
	Status     int    // respond with this error; 0 means a normal response
	RetryAfter string // header
	Body       string // of the error, instead of the provider's own format
	Header     http.Header
	// Cut breaks the connection after so many events of a stream, or before any with -1.
	Cut int
	// Hold waits after as many events as Cut, or before the response if Cut is 0, until the channel is closed or the
	// client has disconnected. The stream then continues.
	Hold <-chan struct{}
	// Held, when set, is closed when the wait begins.
	Held chan<- struct{}
	// Gzip compresses the response without a request for it.
	Gzip bool
	// NoUsage omits the usage.
	NoUsage bool
	// Redirect redirects the client to this URL.
	Redirect string
}

// New starts a stand-in on loopback. The caller closes the returned server.
func New() (*Server, *httptest.Server) {
	s := &Server{}
	return s, httptest.NewServer(s)
}

// BaseURL returns a provider's address at a stand-in at root.
func BaseURL(root, provider string) string {
	if provider == "openai" {
		return root + "/openai/v1"
	}
	return root + "/" + provider
}

// Fail makes the next requests fail, one for each fault.
func (s *Server) Fail(faults ...Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, faults...)
}

// Calls returns the requests so far.
func (s *Server) Calls() []Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.calls)
}

// Complaints returns the mistakes of clients.
func (s *Server) Complaints() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.complaints)
}

func (s *Server) complain(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.complaints = append(s.complaints, fmt.Sprintf(format, args...))
}

func (s *Server) key() string {
	if s.Key == "" {
		return Key
	}
	return s.Key
}

// maxBody is larger than the limit of any provider.
const maxBody = 64 << 20

// keyHeaders has the only header in which each provider accepts its key.
var keyHeaders = map[string]string{"anthropic": "X-Api-Key", "openai": "Authorization", "gemini": "X-Goog-Api-Key"}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	provider, path, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	path = "/" + path
	if keyHeaders[provider] == "" {
		s.complain("a request for %s", r.URL.Path)
		http.NotFound(w, r)
		return
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody))
	if err != nil {
		return // the client has disconnected
	}
	x := &exchange{s: s, w: w, r: r, provider: provider, path: path, body: body, call: Call{
		Provider: provider, Method: r.Method, Path: path, Query: r.URL.Query(), Header: r.Header.Clone(), Body: body,
		Status: 200}}
	s.mu.Lock()
	if len(s.faults) > 0 {
		x.fault, s.faults = s.faults[0], s.faults[1:]
	}
	s.mu.Unlock()
	defer x.record()
	x.complain()
	x.serve()
}

// exchange is one request and its response.
type exchange struct {
	s        *Server
	w        http.ResponseWriter
	r        *http.Request
	provider string
	path     string
	body     []byte
	fault    Fault
	call     Call
	recorded bool
	events   int
}

// record stores the request before the client has its response.
func (x *exchange) record() {
	if x.recorded {
		return
	}
	x.recorded = true
	x.s.mu.Lock()
	defer x.s.mu.Unlock()
	x.s.calls = append(x.s.calls, x.call)
}

// complain records mistakes in the request.
func (x *exchange) complain() {
	for provider, name := range keyHeaders {
		if provider != x.provider && x.r.Header.Get(name) != "" && !x.oauth() {
			x.s.complain("%s: a header %s", x.provider, name)
		}
	}
	for _, name := range []string{"Cookie", "Proxy-Authorization", "X-Forwarded-For", "Forwarded",
		"Openai-Organization", "Openai-Project", "X-Goog-User-Project"} {
		if x.r.Header.Get(name) != "" {
			x.s.complain("%s: a header %s", x.provider, name)
		}
	}
	for _, name := range []string{"key", "api_key", "access_token"} {
		if x.r.URL.Query().Has(name) {
			x.s.complain("%s: a query parameter %s", x.provider, name)
		}
	}
	if x.r.ContentLength < 0 {
		x.s.complain("%s: a body of unknown length", x.provider)
	}
}

func (x *exchange) serve() {
	switch {
	case x.fault.Redirect != "":
		x.call.Status = http.StatusTemporaryRedirect
		x.record()
		http.Redirect(x.w, x.r, x.fault.Redirect, http.StatusTemporaryRedirect)
		return
	case x.fault.Cut < 0:
		panic(http.ErrAbortHandler)
	case x.fault.Cut == 0:
		x.hold()
	}
	for name, values := range x.fault.Header {
		x.w.Header()[name] = values
	}
	// Providers send these headers as well, and no container may see them.
	x.w.Header().Set("Set-Cookie", "__cf_bm=session; Path=/")
	x.w.Header().Set("Anthropic-Organization-Id", "0b1e55ed-0000-4000-8000-000000000000")
	x.w.Header().Set("Openai-Organization", "org-standin1234567890")
	x.w.Header().Set("Request-Id", fmt.Sprintf("req_%d", len(x.body)))
	if x.fault.Status != 0 {
		if x.fault.RetryAfter != "" {
			x.w.Header().Set("Retry-After", x.fault.RetryAfter)
		}
		x.refuse(x.fault.Status, "%s", "a fault of organization org-standin1234567890")
		return
	}
	if got := strings.TrimPrefix(x.r.Header.Get(keyHeaders[x.provider]), "Bearer "); got != x.s.key() &&
		!slices.Contains(x.s.Keys, got) && !x.oauth() {
		x.refuse(http.StatusUnauthorized, "the key %s is wrong", got)
		return
	}
	if x.r.Method == http.MethodPost && x.r.Header.Get("Content-Type") != "application/json" {
		x.refuse(http.StatusUnsupportedMediaType, "want application/json")
		return
	}
	switch x.provider {
	case "anthropic":
		x.anthropic()
	case "openai":
		x.openai()
	case "gemini":
		x.gemini()
	}
}

// oauth reports whether the request carries the token of OAuth, and nothing else.
func (x *exchange) oauth() bool {
	h := x.r.Header
	if x.s.OAuth == "" || h.Get("Authorization") != "Bearer "+x.s.OAuth {
		return false
	}
	switch x.provider {
	case "anthropic":
		return h.Get("X-Api-Key") == "" && strings.Contains(strings.Join(h.Values("Anthropic-Beta"), ","),
			"oauth-2025-04-20")
	case "gemini":
		return h.Get("X-Goog-Api-Key") == ""
	}
	return true
}

// hold waits as the fault requires.
func (x *exchange) hold() {
	if x.fault.Hold == nil {
		return
	}
	if x.fault.Held != nil {
		close(x.fault.Held)
	}
	select {
	case <-x.fault.Hold:
	case <-x.r.Context().Done():
		panic(http.ErrAbortHandler)
	}
}

type object = map[string]any

// refuse responds with an error in the provider's format.
func (x *exchange) refuse(status int, format string, args ...any) {
	x.call.Status = status
	x.record()
	text := fmt.Sprintf(format, args...)
	var body any
	switch x.provider {
	case "anthropic":
		kind := map[int]string{400: "invalid_request_error", 401: "authentication_error", 403: "permission_error",
			404: "not_found_error",
			413: "request_too_large", 429: "rate_limit_error", 529: "overloaded_error"}[status]
		if kind == "" {
			kind = "api_error"
		}
		body = object{"type": "error", "error": object{"type": kind, "message": text}}
	case "openai":
		body = object{"error": object{"message": text, "type": "invalid_request_error", "param": nil, "code": nil}}
	case "gemini":
		body = object{"error": object{"code": status, "message": text, "status": "INVALID_ARGUMENT"}}
	}
	b, _ := json.Marshal(body) // of strings
	if x.fault.Body != "" {
		b = []byte(x.fault.Body)
	}
	x.w.Header().Set("Content-Type", "application/json")
	x.w.WriteHeader(status)
	_, _ = x.w.Write(b)
}

// question reads the body. It returns false if it has refused the request.
func (x *exchange) question(into any) bool {
	if x.r.Method != http.MethodPost {
		x.refuse(http.StatusMethodNotAllowed, "method not allowed")
		return false
	}
	if err := json.Unmarshal(x.body, into); err != nil {
		x.refuse(http.StatusBadRequest, "the body is not JSON: %v", err)
		return false
	}
	return true
}

// say answers a request without a conversation, words for words.
func (x *exchange) say(said string) []string {
	t := &talk{}
	t.person(said)
	words, _ := x.answer(t)
	return words
}

// whole responds with one object.
func (x *exchange) whole(v any) {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // the type is ours
	}
	x.w.Header().Set("Content-Type", "application/json")
	w, end := x.writer()
	defer end()
	_, _ = w.Write(b)
}

// writer returns the body of the response, compressed if the fault requires it.
func (x *exchange) writer() (w io.Writer, end func()) {
	x.record()
	if !x.fault.Gzip {
		return x.w, func() {}
	}
	x.w.Header().Set("Content-Encoding", "gzip")
	z := gzip.NewWriter(x.w)
	return z, func() { _ = z.Close() } // the client notices
}

// stream is a response in pieces.
type stream struct {
	x   *exchange
	w   io.Writer
	end func()
}

func (x *exchange) stream(kind string) *stream {
	x.w.Header().Set("Content-Type", kind)
	w, end := x.writer()
	return &stream{x, w, end}
}

// event sends a named event with an object. The name "" means no name.
func (s *stream) event(name string, v any) {
	var b bytes.Buffer
	if name != "" {
		fmt.Fprintf(&b, "event: %s\n", name)
	}
	data, ok := v.(string)
	if !ok {
		text, err := json.Marshal(v)
		if err != nil {
			panic(err) // the type is ours
		}
		data = string(text)
	}
	fmt.Fprintf(&b, "data: %s\n\n", data)
	s.send(b.Bytes())
}

// send writes a piece, then applies the fault.
func (s *stream) send(b []byte) {
	x := s.x
	size := x.s.Split
	if size <= 0 {
		size = len(b)
	}
	for piece := range slices.Chunk(b, size) {
		if _, err := s.w.Write(piece); err != nil {
			panic(http.ErrAbortHandler)
		}
		if z, ok := s.w.(*gzip.Writer); ok {
			_ = z.Flush()
		}
		_ = http.NewResponseController(x.w).Flush()
	}
	if x.events++; x.fault.Cut > 0 && x.events == x.fault.Cut {
		if x.fault.Hold == nil {
			panic(http.ErrAbortHandler)
		}
		x.hold()
	}
	if x.s.Pause > 0 {
		select {
		case <-time.After(x.s.Pause):
		case <-x.r.Context().Done():
			panic(http.ErrAbortHandler)
		}
	}
}
