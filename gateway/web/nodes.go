package web

import (
	"runtime"
	"slices"
	"time"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/quota"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/live"
	"github.com/ramus-dev/ramus/gateway/lookup"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gateway/workspace"
)

// nodeData is the data of the pages of machines. There is one machine.
type nodeData struct {
	Name, Path      string
	Badge           Badge
	Engine, Version string
	Platform        string
	Processors      int
	Stats           executor.Stats
	Used, Capacity  int
	Options         executor.Options
	Uses            []quota.Use
	Containers      []workspaceRow
	Admin           bool
}

func (api *API) node(c *route.Call) (*nodeData, error) {
	stats := api.Executor.Stats()
	d := &nodeData{Name: "This machine", Path: "/nodes/" + workspace.Node, Badge: Badge{"Healthy", "good"}, Engine: api.Engine, Version: api.Version,
		Platform: runtime.GOOS + " " + runtime.GOARCH, Processors: runtime.NumCPU(), Stats: stats, Capacity: stats.Capacity, Options: api.Executor.Options(), Admin: c.Who.Admin()}
	if stats.EngineAway {
		d.Badge = Badge{"The engine does not answer", "bad"}
	}
	for state, n := range stats.Hosts {
		if state != "queued" {
			d.Used += n
		}
	}
	return d, nil
}

func (api *API) nodeList(c *route.Call) (*Page, error) {
	d, err := api.node(c)
	if err != nil {
		return nil, err
	}
	return &Page{Title: "Machines", Nav: "nodes", Template: "nodes", Data: d, Topics: []string{live.TopicNode}, Beat: 5 * time.Second, Refresh: 15}, nil
}

func (api *API) nodePage(c *route.Call) (*Page, error) {
	if c.R.PathValue("node") != workspace.Node {
		return nil, route.NotFound("machine", c.R.PathValue("node"))
	}
	d, err := api.node(c)
	if err != nil {
		return nil, err
	}
	if d.Admin {
		d.Uses = api.Executor.Uses()
	}
	list, err := api.Executor.Callers(c.R.Context(), record.Filter{Max: lookedAt, Keep: func(r record.Run) bool {
		return r.Repo != lookup.InboxRepo && c.Who.SeesRun(r)
	}})
	if err != nil {
		return nil, err
	}
	list = slices.DeleteFunc(list, func(st executor.CallerStatus) bool { return st.Container == nil })
	for _, st := range list {
		d.Containers = append(d.Containers, api.workspaceRow(c, api.Workspaces.Of(c.R.Context(), st)))
	}
	return &Page{Title: d.Name, Nav: "nodes", Template: "node", Data: d, Topics: []string{live.TopicNode}, Beat: 5 * time.Second, Refresh: 15}, nil
}
