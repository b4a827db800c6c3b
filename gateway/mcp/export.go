package mcp

import (
	"context"

	parcel "github.com/ramus-dev/ramus/executor/export"
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
		Output: schemaFor[export.Link](), Access: route.AccessWrite, Hints: toolHints{Open: true},
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
			l, err := api.Exports.Link(who, run, "")
			if err == nil {
				err = api.audit(ctx, who, export.ActionLink, run.Name())
			}
			return toolResult{value: l}, err
		},
	}
}

// importTool returns the tool that takes in the export of another server, for administrators.
func (api *API) importTool(who route.Who) usableTool {
	return usableTool{
		Tool: catalog.Tool{
			Name: "import",
			Description: `Take in the export of a run of another server, by the link that its tool export made: the branch and the record of the ` +
				`run, marked as imported. Nothing of it counts as verified here. With dry the file is checked, and nothing is changed.`,
			Schema: catalog.Object(`"link":{"type":"string","description":"The link.","minLength":1,"maxLength":8192},`+
				`"repo":{"type":"string","description":"The repository; it has commits in common with the file.","minLength":1,"maxLength":300},`+
				`"new":{"type":"boolean","description":"Make the repository."},`+
				`"as":{"type":"string","description":"The id of the caller here; that of the file if it is missing.","maxLength":100},`+
				`"public":{"type":"boolean","description":"Show everybody a caller that was private on its server."},`+
				`"dry":{"type":"boolean","description":"Say where the file would go, and change nothing."}`, "link", "repo"),
		},
		Output: schemaFor[parcel.Imported](), Access: route.AccessAdmin, Hints: toolHints{Open: true},
		Call: func(ctx context.Context, c *toolCall) (toolResult, error) {
			var a struct {
				Link   string `json:"link"`
				Repo   string `json:"repo"`
				New    bool   `json:"new"`
				As     string `json:"as"`
				Public bool   `json:"public"`
				Dry    bool   `json:"dry"`
			}
			if err := c.read(&a); err != nil {
				return toolResult{}, err
			}
			done, err := api.Exports.ImportLink(ctx, who, export.Import{Repo: a.Repo, New: a.New, Caller: a.As, Public: a.Public, Dry: a.Dry}, a.Link)
			return toolResult{value: done}, err
		},
	}
}
