package gateway

import (
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/gateway/chat"
	"github.com/ramus-dev/ramus/gateway/engineer"
	"github.com/ramus-dev/ramus/gateway/evidence"
	"github.com/ramus-dev/ramus/gateway/github"
	"github.com/ramus-dev/ramus/gateway/links"
	"github.com/ramus-dev/ramus/gateway/lookup"
	"github.com/ramus-dev/ramus/gateway/mcp"
	"github.com/ramus-dev/ramus/gateway/preview"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gateway/signin"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/redact"
)

// Server is the HTTP interface. Its exported fields are its options, which may be changed until the first call of
// [Server.Handler] or [Server.LocalHandler]. All methods are safe for concurrent use.
type Server struct {
	// Executor and Git are required, and open.
	Executor *executor.Executor
	Git      *gitd.Server
	// Version and Engine are shown by /health and /metrics.
	Version, Engine string
	// Chat serves Slack. Nil means that no app is configured.
	Chat *chat.Chat
	// Engineer serves tasks. Nil means that none are taken.
	Engineer *engineer.Engineer
	// GitHubSecret is what GitHub signs its webhooks with. If it is empty, none are taken.
	GitHubSecret string
	// GitHub lists installations and repositories. Nil means that ramus has no account at GitHub.
	GitHub *github.Client
	// SignIn gives people tokens by GitHub. Nil gives them to nobody.
	SignIn *signin.GitHub
	// URL is where people reach this server ("https://ramus.example.org"), for
	// clone lines; empty: the address a request came to.
	URL string
	// Loopback is where this machine alone reaches this server ("http://127.0.0.1:8080"): what a person at
	// the unix socket is given as a link where URL is empty. Empty: nowhere.
	Loopback string
	// Links signs and checks links to evidence; nil: it takes a token.
	Links *links.Signer
	// Preview gives each preview an origin of its own; nil: they are shown below a path of this one, sandboxed.
	Preview *preview.Origin
	// DeploySecret is what messages to /hooks/deploy are signed with; empty: none are taken.
	DeploySecret string
	// CORS lists origins whose pages may call the API ("https://app.example.org";
	// "*" is any). Empty: none.
	CORS []string
	// Streams bounds how many streams are open at once; default 256. One caller
	// may hold a quarter of them.
	Streams int
	// Heartbeat is how often a silent stream shows that it is alive; default 15 s.
	Heartbeat time.Duration
	// Secrets are removed from all answers but those of the Git server, whose
	// objects would be others then, of previews, which are the containers' own, and from files that were cleaned when they were stored. nil: there are none.
	Secrets *redact.Secrets
	// Log hears of requests: refused ones at Info, faults at Error, all others
	// at Debug. nil discards.
	Log *slog.Logger
	// Now is the clock; nil means time.Now.
	Now func() time.Time

	once    sync.Once
	mux     *route.Mux
	apis    []interface{ Routes() []route.Route }
	preview *preview.API
	mcp     *mcp.API
	spec    []byte       // the OpenAPI document
	git     http.Handler // the Git server, which asks for grants
	openGit http.Handler // the same for the unix socket, which needs none
}

func (s *Server) setUp() {
	s.once.Do(func() {
		s.setUpAlone()
		s.git = s.Git.Handler()
		s.openGit = s.Git.GrantHandler(gitd.Grant{
			Subject: route.Local.Subject, Repo: "*", Scopes: []string{gitd.ScopeAdmin}, Write: []string{"refs/*"}, Force: true, Delete: true,
		})
	})
}

// setUpAlone is what needs no other room.
func (s *Server) setUpAlone() {
	if s.Log == nil {
		s.Log = slog.New(slog.DiscardHandler)
	}
	if s.Now == nil {
		s.Now = time.Now
	}
	if s.Streams == 0 {
		s.Streams = 256
	}
	if s.Heartbeat == 0 {
		s.Heartbeat = 15 * time.Second
	}
	m := newMetrics(s)
	s.mux = &route.Mux{URL: s.URL, Links: s.Links, Secrets: s.Secrets, Streams: s.Streams, Heartbeat: s.Heartbeat,
		Observe: m.request, Log: s.Log, Now: s.Now}
	if s.Git != nil {
		s.mux.Verify = s.Git.Verify
	}

	find := &lookup.Lookup{Executor: s.Executor, Git: s.Git}
	s.preview = &preview.API{Executor: s.Executor, Verify: s.mux.Verify, Find: find, Links: s.Links, Origin: s.Preview, Log: s.Log, Now: s.Now}
	s.mcp = &mcp.API{Executor: s.Executor, Engineer: s.Engineer, Find: find, Links: s.Links, URL: s.URL, CORS: s.CORS, Version: s.Version,
		Secrets: s.Secrets, Log: s.Log, Now: s.Now}
	s.apis = []interface{ Routes() []route.Route }{
		&aboutAPI{Executor: s.Executor, Git: s.Git, find: find, Version: s.Version, Engine: s.Engine, Streams: s.Streams,
			metrics: m, spec: func() []byte { return s.spec }},
		&reposAPI{Executor: s.Executor, Git: s.Git, find: find, Log: s.Log},
		&runsAPI{Executor: s.Executor, find: find},
		&callersAPI{Executor: s.Executor, Git: s.Git, find: find},
		&commandsAPI{Executor: s.Executor, find: find, Heartbeat: s.Heartbeat},
		engineer.NewAPI(s.Engineer, s.GitHubSecret, s.Log),
		&evidence.API{Executor: s.Executor, Find: find, Links: s.Links, Loopback: s.Loopback, Now: s.Now},
		s.preview,
		s.mcp,
		&chat.API{Chat: s.Chat, Log: s.Log, Now: s.Now},
		&deployAPI{Executor: s.Executor, DeploySecret: s.DeploySecret, Now: s.Now},
		&githubAPI{GitHub: s.GitHub},
		&signin.API{Git: s.Git, GitHub: s.SignIn, Log: s.Log, Now: s.Now},
		&adminAPI{Executor: s.Executor},
	}
	s.spec = s.openAPI()
}

