package signin

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/gateway/account"
	"github.com/ramus-dev/ramus/gateway/audit"
	"github.com/ramus-dev/ramus/gateway/page"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gateway/session"
	"github.com/ramus-dev/ramus/gitd"
)

// People knows who may sign in with a browser. Its exported fields are options, which may be changed until the first
// request. Methods are safe for concurrent use.
type People struct {
	Accounts *account.Store
	Sessions *session.Store
	// Actions is the log of actions. Nil keeps none.
	Actions *audit.Log
	// OIDC lets people in by OpenID Connect. Nil lets nobody in by it.
	OIDC *OIDC
	// Owner is who can use the unix socket.
	Owner gitd.Person
	// Home is the path that a browser comes to after it signed in, unless it came from elsewhere. The default is the page
	// of sessions.
	Home string
	Log  *slog.Logger
	Now  func() time.Time

	links  ownerLinks
	github *GitHub // asked again about organizations; set by the API
	checks memberships
}

// sessionCookie returns the cookie of a session. A value of "" removes it.
func (p *People) sessionCookie(c *route.Call, value string) *http.Cookie {
	k := &http.Cookie{Name: route.SessionCookieLoopback, Value: value, Path: "/",
		MaxAge: int(p.Sessions.Life / time.Second), HttpOnly: true,
		SameSite: http.SameSiteLaxMode}
	if c.Secure() {
		k.Name, k.Secure = route.SessionCookie, true
	}
	if value == "" {
		k.MaxAge = -1
	}
	return k
}

// checkTransport returns a problem if a cookie would cross a network without encryption.
func checkTransport(c *route.Call) error {
	host := strings.ToLower(route.HostName(c.R.Host))
	if c.Secure() || host == "localhost" || strings.HasSuffix(host, ".localhost") || host == "::1" || strings.HasPrefix(host, "127.") {
		return nil
	}
	return route.NewProblem(route.KindInvalid, "nobody can sign in over plain HTTP, except on the server's own machine").
		WithHint("serve ramus over https, and set `url` to that address")
}

// maxCookies bounds the cookies of one name that are looked at. A page of a sibling host or of another port may have set
// further ones.
const maxCookies = 4

// Account returns the person of the session of a call. It is [route.Mux.Account].
func (p *People) Account(c *route.Call) (route.Who, error) {
	name := p.sessionCookie(c, "").Name
	for i, cookie := range c.R.CookiesNamed(name) {
		if i == maxCookies {
			break
		}
		found, err := p.Sessions.Find(cookie.Value, session.FromRequest(c.R), c.Access == route.AccessPage)
		switch {
		case errors.Is(err, session.ErrReplayed):
			p.Log.Warn("a session was ended, because an old id of it was used", "request", c.ID)
			p.note(c, audit.Entry{Action: "session.replayed", Result: "ended"})
			continue
		case errors.Is(err, session.ErrNone), errors.Is(err, session.ErrExpired):
			continue
		case err != nil:
			return route.Who{}, err
		}
		if found.Cookie != "" {
			http.SetCookie(c.W, p.sessionCookie(c, found.Cookie))
		}
		return p.who(c.R.Context(), found.Session, found.Note)
	}
	return route.Who{}, nil
}

// who returns the person of a session. Nobody is returned, and the session ended, if the account is gone or has no role.
func (p *People) who(ctx context.Context, s session.Session, note []byte) (route.Who, error) {
	if err := p.askAgain(ctx, s, note); err != nil {
		return route.Who{}, err
	}
	person, err := p.Accounts.Get(s.Account)
	if err == nil && person.Best() != route.RoleNone {
		if _, still := p.Sessions.Get(s.ID); still {
			a := person.Account(s.ID, s.Began)
			a.Ends = s.Ends
			return route.NewWho(a), nil
		}
		return route.Who{}, nil
	}
	if err := p.Sessions.End(s.ID, ""); err != nil && !errors.Is(err, session.ErrNone) {
		return route.Who{}, err
	}
	return route.Who{}, nil
}

// Again returns the person of a session as it is now. It is [route.Mux.Again].
func (p *People) Again(ctx context.Context, who route.Who) (route.Who, error) {
	s, ok := p.Sessions.Get(who.Account.Session)
	if !ok {
		return route.Who{}, route.ErrSessionEnded
	}
	now, err := p.who(ctx, s, nil)
	if err == nil && now.Nobody() {
		err = route.ErrSessionEnded
	}
	return now, err
}

// AccountNow returns the person of an account as it is now, without a session. Returns [gitd.ErrDenied] if the account is gone or has no role.
func (p *People) AccountNow(id string) (route.Who, error) {
	person, err := p.Accounts.Get(id)
	if errors.Is(err, account.ErrUnknown) || err == nil && person.Best() == route.RoleNone {
		return route.Who{}, fmt.Errorf("the account %.200s has no role here any more: %w", id, gitd.ErrDenied)
	}
	if err != nil {
		return route.Who{}, err
	}
	return route.NewWho(person.Account("", time.Time{})), nil
}

// Ended returns a channel that is closed when the session of who ends, or its roles change. It is [route.Mux.Ended].
func (p *People) Ended(who route.Who) (<-chan struct{}, func()) {
	return p.Sessions.Watch(who.Account.Session)
}

