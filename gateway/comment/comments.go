package comment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/anchor"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/review"
	"github.com/ramus-dev/ramus/executor/settings"
	"github.com/ramus-dev/ramus/gateway/changes"
	"github.com/ramus-dev/ramus/gateway/conversation"
	"github.com/ramus-dev/ramus/gateway/forge"
	"github.com/ramus-dev/ramus/gateway/lookup"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/redact"
	"github.com/ramus-dev/ramus/internal/text"
)

// Executor is the part of the executor that comments need.
type Executor interface {
	AgentNames() []string
	OfCaller(c record.Caller) []record.Run
	Run(ctx context.Context, name string) (record.Run, error)
	Queue(ctx context.Context, run string) (record.Queue, error)
	Edit(ctx context.Context, e executor.Edit) (gitd.Hash, error)
	Submit(ctx context.Context, r record.Request) (record.Run, error)
	SettingsOf(ctx context.Context, repo, base string) (settings.Settings, error)
}

// Tasks are the tasks of the engineer.
type Tasks interface {
	Task(ctx context.Context, id string) (record.Task, error)
	Say(ctx context.Context, id, key, text string, by gitd.Person) (record.Task, error)
	LinesChanged(c record.Caller)
	LinesAt(c record.Caller) (forge.LinesAt, bool)
}

// NewComments returns the comments of an executor, without drafts.
func NewComments(x Executor, talk *conversation.Talk, find *lookup.Lookup, bot gitd.Person, now func() time.Time) *Comments {
	c := &Comments{Executor: x, Git: find.Git, Find: find, Talk: talk, Now: now, Log: slog.New(slog.DiscardHandler)}
	c.Book = &review.Book{Bot: bot, Now: now, Changed: func(_ string, caller record.Caller) {
		if c.Tasks != nil {
			c.Tasks.LinesChanged(caller)
		}
		if tell := c.onChange.Load(); tell != nil {
			(*tell)(caller)
		}
	}}
	return c
}

// Comments has the threads of workspaces. Its exported fields are its options, which may be changed until the first call. All methods are safe
// for concurrent use.
type Comments struct {
	Executor Executor
	Git      *gitd.Server
	Find     *lookup.Lookup
	Talk     *conversation.Talk
	Book     *review.Book
	// Drafts keeps drafts. Nil means that nobody can write one.
	Drafts *Drafts
	// Tasks are those of the engineer, which get comments on their work as further work. Nil means that there are none.
	Tasks Tasks
	// Private reports whether the work of a caller is private. Nil means that no work is.
	Private func(c record.Caller) bool
	// Account returns the person of an account as it is now. Returns [gitd.ErrDenied] if the account is gone or has no role. Nil means that
	// there are no accounts.
	Account func(id string) (route.Who, error)
	// Veil hides the work of other people, see [route.Mux.Veil]. Nil hides nothing.
	Veil func(g gitd.Grant, repo string) gitd.Veil
	// Secrets are removed from texts. Nil means none.
	Secrets *redact.Secrets
	Log     *slog.Logger
	Now     func() time.Time

	follower anchor.Follower
	onChange atomic.Pointer[func(record.Caller)]

	leaving sync.Mutex     // guards left
	left    map[string]int // the attempts to hear a comment of a pull request, see isLeft
}

// OnChange has tell called after each change of the threads of a caller. It takes the place of an earlier one.
func (c *Comments) OnChange(tell func(record.Caller)) { c.onChange.Store(&tell) }

// Work is the subject of comments. It is the work of a caller in one of its repositories, between two commits.
type Work struct {
	Caller record.Caller
	Repo   *gitd.Repo
	Home   string // the repository of the caller
	Branch string
	anchor.Ends
}

// Of returns the work of a caller that a window shows. Returns an error if who may not see it.
func (c *Comments) Of(ctx context.Context, who route.Who, st executor.CallerStatus, w changes.Window) (Work, error) {
	r, from, to, err := changes.Ends(ctx, c.Find, who, st, w)
	return Work{Caller: st.Caller, Repo: r, Home: st.Repo, Branch: st.Branch, Ends: anchor.Ends{Base: from, Commit: to}}, err
}

// draftPlace returns the place of drafts about the work.
func (w Work) draftPlace() string { return w.Repo.Name() + " " + w.Caller.Slug() }

