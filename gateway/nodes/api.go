// Package nodes serves the nodes of a server: to administrators, and to the machines themselves.
//
// # Invariants
//
// Machines at a cloud cost money, so only administrators order, stop and see them. A machine proves itself by a token of
// its own, which this package checks before it reads the body.
package nodes

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/ramus-dev/ramus/executor/nodes"
	"github.com/ramus-dev/ramus/executor/nodes/programs"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gateway/workspace"
)

// API serves nodes.
type API struct {
	Machines *workspace.Machines
	Nodes    *nodes.Nodes       // nil if there are none but the server's own machine
	Programs *programs.Programs // nil if there are none
}

// Node is a machine of this server: its own, or a node.
type Node struct {
	workspace.Machine
	// Cloud is nil for the server's own machine.
	Cloud *nodes.Node `json:"cloud,omitempty"`
}

// Leaked is a list of machines that belong to no node.
type Leaked struct {
	Machines []nodes.Machine `json:"machines"`
}

// Order is a wish for a node.
type Order struct {
	Size     string `json:"size,omitempty" jsonschema:"small, medium or large; the default is nodes.size"`
	Location string `json:"location,omitempty" jsonschema:"such as nbg1; the default is nodes.location"`
	Own      bool   `json:"own,omitempty" jsonschema:"order with the caller's own cloud-provider credential"`
	// Address is that of a machine that the caller has. Nothing is ordered.
	Address string `json:"address,omitempty" jsonschema:"USER@HOST of a machine of the caller, which becomes a node; nothing is ordered"`
}

// Ordered is a node that was ordered.
type Ordered struct {
	Node
	// Script makes the machine of Order.Address a node, if root runs it there within five minutes.
	Script string `json:"script,omitempty"`
}

// BootLog is the end of the boot log of a machine.
type BootLog struct {
	Text string `json:"text"`
}

// bootLogBody limits one part of a boot log, in bytes.
const bootLogBody = 64 << 10

// Routes returns the routes of nodes.
func (api *API) Routes() []route.Route {
	const one = "/api/nodes/{node}"
	return append(api.agentRoutes(), []route.Route{
		{Method: "GET", Pattern: "/api/nodes", Access: route.AccessRead,
			Summary:  "List the machines: the server's own, and for administrators those at the cloud",
			Response: []Node{}, Handle: api.list},
		{Method: "POST", Pattern: "/api/nodes", Access: route.AccessAdmin,
			Summary: "Order a machine at the cloud, or get the script for a machine of one's own",
			Request: Order{}, Response: Ordered{}, Handle: api.add},
		{Method: "GET", Pattern: "/api/leaked-machines", Access: route.AccessAdmin,
			Summary: "The machines at the cloud that belong to no node", Response: Leaked{}, Handle: api.leaked},
		{Method: "GET", Pattern: one, Access: route.AccessRead, Summary: "One machine", Response: Node{},
			Handle: api.show},
		{Method: "GET", Pattern: one + "/events", Access: route.AccessRead,
			Summary:  "The events of a machine, newest first; those of the server's own are those of its containers",
			Response: []record.Event{}, Handle: api.events},
		{Method: "GET", Pattern: one + "/boot-log", Access: route.AccessAdmin,
			Summary: "The end of the boot log of a machine at the cloud", Response: BootLog{}, Handle: api.showBootLog},
		{Method: "POST", Pattern: one + "/stop", Access: route.AccessAdmin,
			Summary:  "Remove a machine at the cloud, and keep its events; the server's own cannot be stopped",
			Response: Node{}, Handle: api.stop},
		{Method: "DELETE", Pattern: one, Access: route.AccessAdmin,
			Summary:  "Remove a machine at the cloud, with its events; the server's own cannot be deleted",
			Response: Node{}, Handle: api.remove},
		{Method: "POST", Pattern: "/api/bootstrap/{token}", Access: route.AccessHook,
			Summary:  "For new machines: exchange the token, which is good once, for that of reports",
			Unlogged: true, SecretPath: true, Response: nodes.Bootstrap{}, Handle: api.bootstrap},
		{Method: "POST", Pattern: one + "/ready", Access: route.AccessHook,
			Summary: "For machines: report that this one is ready", Unlogged: true, Handle: api.report((*nodes.Nodes).Ready)},
		{Method: "POST", Pattern: one + "/heartbeat", Access: route.AccessHook,
			Summary: "For machines: a sign of life", Unlogged: true, Handle: api.report((*nodes.Nodes).Beat)},
		{Method: "GET", Pattern: one + "/ranges", Access: route.AccessHook,
			Summary: "For machines: the addresses that may connect, one a line", Media: route.MediaText,
			Handle: api.ranges},
		{Method: "POST", Pattern: one + "/boot-log", Access: route.AccessHook,
			Summary: "For machines: lines of the boot log, as text", Unlogged: true, Body: bootLogBody, Handle: api.bootLog},
	}...)
}

