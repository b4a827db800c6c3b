package route

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/gateway/links"
	"github.com/ramus-dev/ramus/gateway/page"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/redact"
)

// Mux serves tables of routes. Its exported fields are its options, which may be changed until the first call of a
// method. All methods are safe for concurrent use.
type Mux struct {
	// Verify returns the grant of a token, or why the token is refused. It is required if a route needs a token.
	Verify func(token string) (gitd.Grant, error)
	// Account returns the person of the session that a cookie of the call names. It is asked only for routes of
	// [AccessPage] and [AccessSocket]. A call without a valid session has nobody, without an error. If it is nil, nobody
	// can sign in.
	Account func(c *Call) (Who, error)
	// Ended returns a channel that is closed when the session of who ends or its roles change or, for who came with a
	// token, when the token ends or is revoked. stop must be called when the channel is no longer needed. If it is nil,
	// streams and sockets survive their sessions and tokens.
	Ended func(who Who) (ended <-chan struct{}, stop func())
	// Again returns the person of a session as it is now, for sockets that are open for a while. If it is nil, who does
	// not change.
	Again func(ctx context.Context, who Who) (Who, error)
	// Veil returns the veil over a repository for the bearer of a grant, see [gitd.Server.Veil]. An empty name asks for all
	// repositories together. If it is nil, no work is private.
	Veil func(g gitd.Grant, repo string) gitd.Veil
	// IsPublic reports whether strangers may read a repository, see [Route.Strangers]. If it is nil, they may read none.
	IsPublic func(repo string) bool
	// Changed returns a channel that is closed when somebody hides work, or shows it. Gone then reports whether a call that
	// is served for a while is for an object which its caller sees no more. If one is nil, such calls go on.
	Changed func() <-chan struct{}
	Gone    func(c *Call) bool
	// Audit adds an action of a call to the log of actions, and returns when it is on disk. It is asked for every
	// request that changes something at a route of [AccessAdmin], before the end of the answer. If it is nil, there is no
	// such log.
	Audit func(c *Call, action, object, result string) error
	// URL is where people reach the server ("https://ramus.example.org"). Empty means the address that a request
	// came to.
	URL string
	// API is where programs and git reach the server, if that is another host than URL's. Empty means URL.
	API string
	// Links checks signed links, and signs the links on pages. If it is nil, no link opens anything.
	Links *links.Signer
	// Secrets are removed from all answers except those of the Git server, whose objects would change, and those
	// after [Call.SendAsIs]. Nil means that there are none.
	Secrets *redact.Secrets
	// Streams limits how many streams are open at once. The default is 256. One caller may have a quarter of them.
	Streams int
	// Heartbeat is how often a silent stream shows that it is alive. The default is 15 s.
	Heartbeat time.Duration
	// Page answers a browser with the page of a problem, in place of the page of this package. Nil means the latter.
	Page func(c *Call, p *Problem) error
	// Elsewhere returns the handler of a call that another server answers, or nil. It is asked before the caller is known.
	// local is the same as for calls of the unix socket. If it is nil, this server answers all calls.
	Elsewhere func(c *Call, route Route, local bool) http.Handler
	// Observe is called after each request. It may be nil.
	Observe func(route Route, status int, took time.Duration)
	// Log gets refused requests at Info, faults at Error and all others at Debug. Nil discards them.
	Log *slog.Logger
	// Now is the clock. Nil means time.Now.
	Now func() time.Time

	once     sync.Once
	open     *Streams        // of events and lines
	draining context.Context // ends with Drain
	drain    context.CancelFunc
}

func (m *Mux) setUp() {
	m.once.Do(func() {
		if m.Log == nil {
			m.Log = slog.New(slog.DiscardHandler)
		}
		if m.Now == nil {
			m.Now = time.Now
		}
		if m.Streams == 0 {
			m.Streams = 256
		}
		if m.Heartbeat == 0 {
			m.Heartbeat = 15 * time.Second
		}
		m.open = &Streams{Max: m.Streams}
		m.draining, m.drain = context.WithCancel(context.Background())
	})
}

