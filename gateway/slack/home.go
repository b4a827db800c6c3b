package slack

import (
	"context"
	"encoding/json"
	"fmt"

	slackgo "github.com/slack-go/slack"
)

// PublishHome replaces the content of a person's Home tab of the app.
func (c *Client) PublishHome(ctx context.Context, user string, blocks []Block) error {
	view := slackgo.HomeTabViewRequest{Type: slackgo.VTHomeTab}
	for i, b := range blocks {
		if !json.Valid(b) {
			return fmt.Errorf("cannot publish a Home tab: its block %d is no JSON", i)
		}
		view.Blocks.BlockSet = append(view.Blocks.BlockSet, rawBlock(c.Secrets.JSON(b)))
	}
	err := c.call(ctx, "views.publish", func(ctx context.Context) error {
		_, err := c.api.PublishViewContext(ctx, slackgo.PublishViewContextRequest{UserID: user, View: view})
		return err
	}, nil)
	if err != nil {
		return fmt.Errorf("cannot publish a Home tab: %w", err)
	}
	return nil
}
