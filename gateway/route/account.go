package route

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/gitd"
)

// Role is the rank of an account, on the server or in one repository. Each role may do everything that the roles below
// it may. The zero value may do nothing.
type Role string

// The roles, from the lowest to the highest.
const (
	RoleNone   Role = ""
	RoleViewer Role = "viewer" // sees repositories, runs and evidence
	RoleMember Role = "member" // works in repositories and pushes
	// RoleAdmin administers the server. As the role in one repository it is a member's, because the actions of
	// administrators reach beyond every repository.
	RoleAdmin Role = "admin"
)

// Roles are all roles that an account can be given, from the lowest to the highest.
func Roles() []Role { return []Role{RoleViewer, RoleMember, RoleAdmin} }

// ParseRole returns the role of that name. "none" and "" are RoleNone. Returns false if there is no such role.
func ParseRole(name string) (Role, bool) {
	if name == "none" {
		name = ""
	}
	r := Role(name)
	return r, r == RoleNone || slices.Contains(Roles(), r)
}

// rank returns the place of a role among all. An unknown role has that of RoleNone.
func (r Role) rank() int { return slices.Index(Roles(), r) + 1 }

// Includes reports whether r may do everything that other may.
func (r Role) Includes(other Role) bool { return r.rank() >= other.rank() }

// String returns the name of the role, which is "none" for RoleNone.
func (r Role) String() string {
	if r == RoleNone {
		return "none"
	}
	return string(r)
}

// scopes returns the scopes of a grant for the role.
func (r Role) scopes() []string {
	switch r {
	case RoleViewer:
		return []string{gitd.ScopeRead}
	case RoleMember:
		return []string{gitd.ScopeWrite}
	case RoleAdmin:
		return []string{gitd.ScopeAdmin}
	}
	return nil
}

// Account is a person who signed in with a browser.
type Account struct {
	// ID never changes. It is the provider and the provider's own id of the person, such as "github:583231".
	ID string
	// Login is the name at the provider. Name and Email are the author of the person's commits.
	Login, Name, Email string
	// Role is the role in every repository and on the server. Repos adds roles in single repositories, where the higher
	// one counts.
	Role  Role
	Repos map[string]Role
	// Session names the session of the request. It is not the cookie, and opens nothing.
	Session string
	// Recent is the time of the last authentication of this session.
	Recent time.Time
	// Ends is the end of the session at the latest. Zero means that it is not known.
	Ends time.Time
}

// In returns the role of the account in a repository.
func (a *Account) In(repo string) Role {
	if r := a.Repos[repo]; r.rank() > a.Role.rank() {
		return r
	}
	return a.Role
}

// Best returns the highest role that the account has anywhere.
func (a *Account) Best() Role {
	best := a.Role
	for _, r := range a.Repos {
		if r.rank() > best.rank() {
			best = r
		}
	}
	return best
}

// NewWho returns the caller of a request that came with a session of a.
func NewWho(a Account) Who {
	a.Repos = maps.Clone(a.Repos)
	w := Who{Subject: a.ID, Repo: "*", Scopes: a.Role.scopes(), Name: a.Name, Email: a.Email, Account: &a}
	if a.Role.Includes(RoleMember) {
		w.Write = accountRefs
	}
	return w
}

// accountRefs are the refs that members may change.
var accountRefs = []string{"refs/heads/*", "refs/tags/*"}

// GrantIn returns the grant that decides the rights of the caller in a repository. An empty name is that of all
// repositories together, in which nothing may be changed.
func (w Who) GrantIn(repo string) gitd.Grant {
	g := w.roleIn(repo)
	if w.veil == nil || w.Local || w.Admin() {
		return g
	}
	return g.Under(w.veil(g, repo))
}

// roleIn returns the grant of the caller's role in a repository.
func (w Who) roleIn(repo string) gitd.Grant {
	g := w.Grant()
	if w.Account == nil {
		return g
	}
	role := w.Account.In(repo)
	g.Scopes, g.Write = role.scopes(), nil
	if w.Account.Repos[repo] != RoleNone {
		g.Repo = repo
	}
	if role.Includes(RoleMember) {
		g.Write = accountRefs
	}
	return g
}