// Changed has sessions of an account begin with new ids and its sockets end. It is [account.Store.Changed].
func (p *People) Changed(id string) {
	if err := p.Sessions.Changed(id); err != nil {
		p.Log.Error("cannot change the sessions of a person", "account", id, "err", err)
	}
}

// Audit adds an action of a call to the log. It is [route.Mux.Audit].
func (p *People) Audit(c *route.Call, action, object, result string) error {
	if p.Actions == nil {
		return nil
	}
	// A person who revokes their own token ends the context of the request.
	return p.Actions.Append(context.WithoutCancel(c.R.Context()), entry(c, audit.Entry{Action: action, Object: object, Result: result}))
}

// AuditAs adds an action to the log that a person did otherwise than by a request of its own, such as by a tool of MCP.
func (p *People) AuditAs(ctx context.Context, who route.Who, action, object string) error {
	if p.Actions == nil {
		return nil
	}
	e := audit.Entry{Who: who.Subject, Action: action, Object: object, Result: audit.OK}
	if who.Account != nil {
		e.Login = who.Account.Login
	}
	return p.Actions.Append(context.WithoutCancel(ctx), e)
}

// note adds an entry that nobody waits for.
func (p *People) note(c *route.Call, e audit.Entry) {
	if p.Actions == nil {
		return
	}
	if err := p.Actions.Note(entry(c, e)); err != nil {
		p.Log.Error("cannot add to the log of actions", "action", e.Action, "err", err)
	}
}

// entry fills in the fields that follow from the call.
func entry(c *route.Call, e audit.Entry) audit.Entry {
	e.Request, e.Place = c.ID, session.Place(c.R)
	if c.Who.Local {
		e.Place = "this machine"
	}
	e.Who = cmp.Or(e.Who, c.Who.Subject, "nobody")
	if a := c.Who.Account; a != nil && e.Who == a.ID {
		e.Login, e.Session = a.Login, sessionMark(a.Session)
	}
	return e
}

// sessionMark returns the name of a session in the log.
func sessionMark(id string) string {
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:6])
}

// letIn begins a session for an identity, ends the one that the browser had, and sends the browser back.
func (p *People) letIn(c *route.Call, i account.Identity, to string, note []byte) error {
	person, err := p.admit(c, i)
	if err != nil {
		return err
	}
	for n, old := range c.R.CookiesNamed(p.sessionCookie(c, "").Name) {
		if n == maxCookies {
			break
		}
		if found, err := p.Sessions.Find(old.Value, session.From{}, false); err == nil {
			if err := p.Sessions.End(found.ID, ""); err != nil && !errors.Is(err, session.ErrNone) {
				return err
			}
		}
	}
	s, cookie, err := p.Sessions.Begin(person.ID, session.FromRequest(c.R), note)
	if errors.Is(err, session.ErrFull) {
		return &route.Problem{Kind: route.KindUnavailable, Detail: "too many people are signed in",
			Hint: "try again in a moment", Cause: err}
	}
	if err != nil {
		return err
	}
	c.Who = route.NewWho(person.Account(s.ID, s.Began))
	if err := c.Audit("session.begin", i.Provider); err != nil {
		return errors.Join(err, p.Sessions.End(s.ID, ""))
	}
	p.checks.asked(s.ID, note, p.Now())
	p.Log.Info("signed in", "request", c.ID, "account", person.ID, "login", person.Login)
	http.SetCookie(c.W, p.sessionCookie(c, cookie))
	page.MarkPrivate(c.W.Header())
	c.W.Header().Set("Cache-Control", "no-store")
	if to == "/" {
		to = cmp.Or(p.Home, SessionsPath)
	}
	http.Redirect(c.W, c.R, c.Prefix()+to, http.StatusSeeOther)
	return nil
}

// admit returns the account of an identity, or the problem of a person who is not let in.
func (p *People) admit(c *route.Call, i account.Identity) (account.Person, error) {
	person, err := p.Accounts.SignIn(c.R.Context(), i)
	switch {
	case errors.Is(err, account.ErrTaken):
		err = &route.Problem{Kind: route.KindDenied, Cause: err,
			Detail: "the login " + i.Login + " belonged to somebody else when it was last used here",
			Hint:   "an administrator removes the old account with `ramus people rm`, if its owner gave the login up"}
	case errors.Is(err, account.ErrNoRole):
		err = &route.Problem{Kind: route.KindDenied, Cause: err, Detail: i.Login + " is not let in here",
			Hint: "ask the operator of this server to add you, or one of your organizations, to sign_in"}
	}
	if err != nil {
		p.note(c, audit.Entry{Who: i.ID(), Login: i.Login, Action: "session.begin", Object: i.Provider,
			Result: string(route.AsProblem(err, c.Who).Kind)})
	}
	return person, err
}

// owner returns the identity of who can use the unix socket.
func (p *People) owner() account.Identity {
	login := os.Getenv("USER")
	return account.Identity{Provider: account.ProviderOwner, Subject: "0", Login: cmp.Or(login, "owner"),
		Name: p.Owner.Name, Email: p.Owner.Email}
}
