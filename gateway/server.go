package gateway

import (
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/mirror"
	"github.com/ramus-dev/ramus/executor/nodes"
	"github.com/ramus-dev/ramus/executor/nodes/programs"
	"github.com/ramus-dev/ramus/executor/radar"
	"github.com/ramus-dev/ramus/executor/standby"
	"github.com/ramus-dev/ramus/gateway/account"
	"github.com/ramus-dev/ramus/gateway/chat"
	"github.com/ramus-dev/ramus/gateway/comment"
	"github.com/ramus-dev/ramus/gateway/credential"
	"github.com/ramus-dev/ramus/gateway/domain"
	"github.com/ramus-dev/ramus/gateway/engineer"
	"github.com/ramus-dev/ramus/gateway/evidence"
	"github.com/ramus-dev/ramus/gateway/forgekey"
	"github.com/ramus-dev/ramus/gateway/github"
	"github.com/ramus-dev/ramus/gateway/links"
	"github.com/ramus-dev/ramus/gateway/mcp"
	"github.com/ramus-dev/ramus/gateway/naming"
	"github.com/ramus-dev/ramus/gateway/preview"
	"github.com/ramus-dev/ramus/gateway/privacy"
	"github.com/ramus-dev/ramus/gateway/replica"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gateway/seen"
	"github.com/ramus-dev/ramus/gateway/share"
	"github.com/ramus-dev/ramus/gateway/signin"
	"github.com/ramus-dev/ramus/gateway/terminal"
	"github.com/ramus-dev/ramus/gateway/trace"
	"github.com/ramus-dev/ramus/gateway/trigger"
	"github.com/ramus-dev/ramus/gateway/web"
	"github.com/ramus-dev/ramus/gateway/workspace"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/redact"
)

// Server is the HTTP interface. Its exported fields are its options, which may be changed until the first call of
// [Server.Handler] or [Server.LocalHandler]. All methods are safe for concurrent use.
type Server struct {
	// Executor and Git are required. Both must be open.
	Executor *executor.Executor
	Git      *gitd.Server
	// Version and Engine are shown by /health and /metrics.
	Version, Engine string
	// Chat serves Slack. If it is nil, no app is configured.
	Chat *chat.Chat
	// Engineer serves tasks. If it is nil, no tasks are accepted.
	Engineer *engineer.Engineer
	// Hooks has the accepted webhooks of forges, by the name of the forge.
	Hooks map[string]engineer.Hook
	// Tickets has the accepted webhooks of issue trackers, by name.
	Tickets map[string]engineer.TicketHook
	// Triggers start work at times and events. If it is nil, there are none.
	Triggers *trigger.Triggers
	// GitHub lists installations and repositories. If it is nil, ramus has no account at GitHub.
	GitHub *github.Client
	// SignIn gives tokens to people who sign in by GitHub. If it is nil, nobody can.
	SignIn *signin.GitHub
	// ForgeKeys has the tokens of people at forges. If it is nil, people can store none.
	ForgeKeys *forgekey.Keys
	// People lets people in with a browser. If it is nil, nobody can, such as in a server that ends with its command.
	People *signin.People
	// Accounts has the people, also if People is nil.
	Accounts *account.Store
	// Privacy keeps which workspaces are private. If it is nil, none can be.
	Privacy *privacy.Store
	// Radar finds the branches that do not merge. If it is nil, the server has one of its own.
	Radar *radar.Radar
	// Names keeps the names of sessions with agents. If it is nil, they have none.
	Names *naming.Store
	// Comments has the comments on lines. If it is nil, the server has comments of its own, without drafts.
	Comments *comment.Comments
	// Shares keeps the links that people made. If it is nil, nobody can make one.
	Shares *share.Store
	// Seen keeps which changes people have looked at. If it is nil, nobody keeps it.
	Seen *seen.Store
	// Records signs the records about people. Nil means Git.Signer.
	Records *gitd.CommitSigner
	// Content is the origin of the trace viewer and of all files with scripts, which is this server under another host.
	// If it is empty, there is none.
	Content string
	// Models tries the keys of agents. Nil tries none.
	Models credential.Prober
	// Mirrors keeps copies of repositories. Nil means that there are none.
	Mirrors *mirror.Mirrors
	// Replicas passes requests on to the other servers of the installation. Nil means that this is the only one.
	Replicas *replica.Front
	// Leader lets stand-bys follow this server. Nil lets none.
	Leader *standby.Leader
	// Nodes are the machines at a cloud. Nil means that there are none.
	Nodes *nodes.Nodes
	// Programs are those that machines install.
	Programs *programs.Programs
	// URL is the URL at which people reach this server ("https://ramus.example.org"), for clone commands. If it is
	// empty, the address of the request is used.
	URL string
	// Domain gives the parts of this server hosts of their own. If it is nil, all are at one host. URL and Content
	// must be its.
	Domain *domain.Domain
	// SSHPort is the port at which git reaches repositories by SSH. Empty means that it cannot.
	SSHPort string
	// Loopback is the URL at which only this machine reaches this server ("http://127.0.0.1:8080"). It is the base of
	// links for a person at the unix socket if URL is empty. Empty means none.
	Loopback string
	// Links signs and checks links to evidence. If it is nil, evidence needs a token.
	Links *links.Signer
	// Preview gives each preview an origin of its own. If it is nil, previews are shown below a path of this server,
	// sandboxed.
	Preview *preview.Origin
	// DeploySecret is the secret that signs messages to /hooks/deploy. If it is empty, no messages are accepted.
	DeploySecret string
	// CORS lists the origins whose pages may call the API ("https://app.example.org"; "*" is any). If it is empty, no
	// origin may.
	CORS []string
	// Streams limits the concurrent streams. The default is 256. One caller may have a quarter of them.
	Streams int
	// Heartbeat is how often a silent stream sends a sign of life. The default is 15 s.
	Heartbeat time.Duration
	// Reload reads the configuration again. If it is nil, the server has none that lasts.
	Reload func(context.Context) (Reloaded, error)
	// Budget returns the bounds of one run, for pages. Nil means that there are none.
	Budget func() web.Budget
	// NoScript serves pages without scripts.
	NoScript bool
	// Traces sends the traces of runs. If it is nil, none are sent.
	Traces *trace.Exporter
	// Secrets are removed from all answers, with three exceptions. Answers of the Git server are not changed, because
	// its objects would be different ones. Previews are the containers' own. Stored files were cleaned when they were
	// stored. Nil means no secrets.
	Secrets *redact.Secrets
	// Log gets a line for each request. Refused requests are logged at Info, faults at Error and all others at Debug.
	// If it is nil, nothing is logged.
	Log *slog.Logger
	// Now is the clock. If it is nil, time.Now is used.
	Now func() time.Time

	once     sync.Once
	mux      *route.Mux
	apis     []interface{ Routes() []route.Route }
	table    []route.Route // of all apis
	preview  *preview.API
	web      *web.API
	pages    *evidence.API
	terminal *terminal.API
	mcp      *mcp.API
	git      http.Handler // the Git server, which needs a grant
	openGit  http.Handler // the same for the unix socket, which needs none
}

