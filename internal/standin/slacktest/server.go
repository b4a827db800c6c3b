package slacktest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/gateway/retry"
	"github.com/ramus-dev/ramus/internal/loopback"
)

// Server is a Slack workspace with one app. Its exported fields are its options and may change until Start. After
// Start, its methods are safe for concurrent use.
type Server struct {
	Addr          string // to listen on; default 127.0.0.1 and any port
	Team          string // team id; default T01
	App           string // app id; default A01
	BotUser       string // the app's user id; default U0RAMUS
	Bot           string // its bot id; default B0RAMUS
	BotName       string // default ramus
	Token         string // xoxb-…; default xoxb-stand-in
	AppToken      string // xapp-…; default xapp-stand-in
	SigningSecret string // default "signing-secret"

	// The URLs receive Slack's deliveries. "" means no delivery. SetRequestURLs sets them later.
	EventsURL, CommandsURL, InteractionsURL string
	// SocketMode delivers only over the sockets that the app has opened.
	SocketMode bool
	// Lacks has the scopes that the token does not have. Requests that need one are refused. See Lack.
	Lacks []string

	Now func() time.Time // default time.Now
	// Sleep is the pause before a retry and during a slow response. The default uses a timer.
	Sleep func(context.Context, time.Duration) error
	// Retries are the pauses before retries of a delivery. The defaults are Slack's, which are none, one minute and
	// five minutes.
	Retries []time.Duration
	// AckTime is how long a delivery waits for its response. The default is 3 s.
	AckTime time.Duration
	// GiveUp, when set, replaces AckTime. Each sent value ends the wait for one response.
	GiveUp <-chan struct{}
	// On is called for every change, one after another and in order. It must not call the Server.
	On  func(Change)
	Log *slog.Logger // default none

	ctx    context.Context // of deliveries; ends with Close
	cancel context.CancelFunc
	ending sync.Mutex     // orders the start of work before Close
	work   sync.WaitGroup // deliveries and sockets

	deliveries http.Client // has its own connections, which end with Close

	addr      string     // address; set once, by Start
	listening sync.Mutex // guards http and served; taken before mu
	http      *http.Server
	served    chan struct{}

	mu    sync.Mutex // guards the fields below
	state state
	moved chan struct{} // closed and replaced at every change
}

// Change is an event in a channel.
type Change struct {
	At      time.Time
	Kind    string // "post", "edit", "reaction", "unreaction", "ephemeral", "response", "home"
	Message Message
	User    string // the user who reacted, or who sees an ephemeral message
	Name    string // of the reaction
}

// Request is a request to the Web API, or for a file.
type Request struct {
	At     time.Time
	Method string // of the Web API (chat.postMessage), or the path
	Header http.Header
	Body   []byte
	Form   url.Values // of the body and the query, without the token
	Status int        // 0 if the connection was cut without a response
	Answer []byte
}

const (
	maxBody     = 4 << 20
	maxUpload   = 64 << 20 // of a file
	maxRequests = 200_000  // stored; at the limit the oldest half is dropped
)

// T is the part of testing.T that New needs.
type T interface {
	Helper()
	Cleanup(func())
	Errorf(string, ...any)
	Fatalf(string, ...any)
}

// New starts a workspace with three users (U01, U02, U03) and four channels. The app is a member of C01 and C02, but
// not of C03. D01 is a direct one. The workspace ends with the test, which fails for every complaint. A delivery waits
// for a minute, because on a slow machine the app may be slow, and must not receive it twice. The workspace has its own
// IP address, so that no other program gets its port while it is Down.
func New(t T, options ...func(*Server)) *Server {
	t.Helper()
	s := &Server{Addr: loopback.IP() + ":0", Retries: []time.Duration{0, 0, 0}, AckTime: time.Minute}
	for _, option := range options {
		option(s)
	}
	if err := s.Start(); err != nil {
		t.Fatalf("slacktest: %v", err)
	}
	s.AddUser("U01", "first")
	s.AddUser("U02", "second")
	s.AddUser("U03", "third")
	s.AddChannel("C01", "one", true)
	s.AddChannel("C02", "two", true)
	s.AddChannel("C03", "three", false)
	s.AddDirect("D01", "U01")
	t.Cleanup(func() {
		s.Close()
		for _, complaint := range s.Complaints() {
			t.Errorf("slacktest: %s", complaint)
		}
	})
	return s
}

