package gateway

import (
	"context"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/backup"
	"github.com/ramus-dev/ramus/executor/prune"
	"github.com/ramus-dev/ramus/executor/quota"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/naming"
	"github.com/ramus-dev/ramus/gateway/route"
)

// adminAPI maintains the server's data.
type adminAPI struct {
	Executor *executor.Executor
	Names    *naming.Store // nil if there are none
	Version  string
	Reload   func(context.Context) (Reloaded, error)
}

// Routes returns the routes of administration.
func (api *adminAPI) Routes() []route.Route {
	return []route.Route{
		{Method: "POST", Pattern: "/api/reindex", Access: route.AccessAdmin,
			Summary: "Rebuild the index from the repositories", Response: Reindexed{}, Handle: api.reindex},
		{Method: "POST", Pattern: "/api/prune", Access: route.AccessAdmin,
			Summary: "Remove old branches of callers, runs, layers and artifacts by the rules of keep",
			Request: prune.Pruning{}, Response: []prune.Pruned{}, Handle: api.prune},
		{Method: "POST", Pattern: "/api/reload", Access: route.AccessAdmin,
			Summary: "Read the configuration again, and apply the keys that need no restart", Response: Reloaded{},
			Handle: api.reload},
		{Method: "GET", Pattern: "/api/quotas", Access: route.AccessAdmin,
			Summary: "How much of the quotas people and repositories use", Response: []quota.Use{}, Handle: api.quotas},
		{Method: "POST", Pattern: "/api/backup", Access: route.AccessAdmin,
			Summary: "Copy the data folder to a folder of the server's machine; at the unix socket only",
			Request: backup.Request{}, Response: backup.Snapshot{}, Handle: api.backup},
	}
}

// Reindexed is the answer to a reindex. Runs is the number of runs in the new index.
type Reindexed struct {
	Runs int `json:"runs"`
}

func (api *adminAPI) prune(c *route.Call) error {
	var p prune.Pruning
	if err := c.ReadJSON(&p); err != nil {
		return err
	}
	list, err := api.Executor.Prune(c.R.Context(), p)
	if err == nil && !p.DryRun {
		err = sweepNames(c.R.Context(), api.Names, api.Executor)
	}
	if err != nil {
		return err
	}
	if list == nil {
		list = []prune.Pruned{}
	}
	return c.Reply(list)
}

// sweepNames removes the names of sessions whose runs are gone. names may be nil.
func sweepNames(ctx context.Context, names *naming.Store, x *executor.Executor) error {
	if names == nil {
		return nil
	}
	return names.Sweep(ctx, func(c record.Caller) bool { return len(x.OfCaller(c)) > 0 })
}

// Reloaded lists the keys of the configuration that have changed.
type Reloaded struct {
	Applied []string `json:"applied"` // these count now
	Restart []string `json:"restart"` // these count after a restart
}

func (api *adminAPI) reload(c *route.Call) error {
	if api.Reload == nil {
		return route.NewProblem(route.KindConflict, "this server ends with its command, and reads its configuration once")
	}
	r, err := api.Reload(c.R.Context())
	if err != nil {
		return route.NewProblem(route.KindInvalid, "%v", err)
	}
	return c.Reply(r)
}

func (api *adminAPI) quotas(c *route.Call) error { return c.Reply(api.Executor.Uses()) }

// backup makes a snapshot. A token of an administrator does not suffice, because the request names a place on the
// server's disk.
func (api *adminAPI) backup(c *route.Call) error {
	var r backup.Request
	if err := c.ReadJSON(&r); err != nil {
		return err
	}
	if !c.Who.Local {
		return route.NewProblem(route.KindDenied, "only the server's own machine may make backups").
			WithHint("run `ramus backup` there, without RAMUS_URL")
	}
	r.Version = api.Version
	s, err := api.Executor.Backup(c.R.Context(), r)
	if err != nil {
		return err
	}
	return c.Reply(s)
}

func (api *adminAPI) reindex(c *route.Call) error {
	n, err := api.Executor.Reindex(c.R.Context())
	if err != nil {
		return err
	}
	return c.Reply(Reindexed{n})
}
