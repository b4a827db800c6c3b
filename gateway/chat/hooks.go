package chat

import (
	"log/slog"
	"net/http"
	"time"

	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gateway/slack"
)

// API serves the routes of Slack's events, buttons and commands.
type API struct {
	Chat *Chat // nil if no Slack app is configured
	Log  *slog.Logger
	Now  func() time.Time
}

// Routes returns the routes for requests from Slack. The signature of the raw body is checked with the signing secret
// before the body is parsed.
func (api *API) Routes() []route.Route {
	hook := func(pattern, summary string, parse func(c *route.Call, body []byte) (slack.Delivery, error)) route.Route {
		return route.Route{Method: "POST", Pattern: pattern, Access: route.AccessHook, Summary: summary,
			Handle: func(c *route.Call) error { return api.fromSlack(c, parse) }}
	}
	events := func(c *route.Call, body []byte) (slack.Delivery, error) {
		return slack.ParseEvent(body, api.Chat.botUser())
	}
	return []route.Route{
		hook("/slack/events", "Slack's Events API: a mention is claimed, then answered", events),
		hook("/webhooks/slack", "The same as /slack/events", events),
		hook("/slack/interactions", "Slack's buttons",
			func(_ *route.Call, body []byte) (slack.Delivery, error) { return slack.ParseInteraction(body) }),
		hook("/slack/commands", "Slack's slash command",
			func(_ *route.Call, body []byte) (slack.Delivery, error) { return slack.ParseCommand(body) }),
	}
}

func (api *API) fromSlack(c *route.Call, parse func(*route.Call, []byte) (slack.Delivery, error)) error {
	if api.Chat == nil || api.Chat.SigningSecret == "" {
		return route.NewProblem(route.KindNotFound,
			"no Slack app is configured").WithHint("set slack.token_env and slack.signing_secret_env")
	}
	body, err := c.ReadBody()
	if err != nil {
		return err
	}
	if err := slack.Verify(api.Chat.SigningSecret, c.R.Header, body, api.Now()); err != nil {
		return &route.Problem{Kind: route.KindUnauthorized, Detail: "the signature is refused: " + err.Error(),
			Hint: "slack.signing_secret_env must name the app's signing secret, and the clocks must agree", Cause: err}
	}
	d, err := parse(c, body)
	if err != nil {
		return route.NewProblem(route.KindInvalid, "cannot read what Slack sent: %v", err)
	}
	if retry := c.R.Header.Get("X-Slack-Retry-Num"); retry != "" {
		api.Log.Debug("Slack delivers again", "request", c.ID, "retry", retry, "reason",
			c.R.Header.Get("X-Slack-Retry-Reason"))
	}
	reply, err := api.Chat.Deliver(c.R.Context(), d)
	if err != nil {
		return err
	}
	if reply == nil {
		c.W.WriteHeader(http.StatusOK)
		return nil
	}
	return c.Reply(reply)
}
