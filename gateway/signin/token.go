package signin

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gitd"
)

// NewToken asks for a token.
type NewToken struct {
	Subject string   `json:"subject" jsonschema:"who will use it"`
	Repo    string   `json:"repo,omitempty" jsonschema:"the one repository it is for; empty or * is every one"`
	Scopes  []string `json:"scopes" jsonschema:"of read, write, admin, metrics"`
	// Read and Write limit the refs, see gitd.Grant. Write empty: with the scope write or
	// admin those of Read, or else all branches and tags; otherwise none.
	Read   []string `json:"read,omitempty"`
	Write  []string `json:"write,omitempty"`
	Force  bool     `json:"force,omitempty"`
	Delete bool     `json:"delete,omitempty"`
	// Seconds until it ends; 0 means 30 days, the most is 10 years.
	Seconds int64 `json:"seconds,omitempty"`
}

// Token is a new token with its grant.
type Token struct {
	Token string     `json:"token"`
	Grant gitd.Grant `json:"grant"`
}

const (
	tokenLife    = 30 * 24 * time.Hour
	tokenLongest = 10 * 366 * 24 * time.Hour
)

func (api *API) newToken(c *route.Call) error {
	var n NewToken
	if err := c.ReadJSON(&n); err != nil {
		return err
	}
	g := gitd.Grant{Subject: n.Subject, Repo: n.Repo, Scopes: n.Scopes, Read: n.Read, Write: n.Write, Force: n.Force,
		Delete: n.Delete}
	if g.Repo == "" {
		g.Repo = "*"
	}
	life := time.Duration(n.Seconds) * time.Second
	switch {
	case g.Subject == "":
		return route.NewProblem(route.KindInvalid, "a token needs a subject")
	case n.Seconds < 0 || n.Seconds > int64(tokenLongest/time.Second):
		return route.NewProblem(route.KindInvalid, "a token lives between one second and ten years")
	case life == 0:
		life = tokenLife
	}
	if err := checkScopes(g.Scopes); err != nil {
		return err
	}
	if g.Repo != "*" {
		if _, err := api.Git.Repo(g.Repo); err != nil {
			return err
		}
	}
	if err := narrowRefs(&g); err != nil {
		return err
	}
	g.Expires = api.Now().Add(life).Truncate(time.Second)
	signed, g, err := api.Git.Issue(g, c.Who.Subject)
	if err != nil {
		return err
	}
	if err := c.Audit("token.create", g.Subject); err != nil {
		return err
	}
	return c.ReplyStatus(http.StatusCreated, Token{signed, g})
}

func checkScopes(scopes []string) error {
	if len(scopes) == 0 {
		return route.NewProblem(route.KindInvalid, "a token needs scopes: read, write, admin, metrics")
	}
	for _, scope := range scopes {
		if !slices.Contains(gitd.Scopes(), scope) {
			return route.NewProblem(route.KindInvalid, "unknown scope %q: want read, write, admin or metrics", scope)
		}
	}
	return nil
}

// narrowRefs refuses refs that the scopes do not let a token use, and fills in those that
// nobody named: a token that writes may change what it may see.
func narrowRefs(g *gitd.Grant) error {
	switch {
	case len(g.Write) > 0 && !g.Has(gitd.ScopeWrite):
		return route.NewProblem(route.KindInvalid, "a token without the scope write changes no refs, also not %.200q",
			g.Write[0]).
			WithHint("`--scope write` lets it push; `--ref-read` bounds what a token may see")
	case len(g.Read) > 0 && !g.Has(gitd.ScopeRead):
		return route.NewProblem(route.KindInvalid, "a token without the scope read sees no refs, also not %.200q", g.Read[0])
	case len(g.Write) > 0:
	case len(g.Read) > 0 && g.Has(gitd.ScopeWrite):
		for _, ref := range g.Read { // what ramus itself writes only a person may name
			if !strings.HasPrefix(ref, "refs/ramus/") {
				g.Write = append(g.Write, ref)
			}
		}
	default:
		g.Write = usualRefs(g.Scopes)
	}
	return nil
}

// usualRefs are the refs that a token with such scopes may change, where nobody says more.
func usualRefs(scopes []string) []string {
	if (gitd.Grant{Scopes: scopes}).Has(gitd.ScopeWrite) {
		return []string{"refs/heads/*", "refs/tags/*"}
	}
	return nil
}
