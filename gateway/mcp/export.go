package mcp

import (
	"context"

	"github.com/ramus-dev/ramus/gateway/catalog"
	"github.com/ramus-dev/ramus/gateway/export"
	"github.com/ramus-dev/ramus/gateway/route"
)

// exportTool returns the tool that makes a link to the export of a run.
func (api *API) exportTool(who route.Who) usableTool {
	return usableTool{
		Tool: catalog.Tool{
			Name: "export",
			Description: `Make a link to one file with a run: its branch with the history, its record, its outputs and its artifacts. ` +
				`git clone opens the file. Whoever has the link can read it until it expires, so give it only to people who may read the repository.`,
			Schema: catalog.Object(runProperty, "run"),
		},
		Output: schemaFor[export.Link](), Access: route.AccessRead, Hints: toolHints{ReadOnly: true},
		Call: func(ctx context.Context, c *toolCall) (toolResult, error) {
			var a struct {
				Run string `json:"run"`
			}
			if err := c.read(&a); err != nil {
				return toolResult{}, err
			}
			run, err := api.Find.Run(ctx, who, a.Run)
			if err != nil {
				return toolResult{}, err
			}
			l, err := api.Exports.Link(run, "")
			return toolResult{value: l}, err
		},
	}
}
