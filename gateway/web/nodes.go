package web

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/nodes"
	"github.com/ramus-dev/ramus/executor/quota"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/live"
	"github.com/ramus-dev/ramus/gateway/lookup"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gateway/workspace"
)

// maxNodeEvents bounds the events on the page of a machine.
const maxNodeEvents = 50

// nodeData is the data of the pages of machines. There is one machine.
type nodeData struct {
	workspace.Machine
	Path    string
	Badge   Badge
	Options executor.Options
	Uses    []quota.Use
	Rows    []workspaceRow
	Events  []eventRow
	Cloud   []cloudNode // of the list, for administrators
}

// Elsewhere reports whether containers run on nodes of a cluster.
func (d *nodeData) Elsewhere() bool { return d.Engine == "kubernetes" }

// cloudNode is the data of a node.
type cloudNode struct {
	nodes.Node
	Path    string
	Badge   Badge
	Events  []eventRow
	BootLog string
}

// Kind describes the machine of a node.
func (n cloudNode) Kind() string {
	switch n.Source {
	case nodes.SourceSSH:
		return "brought"
	case nodes.SourceCluster:
		return "of the cluster"
	default:
		return n.Size + " in " + n.Location
	}
}

// nodeBadges are the badges of nodes that do not run.
var nodeBadges = map[nodes.State]Badge{
	nodes.StatePending:  {"Waits", "info"},
	nodes.StateCreating: {"Starts", "info live"},
	nodes.StateStopping: {"Stops", "info live"},
	nodes.StateStopped:  {"Stopped", ""},
	nodes.StateError:    {"Error", "bad"},
}

// healthBadges are the badges of nodes that run.
var healthBadges = map[nodes.Health]Badge{
	nodes.HealthHealthy:   {"Healthy", "good"},
	nodes.HealthStale:     {"Stale", "warn"},
	nodes.HealthUnhealthy: {"Unhealthy", "bad"},
}

func newCloudNode(n nodes.Node) cloudNode {
	b, ok := nodeBadges[n.State]
	if !ok {
		b = healthBadges[n.Health]
	}
	return cloudNode{Node: n, Path: "/nodes/" + n.ID, Badge: b}
}

// nodePages serves the machines.
type nodePages struct {
	rows       *rowMaker
	executor   *executor.Executor
	workspaces *workspace.Workspaces
	machines   *workspace.Machines
	cloud      *nodes.Nodes // nil means that there are no machines at a cloud
}

func (h *nodePages) register(t *table) {
	t.page("/nodes", "The machines that run containers", h.nodeList)
	t.page("/nodes/{node}", "A machine: its health, its containers and its limits", h.nodePage)
}

func (h *nodePages) node() *nodeData {
	d := &nodeData{Machine: h.machines.This(), Path: "/nodes/" + workspace.Node, Badge: Badge{"Healthy", "good"},
		Options: h.executor.Applied()}
	if d.Health != workspace.Healthy {
		d.Badge = Badge{"The engine does not answer", "bad"}
	}
	return d
}

func (h *nodePages) nodeList(c *route.Call) (*Page, error) {
	d := h.node()
	if c.Who.Admin() {
		for _, n := range h.cloud.List() {
			d.Cloud = append(d.Cloud, newCloudNode(n))
		}
	}
	return &Page{Title: "Machines", Nav: "nodes", Template: "nodes", Data: d, Topics: []string{live.TopicNode},
		Beat: 5 * time.Second, Refresh: 15}, nil
}

func (h *nodePages) nodePage(c *route.Call) (*Page, error) {
	if c.R.PathValue("node") != workspace.Node {
		return h.cloudPage(c)
	}
	d := h.node()
	if c.Who.Admin() {
		d.Uses = h.executor.Uses()
	}
	list, err := h.executor.Callers(c.R.Context(), record.Filter{Max: lookedAt, Keep: func(r record.Run) bool {
		return !lookup.IsOwnRepo(r.Repo) && c.Who.SeesRun(r)
	}})
	if err != nil {
		return nil, err
	}
	list = slices.DeleteFunc(list, func(st executor.CallerStatus) bool { return st.Container == nil })
	for _, st := range list {
		d.Rows = append(d.Rows, h.rows.workspaceRow(c, h.workspaces.Of(c.R.Context(), st)))
	}
	events, err := h.machines.Events(c.R.Context(), c.Who)
	if err != nil {
		return nil, err
	}
	for _, e := range events[:min(len(events), maxNodeEvents)] {
		text, bad := eventText(e)
		caller, _, _ := strings.Cut(e.Run, "/")
		d.Events = append(d.Events,
			eventRow{Key: fmt.Sprintf("%s %d", e.Run, e.Seq), Text: caller + ": " + text, When: e.Time, Bad: bad})
	}
	return &Page{Title: d.Name, Nav: "nodes", Template: "node", Data: d, Topics: []string{live.TopicNode},
		Beat: 5 * time.Second, Refresh: 15}, nil
}

// cloudPage returns the page of a machine at a cloud. Only administrators see that there is one.
func (h *nodePages) cloudPage(c *route.Call) (*Page, error) {
	id := c.R.PathValue("node")
	if !c.Who.Admin() {
		return nil, route.NotFound("machine", id)
	}
	n, err := h.cloud.Get(id)
	if err != nil {
		return nil, err
	}
	past, err := h.cloud.History(id)
	if err != nil {
		return nil, err
	}
	d := newCloudNode(n)
	d.BootLog = past.BootLog
	for i, e := range slices.Backward(past.Events) {
		text := e.Kind
		if e.Text != "" {
			text += ": " + e.Text
		}
		d.Events = append(d.Events, eventRow{Key: fmt.Sprint(i), Text: text, When: e.At, Bad: e.Kind == "error"})
	}
	return &Page{Title: n.ID, Nav: "nodes", Template: "cloud_node", Data: d, Topics: []string{live.TopicNode},
		Beat: 5 * time.Second, Refresh: 15}, nil
}