// Thread is a thread with its place in the work, and its state.
type Thread struct {
	review.Thread
	State review.State `json:"state"`
	Place anchor.Place `json:"place"`
	// Untouched is set if an agent has had the thread, its turn is over, and it neither changed the lines nor answered.
	Untouched bool `json:"untouched,omitempty"`
	// Waits is set while no agent has heard the last remark of a person that is for one.
	Waits bool `json:"waits,omitempty"`
}

// View has the threads of a work, and the drafts of the person who looks.
type View struct {
	Caller  record.Caller  `json:"caller"`
	Repo    string         `json:"repo"`
	Base    gitd.Hash      `json:"base"`
	Commit  gitd.Hash      `json:"commit"`
	Open    int            `json:"open"` // threads
	Threads []Thread       `json:"threads"`
	Drafts  []Draft        `json:"drafts"`
	Batches []review.Batch `json:"batches"`
	// At is the pull request with the same comments. Nil means that there is none.
	At *forge.LinesAt `json:"pull_request,omitempty"`
}

// Read returns the threads of a work, and the drafts of who.
func (c *Comments) Read(ctx context.Context, who route.Who, w Work) (View, error) {
	r, err := c.Book.Read(ctx, w.Repo, w.Caller)
	if err != nil {
		return View{}, err
	}
	v := View{Caller: w.Caller, Repo: w.Repo.Name(), Base: w.Base, Commit: w.Commit, Threads: []Thread{}, Drafts: []Draft{},
		Batches: append([]review.Batch{}, r.Batches...)}
	if c.Tasks != nil && w.Repo.Name() == w.Home {
		if at, ok := c.Tasks.LinesAt(w.Caller); ok {
			v.At = &at
		}
	}
	heard := c.heardIn(ctx, r)
	for _, t := range r.Threads {
		p, err := c.follower.Find(ctx, w.Repo, t.Anchor, w.Ends)
		if errors.Is(err, gitd.ErrNotFound) {
			p, err = anchor.Place{State: anchor.Gone}, nil
		}
		if err != nil {
			return View{}, err
		}
		one := Thread{Thread: t, Place: p, State: t.StateAt(p)}
		if one.State != review.Resolved {
			v.Open++
		}
		if b := r.Batch(t.Remarks[len(t.Remarks)-1].Batch); b != nil && b.Agent != "" {
			one.Waits = b.Waits() || heard[b.ID] == waiting
			one.Untouched = one.State == review.Sent && heard[b.ID] == over
		}
		v.Threads = append(v.Threads, one)
	}
	drafts, err := c.draftsOf(who, w, r)
	v.Drafts = append(v.Drafts, drafts...)
	return v, err
}

// PlaceOf returns the place of an anchor in a work.
func (c *Comments) PlaceOf(ctx context.Context, w Work, a anchor.Anchor) (anchor.Place, error) {
	return c.follower.Find(ctx, w.Repo, a, w.Ends)
}

// draftsOf returns the drafts of who that the review does not have.
func (c *Comments) draftsOf(who route.Who, w Work, r review.Review) ([]Draft, error) {
	if c.Drafts == nil {
		return nil, nil
	}
	list, err := c.Drafts.Of(who.Subject, w.draftPlace())
	return slices.DeleteFunc(list, func(d Draft) bool { return r.Of(d.ID) != nil }), err
}

// The progress of a batch with its agent.
const (
	waiting = iota + 1 // the agent has not got it
	working            // the agent has it, and its turn goes on
	over               // the turn of the agent is over
)

// heardIn returns the progress of the last batches of a review.
func (c *Comments) heardIn(ctx context.Context, r review.Review) map[string]int {
	last := map[string]bool{} // batches that have the last remark of a thread
	for _, t := range r.Threads {
		last[t.Remarks[len(t.Remarks)-1].Batch] = true
	}
	heard := map[string]int{}
	for _, b := range r.Batches {
		if b.Run == "" || !last[b.ID] {
			continue
		}
		run, err := c.Executor.Run(ctx, b.Run)
		if err != nil || run.Agent == nil {
			continue // a task, which begins further runs
		}
		key := b.ID
		if run.ID == conversation.RunOf(key) {
			key = record.FirstPrompt
		}
		heard[b.ID] = working
		switch q, err := c.Executor.Queue(ctx, run.Name()); {
		case run.Ended():
			heard[b.ID] = over
		case err == nil && q.Index(key) >= q.Heard:
			heard[b.ID] = waiting
		case !c.Talk.Prompts.InTurn(run):
			heard[b.ID] = over
		}
	}
	return heard
}

