package engineer

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/forge"
	"github.com/ramus-dev/ramus/gateway/render"
)

// lineKey returns the key of the message for a remark.
func lineKey(remark string) string { return "line:" + remark }

// shareLines makes the comments on lines of the pull request those of the work here. It returns the messages for the remarks that the pull
// request lacks. A comment of ramus is that of the remark whose mark it has, so that nothing is posted or shown twice after a crash.
func (j *job) shareLines(ctx context.Context, t record.Task, past history, at forge.Repo, comments []forge.Comment) (events []record.Event, err error) {
	if j.engineer.Lines == nil || past.pushed == "" {
		return nil, nil
	}
	repo, err := j.engineer.Git.Repo(t.Repo)
	if err != nil {
		return nil, err
	}
	if j.reviewed != t.PRNumber {
		if err := j.engineer.Lines.First(ctx, repo, t.Caller(), t.Base, t.PRNumber, past.pushed); err != nil {
			j.engineer.Log.Warn("cannot have a pull request reviewed; it is tried again", "task", j.id, "err", err)
		} else {
			j.reviewed = t.PRNumber
		}
	}
	own := func(c forge.Comment, remark string) bool {
		return c.Bot && forge.EndsWith(c.Body, forge.Trailer("github:"+lineKey(remark)))
	}
	if err := j.engineer.Lines.Hear(ctx, repo, t.Caller(), t.PRNumber, comments, own); err != nil {
		return nil, err
	}
	if err := j.engineer.Lines.Settle(ctx, repo, t.Caller(), t.PRNumber, at); err != nil {
		// Comments go on without it, as for an App that may not resolve threads.
		j.engineer.Log.Warn("cannot make the same threads resolved here and at the forge; it is tried again", "task", j.id, "err", err)
	}
	list, err := j.engineer.Lines.Unposted(ctx, repo, t.Caller(), t.Base, past.pushed)
	for _, r := range list {
		if !past.queued["github:"+lineKey(r.ID)] {
			events = append(events, j.toForge(lineKey(r.ID), message{Kind: mailLine, Item: r.ID})...)
		}
	}
	return events, err
}

// postLine posts a remark of the work here. One on a line that the pull request does not show is posted in its conversation.
func (j *job) postLine(ctx context.Context, t record.Task, past history, at forge.Repo, m message) (where string, err error) {
	if j.engineer.Lines == nil {
		return "", fmt.Errorf("%w: there are no comments on lines any more", forge.ErrRefused)
	}
	repo, err := j.engineer.Git.Repo(t.Repo)
	if err != nil {
		return "", err
	}
	list, err := j.engineer.Lines.Unposted(ctx, repo, t.Caller(), t.Base, past.pushed)
	if err != nil {
		return "", err
	}
	for _, r := range list {
		if r.ID != m.Item {
			continue
		}
		var c forge.Comment
		able, can := at.Forge.(forge.LineCommenter)
		switch {
		case r.On.ID != 0:
			c, err = answerAt(ctx, t, at, r, m.Key)
		case can:
			c, err = able.CommentLine(ctx, at.Name, t.PRNumber, r.On, r.Body, m.Key)
		default:
			err = forge.ErrRefused
		}
		if errors.Is(err, forge.ErrRefused) || errors.Is(err, forge.ErrNotFound) {
			place := fmt.Sprintf("On %s, line %d:\n\n", render.MarkdownText(r.On.Path, 300), r.On.Line)
			c, err = at.Forge.Say(ctx, at.Name, t.PRNumber, place+r.Body, m.Key)
		}
		if err == nil {
			j.news.Store(true) // the next look notes the comment
		}
		return c.URL, err
	}
	return "", nil // a look has found it
}

// answerAt posts a remark in the thread of the comment that it answers. Returns [forge.ErrRefused] if that is in no thread on lines.
func answerAt(ctx context.Context, t record.Task, at forge.Repo, r forge.Remark, mark string) (forge.Comment, error) {
	all, err := at.Forge.Comments(ctx, at.Name, t.PRNumber)
	if err != nil {
		return forge.Comment{}, err
	}
	i := slices.IndexFunc(all, func(c forge.Comment) bool { return c.ID == r.On.ID })
	if i < 0 || all[i].Issue {
		return forge.Comment{}, fmt.Errorf("the comment %d is not on lines: %w", r.On.ID, forge.ErrRefused)
	}
	return at.Forge.Reply(ctx, at.Name, t.PRNumber, all[i], r.Body, mark)
}

// inPull returns the task of a caller that goes on and has a pull request.
func (e *Engineer) inPull(c record.Caller) (record.Task, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, t := range e.tasks {
		if t.Caller() == c && !t.Ended() && t.PRNumber != 0 {
			return t, true
		}
	}
	return record.Task{}, false
}

// LinesAt says how the comments on lines of a caller's work are those of its pull request. Returns false if it has none.
func (e *Engineer) LinesAt(c record.Caller) (forge.LinesAt, bool) {
	t, ok := e.inPull(c)
	if !ok || e.Lines == nil {
		return forge.LinesAt{}, false
	}
	_, at, ok := e.upstream(t.Repo)
	if !ok || at.Forge == nil {
		return forge.LinesAt{}, false
	}
	_, lines := at.Forge.(forge.LineCommenter)
	_, resolves := at.Forge.(forge.Resolver)
	return forge.LinesAt{Pull: t.PRNumber, URL: t.PRURL, Forge: at.Forge.Title(), Lines: lines, Resolves: resolves}, true
}
