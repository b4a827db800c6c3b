package comment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ramus-dev/ramus/executor/anchor"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/review"
	"github.com/ramus-dev/ramus/gateway/conversation"
	"github.com/ramus-dev/ramus/gateway/render"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gitd"
)

// maxBatch bounds the comments of one batch.
const maxBatch = 100

// Sending is a wish to send comments.
type Sending struct {
	// Key makes the wish idempotent for its person. Empty means that the drafts do.
	Key string `json:"key,omitempty" jsonschema:"a second batch of the person with the same key does nothing"`
	// Drafts are the ids of drafts to send. "*" means all.
	Drafts   []string `json:"drafts,omitempty" jsonschema:"the ids of drafts; * means all"`
	Comments []New    `json:"comments,omitempty"`
	Note     string   `json:"note,omitempty" jsonschema:"words before the comments"`
	// Agent and Session are those that get the prompt. Empty means the session that was used last, or the only agent.
	Agent   string `json:"agent,omitempty"`
	Session string `json:"session,omitempty" jsonschema:"the label of the session with the agent"`
	// Quiet keeps the comments without a prompt.
	Quiet bool        `json:"quiet,omitempty" jsonschema:"tell no agent"`
	By    gitd.Person `json:"by,omitzero" jsonschema:"the person, for calls by an administrator in another name"`
}

// Sent is the result of a sending.
type Sent struct {
	Batch   review.Batch `json:"batch"`
	Threads []string     `json:"threads"`
}

// Send makes a batch of comments, and says it to an agent as one prompt. All is durable when it returns. A batch that the review has is not
// made again. A batch whose prompt could not be said waits for the next attempt, and the error says so.
func (c *Comments) Send(ctx context.Context, who route.Who, w Work, s Sending) (Sent, error) {
	r, err := c.Book.Read(ctx, w.Repo, w.Caller)
	if err != nil {
		return Sent{}, err
	}
	if len(s.Key) > 200 {
		return Sent{}, route.NewProblem(route.KindInvalid, "the key has more than 200 bytes")
	}
	if b := r.Batch(batchID(who, s)); s.hasKey() && b != nil {
		return c.finish(ctx, who, w, *b)
	}
	list, err := c.chosen(ctx, who, w, r, &s)
	if err != nil {
		return Sent{}, err
	}
	b := review.Batch{ID: batchID(who, s), By: who.Person(s.By), Time: c.Now().UTC()}
	setSender(&b, who)
	if s.Note != "" {
		if b.Note, err = c.clean(s.Note); err != nil {
			return Sent{}, err
		}
	}
	if !s.Quiet {
		if b.Agent, b.Session, err = c.listener(ctx, w, s); err != nil {
			return Sent{}, err
		}
	}
	for _, d := range list {
		b.Remarks = append(b.Remarks, d.ID)
	}
	_, err = c.Book.Change(ctx, w.Repo, w.Caller, b.By, fmt.Sprintf("Comment on %s\n\nRamus-Batch: %s", render.Plural(len(list), "place"), b.ID), func(r *review.Review) error {
		if r.Batch(b.ID) != nil {
			return nil
		}
		r.Batches = append(r.Batches, b)
		return c.add(ctx, w, r, b, list)
	})
	if err != nil {
		return Sent{}, err
	}
	if err := c.dropDrafts(who, w, func(id string) bool { return slices.Contains(b.Remarks, id) }); err != nil {
		c.Log.Warn("cannot remove drafts that were sent, which are not shown", "caller", w.Caller, "err", err)
	}
	return c.finish(ctx, who, w, b)
}

// hasKey reports whether the id of the batch is known without the drafts.
func (s Sending) hasKey() bool {
	return s.Key != "" || len(s.Drafts) > 0 && !slices.Contains(s.Drafts, "*") && len(s.Comments) == 0
}

// batchID returns the id of a batch.
func batchID(who route.Who, s Sending) string {
	if s.Key != "" {
		return review.NewID("batch by key", who.Subject, s.Key)
	}
	return review.NewID(append([]string{"batch of drafts", who.Subject}, slices.Sorted(slices.Values(s.Drafts))...)...)
}