// New is a new comment.
type New struct {
	// Thread is the thread of an answer. It is empty for a comment on lines.
	Thread string `json:"thread,omitempty" jsonschema:"the thread that it answers in; empty for a comment on lines"`
	Path   string `json:"path,omitempty" jsonschema:"the file"`
	Side   string `json:"side,omitempty" jsonschema:"new, the file as it is, or old, as it was; new if empty"`
	Line   int    `json:"line,omitempty" jsonschema:"the first line, from 1"`
	To     int    `json:"to,omitempty" jsonschema:"the last line; the first one if 0"`
	Text   string `json:"text" jsonschema:"a block that begins with three backticks and the word suggestion has lines that take the place of these"`
}

// draft checks a new comment. r is the review of the work.
func (c *Comments) draft(ctx context.Context, w Work, r review.Review, n New, id string) (Draft, error) {
	d := Draft{ID: id, Thread: n.Thread, Time: c.Now().UTC()}
	var err error
	if d.Text, err = c.clean(n.Text); err != nil {
		return d, err
	}
	if n.Thread != "" {
		if r.Thread(n.Thread) == nil {
			return d, route.NotFound("thread", n.Thread)
		}
		return d, nil
	}
	if n.Side != "" && n.Side != anchor.New && n.Side != anchor.Old {
		return d, route.NewProblem(route.KindInvalid, "the side %.40q is not new and not old", n.Side)
	}
	a, _, err := anchor.Make(ctx, w.Repo, w.Ends, n.Side, n.Path, n.Line, n.To)
	switch {
	case errors.Is(err, anchor.ErrLines), errors.Is(err, gitd.ErrTooLarge):
		return d, route.NewProblem(route.KindInvalid, "cannot comment on %.200q: %v", n.Path, err)
	case errors.Is(err, gitd.ErrNotFound):
		return d, route.NotFound("file", n.Path)
	case err != nil:
		return d, err
	}
	d.Anchor = &a
	return d, nil
}

// clean returns a text as it is kept.
func (c *Comments) clean(words string) (string, error) {
	words = strings.Trim(strings.ToValidUTF8(strings.ReplaceAll(words, "\r\n", "\n"), "\uFFFD"), "\n")
	words = c.Secrets.String(words)
	switch {
	case strings.TrimSpace(words) == "":
		return "", route.NewProblem(route.KindInvalid, "the comment has no text")
	case len(words) > review.MaxText:
		return "", route.NewProblem(route.KindTooLarge, "the comment has more than %d bytes", review.MaxText)
	}
	return words, nil
}

// PutDraft keeps a new draft of who, or the text of one of who's drafts.
func (c *Comments) PutDraft(ctx context.Context, who route.Who, w Work, n New, id string) (Draft, error) {
	if c.Drafts == nil {
		return Draft{}, errNoDrafts()
	}
	r, err := c.Book.Read(ctx, w.Repo, w.Caller)
	if err != nil {
		return Draft{}, err
	}
	var d Draft
	if id == "" {
		if d, err = c.draft(ctx, w, r, n, review.NewID(record.NewToken(), record.NewToken())); err != nil {
			return d, err
		}
	}
	err = c.Drafts.Change(who.Subject, w.draftPlace(), func(list []Draft) ([]Draft, error) {
		if id == "" {
			return append(list, d), nil
		}
		i := slices.IndexFunc(list, func(d Draft) bool { return d.ID == id })
		if i < 0 {
			return nil, route.NotFound("draft", id)
		}
		if list[i].Text, err = c.clean(n.Text); err != nil {
			return nil, err
		}
		list[i].Time = c.Now().UTC()
		d = list[i]
		return list, nil
	})
	if errors.Is(err, errDrafts) {
		err = route.NewProblem(route.KindTooLarge, "there are %d drafts, which is the most", MaxDrafts).WithHint("send some of them")
	}
	return d, err
}

func errNoDrafts() error {
	return route.NewProblem(route.KindConflict, "this server keeps no drafts").WithHint("send the comment at once")
}

// DropDraft removes a draft of who.
func (c *Comments) DropDraft(who route.Who, w Work, id string) error {
	return c.dropDrafts(who, w, func(d string) bool { return d == id })
}

