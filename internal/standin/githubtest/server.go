package githubtest

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/internal/loopback"
	"github.com/ramus-dev/ramus/internal/standin/githost"
)

// Server is GitHub with one account and one installed App. Its exported fields are its options and may change until
// Start. After Start, its methods are safe for concurrent use.
type Server struct {
	// Root has the account's repositories as bare ACCOUNT/NAME.git. The Server finds repositories that appear there by
	// other means. Required.
	Root string
	// Addr is the address to listen on. The default is 127.0.0.1 and any port.
	Addr string
	// App and Installation are the ids. The defaults are 12 and 34. Slug is the App's name. The App acts as the user
	// SLUG[bot]. The default is "ramus".
	App, Installation int64
	Slug              string
	// Account is the organization that owns the repositories. The default is "acme".
	Account string
	// Key is the App's private key. If it is nil, Start makes one.
	Key *rsa.PrivateKey
	// Permissions are the installation's. The default is [Granted].
	Permissions map[string]string
	// Needed has the permissions that a token may request. More is a complaint. The default is [Enough].
	Needed map[string]string

	// HookURL receives the deliveries. If it is empty, they are only stored. SetHook sets it later.
	HookURL string
	// HookSecret signs deliveries. The default is "webhook-secret".
	HookSecret string
	// AckTime is how long a delivery waits for its response. The default is 10 s.
	AckTime time.Duration

	// Hourly is the number of requests of a user or an installation per hour. The default is 5000. PostsPerMinute is
	// the number of creations per minute. The default is 80. A negative number means no limit.
	Hourly, PostsPerMinute int

	// Now is the clock. Nil means time.Now.
	Now func() time.Time
	// Extra serves the paths below /_standin. Nil means that they do not exist.
	Extra http.Handler
	// On is called for every change, one after another and in order. It must not call the Server.
	On  func(Change)
	Log *slog.Logger // default none

	ctx    context.Context // of deliveries and git; ends with Close
	cancel context.CancelFunc
	ending sync.Mutex     // orders the start of work before Close
	work   sync.WaitGroup // deliveries and requests

	deliveries http.Client // has its own connections, which end with Close
	lane       chan struct{}
	hooks      string // folder of the hooks that git runs

	addr      string     // address; set once, by Start
	listening sync.Mutex // guards http and served; taken before mu
	http      *http.Server
	served    chan struct{}

	mu    sync.Mutex // guards the fields below
	state state
	moved chan struct{} // closed and replaced at every change
}

// state is GitHub's data.
type state struct {
	weather    Weather
	faults     []*Fault
	users      map[string]*user       // by login
	roles      map[string]string      // in all repositories, by login
	repos      map[string]*repository // by name
	tokens     map[string]*actor
	codes      map[string]*signIn // of OAuth
	minted     []string
	ids        int64
	requests   []Request
	complaints []string
	budgets    map[string]*budget // by requester
	held       bool
	deliveries []*Delivery
	waiting    []*Delivery // queued for the lane
	sending    bool        // the lane is working
}

// user is a person, an organization or a bot.
type user struct {
	id    int64
	login string
	kind  string // User, Organization, Bot
	left  bool   // is no member of the organization
}

// Change is an event in a repository.
type Change struct {
	At     time.Time
	Repo   string // without the account
	Number int    // of the pull request; 0 for none
	// Kind is "push", "delete", "open", "edit", "close", "reopen", "ready", "merge", "comment", "line", "reply",
	// "review", "dismiss", "request", "label", "check", "workflow" or "delivery".
	Kind string
	User string // the acting user
	Text string // the text, or the result
	Path string // of a comment on a line
	Line int
	Ref  string // a branch, or the state of a review or check
	SHA  string
}

// Request is a request to the API, or by git.
type Request struct {
	At     time.Time
	Method string
	Path   string // with the query
	Route  string // in the form of a [Fault]
	Who    string // login, or "" if unknown
	Header http.Header
	Body   []byte // of the API
	Status int    // 0 if the connection was cut without a response
	Answer []byte // of the API
}

const (
	maxBody     = 1 << 20
	maxRequests = 200_000 // stored; at the limit the oldest half is dropped
)

// T is the part of testing.T that New needs.
type T interface {
	Helper()
	Cleanup(func())
	TempDir() string
	Errorf(string, ...any)
	Fatalf(string, ...any)
}

