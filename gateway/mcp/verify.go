package mcp

import (
	"context"

	"github.com/ramus-dev/ramus/executor/seal"
	"github.com/ramus-dev/ramus/gateway/catalog"
	"github.com/ramus-dev/ramus/gateway/past"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gitd"
)

// verifyTool returns the tool that compares sealed runs with the chain of seals.
func (api *API) verifyTool(who route.Who) usableTool {
	return usableTool{
		Tool: catalog.Tool{
			Name: "verify",
			Description: `Check that the evidence of a run, or of all runs of a repository, is as it was sealed and signed, and that no run was taken out. ` +
				`The answer names each fault.`,
			Schema: catalog.Object(`"run":{"type":"string","description":"A run, or a caller for its latest run. All runs if empty.","maxLength":300},` +
				`"since":{"type":"string","description":"The head of an earlier answer, which the chain must still contain.","maxLength":64},` +
				`"repo":` + catalog.RepoProperty),
		},
		Output: schemaFor[seal.Report](), Access: route.AccessRead, Hints: toolHints{ReadOnly: true, Idempotent: true},
		Call: func(ctx context.Context, c *toolCall) (toolResult, error) {
			var a struct {
				Run   string    `json:"run"`
				Since gitd.Hash `json:"since"`
				Repo  string    `json:"repo"`
			}
			if err := c.read(&a); err != nil {
				return toolResult{}, err
			}
			rep, err := api.Past.Verify(ctx, who, past.Verify{Repo: a.Repo, Run: a.Run, Since: a.Since})
			return toolResult{value: rep}, err
		},
	}
}
