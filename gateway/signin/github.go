package signin

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ramus-dev/ramus/gateway/account"
	"github.com/ramus-dev/ramus/gateway/forge"
	"github.com/ramus-dev/ramus/gateway/github"
	"github.com/ramus-dev/ramus/gateway/page"
	"github.com/ramus-dev/ramus/gateway/render"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gitd"
)

// GitHub lets people in by their account at GitHub, with a session or a token. The exported fields are options and may
// be changed until the first request.
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

// lets reports whether somebody gets a token.
func (s *GitHub) lets(u github.User) bool {
	in := func(list []string, name string) bool {
		return slices.ContainsFunc(list, func(one string) bool { return strings.EqualFold(one, name) })
	}
	return in(s.Users, u.Login) ||
		slices.ContainsFunc(u.Organizations, func(org string) bool { return in(s.Organizations, org) })
}

// identify returns a user of GitHub as an identity.
func identify(u github.User) account.Identity {
	id := strconv.FormatInt(u.ID, 10)
	return account.Identity{Provider: account.ProviderGitHub, Subject: id, Login: u.Login,
		Name: cmp.Or(u.Name, u.Login), Email: u.Email,
		Facts: map[string][]string{account.FactLogin: {u.Login}, account.FactID: {id}, account.FactOrg: u.Organizations}}
}

const (
	githubPath     = "/auth/github"
	githubCallback = githubPath + "/callback"
	// maxAsking bounds how many attempts GitHub is asked about at once: anybody may make one up.
	maxAsking = 16
)

func (api *API) signIn(c *route.Call) error {
	if api.GitHub == nil || c.Address() == "" {
		return route.NewProblem(route.KindInvalid,
			"nobody can sign in with GitHub here").WithHint("set github.sign_in, and url")
	}
	a := beginAttempt(c)
	page.MarkPrivate(c.W.Header())
	http.Redirect(c.W, c.R, api.GitHub.Client.Begin(github.Attempt{State: a.State, Verifier: a.Verifier},
		c.Address()+githubCallback), http.StatusFound)
	return nil
}

func (api *API) signedIn(c *route.Call) error {
	if api.GitHub == nil || c.Address() == "" {
		return route.NewProblem(route.KindInvalid,
			"nobody can sign in with GitHub here").WithHint("set github.sign_in, and url")
	}
	const again = "begin again at " + githubPath
	a, err := endAttempt(c, again)
	if err != nil {
		return err
	}
	q := c.R.URL.Query()
	if q.Get("code") == "" {
		return route.NewProblem(route.KindDenied, "GitHub did not let you sign in: %s",
			render.ClipClean(q.Get("error"), 100)).WithHint(again)
	}
	defer api.GitHub.asking.Add(-1)
	if api.GitHub.asking.Add(1) > maxAsking {
		return route.NewProblem(route.KindUnavailable, "too many people sign in at once").WithHint("try again in a moment")
	}
	u, token, err := api.GitHub.Client.FinishKeeping(c.R.Context(),
		github.Attempt{State: a.State, Verifier: a.Verifier}, q.Get("code"), c.Address()+githubCallback)
	// The token is kept for a session that has to ask about organizations again.
	session := api.People != nil && !a.Token && c.WantsPage()
	keep := session && err == nil && api.People.Accounts.Rules.Organizations()
	if token != "" && !keep {
		api.GitHub.Client.Revoke(c.R.Context(), token)
	}
	switch {
	case errors.Is(err, forge.ErrRefused) || errors.Is(err, forge.ErrNotFound):
		return &route.Problem{Kind: route.KindDenied, Detail: "GitHub refuses the sign-in", Hint: again, Cause: err}
	case err != nil:
		return &route.Problem{Kind: route.KindUnavailable, Detail: "GitHub does not answer",
			Hint: "try again in a moment", Cause: err}
	case !session:
		return api.giveToken(c, u)
	}
	if err := checkTransport(c); err != nil {
		return err
	}
	var note []byte
	if keep {
		note = []byte(token)
	}
	if err := api.People.letIn(c, identify(u), a.To, note); err != nil {
		if keep {
			api.GitHub.Client.Revoke(c.R.Context(), token)
		}
		return err
	}
	return nil
}

// giveToken answers with a token for a user of GitHub.
func (api *API) giveToken(c *route.Call, u github.User) error {
	if !api.GitHub.lets(u) {
		return route.NewProblem(route.KindDenied, "%s is not let in here",
			u.Login).WithHint("ask the operator of this server to add you, or one of your organizations, to github.sign_in")
	}
	if api.People != nil { // pinned by the id, so that a login that changed hands gets nothing
		if _, err := api.People.admit(c, identify(u)); err != nil {
			return err
		}
	}
	// The login is no subject, since a login of digits would be the number of somebody else.
	id := identify(u).ID()
	g := gitd.Grant{Subject: id, Person: gitd.Person{Name: u.Login, Email: u.Email, ID: id}, Repo: "*",
		Scopes: api.GitHub.Scopes,
		Write:  usualRefs(api.GitHub.Scopes), Expires: api.Now().Add(api.GitHub.Life).Truncate(time.Second)}
	if u.Name != "" {
		g.Person.Name = u.Name
	}
	signed, g, err := api.Git.Issue(g, g.Subject)
	if err != nil {
		return err
	}
	if err := c.Audit("token.give", g.Subject); err != nil {
		return err
	}
	api.Log.Info("signed in", "request", c.ID, "subject", g.Subject, "until", g.Expires)
	if !c.WantsPage() {
		page.MarkPrivate(c.W.Header())
		return c.Reply(Token{signed, g})
	}
	return page.Write(c.W, http.StatusOK, page.Policy, pages, "token.html", struct {
		Token
		Until, URL string
	}{Token{signed, g}, render.Time(g.Expires), c.Address()})
}
