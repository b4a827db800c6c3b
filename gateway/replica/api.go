package replica

import (
	"context"

	"github.com/ramus-dev/ramus/executor/ownership"
	"github.com/ramus-dev/ramus/gateway/gather"
	"github.com/ramus-dev/ramus/gateway/route"
)

// API serves the list of replicas, and moves repositories.
type API struct {
	Front *Front // nil for the only server

	question *gather.Question[struct{}, []Loss]
}

// Routes returns the routes of replicas.
func (api *API) Routes() []route.Route {
	if api.Front != nil {
		api.question = gather.New(api.Front.Desk, "losses",
			func(context.Context, route.Who, struct{}) ([]Loss, error) { return api.Front.Losses, nil })
	}
	return []route.Route{
		{Method: "GET", Pattern: "/api/replicas", Access: route.AccessAdmin, Summary: "List the replicas of the installation",
			Response: []ownership.Replica{}, Handle: api.list},
		{Method: "GET", Pattern: "/api/replicas/losses", Access: route.AccessAdmin,
			Summary: "List what repositories lost with the volumes of replicas", Response: []Loss{}, Handle: api.losses},
		{Method: "POST", Pattern: "/api/repos/{repo}/move", Access: route.AccessAdmin,
			Summary: "Move a repository to another replica", Request: Move{}, Response: Moved{}, Handle: api.move},
	}
}

// Move is a request to move a repository.
type Move struct {
	To string `json:"to" jsonschema:"the name of the replica"`
}

func (api *API) list(c *route.Call) error {
	if api.Front == nil {
		return c.Reply(ownership.Alone{}.Replicas())
	}
	return c.Reply(api.Front.Group.Replicas())
}

func (api *API) move(c *route.Call) error {
	var m Move
	if err := c.ReadJSON(&m); err != nil {
		return err
	}
	if api.Front == nil {
		return route.NewProblem(route.KindConflict, "this is the only server: replicas.name is not set in its configuration")
	}
	moved, err := api.Front.Move(c.R.Context(), c.R.PathValue("repo"), m.To, c.Who.Person(api.Front.Executor.Bot))
	if err != nil {
		return err
	}
	return c.Reply(moved)
}
