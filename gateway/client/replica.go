package client

import (
	"context"

	"github.com/ramus-dev/ramus/executor/ownership"
	"github.com/ramus-dev/ramus/gateway/replica"
)

// Replicas returns the replicas of the installation.
func (c *Client) Replicas(ctx context.Context) ([]ownership.Replica, error) {
	return get[[]ownership.Replica](ctx, c, "/api/replicas")
}

// Losses returns the losses of repositories with the volumes of replicas.
func (c *Client) Losses(ctx context.Context) ([]replica.Loss, error) {
	return get[[]replica.Loss](ctx, c, "/api/replicas/losses")
}

// MoveRepo moves a repository to another replica.
func (c *Client) MoveRepo(ctx context.Context, name, to string) (replica.Moved, error) {
	return post[replica.Moved](ctx, c, "/api/repos/"+segment(name)+"/move", replica.Move{To: to})
}
