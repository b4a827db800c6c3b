package chat

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/gate"
	"github.com/ramus-dev/ramus/gateway/slack"
	"github.com/ramus-dev/ramus/gitd"
)

// sendToTask gives a mention in the thread of a task to the task, which treats it like a comment on its pull request.
// The gate decides about the author of the mention, because ramus itself began the thread. Returns false if the
// mention is to be handled like any other.
func (c *Chat) sendToTask(ctx context.Context, m slack.Mention) (handled bool, err error) {
	if c.Engineer == nil {
		return false, nil
	}
	t, ok := c.Engineer.TaskInThread(m.Channel, m.ThreadTS)
	if !ok || !t.For.IsZero() { // a thread whose branch was proposed is a thread like others
		return false, nil
	}
	if ok, err := c.isOwnTeam(ctx, m.Team); err != nil || !ok {
		return true, c.ignoreForeign(m.Team, err)
	}
	p := c.gate().Resolve(gate.Asked{ThreadStarter: m.User, Requester: m.User, Text: m.Said(), Channel: m.Channel,
		Repo: t.Repo, Session: m.Session()})
	if p.Runner != gate.RunnerContainer {
		return false, nil
	}
	by, err := c.person(ctx, m.User, "")
	if err != nil {
		return true, err
	}
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

// sayToPull gives plain words to the task that follows the pull request of the thread's branch, so that its agent
// addresses them and the pull request has the result. Returns nil if there is no such pull request. An agent of the
// thread at work gets the words itself. So do words with files, which a task does not take.
func (s *worker) sayToPull(ctx context.Context, run record.Run, m slack.Mention, thread slack.Thread, text string, by gitd.Person) (*record.Run, error) {
	withFiles := slices.ContainsFunc(append(thread.Replies, thread.Parent),
		func(p slack.Post) bool { return p.TS == m.TS && len(p.Files) > 0 })
	if s.chat.Engineer == nil || withFiles || len(s.listAgents(run)) > 0 {
		return nil, nil
	}
	t, open := s.chat.Engineer.TaskOf(s.caller)
	if !open || t.For.IsZero() || t.PRNumber == 0 || t.AgentID == "" {
		return nil, nil
	}
	_, err := s.chat.Engineer.Say(ctx, t.ID, "slack:"+m.Key(), text, by)
	if errors.Is(err, record.ErrConflict) || errors.Is(err, record.ErrInvalid) {
		return nil, nil // it has ended, so the words begin new work
	}
	if err != nil {
		return nil, err
	}
	return s.endWithText(ctx, run,
		fmt.Sprintf("Handed on: the agent of pull request #%d addresses it, and pushes the result there.", t.PRNumber), "")
}

// proposes reports whether pull requests can be opened for a repository.
func (c *Chat) proposes(repo string) bool {
	if c.Engineer == nil {
		return false
	}
	_, ok := c.Engineer.Writer(repo)
	return ok
}
