// Package token lists and revokes the tokens of people.
//
// # Nouns
//
// A token is described by [gitd.Issued]. [API] has the routes. `POST /api/tokens`, which makes tokens, is in package
// signin.
//
// # Invariants
//
// No answer has a token, but that of the request which made it. Nobody makes a token with rights of which their own role
// or token has not all, or that lives longer than the token with which it was made. A bearer sees and revokes its own tokens, and an administrator those of everybody. A revoked
// token is refused for git, the API and MCP from the next request on, also after a restart.
package token

import (
	"time"

	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gitd"
)

// Tokens has the tokens that were made. [gitd.Server] implements it.
type Tokens interface {
	Tokens() []gitd.Issued
	RevokeToken(id, by string) error
	Issue(g gitd.Grant, by string) (token string, issued gitd.Grant, err error)
}

// API is the routes of tokens. Its fields are its options.
type API struct {
	Git Tokens
	Now func() time.Time // nil means time.Now
}

// Routes returns the routes of tokens.
func (api *API) Routes() []route.Route {
	return []route.Route{
		{Method: "GET", Pattern: "/api/tokens", Access: route.AccessRead,
			Summary:  "List tokens, without the tokens themselves",
			Response: []gitd.Issued{}, Handle: api.list},
		{Method: "POST", Pattern: "/api/tokens/own", Access: route.AccessRead,
			Summary: "Make a token for the caller itself, with its own rights or fewer",
			Request: NewOwn{}, Response: Made{}, Handle: api.makeOwn},
		{Method: "DELETE", Pattern: "/api/tokens/{token}", Access: route.AccessRead, Summary: "Revoke a token by its id",
			Response: struct{}{}, Handle: api.revoke},
	}
}

func (api *API) list(c *route.Call) error { return c.Reply(api.List(c.Who)) }

// List returns the tokens that a caller may see.
func (api *API) List(w route.Who) []gitd.Issued {
	list := []gitd.Issued{}
	for _, t := range api.Git.Tokens() {
		if may(w, t) {
			list = append(list, t)
		}
	}
	return list
}

// may reports whether a caller may see and revoke a token.
func may(w route.Who, t gitd.Issued) bool {
	return w.Admin() || w.Subject != "" && t.Subject == w.Subject || w.Token != "" && t.ID == w.Token
}

func (api *API) revoke(c *route.Call) error {
	if err := api.Revoke(c, c.R.PathValue("token")); err != nil {
		return err
	}
	return c.Reply(struct{}{})
}

// Revoke refuses a token from now on. The error is [gitd.ErrNotFound] also if the caller may not see it.
func (api *API) Revoke(c *route.Call, id string) error {
	w := c.Who
	known := w.Admin() || w.Token != "" && w.Token == id // a token of an earlier version is not in the list
	for _, t := range api.Git.Tokens() {
		known = known || t.ID == id && may(w, t)
	}
	if !known {
		return route.NotFound("token", id)
	}
	if err := api.Git.RevokeToken(id, w.Subject); err != nil {
		return err
	}
	return c.Audit("token.revoke", id)
}
