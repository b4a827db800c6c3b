package engineer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/forge"
	"github.com/ramus-dev/ramus/gateway/render"
	"github.com/ramus-dev/ramus/gateway/retry"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gateway/slack"
	"github.com/ramus-dev/ramus/internal/text"
)

// toSlack returns the event that queues a text for the thread of the task. Returns nil if tasks have no threads.
func (j *job) toSlack(key, text string) []record.Event {
	if j.engineer.Slack == nil || j.channel() == "" {
		return nil
	}
	m := message{Key: "slack:" + key, Lane: laneSlack, Kind: mailPost, Text: text}
	if key == "received" {
		m.Kind = mailThread
	}
	return []record.Event{queued(m)}
}

// toForge returns the event that queues a change of the task's pull request.
func (j *job) toForge(key string, m message) []record.Event {
	m.Key, m.Lane = "github:"+key, laneForge
	return []record.Event{queued(m)}
}

func queued(m message) record.Event {
	return record.Event{Type: record.EventOutbox, Kind: m.Kind, Step: m.Key, Data: encode(m)}
}

// deliver posts the messages of a lane in order until ctx ends. A message is journalled as posted after it was posted.
// If the server is killed between the two, the next process searches for the message first.
func (j *job) deliver(ctx context.Context, l lane) {
	failures := 0
	for {
		next, changed, err := j.nextMessage(ctx, l)
		if err == nil && next == nil {
			select {
			case <-changed:
			case <-ctx.Done():
				return
			}
			continue
		}
		if err == nil {
			err = j.post(ctx, *next, failures)
		}
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			failures = 0
			continue
		}
		failures++
		pause := min(j.engineer.RetryEvery<<min(failures-1, 20), maxPause)
		j.engineer.Log.Error("cannot post a message of a task; ramus tries again", "task", j.id, "to", string(l),
			"pause", pause, "err", err)
		if retry.Sleep(ctx, pause) != nil {
			return
		}
	}
}

// nextMessage returns the next message of a lane. If next is nil, there is none until changed is closed.
func (j *job) nextMessage(ctx context.Context, l lane) (next *message, changed <-chan struct{}, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.load(ctx); err != nil {
		return nil, nil, err
	}
	if list := j.past.unposted(l); len(list) > 0 {
		return &list[0], j.mail, nil
	}
	return nil, j.mail, nil
}

// patience is how often a message is tried while the forge or Slack denies access to ramus. The tries take more than an
// hour. In that time a suspended App may be activated, a key replaced, or ramus invited to the channel.
const patience = 20

// lacksAccess reports whether a refusal is about the access of ramus and not about the message.
func lacksAccess(err error) bool {
	var hub *forge.RefusedError
	return errors.As(err, &hub) && hub.OfToken() || errors.Is(err, slack.ErrRefused)
}

// post posts one message and journals that. failures is the number of earlier attempts.
func (j *job) post(ctx context.Context, m message, failures int) error {
	t, past, err := j.now(ctx)
	if err != nil {
		return err
	}
	posted := record.Event{Type: record.EventPosted, Kind: m.Kind, Step: m.Key}
	var where string
	var change func(*record.Task)
	var more []record.Event
	switch m.Lane {
	case laneTicket:
		err = j.postTicket(ctx, t, m)
	case laneSlack:
		where, change, err = j.postSlack(ctx, t, m)
	default:
		where, change, more, err = j.postForge(ctx, t, past, m)
	}
	ok := err == nil
	posted.OK, posted.Message = &ok, where
	if err != nil {
		refused := errors.Is(err, forge.ErrRefused) || errors.Is(err, forge.ErrNotFound) || errors.Is(err, slack.ErrRefused)
		if ctx.Err() != nil || !route.IsLasting(err) && !refused || lacksAccess(err) && failures < patience {
			return err
		}
		// The message can never be posted. It is given up, so that the messages after it can be posted.
		j.engineer.Log.Warn("a message of a task is refused", "task", j.id, "message", m.Key, "err", err)
		posted.Message = text.Clip(err.Error(), 1000)
		if m.Kind == mailPull {
			return j.fail(ctx, record.ReasonBadInput, "no pull request can be opened: "+err.Error(), posted)
		}
	}
	if err := j.amend(ctx, change, append([]record.Event{posted}, more...)...); err != nil {
		return err
	}
	j.awake()
	return nil
}