func (s *Server) setUp() {
	s.once.Do(func() {
		s.setUpAlone()
		s.git = s.Git.Handler()
		s.openGit = s.Git.GrantHandler(gitd.Grant{
			Subject: route.Local.Subject, Repo: "*", Scopes: []string{gitd.ScopeAdmin}, Write: []string{"refs/*"},
			Force: true, Delete: true,
		})
	})
}

// ended returns a channel that is closed when the session or the token of who ends. It is [route.Mux.Ended].
func (s *Server) ended(who route.Who) (<-chan struct{}, func()) {
	if who.Account != nil {
		return s.People.Ended(who)
	}
	return s.Git.WatchToken(who.Token)
}

// gone reports whether a call is for work that its caller sees no more. It is [route.Mux.Gone].
func (s *Server) gone(c *route.Call) bool {
	for _, key := range []string{"workspace", "caller"} {
		name := c.R.PathValue(key)
		if of, ok := workspace.CallerOf(name); ok {
			name = of.String()
		}
		st, err := s.Executor.Named(name)
		if err == nil && !c.Who.SeesCaller(st) {
			return true
		}
	}
	if name := c.R.PathValue("run"); name != "" {
		r, err := s.Executor.Run(c.R.Context(), name)
		return err == nil && !c.Who.SeesRun(r)
	}
	return false
}

// stats returns the numbers of the executor.
func (s *Server) stats() executor.Stats { return s.Executor.Stats() }

// credentials returns the routes of credentials.
func (s *Server) credentials() *credential.API {
	api := &credential.API{Models: s.Models, HasRepo: func(name string) error { _, err := s.Git.Repo(name); return err }}
	if s.Executor != nil {
		api.Store, api.Rotate = s.Executor.SecretStore, s.Executor.RotateSecrets
	}
	return api
}

// programs returns the URL where programs and git reach this server. Returns "" if it is not known.
func (s *Server) programs() string {
	if s.Domain != nil {
		return s.Domain.API()
	}
	return s.URL
}

// Handler serves the API and the Git server to callers with a grant.
func (s *Server) Handler() http.Handler {
	s.setUp()
	ports := func(own http.Handler) http.Handler { return s.preview.ByHost(s.mux, own) }
	content := func(own http.Handler) http.Handler { return s.pages.ByHost(s.mux, own) }
	if s.Domain == nil {
		return content(ports(s.cors(s.mux.Handler(s.routes(), nil))))
	}
	sites := &domain.Sites{Domain: s.Domain, Mux: s.mux, Table: s.routes(), CORS: s.cors, WithPorts: ports,
		WithContent: content}
	return sites.Handler()
}

// LocalHandler serves the same to everybody who can open the unix socket, as an administrator. Only the folder and
// mode of the socket protect it, so it must not be served elsewhere.
func (s *Server) LocalHandler() http.Handler {
	s.setUp()
	return s.mux.Handler(s.routes(), &route.Local)
}

// Drain ends the streams of events, whose readers reconnect by themselves, and refuses new ones. Then
// http.Server.Shutdown waits only for work. Commands that run in a request continue.
func (s *Server) Drain() {
	s.setUp()
	s.mux.Drain()
	s.mcp.Close()
	s.web.Close()
	s.preview.Transport.CloseIdleConnections()
}

// prefix returns the path below which people reach the server, without a slash at its end.
func (s *Server) prefix() string {
	u, err := url.Parse(s.URL)
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(u.Path, "/")
}

// fallback serves repositories, whose names no pattern of ServeMux can match. It answers all other requests without a
// route with a problem.
func (s *Server) fallback(c *route.Call) error {
	if name, _, ok := strings.Cut(c.R.URL.Path, ".git/"); ok && len(name) > 1 || gitd.Serves(c.R.URL.Path) {
		handler := s.git
		if c.Who.Local {
			handler = s.openGit
		}
		handler.ServeHTTP(c.W, c.R)
		return nil
	}
	table := s.routes()
	if s.Domain != nil {
		table = domain.RoutesAt(domain.API, table)
	}
	if err := c.CheckMethod(table); err != nil {
		return err
	}
	return route.NewProblem(route.KindNotFound, "there is nothing at %s", c.R.URL.Path).
		WithHint("/api/openapi.json lists all there is")
}

// cors allows pages of the configured origins. A page must send its token in a header and never in a cookie, so
// credentials are not allowed.
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