// RoleIn returns the role of the caller in a repository, as far as scopes have one. The refs of a token may bound it
// further.
func (w Who) RoleIn(repo string) Role {
	if w.Account != nil {
		return w.Account.In(repo)
	}
	switch g := w.Grant(); {
	case w.Admin():
		return RoleAdmin
	case g.MayWrite(repo):
		return RoleMember
	case g.MayRead(repo):
		return RoleViewer
	}
	return RoleNone
}

// ReadsAllIn reports whether the caller sees all refs of a repository, also those of other people.
func (w Who) ReadsAllIn(repo string) bool {
	return w.GrantIn(repo).MayRead(repo) && w.GrantIn(repo).ReadsAll()
}

// ReadsAll reports whether the caller's role shows all refs of the repositories that it sees. Private work of other
// people is left out.
func (w Who) ReadsAll() bool {
	if w.Account != nil {
		return w.Account.Best().Includes(RoleViewer)
	}
	return w.Grant().ReadsAll()
}

// SeesAll reports whether the caller sees all repositories and all their refs, so that a list needs no filter.
func (w Who) SeesAll() bool { return w.Repo == "*" && w.GrantIn("").ReadsAll() }

// mayAccount reports whether routes of class a let an account in. Handlers check the repository.
func (w Who) mayAccount(a Access) bool {
	switch a {
	case AccessPage, AccessSocket:
		return true
	case AccessRead, AccessSigned:
		return w.Account.Best().Includes(RoleViewer)
	case AccessWrite:
		return w.Account.Best().Includes(RoleMember)
	case AccessAdmin, AccessMetrics:
		return w.Account.Role.Includes(RoleAdmin)
	}
	return false
}

// SignInPath is the page where people sign in. Its parameter "to" is the path that they come back to, and "again" asks
// for an authentication although there is a session.
const SignInPath = "/auth"

// BackParameter is the parameter of [SignInPath] with the way back.
const BackParameter = "to"

// SignInLink returns the path of the page where people sign in and come back to a path of this server.
func SignInLink(back string, again bool) string {
	q := url.Values{}
	if back = OwnPath(back); back != "/" {
		q.Set(BackParameter, back)
	}
	if again {
		q.Set("again", "1")
	}
	if len(q) == 0 {
		return SignInPath
	}
	return SignInPath + "?" + q.Encode()
}

// OwnPath returns a path of this server that a browser may be sent to. Returns "/" for everything else, such as URLs of
// other hosts in any spelling that a browser accepts.
func OwnPath(to string) string {
	const most = 2048
	if len(to) > most || !strings.HasPrefix(to, "/") || strings.HasPrefix(to, "//") {
		return "/"
	}
	for _, r := range to {
		if r <= ' ' || r == '\\' || r == 0x7f {
			return "/"
		}
	}
	u, err := url.Parse(to)
	if err != nil || u.Scheme != "" || u.Host != "" || u.User != nil || strings.HasPrefix(u.Path, "//") ||
		strings.ContainsRune(u.Path, '\\') {
		return "/"
	}
	for part := range strings.SplitSeq(u.Path, "/") {
		if part == "." || part == ".." {
			return "/"
		}
	}
	return to
}

// RecentWithin is how long after an authentication a session may change credentials, tokens and people.
const RecentWithin = 10 * time.Minute

// CheckRecent returns a problem if the person of the call authenticated more than [RecentWithin] ago. The problem
// leads a browser to [SignInPath] and back. Callers without an account pass: their token is all that they have.
func (c *Call) CheckRecent() error {
	if a := c.Who.Account; a != nil && c.mux.Now().Sub(a.Recent) > RecentWithin {
		return NewProblem(KindStale, "this needs a sign-in of the last ten minutes").WithHint("sign in again, and repeat it")
	}
	return nil
}

// admitAccount finds the account of a request for a page or a socket, and refuses requests that a page of another
// origin may have made.
func (m *Mux) admitAccount(c *Call) (Who, error) {
	if c.Access == AccessSocket {
		if from := c.R.Header.Get("Origin"); from == "" || from != c.Origin() {
			return Who{}, NewProblem(KindDenied, "pages of other origins may not open this connection").
				WithHint("a browser sends the header Origin, which has to be that of this server; `url` in the configuration sets it")
		}
	}
	if err := CheckSameOrigin(c.R); err != nil {
		return Who{}, err
	}
	if m.Account == nil {
		return Who{}, NewProblem(KindUnauthorized, "nobody can sign in here")
	}
	who, err := m.Account(c)
	if err != nil {
		return Who{}, err
	}
	if who.Nobody() || who.Account == nil {
		return Who{}, NewProblem(KindUnauthorized, "this needs a sign-in").WithHint("sign in, and try again")
	}
	return who, nil
}