// Start starts the server.
func (s *Server) Start() error {
	s.Team = cmp.Or(s.Team, "T01")
	s.App = cmp.Or(s.App, "A01")
	s.BotUser = cmp.Or(s.BotUser, "U0RAMUS")
	s.Bot = cmp.Or(s.Bot, "B0RAMUS")
	s.BotName = cmp.Or(s.BotName, "ramus")
	s.Token = cmp.Or(s.Token, "xoxb-stand-in")
	s.AppToken = cmp.Or(s.AppToken, "xapp-stand-in")
	s.SigningSecret = cmp.Or(s.SigningSecret, "signing-secret")
	s.AckTime = cmp.Or(s.AckTime, 3*time.Second)
	s.Log = cmp.Or(s.Log, slog.New(slog.DiscardHandler))
	if s.Now == nil {
		s.Now = time.Now
	}
	if s.Sleep == nil {
		s.Sleep = retry.Sleep
	}
	if s.Retries == nil {
		s.Retries = []time.Duration{0, time.Minute, 5 * time.Minute}
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.moved = make(chan struct{})
	s.state = newState()
	s.deliveries.Transport = &http.Transport{MaxIdleConnsPerHost: 100, IdleConnTimeout: 10 * time.Second}
	s.AddUser(s.BotUser, s.BotName)
	return s.Up()
}

// Up listens again at the same address after Down.
func (s *Server) Up() error {
	s.listening.Lock()
	defer s.listening.Unlock()
	if s.http != nil {
		return nil
	}
	l, err := net.Listen("tcp", cmp.Or(s.addr, s.Addr, "127.0.0.1:0"))
	if err != nil {
		return fmt.Errorf("cannot stand in for Slack: %w", err)
	}
	if s.addr == "" {
		s.addr = l.Addr().String()
	}
	server := &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second,
		ErrorLog: slog.NewLogLogger(s.Log.Handler(), slog.LevelDebug)}
	s.http, s.served = server, make(chan struct{})
	go func(served chan struct{}) {
		defer close(served)
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			s.Log.Error("the stand-in ended", "err", err)
		}
	}(s.served)
	return nil
}

// Down stops listening and cuts every connection. New connections are refused.
func (s *Server) Down() {
	s.listening.Lock()
	defer s.listening.Unlock()
	if s.http == nil {
		return
	}
	s.http.Close()
	<-s.served
	s.http = nil
	s.closeSockets()
}

// Close ends deliveries and connections, and waits for them.
func (s *Server) Close() {
	s.ending.Lock()
	s.cancel()
	s.ending.Unlock()
	s.Down()
	s.work.Wait()
	s.deliveries.CloseIdleConnections()
}

// background runs f unless the Server is closed. Close waits for f.
func (s *Server) background(f func(context.Context)) {
	s.ending.Lock()
	defer s.ending.Unlock()
	if s.ctx.Err() == nil {
		s.work.Go(func() { f(s.ctx) })
	}
}

// URL returns the stand-in's address without a final slash.
func (s *Server) URL() string { return "http://" + s.addr }

// API returns the URL of the Web API.
func (s *Server) API() string { return s.URL() + "/api/" }

// SetRequestURLs sets the app's URLs for deliveries. All three may be equal.
func (s *Server) SetRequestURLs(events, commands, interactions string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.EventsURL, s.CommandsURL, s.InteractionsURL = events, commands, interactions
}

// ServeHTTP serves the Web API, files, response_urls and sockets.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/socket" {
		s.serveSocket(w, r)
		return
	}
	_, isUpload := strings.CutPrefix(r.URL.Path, uploadPath)
	most := int64(maxBody)
	if isUpload {
		most = maxUpload
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, most))
	if err != nil {
		http.Error(w, "cannot read the body", http.StatusRequestEntityTooLarge)
		return
	}
	method, isAPI := strings.CutPrefix(r.URL.Path, "/api/")
	switch {
	case isUpload:
		method = uploadPath // each upload has its own address
	case !isAPI:
		method = r.URL.Path
	}
	q := &Request{At: s.Now(), Method: method, Header: r.Header.Clone(), Body: body}
	q.Form, err = formOf(r, body)
	token := tokenOf(r, q.Form)
	q.Form.Del("token")

	fault := s.fault(method)
	if fault.Delay > 0 {
		if s.Sleep(r.Context(), fault.Delay) != nil {
			fault.Cut = true
		}
	}
	a := answer{}
	switch {
	case fault.Cut:
	case fault.RetryAfter > 0:
		a = rateLimited(fault.RetryAfter)
	case fault.Status != 0:
		a = answer{status: fault.Status, body: []byte("<html>upstream request timeout</html>"), kind: "text/html"}
	case fault.Error != "":
		a = refuse(fault.Error)
	default:
		if after := s.overBudget(q); after > 0 {
			a = rateLimited(after)
			break
		}
		switch {
		case err != nil:
			a = refuse("invalid_form_data")
		case isAPI:
			a = s.method(r, method, token, q.Form)
		case strings.HasPrefix(r.URL.Path, "/files/"):
			a = s.file(r, token)
		case isUpload:
			a = s.takeUpload(r, body)
		case strings.HasPrefix(r.URL.Path, "/response/"):
			a = s.response(r, body)
		default:
			a = answer{status: http.StatusNotFound, body: []byte("not found"), kind: "text/plain"}
		}
	}
	if fault.Lose {
		fault.Cut = true
	}
	if !fault.Cut {
		q.Status, q.Answer = cmp.Or(a.status, http.StatusOK), a.body
	}
	s.mu.Lock()
	if len(s.state.requests) >= maxRequests {
		s.state.requests = append([]Request(nil), s.state.requests[maxRequests/2:]...)
	}
	s.state.requests = append(s.state.requests, *q)
	if a.complaint != "" {
		s.state.complaints = append(s.state.complaints, method+": "+a.complaint)
	}
	s.move()
	s.mu.Unlock()
	if fault.Cut {
		panic(http.ErrAbortHandler)
	}
	for name, value := range a.header {
		w.Header().Set(name, value)
	}
	w.Header().Set("Content-Type", cmp.Or(a.kind, "application/json; charset=utf-8"))
	w.WriteHeader(q.Status)
	_, _ = w.Write(a.body)
}