// Drain ends the streams of events and refuses new ones, so that http.Server.Shutdown waits for work alone. The
// readers of these streams connect again by themselves. Commands that run in a request go on.
func (m *Mux) Drain() {
	m.setUp()
	m.drain()
}

// Handler returns the handler of a table. Each request comes from fixed or, if fixed is nil, from the bearer of its
// token. Handler panics on a route without a known access class, which is a fault of the program that a test finds.
func (m *Mux) Handler(table []Route, fixed *Who) http.Handler {
	mux := http.NewServeMux()
	for _, route := range table {
		if !slices.Contains(accesses, route.Access) {
			panic(fmt.Sprintf("route %s %s has no access class", route.Method, route.Pattern))
		}
		mux.Handle(strings.TrimSpace(route.Method+" "+route.Pattern), m.Serve(route, fixed))
	}
	return mux
}

// NewCall returns the call of a request that has not been admitted yet. Its Who is nobody.
func (m *Mux) NewCall(w http.ResponseWriter, r *http.Request, access Access) *Call {
	m.setUp()
	return &Call{mux: m, W: w, R: r, ID: rand.Text()[:12], Access: access}
}

// Serve returns the handler of one route. It checks access, applies limits, writes the log, and turns an error into
// an answer. See [Mux.Handler] for fixed.
func (m *Mux) Serve(route Route, fixed *Who) http.Handler {
	m.setUp()
	limit := route.Body
	if limit == 0 {
		limit = 1 << 20
	}
	return http.HandlerFunc(func(hw http.ResponseWriter, r *http.Request) {
		start := m.Now()
		w := &recorder{ResponseWriter: hw}
		if route.Access != AccessGit && !m.Secrets.Empty() {
			w.clean = m.Secrets.Writer(sender{w})
		}
		c := m.NewCall(w, r, route.Access)
		if m.Elsewhere != nil {
			if h := m.Elsewhere(c, route, fixed != nil); h != nil {
				h.ServeHTTP(hw, c.R)
				return
			}
		}
		w.Header().Set("X-Request-Id", c.ID)
		w.Header().Set("X-Content-Type-Options", "nosniff")

		err := m.handle(c, route, fixed, limit)

		var p *Problem
		if err != nil {
			p = AsProblem(err, c.Who)
			p.Request = c.ID
			p.Detail = m.Secrets.String(p.Detail)
			if w.status == 0 {
				m.refuse(c, route, p)
			}
		}
		_ = w.finish() // the caller may be gone, which is no fault of the answer

		took := m.Now().Sub(start)
		status := w.status
		if p != nil && p.Kind == KindGone {
			status = p.Status
		}
		if m.Observe != nil {
			m.Observe(route, status, took)
		}
		m.logRequest(c, route, status, w.bytes, took, err, p)
	})
}

// handle admits a call and runs the route's handler. A panic becomes an error, except for http.ErrAbortHandler.
func (m *Mux) handle(c *Call, route Route, fixed *Who, limit int64) (err error) {
	defer removeForm(c)
	defer func() {
		if v := recover(); v != nil {
			if v == http.ErrAbortHandler {
				panic(v)
			}
			err = fmt.Errorf("panic: %v\n%s", v, debug.Stack())
		}
	}()
	if err := m.admit(c, route, fixed); err != nil {
		return err
	}
	defer m.endWithAccess(c)()
	if limit > 0 {
		c.R.Body = http.MaxBytesReader(c.W, c.R.Body, limit)
	}
	return m.audited(c, route, route.Handle(c))
}

// removeForm removes the temporary files of a form. The server of net/http removes those of its own request only, of
// which R may be a copy.
func removeForm(c *Call) {
	if c.R.MultipartForm != nil {
		_ = c.R.MultipartForm.RemoveAll() // errors other than that of a missing file have no remedy here
	}
}

