package gateway

import (
	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/gateway/route"
)

// adminAPI maintains the server's data.
type adminAPI struct {
	Executor *executor.Executor
}

// Routes returns the routes of administration.
func (api *adminAPI) Routes() []route.Route {
	return []route.Route{
		{Method: "POST", Pattern: "/api/reindex", Access: route.AccessAdmin,
			Summary: "Rebuild the index from the repositories", Response: Reindexed{}, Handle: api.reindex},
		{Method: "POST", Pattern: "/api/prune", Access: route.AccessAdmin,
			Summary: "Remove old branches of callers, runs, layers and artifacts by the rules of keep",
			Request: executor.Pruning{}, Response: []executor.Pruned{}, Handle: api.prune},
	}
}

// Reindexed is the answer to a reindex. Runs is the number of runs in the new index.
type Reindexed struct {
	Runs int `json:"runs"`
}

func (api *adminAPI) prune(c *route.Call) error {
	var p executor.Pruning
	if err := c.ReadJSON(&p); err != nil {
		return err
	}
	list, err := api.Executor.Prune(c.R.Context(), p)
	if err != nil {
		return err
	}
	if list == nil {
		list = []executor.Pruned{}
	}
	return c.Reply(list)
}

func (api *adminAPI) reindex(c *route.Call) error {
	n, err := api.Executor.Reindex(c.R.Context())
	if err != nil {
		return err
	}
	return c.Reply(Reindexed{n})
}