// New starts a stand-in with the users "developer" (administrator), "reviewer" (may write) and "visitor" (may read),
// who are collaborators of every repository. The stand-in ends with the test, which fails for every complaint. A
// delivery waits for a minute, because on a slow machine the App may be slow. The stand-in has its own IP address, so
// that no other program gets its port while it is Down.
func New(t T, options ...func(*Server)) *Server {
	t.Helper()
	s := &Server{Root: t.TempDir(), Addr: loopback.IP() + ":0", AckTime: time.Minute}
	for _, option := range options {
		option(s)
	}
	if err := s.Start(context.Background()); err != nil {
		t.Fatalf("githubtest: %v", err)
	}
	s.AddUser("developer", "admin")
	s.AddUser("reviewer", "write")
	s.AddUser("visitor", "read")
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("githubtest: %v", err)
		}
		for _, complaint := range s.Complaints() {
			t.Errorf("githubtest: %s", complaint)
		}
	})
	return s
}

// Start starts the server. Close ends it, and the end of the context does not.
func (s *Server) Start(ctx context.Context) (err error) {
	s.App = cmp.Or(s.App, 12)
	s.Installation = cmp.Or(s.Installation, 34)
	s.Slug = cmp.Or(s.Slug, "ramus")
	s.Account = cmp.Or(s.Account, "acme")
	s.HookSecret = cmp.Or(s.HookSecret, "webhook-secret")
	s.AckTime = cmp.Or(s.AckTime, 10*time.Second)
	s.Hourly = cmp.Or(s.Hourly, 5000)
	s.PostsPerMinute = cmp.Or(s.PostsPerMinute, 80)
	s.Log = cmp.Or(s.Log, slog.New(slog.DiscardHandler))
	if s.Permissions == nil {
		s.Permissions = Granted
	}
	if s.Needed == nil {
		s.Needed = Enough
	}
	if s.Now == nil {
		s.Now = time.Now
	}
	if s.Key == nil {
		if s.Key, err = rsa.GenerateKey(rand.Reader, 2048); err != nil {
			return err
		}
	}
	if err := s.openGit(); err != nil {
		return err
	}
	s.ctx, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
	s.moved = make(chan struct{})
	s.state = state{users: map[string]*user{}, roles: map[string]string{}, repos: map[string]*repository{},
		tokens: map[string]*actor{}, codes: map[string]*signIn{},
		budgets: map[string]*budget{}, ids: 1000}
	s.user(s.Account, "Organization")
	s.user(s.bot(), "Bot")
	s.deliveries.Transport = &http.Transport{MaxIdleConnsPerHost: 100, IdleConnTimeout: 10 * time.Second}
	s.deliveries.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	if err := s.Up(); err != nil {
		return errors.Join(err, s.closeGit())
	}
	s.lane = make(chan struct{}, 1)
	s.background(s.deliverAll)
	return nil
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
		return fmt.Errorf("cannot stand in for GitHub: %w", err)
	}
	if s.addr == "" {
		s.addr = l.Addr().String()
	}
	server := &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second,
		ErrorLog:    slog.NewLogLogger(s.Log.Handler(), slog.LevelDebug),
		BaseContext: func(net.Listener) context.Context { return s.ctx }}
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
}

// Close ends deliveries, connections and requests, and waits for them, because their git processes use Root.
func (s *Server) Close() error {
	s.Set(Weather{})
	s.ending.Lock()
	s.cancel()
	s.ending.Unlock()
	s.Down()
	s.work.Wait()
	s.deliveries.CloseIdleConnections()
	return s.closeGit()
}

// background runs f unless the Server is closed. Close waits for f.
func (s *Server) background(f func(context.Context)) {
	if s.begin() {
		go func() {
			defer s.work.Done()
			f(s.ctx)
		}()
	}
}

// begin adds to work unless the Server is closed.
func (s *Server) begin() bool {
	s.ending.Lock()
	defer s.ending.Unlock()
	if s.ctx.Err() != nil {
		return false
	}
	s.work.Add(1)
	return true
}

// URL returns the address of the API, the repositories and the pages, without a final slash.
func (s *Server) URL() string { return "http://" + s.addr }

// API returns the address of the API in the form of GitHub Enterprise.
func (s *Server) API() string { return s.URL() + "/api/v3/" }

// Upstream returns a repository's clone URL.
func (s *Server) Upstream(name string) string { return s.URL() + "/" + s.Account + "/" + name + ".git" }

// bot returns the App's login.
func (s *Server) bot() string { return s.Slug + "[bot]" }

// Requests returns all requests so far, in the order of their ends.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.state.requests)
}

// Complaints returns the callers' mistakes.
func (s *Server) Complaints() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.state.complaints)
}

