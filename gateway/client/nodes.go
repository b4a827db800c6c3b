package client

import (
	"context"

	"github.com/ramus-dev/ramus/executor/record"
	nodesapi "github.com/ramus-dev/ramus/gateway/nodes"
)

// Nodes returns the machines.
func (c *Client) Nodes(ctx context.Context) ([]nodesapi.Node, error) {
	return get[[]nodesapi.Node](ctx, c, "/api/nodes")
}

// LeakedMachines returns the machines at the cloud that belong to no node.
func (c *Client) LeakedMachines(ctx context.Context) (nodesapi.Leaked, error) {
	return get[nodesapi.Leaked](ctx, c, "/api/leaked-machines")
}

// Node returns a machine.
func (c *Client) Node(ctx context.Context, node string) (nodesapi.Node, error) {
	return get[nodesapi.Node](ctx, c, "/api/nodes/"+segment(node))
}

// AddNode orders a machine at the cloud, or returns the script that makes a machine a node.
func (c *Client) AddNode(ctx context.Context, o nodesapi.Order) (nodesapi.Ordered, error) {
	return post[nodesapi.Ordered](ctx, c, "/api/nodes", o)
}

// NodeEvents returns the events of a machine, the newest first.
func (c *Client) NodeEvents(ctx context.Context, node string) ([]record.Event, error) {
	return get[[]record.Event](ctx, c, "/api/nodes/"+segment(node)+"/events")
}

// NodeBootLog returns the end of the boot log of a machine.
func (c *Client) NodeBootLog(ctx context.Context, node string) (nodesapi.BootLog, error) {
	return get[nodesapi.BootLog](ctx, c, "/api/nodes/"+segment(node)+"/boot-log")
}

// StopNode removes a machine at the cloud, and keeps its events.
func (c *Client) StopNode(ctx context.Context, node string) (nodesapi.Node, error) {
	return post[nodesapi.Node](ctx, c, "/api/nodes/"+segment(node)+"/stop", nil)
}

// RemoveNode removes a machine at the cloud, with its events.
func (c *Client) RemoveNode(ctx context.Context, node string) error {
	return c.do(ctx, "DELETE", "/api/nodes/"+segment(node), nil, nil)
}