// Handler serves the API and the Git server to callers that show a grant.
func (s *Server) Handler() http.Handler {
	s.setUp()
	return s.preview.ByHost(s.mux, s.cors(s.mux.Handler(s.routes(), nil)))
}

// LocalHandler serves the same to whoever can open the unix socket, as an
// administrator. The socket's folder and mode are the lock: serve it nowhere else.
func (s *Server) LocalHandler() http.Handler {
	s.setUp()
	return s.mux.Handler(s.routes(), &route.Local)
}

// Drain ends the streams of events, whose readers come back by themselves, and
// refuses new ones, so that http.Server.Shutdown waits for work alone. Commands
// that run in a request go on.
func (s *Server) Drain() {
	s.setUp()
	s.mux.Drain()
	s.mcp.Close()
	s.preview.Transport.CloseIdleConnections()
}

// fallback serves repositories, whose names no pattern of ServeMux can say,
// and answers everything that is no route.
func (s *Server) fallback(c *route.Call) error {
	if name, _, ok := strings.Cut(c.R.URL.Path, ".git/"); ok && len(name) > 1 || gitd.Serves(c.R.URL.Path) {
		handler := s.git
		if c.Who.Local {
			handler = s.openGit
		}
		handler.ServeHTTP(c.W, c.R)
		return nil
	}
	if allowed := s.methods(c.R.URL.Path); len(allowed) > 0 {
		c.W.Header().Set("Allow", strings.Join(allowed, ", "))
		return route.NewProblem(route.KindMethod, "%s has only %s", c.R.URL.Path, strings.Join(allowed, ", "))
	}
	return route.NewProblem(route.KindNotFound, "there is nothing at %s", c.R.URL.Path).
		WithHint("/api/openapi.json lists all there is")
}

// methods lists the methods that some route has for a path.
func (s *Server) methods(path string) []string {
	var found []string
	for _, row := range s.routes() {
		if row.Access != route.AccessGit && row.Access != route.AccessPreview && matches(row.Pattern, path) && !slices.Contains(found, row.Method) {
			found = append(found, row.Method)
		}
	}
	slices.Sort(found)
	return found
}

func matches(pattern, path string) bool {
	want, have := strings.Split(pattern, "/"), strings.Split(path, "/")
	if len(want) != len(have) {
		return false
	}
	for i := range want {
		if want[i] != have[i] && (!strings.HasPrefix(want[i], "{") || have[i] == "") {
			return false
		}
	}
	return true
}

// cors lets the configured origins' pages in. Tokens travel in a header that
// pages must set themselves, never in cookies, so no credentials are allowed.
func (s *Server) cors(next http.Handler) http.Handler {
	if len(s.CORS) == 0 {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		origin := r.Header.Get("Origin")
		w.Header().Add("Vary", "Origin")
		if origin == "" || !slices.Contains(s.CORS, origin) && !slices.Contains(s.CORS, "*") {
			next.ServeHTTP(w, r)
			return
		}
		h := w.Header()
		h.Set("Access-Control-Allow-Origin", origin)
		h.Set("Access-Control-Expose-Headers", "X-Request-Id, Retry-After")
		if r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != "" {
			h.Set("Access-Control-Allow-Methods", "GET, POST, DELETE")
			h.Set("Access-Control-Allow-Headers", "Authorization, Content-Type, Last-Event-ID")
			h.Set("Access-Control-Max-Age", "600")
			w.WriteHeader(http.StatusNoContent)
			return
		}
		next.ServeHTTP(w, r)
	})
}