// audited adds an action of an administrator to the log of actions, unless its handler has done so. If that fails, no
// reader may take the answer for a success.
func (m *Mux) audited(c *Call, route Route, err error) error {
	if route.Access != AccessAdmin || m.Audit == nil || c.audited || route.Unlogged || isRead(c.R) {
		return err
	}
	result := ResultOK
	if err != nil {
		result = string(AsProblem(err, c.Who).Kind)
	}
	if failed := m.Audit(c, route.Method+" "+route.Pattern, c.R.URL.Path, result); failed != nil {
		return c.CutShort(errors.Join(err, failed))
	}
	return err
}

// admit finds the caller of a request, and refuses callers that the route does not let in.
func (m *Mux) admit(c *Call, route Route, fixed *Who) error {
	if fixed != nil {
		c.Who = *fixed
		if route.Access == AccessPage || route.Access == AccessSocket {
			return NewProblem(KindConflict,
				"this page is for people who are signed in with a browser").WithHint("`ramus open` prints a link")
		}
		return nil
	}
	switch route.Access {
	case AccessGit, AccessPreview:
		return nil
	case AccessPage, AccessSocket:
		return m.admitSession(c, route.Strangers)
	}
	unsigned := links.ErrUnsigned
	if route.Access == AccessSigned && m.Links != nil {
		var until time.Time
		if until, unsigned = m.Links.Expires(c.R); unsigned == nil {
			c.Until = until
			return nil
		}
	}
	who, err := m.identify(c.R)
	if err == nil {
		who = who.Under(m.Veil)
		c.Who = who
	}
	switch {
	case who.May(route.Access):
	case err != nil:
		return &Problem{Kind: KindUnauthorized, Detail: "the token is refused: " + err.Error(),
			Hint: "`ramus token create` makes a new one", Cause: err}
	case !errors.Is(unsigned, links.ErrUnsigned):
		return linkProblem(unsigned)
	case who.Nobody():
		return NewProblem(KindUnauthorized, "this needs a token").
			WithHint("send `Authorization: Bearer TOKEN`; `ramus token create` makes one")
	default:
		return NewProblem(KindDenied, "%s has not the scope %q", who.Subject, route.Access).
			WithHint("a token with that scope, for every repository where the route is for administrators")
	}
	return c.checkRepo()
}

// admitSession lets in the session of an account, or a stranger where that is permitted.
func (m *Mux) admitSession(c *Call, strangers bool) (err error) {
	c.Who, err = m.admitAccount(c)
	if repo := c.R.PathValue("repo"); err != nil && strangers && isRead(c.R) && repo != "" && m.IsPublic != nil && m.IsPublic(repo) {
		if p := AsProblem(err, c.Who); p.Kind == KindUnauthorized {
			c.Who, err = NewStranger(repo), nil
		}
	}
	if err != nil {
		return err
	}
	c.Who = c.Who.Under(m.Veil)
	return c.checkRepo()
}

// checkRepo returns the problem of a repository in the path that the caller must not know of.
func (c *Call) checkRepo() error {
	if repo := c.R.PathValue("repo"); repo != "" && !c.Who.Sees(repo) {
		return NotFound("repository", repo)
	}
	return nil
}