// crossOrigin refuses requests that change something and that a page of another origin made. It has no exceptions.
var crossOrigin = http.NewCrossOriginProtection()

// CheckSameOrigin returns a problem for a request that changes something if a page of another origin may have made it.
// A request with a session's cookie must prove its origin, since every browser that keeps such a cookie sends
// Sec-Fetch-Site or Origin.
func CheckSameOrigin(r *http.Request) error {
	if isRead(r) {
		return nil
	}
	if err := crossOrigin.Check(r); err != nil {
		return &Problem{Kind: KindDenied, Detail: "a page of another origin made this request",
			Hint: "open the page of this server, and repeat it there", Cause: err}
	}
	if r.Header.Get("Sec-Fetch-Site") == "" && r.Header.Get("Origin") == "" && HasSession(r) {
		return NewProblem(KindDenied, "this request does not say which page made it").
			WithHint("every browser of the last years sends the header Origin or Sec-Fetch-Site; programs use tokens")
	}
	return nil
}

// The names of the cookie of a session. The second is for plain HTTP on loopback, where no name with the prefix can be
// set. Previews never pass them on.
const (
	SessionCookie         = "__Host-ramus"
	SessionCookieLoopback = "ramus"
)

// AttemptCookie is the name of the cookie of an attempt to sign in, and with the prefix __Host- over https.
const AttemptCookie = "ramus-sign-in"

// OwnCookies are the names of the cookies of pages of this server, which no application may see or set.
func OwnCookies() []string {
	return []string{SessionCookie, SessionCookieLoopback, AttemptCookie, "__Host-" + AttemptCookie}
}

// HasSession reports whether a request has a cookie with the name of a session's.
func HasSession(r *http.Request) bool {
	return len(r.CookiesNamed(SessionCookie))+len(r.CookiesNamed(SessionCookieLoopback)) > 0
}

// Origin returns the origin of this server as a browser writes it. Returns "" if only the unix socket is known.
func (c *Call) Origin() string {
	u, err := url.Parse(c.Address())
	if err != nil || u.Host == "" {
		return ""
	}
	return strings.ToLower(u.Scheme + "://" + u.Host)
}

// Secure reports whether people reach this server by https.
func (c *Call) Secure() bool { return strings.HasPrefix(c.Address(), "https://") }

// The causes of the end of a request's context when its session, or its token, ended.
var (
	ErrSessionEnded = errors.New("the session has ended")
	ErrTokenEnded   = errors.New("the token has ended or was revoked")
	// ErrHidden is the cause if the request is for work that has become private.
	ErrHidden = errors.New("there is no such work any more")
)

// endWithAccess has the context of a request end when the access of its caller does: of a socket with its session, and
// of every request with its token. It ends, too, when the object of the request becomes private.
func (m *Mux) endWithAccess(c *Call) (release func()) {
	cause := ErrSessionEnded
	switch {
	case m.Ended == nil:
		return func() {}
	case c.Who.Account != nil && c.Access == AccessSocket:
	case c.Who.Account == nil && c.Who.Token != "":
		cause = ErrTokenEnded
	default:
		return func() {}
	}
	ended, stop := m.Ended(c.Who)
	ctx, cancel := context.WithCancelCause(c.R.Context())
	done, changed := make(chan struct{}), m.changed()
	go func() {
		defer close(done)
		for {
			select {
			case <-ended:
				cancel(cause)
				return
			case <-changed:
				if changed = m.changed(); m.Gone(c) {
					cancel(ErrHidden)
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	c.R = c.R.WithContext(ctx)
	return func() {
		cancel(context.Canceled)
		<-done
		stop()
	}
}

// changed returns a channel that is closed when somebody hides work, or nil if nobody can.
func (m *Mux) changed() <-chan struct{} {
	if m.Changed == nil || m.Gone == nil {
		return nil
	}
	return m.Changed()
}
