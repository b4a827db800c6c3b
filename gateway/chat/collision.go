package chat

import (
	"context"
	"errors"
	"strings"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/collision"
	"github.com/ramus-dev/ramus/gateway/render"
	"github.com/ramus-dev/ramus/gateway/slack"
)

// partCollision is the part of a message about branches that do not merge.
const partCollision = "collision"

// PlacesOf returns the thread of a caller as its only place. See [collision.Places].
func (c *Chat) PlacesOf(of record.Caller) []string {
	if _, _, ok := c.threadOf(of); !ok {
		return nil
	}
	return []string{collision.Thread}
}

// threadOf returns the channel and the thread in which people work with a caller. Returns false if there is none.
func (c *Chat) threadOf(of record.Caller) (channel, thread string, ok bool) {
	if of.Kind() != "conv" {
		return "", "", false
	}
	for _, r := range c.Executor.OfCaller(of) {
		if r.Origin == nil || r.Origin.Source != slackSource {
			continue
		}
		// "slack:{team}:{channel}:{thread_ts}"
		if parts := strings.Split(r.Origin.Session, ":"); len(parts) == 4 {
			return parts[2], parts[3], true
		}
	}
	return "", "", false
}

// Tell posts a message in the thread of a caller, unless it is there already. See [collision.Places].
func (c *Chat) Tell(ctx context.Context, of record.Caller, _ string, n collision.News) error {
	channel, thread, ok := c.threadOf(of)
	if !ok {
		return nil
	}
	m := render.TaskMessage(n.Slack)
	m.Channel, m.ThreadTS, m.Mark = channel, thread, slack.Mark{Run: of.String(), Key: n.Key, Part: partCollision}
	_, err := c.Slack.Post(ctx, m, true)
	var refused *slack.RefusedError
	if errors.As(err, &refused) && !refused.OfApp() {
		c.Log.Warn("a thread is not told which branches do not merge", "caller", of.String(), "err", err)
		return nil
	}
	return err
}
