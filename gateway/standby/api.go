// Package standby serves a server's state to the stand-bys that follow it.
//
// # Invariants
//
// A stand-by sees everything, also private work and sealed credentials. So its token has the scope admin for every
// repository, and the configuration of the server has to allow stand-bys.
package standby

import (
	"io"
	"net/http"

	"github.com/ramus-dev/ramus/executor/standby"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gitd"
)

// GitPrefix is the path below which stand-bys fetch, with all refs.
const GitPrefix = "/api/standby/git"

// API serves a server's state.
type API struct {
	Leader *standby.Leader // nil if the server has none
	Git    *gitd.Server
	git    http.Handler
}

// New returns an API.
func New(leader *standby.Leader, git *gitd.Server) *API {
	return &API{Leader: leader, Git: git, git: http.StripPrefix(GitPrefix, git.GrantHandler(gitd.Grant{
		Subject: "standby", Repo: "*", Scopes: []string{gitd.ScopeAdmin}}))}
}

// Routes returns the routes of stand-bys.
func (api *API) Routes() []route.Route {
	return []route.Route{
		{Method: "GET", Pattern: "/api/standby", Access: route.AccessAdmin,
			Summary: "How far the stand-bys of this server are", Response: standby.Status{}, Handle: api.status},
		{Method: "POST", Pattern: "/api/standby/rounds", Access: route.AccessAdmin,
			Summary:  "For stand-bys: the changes since the last round; waits up to a second for one",
			Unlogged: true, Request: standby.Have{}, Response: standby.Round{}, Handle: api.next},
		{Method: "GET", Pattern: "/api/standby/file", Access: route.AccessAdmin,
			Summary: "For stand-bys: a file of the last round", Query: FileQuery{}, Media: route.MediaBytes, Handle: api.file},
		{Method: "GET", Pattern: GitPrefix + "/{path...}", Access: route.AccessAdmin,
			Summary: "For stand-bys: repositories with all refs, for git", Media: route.MediaBytes, Handle: api.fetch},
		{Method: "POST", Pattern: GitPrefix + "/{path...}", Access: route.AccessAdmin,
			Summary: "For stand-bys: repositories with all refs, for git", Unlogged: true, Body: -1, Media: route.MediaBytes,
			Handle: api.fetch},
		{Method: "POST", Pattern: "/api/standby/fence", Access: route.AccessAdmin,
			Summary:  "End this server, because another one has begun a higher epoch",
			Unlogged: true, Request: standby.Fence{},
			Response: standby.Status{}, Handle: api.fence},
	}
}

func (api *API) status(c *route.Call) error { return c.Reply(api.Leader.Status()) }

func (api *API) next(c *route.Call) error {
	var have standby.Have
	if err := c.ReadJSON(&have); err != nil {
		return err
	}
	r, err := api.Leader.Next(c.R.Context(), have)
	if err != nil {
		return err
	}
	c.SendAsIs()
	return c.Reply(r)
}

// FileQuery names a file of a round.
type FileQuery struct {
	Session string `json:"session"`
	Path    string `json:"path"`
	From    int64  `json:"from,omitempty" jsonschema:"the first byte"`
}

func (api *API) file(c *route.Call) error {
	var q FileQuery
	if err := c.ReadQuery(&q); err != nil {
		return err
	}
	c.SendAsIs()
	c.W.Header().Set("Content-Type", route.MediaBytes)
	w := &begun{w: c.W}
	err := api.Leader.Read(c.R.Context(), q.Session, q.Path, q.From, w)
	if err != nil && w.begun {
		return c.CutShort(err)
	}
	return err
}

// begun notes whether something was written.
type begun struct {
	w     io.Writer
	begun bool
}

func (b *begun) Write(p []byte) (int, error) {
	b.begun = true
	return b.w.Write(p)
}

func (api *API) fetch(c *route.Call) error {
	if api.Leader == nil || !api.Leader.Allow {
		return route.NewProblem(route.KindConflict, "standby.allow is not set in the configuration of this server")
	}
	c.SendAsIs()
	api.git.ServeHTTP(c.W, c.R)
	return nil
}

func (api *API) fence(c *route.Call) error {
	var f standby.Fence
	if err := c.ReadJSON(&f); err != nil {
		return err
	}
	if err := api.Leader.Fence(f); err != nil {
		return err
	}
	return c.Reply(api.Leader.Status())
}