// refuse writes a problem. It writes a page for a browser on a route that people follow links to.
func (m *Mux) refuse(c *Call, route Route, p *Problem) {
	if m.sendToSignIn(c, p) {
		return
	}
	h := c.W.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("Cache-Control", "no-store")
	h.Del("Content-Length")
	switch p.Kind {
	case KindUnauthorized:
		if route.Access != AccessPage && route.Access != AccessSocket {
			h.Set("WWW-Authenticate", `Bearer realm="ramus"`)
		}
	case KindUnavailable, KindStreams:
		h.Set("Retry-After", "2")
	case KindLimited:
		h.Set("Retry-After", strconv.Itoa(p.RetryAfter))
	}
	if m.Page != nil && c.WantsPage() && hasShell(route) && m.isPages(c.R) {
		if err := m.Page(c, p); err == nil || c.W.(*recorder).status != 0 {
			return
		}
		m.Log.ErrorContext(c.R.Context(), "cannot make the page of a problem", "request", c.ID)
	}
	if (route.Access == AccessSigned || route.Access == AccessPage || route.Media == MediaHTML) && c.WantsPage() {
		if err := page.Write(c.W, p.Status, page.Policy, pages, "problem.html", p); err != nil {
			http.Error(c.W, p.Error(), p.Status)
		}
		return
	}
	b, err := json.Marshal(p)
	if err != nil {
		b = []byte(`{"type":"about:blank","status":500,"kind":"internal"}`)
	}
	c.W.WriteHeader(p.Status)
	_, _ = c.W.Write(append(b, '\n')) // the caller may be gone; the log has the problem
}

// isPages reports whether a request came to the host of pages, which has the files that their frame needs.
func (m *Mux) isPages(r *http.Request) bool {
	if m.API == "" {
		return true
	}
	u, err := url.Parse(m.URL)
	return err == nil && strings.EqualFold(u.Host, r.Host)
}

// hasShell reports whether the problem of a route is shown in the frame of all pages. Evidence has readers without an account, and previews
// have hosts of their own.
func hasShell(r Route) bool {
	switch r.Access {
	case AccessGit, AccessPage:
		return true
	case AccessSigned, AccessPreview:
		return false
	}
	return r.Media == MediaHTML
}

// sendToSignIn sends a browser that needs a sign-in for a page to [SignInPath], and reports whether it did. A form is
// not repeated by itself, so its refusal is a page.
func (m *Mux) sendToSignIn(c *Call, p *Problem) bool {
	if c.Access != AccessPage || !isRead(c.R) || p.Kind != KindUnauthorized && p.Kind != KindStale {
		return false
	}
	page.MarkPrivate(c.W.Header())
	c.W.Header().Set("Cache-Control", "no-store")
	http.Redirect(c.W, c.R, c.Prefix()+SignInLink(c.R.URL.RequestURI(), p.Kind == KindStale), http.StatusSeeOther)
	return true
}

// logRequest logs a request that was answered. p is the problem of err, and nil if err is.
func (m *Mux) logRequest(c *Call, route Route, status int, bytes int64, took time.Duration, err error, p *Problem) {
	level, path := slog.LevelDebug, c.R.URL.Path
	if route.SecretPath {
		path = route.Pattern
	}
	attrs := []slog.Attr{
		slog.String("request", c.ID), slog.String("method", c.R.Method), slog.String("path", path),
		slog.String("route", route.Pattern), slog.Int("status", status), slog.Int64("bytes", bytes),
		slog.Duration("took", took), slog.String("who", c.Who.Subject),
	}
	if via := Via(c.R.Context()); via != "" {
		attrs = append(attrs, slog.String("client", c.R.RemoteAddr), slog.String("via", via))
	}
	if err != nil {
		level = slog.LevelInfo
		if p.Kind == KindInternal {
			level = slog.LevelError
		}
		cause := error(p)
		if p.Cause != nil {
			cause = p.Cause
		}
		attrs = append(attrs, slog.String("kind", string(p.Kind)), slog.String("error", cause.Error()))
	}
	m.Log.LogAttrs(context.WithoutCancel(c.R.Context()), level, "request", attrs...)
}

// linkProblem returns the problem of a signed link that does not open.
func linkProblem(err error) *Problem {
	p := NewProblem(KindDenied, "this link does not open: %v", err)
	p.Cause = err
	return p.WithHint("ask for `status` in the thread, or run `ramus evidence RUN --link`, for a new one")
}