// postSlack posts a message in the thread of the task, or begins the thread.
func (j *job) postSlack(ctx context.Context, t record.Task, m message) (where string, change func(*record.Task), err error) {
	if m.Kind != mailThread && t.SlackThreadTS == "" {
		return "", nil, fmt.Errorf("%w: the task has no thread", forge.ErrRefused)
	}
	msg := render.TaskMessage(m.Text)
	if m.Kind == mailAsk && m.Work > 0 {
		run, gate := t.Caller().String()+"/"+work{N: m.Work}.id(), record.Gate{Step: m.Item}
		if r, err := j.engineer.Executor.Run(ctx, run); err == nil && r.Gate != nil && r.Gate.Step == m.Item {
			gate = *r.Gate
		}
		msg.Blocks = append(msg.Blocks, render.AnswerButtons(run, gate)...)
	}
	msg.Channel, msg.ThreadTS, msg.Mark = j.channel(), t.SlackThreadTS, slack.Mark{Run: t.Run, Key: m.Key, Part: m.Kind}
	ts, err := j.engineer.Slack.Post(ctx, msg, true)
	if err != nil {
		return "", nil, err
	}
	if m.Kind == mailThread {
		change = func(t *record.Task) { t.SlackThreadTS = ts }
	}
	return ts, change, nil
}

// postForge makes the change of a message to the pull request.
func (j *job) postForge(ctx context.Context, t record.Task, past history, m message) (where string, change func(*record.Task), more []record.Event, err error) {
	_, at, ok := j.engineer.upstream(t.Repo)
	if !ok {
		return "", nil, nil, fmt.Errorf("%w: %s is at no forge any more", forge.ErrRefused, t.Repo)
	}
	switch m.Kind {
	case mailPull:
		if t.Ended() { // the task was cancelled while the forge was down
			return "", nil, nil, fmt.Errorf("%w: the task has ended", forge.ErrRefused)
		}
		return j.openPull(ctx, t, past, at)
	case mailLabels:
		labeler, able := at.Forge.(forge.Labeler)
		if !able {
			return "", nil, nil, fmt.Errorf("%w: %s has no labels", forge.ErrRefused, at.Forge.Title())
		}
		return "", nil, nil, labeler.AddLabels(ctx, at.Name, t.PRNumber, j.engineer.settings().Labels)
	case mailStatus:
		where, err := j.setStatus(ctx, t, at, m)
		return where, nil, nil, err
	case mailBody:
		work, err := j.manifests(ctx, t)
		if err != nil {
			return "", nil, nil, err
		}
		links, err := j.pullLinks(ctx, t, past, at)
		if err != nil {
			return "", nil, nil, err
		}
		_, body := render.Pull(t, work, links)
		p, err := at.Forge.EditPull(ctx, at.Name, t.PRNumber, "", body)
		return p.URL, nil, nil, err
	case mailReply:
		said := past.said([]string{m.Item})
		if len(said) == 0 || m.Work < 1 || m.Work > len(past.works) {
			return "", nil, nil, fmt.Errorf("%w: it answers nothing", forge.ErrRefused)
		}
		manifest, err := j.engineer.Executor.Manifest(ctx, past.works[m.Work-1].Run)
		if err != nil {
			return "", nil, nil, err
		}
		var to forge.Comment
		if c := said[0].Comment; c != nil {
			to = *c
		}
		links, err := j.pullLinks(ctx, t, past, at)
		if err != nil {
			return "", nil, nil, err
		}
		body := render.Reply(t, to, manifest, links)
		var c forge.Comment
		if to.ID != 0 {
			c, err = at.Forge.Reply(ctx, at.Name, t.PRNumber, to, body, m.Key)
		} else {
			c, err = at.Forge.Say(ctx, at.Name, t.PRNumber, body, m.Key)
		}
		return c.URL, nil, nil, err
	case mailLine:
		where, err := j.postLine(ctx, t, past, at, m)
		return where, nil, nil, err
	case mailReview:
		users := reviewers(past, m.Work)
		return strings.Join(users, ", "), nil, nil, at.Forge.RequestReview(ctx, at.Name, t.PRNumber, users)
	case mailSay, mailFailed:
		text := m.Text
		if m.Kind == mailFailed {
			text = "ramus could not finish this:\n\n" + render.Fence("text", text)
		}
		c, err := at.Forge.Say(ctx, at.Name, t.PRNumber, text, m.Key)
		return c.URL, nil, nil, err
	case mailUnbranch:
		if m.Text == "" {
			return "", nil, nil, j.unbranch(ctx, t, past, at)
		}
		return "", nil, nil, at.Forge.DeleteBranch(ctx, at.Name, m.Text)
	}
	return "", nil, nil, fmt.Errorf("%w: an unknown kind of message, %q", forge.ErrRefused, m.Kind)
}

