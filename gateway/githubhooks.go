package gateway

import (
	"context"
	"errors"
	"net/http"

	"github.com/ramus-dev/ramus/gateway/github"
)

// maxHeard bounds how many webhooks are read at once: anybody may send
// [github.MaxDelivery] bytes before it is known who they are. Others wait in line.
const maxHeard = 8

// githubHooks are the ways in from GitHub. The body is checked against the
// webhook's secret, as it came, before anything in it is read.
func githubHooks() []Route {
	return []Route{{Method: "POST", Pattern: "/webhooks/github", Access: AccessHook, Body: github.MaxDelivery,
		Summary: "GitHub's webhooks: pull requests of tasks are looked at, bases follow what is pushed to them", Handle: (*call).fromGitHub}}
}

// Heard is the answer to a webhook.
type Heard struct {
	Event  string `json:"event"`
	Action string `json:"action,omitempty"`
}

func (c *call) fromGitHub() error {
	if c.Engineer == nil || c.GitHubSecret == "" {
		return problem(KindNotFound, "no GitHub webhook is configured").withHint("set github.webhook_secret_env")
	}
	d, err := c.hear()
	if errors.Is(err, github.ErrSignature) {
		return &Problem{Kind: KindUnauthorized, Detail: "the signature is refused", Hint: "github.webhook_secret_env must name the webhook's secret", cause: err}
	}
	if errors.Is(err, github.ErrDelivery) {
		return problem(KindInvalid, "cannot read what GitHub sent: %v", err)
	}
	if err != nil {
		return err
	}
	if err := c.Engineer.Deliver(c.R.Context(), d); err != nil {
		return err
	}
	c.Log.Debug("GitHub delivered", "request", c.ID, "delivery", d.ID, "event", d.Event, "action", d.Action)
	return c.replyStatus(http.StatusAccepted, Heard{Event: d.Event, Action: d.Action})
}

// hear reads a webhook.
func (c *call) hear() (github.Delivery, error) {
	select {
	case c.heard <- struct{}{}:
		defer func() { <-c.heard }()
	case <-c.R.Context().Done():
		return github.Delivery{}, context.Cause(c.R.Context())
	}
	body, err := c.rawBody()
	if err != nil {
		return github.Delivery{}, err
	}
	return github.ParseDelivery(c.R.Header, body, c.GitHubSecret)
}
