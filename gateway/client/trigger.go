package client

import (
	"context"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/trigger"
)

// Triggers lists the triggers of the server.
func (c *Client) Triggers(ctx context.Context) ([]trigger.Status, error) {
	return get[[]trigger.Status](ctx, c, "/api/triggers")
}

// RunTrigger starts the work of a trigger now.
func (c *Client) RunTrigger(ctx context.Context, name string, r trigger.RunRequest) (record.Run, error) {
	return post[record.Run](ctx, c, "/api/triggers/"+segment(name)+"/run", r)
}

// PauseTrigger has a trigger start nothing until it is resumed.
func (c *Client) PauseTrigger(ctx context.Context, name string) (trigger.Status, error) {
	return post[trigger.Status](ctx, c, "/api/triggers/"+segment(name)+"/pause", nil)
}

// ResumeTrigger resumes a paused trigger.
func (c *Client) ResumeTrigger(ctx context.Context, name string) (trigger.Status, error) {
	return post[trigger.Status](ctx, c, "/api/triggers/"+segment(name)+"/resume", nil)
}
