package engineer

import (
	"context"
	"errors"
	"net/http"

	"github.com/ramus-dev/ramus/gateway/github"
	"github.com/ramus-dev/ramus/gateway/route"
)

// maxHeard limits how many webhooks are read at the same time, because anybody may send [github.MaxDelivery] bytes
// before the signature can be checked. Further webhooks wait.
const maxHeard = 8

// githubHooks returns the routes for requests from GitHub. The signature of the raw body is checked with the webhook's
// secret before the body is parsed.
func (api *API) githubHooks() []route.Route {
	return []route.Route{{Method: "POST", Pattern: "/webhooks/github", Access: route.AccessHook, Body: github.MaxDelivery,
		Summary: "GitHub's webhooks: ramus looks at the pull requests of tasks, and bases follow pushes", Handle: api.fromGitHub}}
}

// Heard is the answer to a webhook.
type Heard struct {
	Event  string `json:"event"`
	Action string `json:"action,omitempty"`
}

func (api *API) fromGitHub(c *route.Call) error {
	if api.Engineer == nil || api.GitHubSecret == "" {
		return route.NewProblem(route.KindNotFound, "no GitHub webhook is configured").WithHint("set github.webhook_secret_env")
	}
	d, err := api.hear(c)
	if errors.Is(err, github.ErrSignature) {
		return &route.Problem{Kind: route.KindUnauthorized, Detail: "the signature is refused", Hint: "github.webhook_secret_env must name the webhook's secret", Cause: err}
	}
	if errors.Is(err, github.ErrDelivery) {
		return route.NewProblem(route.KindInvalid, "cannot read what GitHub sent: %v", err)
	}
	if err != nil {
		return err
	}
	if err := api.Engineer.Deliver(c.R.Context(), d); err != nil {
		return err
	}
	api.Log.Debug("GitHub delivered", "request", c.ID, "delivery", d.ID, "event", d.Event, "action", d.Action)
	return c.ReplyStatus(http.StatusAccepted, Heard{Event: d.Event, Action: d.Action})
}

// hear reads a webhook and checks its signature.
func (api *API) hear(c *route.Call) (github.Delivery, error) {
	select {
	case api.heard <- struct{}{}:
		defer func() { <-api.heard }()
	case <-c.R.Context().Done():
		return github.Delivery{}, context.Cause(c.R.Context())
	}
	body, err := c.ReadBody()
	if err != nil {
		return github.Delivery{}, err
	}
	return github.ParseDelivery(c.R.Header, body, api.GitHubSecret)
}