// chosen returns the comments of a sending as drafts, and names the drafts among them in s.
func (c *Comments) chosen(ctx context.Context, who route.Who, w Work, r review.Review, s *Sending) ([]Draft, error) {
	drafts, err := c.draftsOf(who, w, r)
	if err != nil {
		return nil, err
	}
	all := slices.Contains(s.Drafts, "*")
	list := slices.DeleteFunc(drafts, func(d Draft) bool { return !all && !slices.Contains(s.Drafts, d.ID) })
	s.Drafts = nil
	for _, d := range list {
		s.Drafts = append(s.Drafts, d.ID)
	}
	if len(s.Comments) > 0 && s.Key == "" {
		s.Key = record.NewToken() + record.NewToken()
	}
	for i, n := range s.Comments {
		d, err := c.draft(ctx, w, r, n, review.NewID("comment", batchID(who, *s), fmt.Sprint(i)))
		if err != nil {
			return nil, err
		}
		list = append(list, d)
	}
	switch {
	case len(list) == 0:
		return nil, route.NewProblem(route.KindInvalid, "there is no comment to send").WithHint("write one first")
	case len(list) > maxBatch:
		return nil, route.NewProblem(route.KindTooLarge, "%d comments are more than one batch has, which is %d", len(list), maxBatch)
	}
	return list, nil
}

// listener returns the agent and the session that get a batch, or none if there is no agent.
func (c *Comments) listener(ctx context.Context, w Work, s Sending) (agent, session string, err error) {
	names := c.Executor.AgentNames()
	if s.Agent != "" {
		if !slices.Contains(names, s.Agent) {
			return "", "", route.NotFound("agent", s.Agent)
		}
		return s.Agent, s.Session, nil
	}
	sessions, err := c.Talk.Sessions(ctx, w.Caller)
	if err != nil && !errors.Is(err, record.ErrNotFound) {
		return "", "", err
	}
	for _, one := range sessions {
		if slices.Contains(names, one.Agent) && (s.Session == "" || s.Session == one.Label) {
			return one.Agent, one.Label, nil
		}
	}
	switch len(names) {
	case 0:
		return "", "", nil
	case 1:
		return names[0], s.Session, nil
	}
	return "", "", route.NewProblem(route.KindInvalid, "the workspace has no session with an agent").WithHint("choose an agent")
}

// add adds the comments of a batch to a review.
func (c *Comments) add(ctx context.Context, w Work, r *review.Review, b review.Batch, list []Draft) error {
	for _, d := range list {
		m := review.Remark{ID: d.ID, Kind: review.ByPerson, By: b.By, Time: b.Time, Text: d.Text, Batch: b.ID}
		if d.Thread != "" {
			t := r.Thread(d.Thread)
			if t == nil {
				return route.NotFound("thread", d.Thread)
			}
			t.Remarks, t.Resolved = append(t.Remarks, m), nil
			continue
		}
		t, err := newThread(ctx, w.Repo, *d.Anchor, m)
		if err != nil {
			return err
		}
		r.Threads = append(r.Threads, t)
	}
	return nil
}

// newThread returns a thread that begins with a remark.
func newThread(ctx context.Context, repo *gitd.Repo, a anchor.Anchor, m review.Remark) (review.Thread, error) {
	t := review.Thread{ID: review.NewID("thread", m.ID), Anchor: a, Remarks: []review.Remark{m}}
	content, err := repo.Blob(ctx, a.Blob, anchor.MaxFile)
	if err != nil {
		return t, err
	}
	t.SetExcerpt(anchor.SplitLines(string(content)))
	return t, nil
}

// finish says the prompt of a batch that waits for it.
func (c *Comments) finish(ctx context.Context, who route.Who, w Work, b review.Batch) (Sent, error) {
	sent := Sent{Batch: b, Threads: []string{}}
	if b.Waits() {
		said, err := c.sayBatch(ctx, who, w, b)
		if err != nil {
			return sent, err
		}
		sent.Batch = said
	}
	r, err := c.Book.Read(ctx, w.Repo, w.Caller)
	for _, id := range b.Remarks {
		if t := r.Of(id); t != nil && !slices.Contains(sent.Threads, t.ID) {
			sent.Threads = append(sent.Threads, t.ID)
		}
	}
	return sent, err
}

// Again says a batch whose prompt could not be said.
func (c *Comments) Again(ctx context.Context, who route.Who, w Work, batch string) (Sent, error) {
	r, err := c.Book.Change(ctx, w.Repo, w.Caller, gitd.Person{}, "Say a batch of comments again", func(r *review.Review) error {
		b := r.Batch(batch)
		if b == nil {
			return route.NotFound("batch", batch)
		}
		if b.Refused != "" {
			setSender(b, who)
			b.Refused = ""
		}
		return nil
	})
	if err != nil {
		return Sent{}, err
	}
	return c.finish(ctx, who, w, *r.Batch(batch))
}