// at returns a machine at the cloud as clients see it.
func (api *API) at(n nodes.Node) Node {
	return Node{workspace.Machine{ID: n.ID, Name: n.ID, Status: workspace.State(n.State),
		Health: workspace.Health(n.Health), LastHeartbeat: n.Seen, StaleAfter: api.Nodes.Stale()}, &n}
}

// isOwn reports whether the path names the server's own machine. A path that names no machine that the caller sees is an
// error.
func (api *API) isOwn(c *route.Call) (bool, error) {
	id := c.R.PathValue("node")
	if id == workspace.Node {
		return true, nil
	}
	if !c.Who.Admin() {
		return false, route.NotFound("machine", id)
	}
	_, err := api.Nodes.Get(id)
	return false, err
}

func (api *API) list(c *route.Call) error {
	all := []Node{{Machine: api.Machines.This()}}
	if c.Who.Admin() {
		for _, n := range api.Nodes.List() {
			all = append(all, api.at(n))
		}
	}
	return c.Reply(all)
}

func (api *API) show(c *route.Call) error {
	own, err := api.isOwn(c)
	if err != nil {
		return err
	}
	if own {
		return c.Reply(Node{Machine: api.Machines.This()})
	}
	return api.replyNode(c, http.StatusOK)(api.Nodes.Get(c.R.PathValue("node")))
}

// replyNode answers with a node, or with an error that the cloud may have caused.
func (api *API) replyNode(c *route.Call, status int) func(nodes.Node, error) error {
	return func(n nodes.Node, err error) error {
		if err != nil {
			return cloud(err)
		}
		return c.ReplyStatus(status, api.at(n))
	}
}

func (api *API) events(c *route.Call) error {
	own, err := api.isOwn(c)
	if err != nil {
		return err
	}
	list := []record.Event{}
	if own {
		if list, err = api.Machines.Events(c.R.Context(), c.Who); err != nil {
			return err
		}
		return c.Reply(list)
	}
	h, err := api.Nodes.History(c.R.PathValue("node"))
	if err != nil {
		return err
	}
	for i, e := range slices.Backward(h.Events) {
		list = append(list, record.Event{Seq: int64(i + 1), Time: e.At, Type: "node." + e.Kind, Message: e.Text})
	}
	return c.Reply(list)
}

func (api *API) showBootLog(c *route.Call) error {
	own, err := api.isOwn(c)
	if err != nil {
		return err
	}
	if own {
		return c.Reply(BootLog{})
	}
	h, err := api.Nodes.History(c.R.PathValue("node"))
	if err != nil {
		return err
	}
	return c.Reply(BootLog{h.BootLog})
}

func (api *API) leaked(c *route.Call) error {
	all, err := api.Nodes.Leaked(c.R.Context())
	if err != nil {
		return cloud(err)
	}
	return c.Reply(Leaked{all})
}

