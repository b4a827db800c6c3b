package mcp

import (
	"context"

	"github.com/ramus-dev/ramus/executor/search"
	"github.com/ramus-dev/ramus/gateway/catalog"
	"github.com/ramus-dev/ramus/gateway/past"
	"github.com/ramus-dev/ramus/gateway/route"
)

// searchTool returns the tool that finds words in runs.
func (api *API) searchTool(who route.Who) usableTool {
	return usableTool{
		Tool: catalog.Tool{
			Name: "search",
			Description: `Find words in everything that was asked, answered, run and printed, of the newest runs first. ` +
				`All words must be in one line, or in one prompt or answer; quotes keep spaces. ` +
				`Ask before you try something: it may have been tried.`,
			Schema: catalog.Object(`"q":{"type":"string","description":"The words. One has at least three letters.","maxLength":400},`+
				`"kind":{"type":"array","description":"Limits the search to these texts.","maxItems":7,"items":{"type":"string",`+
				`"enum":["prompt","answer","command","output","path","subject","person"]}},`+
				`"caller":{"type":"string","description":"A caller, to which the search is limited.","maxLength":300},`+
				`"run":{"type":"string","description":"A run, of which all lines are wanted.","maxLength":300},`+
				`"max":{"type":"integer","description":"How many lines, 50 by default.","minimum":1,"maximum":200},`+
				`"after":{"type":"string","description":"next of an earlier answer.","maxLength":100},`+
				`"repo":`+catalog.RepoProperty, "q"),
		},
		Output: schemaFor[search.Answer](), Access: route.AccessRead, Hints: toolHints{ReadOnly: true, Idempotent: true},
		Call: func(ctx context.Context, c *toolCall) (toolResult, error) {
			var q past.Search
			if err := c.read(&q); err != nil {
				return toolResult{}, err
			}
			f, err := api.Past.Search(ctx, who, q)
			return toolResult{value: f.Answer}, err
		},
	}
}
