package engineer

import (
	"context"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/collision"
)

// PlacesOf returns the places of the task of a caller: its own thread, and its pull request once there is one. See
// [collision.Places].
func (e *Engineer) PlacesOf(c record.Caller) (names []string) {
	t, open := e.TaskOf(c)
	if !open {
		return nil
	}
	if e.Slack != nil && t.For.IsZero() && t.SlackThreadTS != "" {
		names = append(names, collision.Task) // the thread of a proposed branch is that of its caller
	}
	if t.PRNumber != 0 {
		names = append(names, collision.Pull)
	}
	return names
}

// Tell queues a message for a place of a caller's task. It is durable when Tell returns. See [collision.Places].
func (e *Engineer) Tell(ctx context.Context, c record.Caller, place string, n collision.News) error {
	t, open := e.TaskOf(c)
	if !open {
		return nil
	}
	_, err := e.command(ctx, t.ID, "tell", func(ctx context.Context, j *job) error {
		events := j.toSlack(n.Key, n.Slack)
		if place == collision.Pull {
			events = j.toForge(n.Key, message{Kind: mailSay, Text: n.Markdown})
		}
		_, past, err := j.now(ctx)
		if err != nil || len(events) == 0 || past.queued[events[0].Step] {
			return err
		}
		return j.amendOpen(ctx, nil, events...)
	})
	return err
}
