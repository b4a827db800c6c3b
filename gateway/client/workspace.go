package client

import (
	"context"

	"github.com/ramus-dev/ramus/gateway/workspace"
)

// CreateWorkspace begins a workspace. It returns when the workspace is durable, and its container starts after that.
func (c *Client) CreateWorkspace(ctx context.Context, w workspace.Wish) (workspace.Workspace, error) {
	return post[workspace.Workspace](ctx, c, "/api/workspaces", w)
}