// TakeComplaints returns the complaints and removes them, for a test that expects them.
func (s *Server) TakeComplaints() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.state.complaints
	s.state.complaints = nil
	return all
}

// complain records a mistake. s.mu is held.
func (s *Server) complain(format string, args ...any) {
	s.state.complaints = append(s.state.complaints, fmt.Sprintf(format, args...))
}

// Until waits until ready returns true. It calls ready after every change.
func (s *Server) Until(ctx context.Context, what string, ready func() bool) error {
	for {
		s.mu.Lock()
		moved := s.moved
		s.mu.Unlock()
		if ready() {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return fmt.Errorf("waited in vain for %s: %w", what, context.Cause(ctx))
		}
	}
}

// move wakes all waiting goroutines. s.mu is held.
func (s *Server) move() {
	close(s.moved)
	s.moved = make(chan struct{})
}

// change reports a change to On. s.mu is held.
func (s *Server) change(c Change) {
	c.At = s.Now()
	if s.On != nil {
		s.On(c)
	}
	s.move()
}

// id returns a new id. s.mu is held.
func (s *Server) id() int64 {
	s.state.ids++
	return s.state.ids
}

// user returns an account, which it creates if necessary. s.mu is held.
func (s *Server) user(login, kind string) *user {
	for name, u := range s.state.users {
		if strings.EqualFold(name, login) {
			return u
		}
	}
	u := &user{id: s.id(), login: login, kind: kind}
	s.state.users[login] = u
	return u
}

// ServeHTTP serves the API, git and browsers.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !s.begin() {
		panic(http.ErrAbortHandler)
	}
	defer s.work.Done()
	if s.Extra != nil && strings.HasPrefix(r.URL.Path, "/_standin") {
		s.Extra.ServeHTTP(w, r)
		return
	}
	path := r.URL.EscapedPath()
	api := strings.HasPrefix(path, "/api/v3/")
	path = strings.TrimPrefix(path, "/api/v3")
	if path == "/api/graphql" {
		path = "/graphql"
	}
	q := &Request{At: s.Now(), Method: r.Method, Path: r.URL.RequestURI(), Header: r.Header.Clone()}
	s.leaks(r)

	c := &call{s: s, r: r}
	var serve func() answer
	if service, name, ok := githost.Service(r); ok && !api {
		q.Route = service
		// Git may send more than the stand-in stores, so its body is not read in advance.
		serve = func() answer { return c.git(w, service, name, q) }
	} else if rt := findRoute(r.Method, path, c); rt != nil {
		q.Route = rt.name
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
		if err != nil {
			http.Error(w, "cannot read the body", http.StatusRequestEntityTooLarge)
			return
		}
		c.body, q.Body = body, body
		serve = func() answer { return c.serve(rt, q) }
	} else {
		serve = func() answer { return c.nowhere(q) }
	}

	fault := s.fault(q.Route)
	s.await(r, &fault)
	var a answer
	switch {
	case fault.Cut:
	case fault.RetryAfter > 0:
		a = c.secondary(fault.RetryAfter)
	case fault.Status != 0:
		a = answer{status: fault.Status, body: []byte("<html><body>Unicorn!</body></html>"), kind: "text/html"}
	default:
		c.lost = fault.Lose
		a = serve()
	}
	if fault.Lose {
		fault.Cut = true
	}
	if !fault.Cut {
		q.Status, q.Answer = a.status, a.body
	}
	s.mu.Lock()
	if len(s.state.requests) >= maxRequests {
		s.state.requests = slices.Clone(s.state.requests[maxRequests/2:])
	}
	s.state.requests = append(s.state.requests, *q)
	s.move()
	s.mu.Unlock()
	if fault.Cut {
		panic(http.ErrAbortHandler)
	}
	if a.sent {
		return
	}
	for name, values := range a.header {
		w.Header()[name] = values
	}
	if a.body != nil {
		w.Header().Set("Content-Type", cmp.Or(a.kind, "application/json; charset=utf-8"))
	}
	w.WriteHeader(a.status)
	_, _ = io.Copy(w, bytes.NewReader(a.body))
}

// leaks complains about tokens in places that end up in logs.
func (s *Server) leaks(r *http.Request) {
	for _, mark := range []string{"ghs_", "ghp_", "gho_", "github_pat_", "access_token="} {
		if strings.Contains(r.URL.RequestURI(), mark) || strings.Contains(r.Referer(), mark) {
			s.mu.Lock()
			s.complain("a token in the URL %s", r.URL.Path)
			s.mu.Unlock()
		}
	}
}