// sayBatch says a batch to its agent, and keeps where it went. An error that another attempt cannot change is kept too.
func (c *Comments) sayBatch(ctx context.Context, who route.Who, w Work, b review.Batch) (review.Batch, error) {
	run := c.saidBefore(ctx, w, b)
	var refused error
	if run == "" {
		text, err := c.prompt(ctx, w, b)
		if err != nil {
			return b, err
		}
		run, err = c.sayText(ctx, who, w, b, text)
		switch {
		case errors.Is(err, record.ErrInvalid), errors.Is(err, gitd.ErrTooLarge), errors.Is(err, gitd.ErrDenied):
			refused = err
		case err != nil:
			return b, route.NewProblem(route.KindUnavailable, "the comments are kept, but the agent has not got them: %v", err).
				WithHint("send them again, which says them once")
		}
	}
	return c.noteSaid(ctx, w, b, run, refused)
}

// noteSaid notes the run that has the prompt of a batch, or why none has. It returns the error refused.
func (c *Comments) noteSaid(ctx context.Context, w Work, b review.Batch, run string, refused error) (review.Batch, error) {
	r, err := c.Book.Change(ctx, w.Repo, w.Caller, gitd.Person{}, "Say a batch of comments", func(r *review.Review) error {
		if x := r.Batch(b.ID); x != nil && x.Waits() {
			x.Run = run
			if refused != nil {
				x.Refused = refused.Error()
			}
		}
		return nil
	})
	if err == nil {
		err = refused
	}
	if x := r.Batch(b.ID); x != nil {
		b = *x
	}
	return b, err
}

// sayText says the text of a batch, and returns the run that has it. The agent of a task gets it as further work of the task.
func (c *Comments) sayText(ctx context.Context, who route.Who, w Work, b review.Batch, text string) (string, error) {
	if c.Tasks != nil {
		t, err := c.Tasks.Task(ctx, w.Caller.ID())
		if err == nil && t.Caller() == w.Caller && !t.Ended() && t.AgentID != "" {
			t, err = c.Tasks.Say(ctx, t.ID, b.ID, text, b.By)
			return t.Run, err
		}
	}
	said, err := c.Talk.Say(ctx, who, conversation.Saying{Caller: w.Caller, Repo: w.Home, Agent: b.Agent, Session: b.Session,
		Prompt: record.Prompt{Key: b.ID, Text: text, By: b.By, From: "review"}})
	return said.Run, err
}

// saidBefore returns the run that has the prompt of a batch already, because only the note of that was lost.
func (c *Comments) saidBefore(ctx context.Context, w Work, b review.Batch) string {
	for _, run := range slices.Backward(c.Executor.OfCaller(w.Caller)) {
		if run.Agent == nil || run.Agent.Name != b.Agent || run.Agent.Session != b.Session {
			continue
		}
		if run.ID == conversation.RunOf(b.ID) {
			return run.Name()
		}
		if q, err := c.Executor.Queue(ctx, run.Name()); err == nil && q.Index(b.ID) >= 0 {
			return run.Name()
		}
	}
	return ""
}

// prompt returns the prompt of a batch. It follows from the review, so that it is the same after a restart.
func (c *Comments) prompt(ctx context.Context, w Work, b review.Batch) (string, error) {
	r, err := c.Book.Read(ctx, w.Repo, w.Caller)
	if err != nil {
		return "", err
	}
	p := render.LineComments{Note: b.Note, By: cmp.Or(b.By.Name, b.Who)}
	if w.Repo.Name() != w.Home {
		p.Repo = w.Repo.Name()
	}
	for _, id := range b.Remarks {
		t := r.Of(id)
		if t == nil {
			continue
		}
		m := t.Remark(id)
		a := t.Anchor
		one := render.LineComment{Thread: t.ID, Path: a.Path, From: a.From, To: a.To, Old: a.Side == anchor.Old,
			Commit: string(a.At()), First: t.First, Excerpt: t.Excerpt, By: m.By.Name, Text: m.Text}
		for _, before := range t.Remarks {
			if before.ID == id {
				break
			}
			one.Earlier = append(one.Earlier, render.Word{By: before.By.Name, Text: before.Text})
		}
		p.Comments = append(p.Comments, one)
	}
	return render.LinePrompt(p), nil
}
