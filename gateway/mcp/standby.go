package mcp

import (
	"context"

	"github.com/ramus-dev/ramus/executor/standby"
	"github.com/ramus-dev/ramus/gateway/catalog"
	"github.com/ramus-dev/ramus/gateway/route"
)

// standbyTool returns the tool that shows the stand-bys of the server, for administrators.
func (api *API) standbyTool() usableTool {
	return usableTool{
		Tool: catalog.Tool{
			Name: "standby_status",
			Description: `Show the stand-bys that follow this server: whether each is connected, how far it is behind in seconds, and how many changes ` +
				`it has not confirmed. These would be lost with this machine. Also tells the epoch, and whether changes wait for a stand-by (sync).`,
			Schema: catalog.Object(``),
		},
		Output: schemaFor[standby.Status](), Access: route.AccessAdmin, Hints: toolHints{ReadOnly: true, Idempotent: true},
		Call: func(_ context.Context, c *toolCall) (toolResult, error) {
			var none struct{}
			if err := c.read(&none); err != nil {
				return toolResult{}, err
			}
			return toolResult{value: api.Leader.Status()}, nil
		},
	}
}
