package signin

import (
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ramus-dev/ramus/gateway/forge"
	"github.com/ramus-dev/ramus/gateway/github"
	"github.com/ramus-dev/ramus/gateway/page"
	"github.com/ramus-dev/ramus/gateway/render"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gitd"
)

// GitHub gives people a token for their account at GitHub. It stores nothing: the token holds a grant that ends by
// itself. The exported fields are options and may be changed until the first request.
type GitHub struct {
	Client *github.SignIn
	// Users are the logins that get a token, Organizations those whose members do. Anybody can take a login that its
	// owner gives up.
	Users, Organizations []string
	Scopes               []string      // of the grant; required
	Life                 time.Duration // of the grant; required

	asking atomic.Int32 // attempts that GitHub is asked about
}

// Check returns an error if the options are invalid.
func (s *GitHub) Check() error {
	if err := checkScopes(s.Scopes); err != nil {
		return fmt.Errorf("cannot let people sign in: %w", err)
	}
	if s.Life < time.Minute || s.Life > tokenLongest {
		return fmt.Errorf("cannot let people sign in for %v: want a minute to ten years", s.Life)
	}
	return nil
}

// lets tells whether somebody is let in.
func (s *GitHub) lets(u github.User) bool {
	in := func(list []string, name string) bool {
		return slices.ContainsFunc(list, func(one string) bool { return strings.EqualFold(one, name) })
	}
	return in(s.Users, u.Login) || slices.ContainsFunc(u.Organizations, func(org string) bool { return in(s.Organizations, org) })
}

const (
	signInPath   = "/auth/github"
	callbackPath = signInPath + "/callback"
	// attemptLife is how long somebody may take at GitHub, whose codes live as long.
	attemptLife = 10 * time.Minute
	// maxAsking bounds how many attempts GitHub is asked about at once: anybody may make one up.
	maxAsking = 16
)

// attemptCookie is what remembers an attempt in the browser that began it. It
// lets nobody in.
func (api *API) attemptCookie(c *route.Call, value string, life time.Duration) *http.Cookie {
	k := &http.Cookie{Name: "ramus-sign-in", Value: value, Path: "/", MaxAge: int(life / time.Second), HttpOnly: true, SameSite: http.SameSiteLaxMode}
	if strings.HasPrefix(c.Address(), "https://") {
		// No other host of the domain can set a cookie of such a name.
		k.Name, k.Secure = "__Host-"+k.Name, true
	}
	return k
}

func (api *API) signIn(c *route.Call) error {
	if api.GitHub == nil || c.Address() == "" {
		return route.NewProblem(route.KindInvalid, "nobody can sign in with GitHub here").WithHint("set github.sign_in, and url")
	}
	a := github.NewAttempt()
	http.SetCookie(c.W, api.attemptCookie(c, a.State+"."+a.Verifier, attemptLife))
	page.MarkPrivate(c.W.Header())
	http.Redirect(c.W, c.R, api.GitHub.Client.Begin(a, c.Address()+callbackPath), http.StatusFound)
	return nil
}

func (api *API) signedIn(c *route.Call) error {
	if api.GitHub == nil || c.Address() == "" {
		return route.NewProblem(route.KindInvalid, "nobody can sign in with GitHub here").WithHint("set github.sign_in, and url")
	}
	const again = "begin again at " + signInPath
	q := c.R.URL.Query()
	cookie, err := c.R.Cookie(api.attemptCookie(c, "", 0).Name)
	if err != nil {
		cookie = &http.Cookie{}
	}
	http.SetCookie(c.W, api.attemptCookie(c, "", -time.Second))
	c.W.Header().Set("Cache-Control", "no-store")
	state, verifier, ok := strings.Cut(cookie.Value, ".")
	if !ok || subtle.ConstantTimeCompare([]byte(state), []byte(q.Get("state"))) != 1 {
		return route.NewProblem(route.KindInvalid, "this browser has not begun to sign in, or more than ten minutes ago").WithHint(again)
	}
	if q.Get("code") == "" {
		return route.NewProblem(route.KindDenied, "GitHub did not let you sign in: %s", render.ClipClean(q.Get("error"), 100)).WithHint(again)
	}
	defer api.GitHub.asking.Add(-1)
	if api.GitHub.asking.Add(1) > maxAsking {
		return route.NewProblem(route.KindUnavailable, "too many people sign in at once").WithHint("try again in a moment")
	}
	u, err := api.GitHub.Client.Finish(c.R.Context(), github.Attempt{State: state, Verifier: verifier}, q.Get("code"), c.Address()+callbackPath)
	switch {
	case errors.Is(err, forge.ErrRefused) || errors.Is(err, forge.ErrNotFound):
		return &route.Problem{Kind: route.KindDenied, Detail: "GitHub refuses the sign-in", Hint: again, Cause: err}
	case err != nil:
		return &route.Problem{Kind: route.KindUnavailable, Detail: "GitHub does not answer", Hint: "try again in a moment", Cause: err}
	case !api.GitHub.lets(u):
		return route.NewProblem(route.KindDenied, "%s is not let in here", u.Login).WithHint("ask the operator of this server to add you, or one of your organizations, to github.sign_in")
	}
	g := gitd.Grant{Subject: "github:" + u.Login, Person: gitd.Person{Name: u.Login, Email: u.Email}, Repo: "*", Scopes: api.GitHub.Scopes,
		Write: usualRefs(api.GitHub.Scopes), Expires: api.Now().Add(api.GitHub.Life).Truncate(time.Second)}
	if u.Name != "" {
		g.Person.Name = u.Name
	}
	signed, err := api.Git.Sign(g)
	if err != nil {
		return err
	}
	api.Log.Info("signed in", "request", c.ID, "subject", g.Subject, "until", g.Expires)
	if !c.WantsPage() {
		page.MarkPrivate(c.W.Header())
		return c.Reply(Token{signed, g})
	}
	return page.Write(c.W, http.StatusOK, page.Policy, pages, "sign_in.html", struct {
		Token
		Until, URL string
	}{Token{signed, g}, render.Time(g.Expires), c.Address()})
}
