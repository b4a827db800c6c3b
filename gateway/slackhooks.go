package gateway

import (
	"io"
	"net/http"

	"github.com/ramus-dev/ramus/gateway/slack"
)

// slackHooks are the ways in from Slack. The body is checked against the
// signing secret, as it came, before anything in it is read.
func slackHooks() []Route {
	hook := func(pattern, summary string, parse func(c *call, body []byte) (slack.Delivery, error)) Route {
		return Route{Method: "POST", Pattern: pattern, Access: AccessHook, Summary: summary,
			Handle: func(c *call) error { return c.fromSlack(parse) }}
	}
	events := func(c *call, body []byte) (slack.Delivery, error) {
		return slack.ParseEvent(body, c.Chat.bot())
	}
	return []Route{
		hook("/slack/events", "Slack's Events API: a mention is claimed, then answered", events),
		hook("/webhooks/slack", "The same as /slack/events", events),
		hook("/slack/interactions", "Slack's buttons",
			func(_ *call, body []byte) (slack.Delivery, error) { return slack.ParseInteraction(body) }),
		hook("/slack/commands", "Slack's slash command",
			func(_ *call, body []byte) (slack.Delivery, error) { return slack.ParseCommand(body) }),
	}
}

func (c *call) fromSlack(parse func(*call, []byte) (slack.Delivery, error)) error {
	if c.Chat == nil || c.Chat.SigningSecret == "" {
		return problem(KindNotFound, "no Slack app is configured").withHint("set slack.token_env and slack.signing_secret_env")
	}
	body, err := c.rawBody()
	if err != nil {
		return err
	}
	if err := slack.Verify(c.Chat.SigningSecret, c.R.Header, body, c.Now()); err != nil {
		return &Problem{Kind: KindUnauthorized, Detail: "the signature is refused: " + err.Error(),
			Hint: "slack.signing_secret_env must name the app's signing secret, and the clocks must agree", cause: err}
	}
	d, err := parse(c, body)
	if err != nil {
		return problem(KindInvalid, "cannot read what Slack sent: %v", err)
	}
	if retry := c.R.Header.Get("X-Slack-Retry-Num"); retry != "" {
		c.Log.Debug("Slack delivers again", "request", c.ID, "retry", retry, "reason", c.R.Header.Get("X-Slack-Retry-Reason"))
	}
	reply, err := c.Chat.Deliver(c.R.Context(), d)
	if err != nil {
		return err
	}
	if reply == nil {
		c.W.WriteHeader(http.StatusOK)
		return nil
	}
	return c.reply(reply)
}

// rawBody reads the request's body as it came.
func (c *call) rawBody() ([]byte, error) {
	defer c.hurry()()
	body, err := io.ReadAll(c.R.Body)
	if err != nil {
		return nil, badJSON(err)
	}
	return body, nil
}