// answer is a response.
type answer struct {
	status    int
	kind      string
	header    map[string]string
	body      []byte
	complaint string
}

// refuse responds with ok:false and a code. A code that only a mistake in the app causes is a complaint.
func refuse(code string, details ...string) answer {
	body := map[string]any{"ok": false, "error": code}
	if len(details) > 0 {
		var messages []string
		for _, d := range details {
			messages = append(messages, "[ERROR] "+d)
		}
		body["errors"] = details
		body["response_metadata"] = map[string]any{"messages": messages}
	}
	a := jsonAnswer(body)
	if mistakes[code] {
		a.complaint = strings.TrimSpace(code + " " + strings.Join(details, "; "))
	}
	return a
}

var mistakes = map[string]bool{
	"unknown_method": true, "invalid_form_data": true, "invalid_post_type": true, "invalid_arguments": true,
	"not_authed":     true,
	"invalid_blocks": true, "invalid_blocks_format": true, "msg_too_long": true, "msg_blocks_too_long": true,
	"no_text":                 true,
	"invalid_metadata_format": true, "invalid_metadata_schema": true, "metadata_too_large": true, "invalid_name": true,
	"bad_timestamp": true, "invalid_cursor": true, "json_not_object": true, "thread_not_found": true, "invalid_limit": true,
	"cant_update_message": true, "invalid_upload": true, "view_too_large": true,
}

func jsonAnswer(v any) answer {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return answer{status: http.StatusInternalServerError, body: []byte(err.Error()), kind: "text/plain"}
	}
	return answer{body: bytes.TrimSuffix(b.Bytes(), []byte("\n"))}
}

func rateLimited(after time.Duration) answer {
	a := jsonAnswer(map[string]any{"ok": false, "error": "ratelimited"})
	a.status = http.StatusTooManyRequests
	a.header = map[string]string{"Retry-After": fmt.Sprint(int64((after + time.Second - 1) / time.Second))}
	return a
}

// formOf reads the parameters of a request from its query, and from a form or a JSON object.
func formOf(r *http.Request, body []byte) (url.Values, error) {
	form := r.URL.Query()
	switch kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";"); kind {
	case "application/x-www-form-urlencoded":
		more, err := url.ParseQuery(string(body))
		if err != nil {
			return form, err
		}
		for name, values := range more {
			form[name] = append(form[name], values...)
		}
	case "application/json":
		if len(bytes.TrimSpace(body)) == 0 || string(bytes.TrimSpace(body)) == "null" {
			return form, nil
		}
		var object map[string]json.RawMessage
		if err := json.Unmarshal(body, &object); err != nil {
			return form, err
		}
		for name, raw := range object {
			var text string
			if json.Unmarshal(raw, &text) != nil {
				text = string(raw)
			}
			form.Set(name, text)
		}
	}
	return form, nil
}

func tokenOf(r *http.Request, form url.Values) string {
	if bearer, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok {
		return bearer
	}
	return form.Get("token")
}

// Requests returns all requests so far, in the order of their responses.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Request(nil), s.state.requests...)
}

// Count returns the number of a method's requests so far.
func (s *Server) Count(method string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.state.requests {
		if s.state.requests[i].Method == method {
			n++
		}
	}
	return n
}

// Complaints returns the app's mistakes so far.
func (s *Server) Complaints() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.state.complaints...)
}

// Forgive returns the complaints so far and removes them, for a test that makes mistakes on purpose.
func (s *Server) Forgive() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.state.complaints
	s.state.complaints = nil
	return all
}

// move wakes all waiting goroutines. s.mu is held.
func (s *Server) move() {
	close(s.moved)
	s.moved = make(chan struct{})
}

// change reports a change to On. s.mu is held, which keeps the order.
func (s *Server) change(c Change) {
	if s.On != nil {
		c.At = s.Now()
		s.On(c)
	}
	s.move()
}

// Until waits until done returns true. It calls done after every change. The only error is ctx's.
func (s *Server) Until(ctx context.Context, done func() bool) error {
	for {
		s.mu.Lock()
		moved := s.moved
		s.mu.Unlock()
		if done() {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
