package mcp

import (
	"context"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/catalog"
	"github.com/ramus-dev/ramus/gateway/past"
	"github.com/ramus-dev/ramus/gateway/route"
)

// forkTool returns the tool that begins a new caller at a step of another one.
func (api *API) forkTool(who route.Who) usableTool {
	return usableTool{
		Tool: catalog.Tool{
			Name: "fork",
			Description: `Begin a new caller at a step or a commit of another one, with the files and the memory of ` +
				`agents that it had when the step began. With prompt an agent works there first, and get_run shows ` +
				`its run. Nothing of the other caller changes. With dry nothing begins.`,
			Schema: catalog.Object(`"of":{"type":"string","description":"CALLER, CALLER@STEP, RUN@STEP or CALLER@COMMIT; `+
				`without @ the newest commit.","minLength":1,"maxLength":300},`+
				`"name":{"type":"string","description":"The name of the new caller; drawn if it is missing.","maxLength":100},`+
				`"prompt":`+catalog.PromptProperty("What the agent is to do from there.")+`,"agent":`+catalog.AgentProperty+`,`+
				`"dry":{"type":"boolean","description":"Show where the new caller would begin, and begin nothing."}`, "of"),
		},
		Output: schemaFor[past.Forked](), Access: route.AccessWrite,
		Call: func(ctx context.Context, c *toolCall) (toolResult, error) {
			var q struct {
				Of     string `json:"of"`
				Name   string `json:"name"`
				Prompt string `json:"prompt"`
				Agent  string `json:"agent"`
				Dry    bool   `json:"dry"`
			}
			if err := c.read(&q); err != nil {
				return toolResult{}, err
			}
			f, err := api.Past.Fork(ctx, who, past.Fork{Of: q.Of, Name: q.Name, Prompt: q.Prompt, Agent: q.Agent, Dry: q.Dry})
			return toolResult{value: f}, err
		},
	}
}

// restartTool returns the tool that begins a workflow again at a node.
func (api *API) restartTool(who route.Who) usableTool {
	return usableTool{
		Tool: catalog.Tool{
			Name: "restart",
			Description: `Begin the workflow of a run again at a node or a step, in a new branch, with the results of the ` +
				`steps before it. It returns when the new run has ended or waits for a person.`,
			Schema: catalog.Object(runProperty+
				`,"from":{"type":"string","description":"The node or the step.","minLength":1,"maxLength":300},`+
				`"input":{"type":"object","description":"All inputs of the workflow; those of the run if it is missing.",`+
				`"additionalProperties":true},`+waitProperty, "run", "from"),
		},
		Output: schemaFor[runReport](), Access: route.AccessWrite, Hints: toolHints{Open: true},
		Call: func(ctx context.Context, c *toolCall) (toolResult, error) {
			q := struct {
				Run   string         `json:"run"`
				From  string         `json:"from"`
				Input map[string]any `json:"input"`
				Wait  bool           `json:"wait"`
			}{Wait: true}
			if err := c.read(&q); err != nil {
				return toolResult{}, err
			}
			of, err := api.Find.Run(ctx, who, q.Run)
			if err != nil {
				return toolResult{}, err
			}
			var run record.Run
			if run, err = api.Past.Restart(ctx, who, of, past.Restart{From: q.From, Input: q.Input}); err != nil {
				return toolResult{}, err
			}
			if q.Wait {
				if run, err = api.await(ctx, run, c.tell); err != nil {
					return toolResult{}, err
				}
			}
			return api.report(ctx, run)
		},
	}
}
