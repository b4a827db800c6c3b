package token

import (
	"testing"
	"time"

	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gitd"
)

// issued is a list of tokens in memory.
type issued []gitd.Issued

func (l issued) Tokens() []gitd.Issued            { return l }
func (l issued) RevokeToken(string, string) error { return nil }
func (l issued) Issue(g gitd.Grant, _ string) (string, gitd.Grant, error) {
	return "token", g, nil
}

// TestNarrow has each role ask for each scope.
func TestNarrow(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	api := &API{Git: issued{{ID: "t", Subject: "ada", Expires: now.Add(time.Hour), Person: "github:1"}},
		Now: func() time.Time { return now }}
	viewer := route.NewWho(route.Account{ID: "github:1", Role: route.RoleViewer,
		Repos: map[string]route.Role{"app": route.RoleMember}})
	admin := route.NewWho(route.Account{ID: "github:2", Role: route.RoleAdmin})
	bearer := route.Who{Subject: "ada", Repo: "app", Scopes: []string{"write"}, Write: []string{"refs/heads/x"}, Token: "t"}
	for name, x := range map[string]struct {
		who   route.Who
		n     NewOwn
		given bool
	}{
		"read everywhere":       {viewer, NewOwn{}, true},
		"write everywhere":      {viewer, NewOwn{Scopes: []string{"write"}}, false},
		"write in one":          {viewer, NewOwn{Repo: "app", Scopes: []string{"write"}}, true},
		"admin in one":          {viewer, NewOwn{Repo: "app", Scopes: []string{"admin"}}, false},
		"metrics":               {viewer, NewOwn{Scopes: []string{"metrics"}}, false},
		"no such scope":         {viewer, NewOwn{Scopes: []string{"root"}}, false},
		"admin":                 {admin, NewOwn{Scopes: []string{"admin"}}, true},
		"too long":              {admin, NewOwn{Seconds: 400 * 24 * 3600}, false},
		"a bearer":              {bearer, NewOwn{Scopes: []string{"write"}}, true},
		"a bearer of elsewhere": {bearer, NewOwn{Repo: "other"}, false},
		"a bearer everywhere":   {bearer, NewOwn{Repo: "*"}, false},
		"an earlier bearer":     {route.Who{Subject: "x", Repo: "*", Scopes: []string{"read"}, Token: "old"}, NewOwn{}, false},
		"the unix socket":       {route.Local, NewOwn{}, false},
	} {
		g, err := api.narrow(x.who, x.n)
		if (err == nil) != x.given {
			t.Errorf("%s: %+v, %v", name, g, err)
		}
		if err == nil && (g.Subject != x.who.Subject || g.Check() != nil) {
			t.Errorf("%s: %+v, %v", name, g, g.Check())
		}
	}
	g, err := api.narrow(bearer, NewOwn{Scopes: []string{"write"}})
	if err != nil || !g.Expires.Equal(now.Add(time.Hour)) || g.MayWriteRef("app", "refs/heads/y") ||
		!g.MayWriteRef("app", "refs/heads/x") || g.Person.ID != "github:1" {
		t.Errorf("a bearer's token has more than its maker's: %+v, %v", g, err)
	}
}