// openPull opens the pull request of the task, or finds it.
func (j *job) openPull(ctx context.Context, t record.Task, past history, at forge.Repo) (where string, change func(*record.Task), more []record.Event, err error) {
	work, err := j.manifests(ctx, t)
	if err != nil {
		return "", nil, nil, err
	}
	links, err := j.pullLinks(ctx, t, past, at)
	if err != nil {
		return "", nil, nil, err
	}
	title, body := render.Pull(t, work, links)
	p, more, err := j.createPull(ctx, t, at, forge.NewPull{Head: t.Branch, Base: j.upstreamBase(t), Title: title,
		Body: body, Draft: j.engineer.settings().Draft})
	if err != nil {
		return "", nil, nil, err
	}
	t.PRURL, t.PRNumber = p.URL, p.Number
	if t.For.IsZero() { // the person who proposed a branch gets the address as an answer
		more = append(more, j.toSlack("raised:"+strconv.Itoa(p.Number), render.TaskRaised(t))...)
		more = append(more, j.toTicket(t, "raised:"+strconv.Itoa(p.Number), "ramus opened a pull request: "+p.URL, "")...)
	}
	if _, able := at.Forge.(forge.Labeler); able && len(j.engineer.settings().Labels) > 0 {
		more = append(more, j.toForge("labels", message{Kind: mailLabels})...)
	}
	j.news.Store(true)
	return p.URL, func(now *record.Task) {
		now.PRURL, now.PRNumber = p.URL, p.Number
		if !now.Ended() {
			now.Status = record.StateAwaitingReview
		}
	}, more, nil
}

// createPull opens a pull request in the name of the asker if possible, and otherwise in that of ramus. more has the
// message to a person whose own token the forge refuses.
func (j *job) createPull(ctx context.Context, t record.Task, at forge.Repo, n forge.NewPull) (p forge.Pull, more []record.Event, err error) {
	e := j.engineer
	own, personal := forge.Forge(nil), false
	if e.Personal != nil && t.AskerID != "" {
		own, personal = e.Personal(ctx, at.Forge, t.AskerID)
	}
	if personal {
		if p, err = own.CreatePull(ctx, at.Name, n); !errors.Is(err, forge.ErrRefused) && !errors.Is(err, forge.ErrNotFound) {
			return p, nil, err
		}
		e.Log.Warn("a forge refuses the token of a person, so ramus opens the pull request", "task", t.ID, "person",
			t.AskerID, "err", err)
		more = j.toSlack("refused:"+t.Branch, render.TaskTokenRefused(at.Forge.Title()))
	}
	p, err = at.Forge.CreatePull(ctx, at.Name, n)
	return p, more, err
}

// upstreamBase returns the name of the base at the forge.
func (j *job) upstreamBase(t record.Task) string {
	if up, _, ok := j.engineer.upstream(t.Repo); ok && up.Branch != "" {
		if repo, err := j.engineer.Git.Repo(t.Repo); err == nil {
			if base, err := repo.Base(j.engineer.ctx); err == nil && base == t.Base {
				return up.Branch
			}
		}
	}
	return t.Base
}

// manifests returns the manifests of a task's works, oldest first.
func (j *job) manifests(ctx context.Context, t record.Task) (list []record.Manifest, err error) {
	for _, run := range t.Work {
		m, err := j.engineer.Executor.Manifest(ctx, run)
		if errors.Is(err, record.ErrNotFound) || errors.Is(err, record.ErrConflict) {
			continue // the run was never begun or has not ended
		}
		if err != nil {
			return nil, err
		}
		list = append(list, m)
	}
	return list, nil
}

// reviewers returns the authors of the reviews and comments that a piece of work addresses.
func reviewers(past history, n int) []string {
	if n < 1 || n > len(past.works) {
		return nil
	}
	var users []string
	for _, i := range past.said(past.works[n-1].Keys) {
		if i.Review != nil || i.Comment != nil {
			users = append(users, i.By)
		}
	}
	slices.Sort(users)
	return slices.Compact(users)
}
