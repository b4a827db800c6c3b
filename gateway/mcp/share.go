package mcp

import (
	"context"
	"time"

	"github.com/ramus-dev/ramus/gateway/catalog"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gateway/share"
)

// shareTool returns the tool that makes a link for people who do not sign in.
func (api *API) shareTool(who route.Who) usableTool {
	return usableTool{
		Tool: catalog.Tool{
			Name: "share",
			Description: `Make a read-only link to a run, to a moment of a timeline or to a conversation. Everybody with the link can read the prompts, the commands ` +
				`and their outputs until it ends or is revoked. Make one only if a person asked for it.`,
			Schema: catalog.Object(`"of":{"type":"string","description":"A run, or a caller for its conversation.","maxLength":300},`+
				`"at":{"type":"string","description":"The id of a command of the caller, for a link to that moment of its timeline.","maxLength":300},`+
				`"days":{"type":"integer","description":"How many days the link opens; 7 if it is missing.","minimum":1,"maximum":90}`, "of"),
		},
		Output: schemaFor[share.Link](), Access: route.AccessWrite,
		Call: func(ctx context.Context, c *toolCall) (toolResult, error) {
			var w share.Wish
			if err := c.read(&w); err != nil {
				return toolResult{}, err
			}
			l, err := api.Shares.Make(ctx, who, w, "")
			if err == nil {
				err = api.audit(ctx, who, share.ActionMake, l.Of())
			}
			return toolResult{value: l}, err
		},
	}
}

// sharesTool returns the tool that lists such links.
func (api *API) sharesTool(who route.Who) usableTool {
	return usableTool{
		Tool: catalog.Tool{
			Name:        "list_shares",
			Description: `List the links that you made for people who do not sign in: of what, until when, and how often they were opened.`,
			Schema:      catalog.Object(`"of":{"type":"string","description":"A caller, to which the list is limited.","maxLength":300}`),
		},
		Output: schemaFor[shareList](), Access: route.AccessRead, Hints: toolHints{ReadOnly: true, Idempotent: true},
		Call: func(ctx context.Context, c *toolCall) (toolResult, error) {
			var a struct {
				Of string `json:"of"`
			}
			if err := c.read(&a); err != nil {
				return toolResult{}, err
			}
			list, lack, err := askAll(ctx, api.lists.links, who, a.Of, func(l share.Link) time.Time { return l.Made })
			return toolResult{value: shareList{list, lack}}, err
		},
	}
}

// shareList is the result of list_shares.
type shareList struct {
	Shares []share.Link `json:"shares"`
	missing
}

// toolRevoke is the name of the tool that revokes a link.
const toolRevoke = "revoke_share"

// revokeShareTool returns the tool that revokes such a link.
func (api *API) revokeShareTool(who route.Who) usableTool {
	return usableTool{
		Tool: catalog.Tool{
			Name:        toolRevoke,
			Description: `Revoke a link of list_shares. It opens no more.`,
			Schema:      catalog.Object(`"id":{"type":"string","description":"The id of the link.","maxLength":100}`, "id"),
		},
		Output: schemaFor[share.Link](), Access: route.AccessWrite, Hints: toolHints{Idempotent: true},
		Call: func(ctx context.Context, c *toolCall) (toolResult, error) {
			var a struct {
				ID string `json:"id"`
			}
			if err := c.read(&a); err != nil {
				return toolResult{}, err
			}
			l, err := api.Shares.Revoke(ctx, who, a.ID)
			if err == nil {
				err = api.audit(ctx, who, share.ActionRevoke, l.Of())
			}
			return toolResult{value: l}, err
		},
	}
}

// audit adds an action of a person to the log of actions.
func (api *API) audit(ctx context.Context, who route.Who, action, object string) error {
	if api.Audit == nil {
		return nil
	}
	return api.Audit(ctx, who, action, object)
}