func (c *Comments) dropDrafts(who route.Who, w Work, drop func(id string) bool) error {
	if c.Drafts == nil {
		return nil
	}
	return c.Drafts.Change(who.Subject, w.draftPlace(), func(list []Draft) ([]Draft, error) {
		return slices.DeleteFunc(list, func(d Draft) bool { return drop(d.ID) }), nil
	})
}

// Answer adds a remark of an agent, or of a person who sends it without a batch, to a thread. A second one with the same id does nothing.
func (c *Comments) Answer(ctx context.Context, w Work, thread string, m review.Remark) (review.Thread, error) {
	var err error
	if m.Text, err = c.clean(m.Text); err != nil {
		return review.Thread{}, err
	}
	m.Time = c.Now().UTC()
	m.ID = cmp.Or(m.ID, review.NewID(record.NewToken(), record.NewToken()))
	return c.changeThread(ctx, w, thread, m.By, "Answer a comment", func(t *review.Thread) error {
		if t.Remark(m.ID) == nil {
			t.Remarks = append(t.Remarks, m)
		}
		return nil
	})
}

// Resolve closes a thread, or opens it again. unworthy says that its finding is not worth saying in the repository again.
func (c *Comments) Resolve(ctx context.Context, w Work, thread string, by gitd.Person, resolved, unworthy bool) (review.Thread, error) {
	subject := "Open a thread again"
	if resolved {
		subject = "Resolve a thread"
	}
	return c.changeThread(ctx, w, thread, by, subject, func(t *review.Thread) error {
		switch {
		case !resolved:
			t.Resolved = nil
		case t.Resolved == nil || unworthy && !t.Resolved.Unworthy:
			t.Resolved = &review.Resolution{By: by, Time: c.Now().UTC(), Unworthy: unworthy}
		}
		return nil
	})
}

// changeThread changes one thread of the review of a work.
func (c *Comments) changeThread(ctx context.Context, w Work, id string, by gitd.Person, subject string, change func(*review.Thread) error) (review.Thread, error) {
	r, err := c.Book.Change(ctx, w.Repo, w.Caller, by, subject, func(r *review.Review) error {
		t := r.Thread(id)
		if t == nil {
			return route.NotFound("thread", id)
		}
		return change(t)
	})
	if err != nil {
		return review.Thread{}, err
	}
	return *r.Thread(id), nil
}

// Take makes a suggestion a commit by a person, without an agent. n is the number of the suggestion in the remark, from 0. Returns a problem
// if the lines that it replaces are others now.
func (c *Comments) Take(ctx context.Context, w Work, thread, remark string, n int, by gitd.Person) (gitd.Hash, error) {
	r, err := c.Book.Read(ctx, w.Repo, w.Caller)
	if err != nil {
		return "", err
	}
	t := r.Thread(thread)
	if t == nil || t.Remark(remark) == nil {
		return "", route.NotFound("comment", remark)
	}
	m := t.Remark(remark)
	list := review.Suggestions(m.Text)
	switch {
	case n < 0 || n >= len(list):
		return "", route.NotFound("suggestion", fmt.Sprint(n))
	case m.Taken != "":
		return "", errTaken(m.Taken)
	case t.Anchor.Side == anchor.Old:
		return "", route.NewProblem(route.KindConflict, "the comment is about lines as they were, which nothing can replace")
	case w.Repo.Name() != w.Home:
		return "", route.NewProblem(route.KindConflict, "suggestions can be taken in the repository %s of the workspace only", w.Home)
	}
	made, err := c.Executor.Edit(ctx, executor.Edit{Caller: w.Caller, By: by, Trailer: record.TrailerRemark + ": " + remark,
		Message: "Take a suggestion on " + oneLine(t.Anchor.Path) + "\n\nBy " + oneLine(m.By.Name) + ", about line " + fmt.Sprint(t.Anchor.From) + ".",
		Change: func(ctx context.Context, repo *gitd.Repo, tip gitd.Hash) ([]gitd.File, error) {
			before, err := takenBy(ctx, repo, t.Anchor, string(tip), remark)
			switch {
			case err != nil:
				return nil, err
			case before.Hash != "": // the note of that is missing
				return nil, errors.Join(c.noteTaken(ctx, w, thread, remark, before.Hash, before.Author), errTaken(before.Hash))
			}
			return c.replace(ctx, repo, t.Anchor, anchor.Ends{Base: w.Base, Commit: tip}, list[n])
		}})
	if made == "" {
		return "", err
	}
	if err != nil {
		c.Log.Warn("an open terminal lacks a suggestion that was taken, until its next command", "caller", w.Caller, "err", err)
	}
	return made, c.noteTaken(ctx, w, thread, remark, made, by)
}