func (api *API) add(c *route.Call) error {
	var o Order
	if err := c.ReadOptionalJSON(&o); err != nil {
		return err
	}
	if o.Address != "" {
		n, script, err := api.Nodes.Bring(c.R.Context(), o.Address, c.Who.Subject)
		if err != nil {
			return cloud(err)
		}
		c.SendAsIs() // the script has a token
		c.W.Header().Set("Cache-Control", "no-store")
		return c.ReplyStatus(http.StatusCreated, Ordered{api.at(n), script})
	}
	w := nodes.Wish{Size: o.Size, Location: o.Location, By: c.Who.Subject}
	if o.Own {
		if c.Who.Local {
			return route.NewProblem(route.KindInvalid, "the unix socket is nobody in particular, who has no credential").
				WithHint("set RAMUS_TOKEN to a token of the person")
		}
		w.Owner = c.Who.Subject
	}
	return api.replyNode(c, http.StatusCreated)(api.Nodes.Add(c.R.Context(), w))
}

// refuseOwn returns a problem if the path names the server's own machine.
func (api *API) refuseOwn(c *route.Call) error {
	own, err := api.isOwn(c)
	if own {
		return route.NewProblem(route.KindConflict,
			"the server runs on this machine").WithHint("stop the server itself; its containers stay for the next one")
	}
	return err
}

func (api *API) stop(c *route.Call) error {
	if err := api.refuseOwn(c); err != nil {
		return err
	}
	return api.replyNode(c, http.StatusOK)(api.Nodes.Stop(c.R.Context(), c.R.PathValue("node"), c.Who.Subject))
}

func (api *API) remove(c *route.Call) error {
	if err := api.refuseOwn(c); err != nil {
		return err
	}
	return api.replyNode(c, http.StatusOK)(api.Nodes.Remove(c.R.Context(), c.R.PathValue("node"), c.Who.Subject))
}

func (api *API) bootstrap(c *route.Call) error {
	from, _, err := net.SplitHostPort(c.R.RemoteAddr)
	if err != nil {
		from = "the unix socket"
	}
	b, err := api.Nodes.Redeem(c.R.Context(), c.R.PathValue("token"), from)
	if err != nil {
		return cloud(err)
	}
	if err := c.Audit("node.bootstrap", b.Node); err != nil {
		return err
	}
	c.SendAsIs()
	c.W.Header().Set("Cache-Control", "no-store")
	return c.Reply(b)
}

// token returns the token of a machine.
func token(c *route.Call) string {
	value, _ := strings.CutPrefix(c.R.Header.Get("Authorization"), "Bearer ")
	return value
}

// report serves a report without a body.
func (api *API) report(take func(n *nodes.Nodes, id, token string) error) func(*route.Call) error {
	return func(c *route.Call) error { return reported(c, take(api.Nodes, c.R.PathValue("node"), token(c))) }
}

func (api *API) ranges(c *route.Call) error {
	allowed, err := api.Nodes.Allowed(c.R.PathValue("node"), token(c))
	if err != nil {
		return reported(c, err)
	}
	c.W.Header().Set("Content-Type", route.MediaText)
	for _, r := range allowed {
		fmt.Fprintln(c.W, r)
	}
	return nil
}

func (api *API) bootLog(c *route.Call) error {
	id, tok := c.R.PathValue("node"), token(c)
	if err := api.Nodes.Beat(id, tok); err != nil { // the token, before the body
		return reported(c, err)
	}
	lines, err := c.ReadBody()
	if err != nil {
		return err
	}
	return reported(c, api.Nodes.BootLog(id, tok, string(lines)))
}

// reported answers a report.
func reported(c *route.Call, err error) error {
	if errors.Is(err, nodes.ErrToken) {
		return &route.Problem{Kind: route.KindUnauthorized, Detail: "the token does not belong to this node", Cause: err}
	}
	if err != nil {
		return err
	}
	return c.Reply(struct{}{})
}

// cloud makes the answer of an error that the cloud may have caused.
func cloud(err error) error {
	if errors.Is(err, nodes.ErrCloud) {
		return &route.Problem{Kind: route.KindUnavailable, Detail: err.Error(), Cause: err}
	}
	return err
}
