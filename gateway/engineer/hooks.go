package engineer

import (
	"context"
	"errors"
	"net/http"

	"github.com/ramus-dev/ramus/gateway/forge"
	"github.com/ramus-dev/ramus/gateway/route"
)

// maxHeard limits how many webhooks are read at the same time, because anybody may send [forge.MaxDelivery] bytes
// before the signature can be checked. Further webhooks wait.
const maxHeard = 8

// Hook accepts the webhooks of a forge. The zero value accepts none.
type Hook struct {
	// Forge is asked for the current state of an object that a delivery names.
	Forge forge.Forge
	// Parse checks that the forge sent the raw body, and reads it. The errors are [forge.ErrSignature] and
	// [forge.ErrDelivery].
	Parse func(http.Header, []byte) (forge.Delivery, error)
}

// hookNames are the forges with a route for webhooks. A name is a section of the configuration and the end of a path.
var hookNames = []struct{ name, title string }{{"github", "GitHub"}, {"gitlab", "GitLab"}, {"gitea", "Gitea"},
	{"bitbucket", "Bitbucket"}}

// hookRoutes returns the routes for requests from forges. The sender of the raw body is checked before the body is
// parsed.
func (api *API) hookRoutes() []route.Route {
	var rows []route.Route
	for _, h := range hookNames {
		rows = append(rows, route.Route{Method: "POST", Pattern: "/webhooks/" + h.name, Access: route.AccessHook,
			Body:    forge.MaxDelivery,
			Summary: h.title + "'s webhooks: ramus looks at the pull requests of tasks, and bases follow pushes, triggers start work",
			Handle:  func(c *route.Call) error { return api.fromForge(c, h.name, h.title) }})
	}
	return rows
}

// Heard is the answer to a webhook.
type Heard struct {
	Event  string `json:"event"`
	Action string `json:"action,omitempty"`
}

func (api *API) fromForge(c *route.Call, name, title string) error {
	hook := api.Hooks[name]
	if api.Engineer == nil || hook.Parse == nil {
		return route.NewProblem(route.KindNotFound, "no %s webhook is configured",
			title).WithHint("set " + name + ".webhook_secret_env")
	}
	d, err := api.hear(c, hook)
	if errors.Is(err, forge.ErrSignature) {
		return &route.Problem{Kind: route.KindUnauthorized, Detail: "the signature is refused",
			Hint: name + ".webhook_secret_env must name the webhook's secret", Cause: err}
	}
	if errors.Is(err, forge.ErrDelivery) {
		return route.NewProblem(route.KindInvalid, "cannot read the webhook of %s: %v", title, err)
	}
	if err != nil {
		return err
	}
	if api.Triggers != nil {
		if err := api.Triggers.Deliver(c.R.Context(), hook.Forge, d); err != nil {
			return err
		}
	}
	if err := api.Engineer.Deliver(c.R.Context(), hook.Forge, d); err != nil {
		return err
	}
	api.Log.Debug("a forge delivered", "request", c.ID, "forge", name, "delivery", d.ID, "event", d.Event,
		"action", d.Action)
	return c.ReplyStatus(http.StatusAccepted, Heard{Event: d.Event, Action: d.Action})
}

// hear reads a webhook and checks its sender.
func (api *API) hear(c *route.Call, hook Hook) (forge.Delivery, error) {
	select {
	case api.heard <- struct{}{}:
		defer func() { <-api.heard }()
	case <-c.R.Context().Done():
		return forge.Delivery{}, context.Cause(c.R.Context())
	}
	body, err := c.ReadBody()
	if err != nil {
		return forge.Delivery{}, err
	}
	return hook.Parse(c.R.Header, body)
}