func errTaken(by gitd.Hash) error {
	return route.NewProblem(route.KindConflict, "the suggestion is taken already, by commit %s", short(string(by)))
}

// noteTaken notes the commit that a suggestion became, which resolves its thread.
func (c *Comments) noteTaken(ctx context.Context, w Work, thread, remark string, made gitd.Hash, by gitd.Person) error {
	_, err := c.changeThread(ctx, w, thread, by, "Take a suggestion", func(t *review.Thread) error {
		m := t.Remark(remark)
		if m == nil || m.Taken != "" {
			return nil
		}
		m.Taken = made
		t.Resolved = &review.Resolution{By: by, Time: c.Now().UTC()}
		return nil
	})
	return err
}

// maxTakenIn bounds the commits that are searched for a suggestion that was taken.
const maxTakenIn = 1000

// takenBy returns the commit of a branch that a suggestion became, as its trailer says. It has no hash if there is none.
func takenBy(ctx context.Context, repo *gitd.Repo, a anchor.Anchor, branch, remark string) (gitd.Commit, error) {
	list, err := repo.Log(ctx, branch, gitd.LogOptions{Not: string(a.Commit), First: true, Max: maxTakenIn})
	if err != nil {
		return gitd.Commit{}, err
	}
	for _, commit := range list {
		if commit.Trailer(record.TrailerRemark) == remark {
			return commit, nil
		}
	}
	return gitd.Commit{}, nil
}

// noteAllTaken notes the suggestions that became commits before a process ended and could not note that.
func (c *Comments) noteAllTaken(ctx context.Context, w Work, r review.Review) error {
	for _, t := range r.Threads {
		for _, m := range t.Remarks {
			if m.Taken != "" || t.Anchor.Side == anchor.Old || len(review.Suggestions(m.Text)) == 0 {
				continue
			}
			made, err := takenBy(ctx, w.Repo, t.Anchor, "refs/heads/"+w.Branch, m.ID)
			if errors.Is(err, gitd.ErrNotFound) {
				continue // the branch was deleted
			}
			if err == nil && made.Hash != "" {
				err = c.noteTaken(ctx, w, t.ID, m.ID, made.Hash, made.Author)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// replace returns the file of an anchor with other lines in place of its own.
func (c *Comments) replace(ctx context.Context, repo *gitd.Repo, a anchor.Anchor, at anchor.Ends, with []string) ([]gitd.File, error) {
	p, err := c.follower.Find(ctx, repo, a, at)
	if err != nil {
		return nil, err
	}
	if !p.Fits() {
		where := ""
		if p.In != "" {
			where = " in commit " + short(p.In)
		}
		return nil, route.NewProblem(route.KindConflict, "the lines that the suggestion replaces, or those around them, were changed%s, so it does not fit any more", where).
			WithHint("ask the agent for it, or make a new suggestion for the lines as they are")
	}
	entry, err := repo.Entry(ctx, string(at.Commit), p.Path)
	if err != nil {
		return nil, err
	}
	content, err := repo.Blob(ctx, entry.Hash, anchor.MaxFile)
	if err != nil {
		return nil, err
	}
	lines := anchor.SplitLines(string(content))
	if p.From >= 1 && p.From <= len(lines) && strings.HasSuffix(lines[p.From-1], "\r") {
		with = slices.Clone(with)
		for i := range with {
			with[i] += "\r"
		}
	}
	if lines, err = review.Apply(lines, p, with); err != nil {
		return nil, err
	}
	made := strings.Join(lines, "\n")
	if len(lines) > 0 && strings.HasSuffix(string(content), "\n") {
		made += "\n"
	}
	var mode uint32
	if _, err := fmt.Sscanf(entry.Mode, "%o", &mode); err != nil {
		return nil, err
	}
	return []gitd.File{{Path: p.Path, Mode: mode, Content: []byte(made)}}, nil
}

func short(hash string) string { return hash[:min(len(hash), 10)] }

// oneLine returns a text for the message of a commit.
func oneLine(s string) string { return text.OneLine(text.Visible(s), 200) }
