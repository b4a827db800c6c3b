package chat

import (
	"context"
	"errors"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/gate"
	"github.com/ramus-dev/ramus/gateway/slack"
)

// sendToTask gives a mention in the thread of a task to the task, which treats it like a comment on its pull request.
// The gate decides about the author of the mention, because ramus itself began the thread. Returns false if the
// mention is to be handled like any other.
func (c *Chat) sendToTask(ctx context.Context, m slack.Mention) (handled bool, err error) {
	if c.Engineer == nil {
		return false, nil
	}
	t, ok := c.Engineer.TaskInThread(m.Channel, m.ThreadTS)
	if !ok {
		return false, nil
	}
	if ok, err := c.isOwnTeam(ctx, m.Team); err != nil || !ok {
		return true, c.ignoreForeign(m.Team, err)
	}
	p := c.gate().Resolve(gate.Asked{ThreadStarter: m.User, Requester: m.User, Text: m.Said(), Channel: m.Channel, Repo: t.Repo, Session: m.Session()})
	if p.Runner != gate.RunnerContainer {
		return false, nil
	}
	by := asker(m.User, "")
	words, _ := ParseWords(p.Prompt)
	if deed, does := deedOf(words.Verb); does && deed == gate.DeedRun {
		if why := c.refusal(gate.Doing{Deed: deed, Person: m.User, Starter: m.User, Repo: t.Repo, Own: true}); why != "" {
			c.whisper(slack.Action{Channel: m.Channel, ThreadTS: m.ThreadTS, User: m.User}, why)
			return true, nil
		}
	}
	switch words.Verb {
	case "stop":
		_, err = c.Engineer.Cancel(ctx, t.ID, false, by)
	case "retry":
		if _, err = c.Engineer.Retry(ctx, t.ID, by); errors.Is(err, record.ErrConflict) {
			err = nil // the mention was delivered before
		}
	case "help", "status", "log", "diff", "why", "merge":
		return false, nil
	default:
		_, err = c.Engineer.Say(ctx, t.ID, "slack:"+m.Key(), p.Prompt, by)
	}
	if errors.Is(err, record.ErrConflict) || errors.Is(err, record.ErrInvalid) {
		return false, nil // the task has ended, so the mention begins new work
	}
	if err != nil {
		return false, err
	}
	c.background(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, soon)
		defer cancel()
		if err := c.Slack.React(ctx, m.Channel, m.TS, "eyes"); err != nil && ctx.Err() == nil {
			c.Log.Warn("cannot react to a mention", "task", t.ID, "err", err)
		}
	})
	return true, nil
}
