package token

import (
	"net/http"
	"slices"
	"time"

	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gitd"
)

const (
	ownLife    = 30 * 24 * time.Hour
	ownLongest = 366 * 24 * time.Hour
	// maxOwn bounds the tokens of a person that let somebody in.
	maxOwn = 50
)

// NewOwn asks for a token of the caller itself.
type NewOwn struct {
	Repo   string   `json:"repo,omitempty" jsonschema:"the one repository it is for; empty is every one that the caller may use"`
	Scopes []string `json:"scopes,omitempty" jsonschema:"of read, write, admin, metrics; read if empty"`
	// Seconds until it ends; 0 means 30 days, the most is a year.
	Seconds int64 `json:"seconds,omitempty"`
}

// Made is a new token. It is shown once.
type Made struct {
	Token string     `json:"token"`
	Grant gitd.Grant `json:"grant"`
}

func (api *API) now() time.Time {
	if api.Now == nil {
		return time.Now()
	}
	return api.Now()
}

func (api *API) makeOwn(c *route.Call) error {
	var n NewOwn
	if err := c.ReadJSON(&n); err != nil {
		return err
	}
	made, err := api.Make(c, n)
	if err != nil {
		return err
	}
	return c.ReplyStatus(http.StatusCreated, made)
}

// Make makes a token for the caller of a call. The error is a problem if it asks for more than the caller has.
func (api *API) Make(c *route.Call, n NewOwn) (Made, error) {
	g, err := api.narrow(c.Who, n)
	if err != nil {
		return Made{}, err
	}
	held := 0
	for _, t := range api.Git.Tokens() {
		if t.Subject == g.Subject && t.Revoked.IsZero() {
			held++
		}
	}
	if held >= maxOwn {
		return Made{}, route.NewProblem(route.KindLimited, "%s has %d tokens, which is the most", g.Subject, held).
			WithHint("revoke one that is not in use")
	}
	text, g, err := api.Git.Issue(g, c.Who.Subject)
	if err != nil {
		return Made{}, err
	}
	if err := c.Audit("token.create", g.Subject+" "+g.ID); err != nil {
		return Made{}, err
	}
	return Made{text, g}, nil
}

// narrow returns the grant that a caller asks for, which has nothing that the caller has not.
func (api *API) narrow(w route.Who, n NewOwn) (gitd.Grant, error) {
	if w.Local || w.Nobody() {
		return gitd.Grant{}, route.NewProblem(route.KindInvalid, "at the unix socket nobody has tokens of their own").
			WithHint("`ramus token create --subject NAME` makes one")
	}
	if n.Repo == "" {
		n.Repo = w.Repo
	}
	if len(n.Scopes) == 0 {
		n.Scopes = []string{gitd.ScopeRead}
	}
	if n.Repo != "*" && !w.Sees(n.Repo) {
		return gitd.Grant{}, route.NotFound("repository", n.Repo)
	}
	have := w.Grant()
	if n.Repo != "*" {
		have = w.GrantIn(n.Repo)
	} else if w.Repo != "*" {
		return gitd.Grant{}, tooMuch("every repository")
	}
	for _, scope := range n.Scopes {
		switch {
		case !slices.Contains(gitd.Scopes(), scope):
			return gitd.Grant{}, route.NewProblem(route.KindInvalid,
				"unknown scope %.50q: want read, write, admin or metrics", scope)
		case !have.Has(scope), scope == gitd.ScopeAdmin && !w.Admin():
			return gitd.Grant{}, tooMuch("the scope " + scope)
		}
	}
	life := time.Duration(n.Seconds) * time.Second
	switch {
	case n.Seconds < 0 || n.Seconds > int64(ownLongest/time.Second):
		return gitd.Grant{}, route.NewProblem(route.KindInvalid, "a token lives between one second and a year")
	case life == 0:
		life = ownLife
	}
	g := gitd.Grant{Subject: w.Subject, Repo: n.Repo, Scopes: n.Scopes, Read: w.Read,
		Person: gitd.Person{Name: w.Name, Email: w.Email}, Expires: api.now().Add(life).Truncate(time.Second)}
	if g.Has(gitd.ScopeWrite) {
		g.Write = have.Write
	}
	if w.Account != nil {
		g.Person.ID = w.Account.ID
		return g, nil
	}
	return api.within(w, g)
}

// within returns a grant that ends with the token by which it is asked for, and is of the same person.
func (api *API) within(w route.Who, g gitd.Grant) (gitd.Grant, error) {
	all := api.Git.Tokens()
	i := slices.IndexFunc(all, func(t gitd.Issued) bool { return t.ID == w.Token })
	if i < 0 {
		return g, route.NewProblem(route.KindDenied, "this token is of an earlier version, and makes no others").
			WithHint("an administrator makes a new one with `ramus token create`")
	}
	if end := all[i].Expires; !end.IsZero() && end.Before(g.Expires) {
		g.Expires = end
	}
	g.Person.ID = all[i].Person
	return g, nil
}

// tooMuch is the problem of a token with more rights than its maker has.
func tooMuch(what string) error {
	return route.NewProblem(route.KindDenied, "your own rights do not include %s", what).
		WithHint("an administrator gives roles at /admin/people, or makes the token with `ramus token create`")
}
