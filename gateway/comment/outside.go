package comment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ramus-dev/ramus/executor/anchor"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/review"
	"github.com/ramus-dev/ramus/gateway/forge"
	"github.com/ramus-dev/ramus/gateway/render"
	"github.com/ramus-dev/ramus/gitd"
)

// Hear adds the comments of a pull request to the threads of a caller. One that cannot be in a thread, such as a comment on lines of a commit
// that is not here, is tried ten times, and then logged and
// left out until the next start.
// It is a method of engineer.Lines.
func (c *Comments) Hear(ctx context.Context, repo *gitd.Repo, caller record.Caller, pull int, comments []forge.Comment, own func(forge.Comment, string) bool) error {
	r, err := c.Book.Read(ctx, repo, caller)
	if err != nil {
		return err
	}
	known := map[int64]bool{}
	for _, t := range r.Threads {
		for _, m := range t.Remarks {
			known[m.Outside] = true
		}
	}
	place := fmt.Sprintf("%s %s %d ", repo.Name(), caller, pull)
	comments = slices.DeleteFunc(slices.Clone(comments), func(x forge.Comment) bool {
		return x.Issue && !x.Bot || known[x.ID] || c.isLeft(place, x.ID)
	})
	if len(comments) == 0 {
		return nil
	}
	left := map[int64]string{}
	_, err = c.Book.Change(ctx, repo, caller, gitd.Person{}, fmt.Sprintf("Hear comments of pull request %d", pull), func(r *review.Review) error {
		clear(left) // it may be called again
		for _, x := range comments {
			if c.note(r, x, pull, own) || x.Issue {
				continue
			}
			why, err := c.hear(ctx, repo, r, x, pull)
			if err != nil {
				return err
			}
			if why != "" {
				left[x.ID] = why
			}
		}
		return nil
	})
	for id, why := range left {
		if err == nil && c.leave(place, id) {
			c.Log.Warn("a comment of a pull request is in no thread", "repo", repo.Name(), "caller", caller, "pull", pull, "comment", id, "why", why)
		}
	}
	return err
}

// Bounds of comments of pull requests that cannot be in a thread.
const (
	maxTries = 10     // each; its commit may come later
	maxLeft  = 10_000 // that are remembered
)

// isLeft reports whether a comment of a pull request is left out until the next start.
func (c *Comments) isLeft(place string, id int64) bool {
	c.leaving.Lock()
	defer c.leaving.Unlock()
	return c.left[place+fmt.Sprint(id)] >= maxTries
}

// leave notes a further attempt to hear a comment, and reports whether it was the last one.
func (c *Comments) leave(place string, id int64) bool {
	c.leaving.Lock()
	defer c.leaving.Unlock()
	if c.left == nil || len(c.left) >= maxLeft {
		c.left = map[string]int{}
	}
	key := place + fmt.Sprint(id)
	c.left[key]++
	return c.left[key] == maxTries
}

// note notes that a comment of ramus is that of a remark.
func (c *Comments) note(r *review.Review, x forge.Comment, pull int, own func(forge.Comment, string) bool) bool {
	for i := range r.Threads {
		t := &r.Threads[i]
		for k := range t.Remarks {
			if m := &t.Remarks[k]; m.Outside == 0 && own(x, m.ID) {
				m.Outside, t.Pull = x.ID, pull
				return true
			}
		}
	}
	return false
}

// hear adds one comment, or returns why it is in no thread.
func (c *Comments) hear(ctx context.Context, repo *gitd.Repo, r *review.Review, x forge.Comment, pull int) (why string, err error) {
	words, err := c.clean(withoutTrailer(x.Body))
	if err != nil {
		return err.Error(), nil
	}
	m := review.Remark{ID: review.NewID("forge", repo.Name(), fmt.Sprint(pull), fmt.Sprint(x.ID)), Kind: review.ByForge, Time: x.CreatedAt.UTC(),
		By: gitd.Person{Name: oneLine(cmp.Or(x.Shown, x.User))}, Text: words, Outside: x.ID}
	if x.Bot {
		m.Kind, m.By = review.ByAgent, c.Book.Bot
	}
	if x.InReplyTo != 0 {
		return hearAnswer(r, m, x.InReplyTo), nil
	}
	switch {
	case x.Line == 0:
		return "it is on a whole file, or its lines are gone", nil
	case len(r.Threads) >= review.MaxThreads:
		return "the review has no room for more threads", nil
	case gitd.CheckHash(gitd.Hash(x.Commit)) != nil:
		return "it names no commit", nil
	}
	a, err := c.anchorOf(ctx, repo, x)
	switch {
	case errors.Is(err, gitd.ErrNotFound), errors.Is(err, anchor.ErrLines), errors.Is(err, gitd.ErrTooLarge), errors.Is(err, gitd.ErrInvalid):
		return err.Error(), nil
	case err != nil:
		return "", err
	}
	t, err := newThread(ctx, repo, a, m)
	if t.Pull = pull; err == nil {
		r.Threads = append(r.Threads, t)
	}
	return "", err
}

// hearAnswer adds an answer to the thread of another comment, or returns why it cannot.
func hearAnswer(r *review.Review, m review.Remark, to int64) (why string) {
	for i := range r.Threads {
		t := &r.Threads[i]
		if !slices.ContainsFunc(t.Remarks, func(m review.Remark) bool { return m.Outside == to }) {
			continue
		}
		if len(t.Remarks) >= review.MaxRemarks {
			return "its thread has no room for more"
		}
		t.Remarks = append(t.Remarks, m)
		return ""
	}
	return "it answers a comment that is in no thread"
}

// anchorOf returns the lines that a comment at a forge is about.
func (c *Comments) anchorOf(ctx context.Context, repo *gitd.Repo, x forge.Comment) (a anchor.Anchor, err error) {
	at := anchor.Ends{Base: gitd.Hash(x.Commit), Commit: gitd.Hash(x.Commit)}
	side := anchor.New
	if x.Side == "LEFT" {
		side = anchor.Old
		base, err := repo.Base(ctx)
		if err != nil {
			return a, err
		}
		if at.Base, err = repo.MergeBase(ctx, "refs/heads/"+base, x.Commit); err != nil {
			return a, err
		}
	}
	a, _, err = anchor.Make(ctx, repo, at, side, x.Path, x.Line, 0)
	return a, err
}

// settled is the state of a thread at both places. here is set if it comes from here, and by is who resolved it there.
type settled struct {
	Resolved, here bool
	by             string
}

// Settle makes the threads of a pull request resolved at both places. The place where a thread has changed since the last call counts, and the
// forge if both have. It is a method of engineer.Lines.
func (c *Comments) Settle(ctx context.Context, repo *gitd.Repo, caller record.Caller, pull int, at forge.Repo) error {
	able, ok := at.Forge.(forge.Resolver)
	if !ok {
		return nil
	}
	r, err := c.Book.Read(ctx, repo, caller)
	if err != nil {
		return err
	}
	first := map[int64]string{} // threads by the comment that begins them there
	for _, t := range r.Threads {
		if id := t.Remarks[0].Outside; t.Pull == pull && id != 0 {
			first[id] = t.ID
		}
	}
	if len(first) == 0 {
		return nil
	}
	list, err := able.Threads(ctx, at.Name, pull)
	if err != nil {
		return err
	}
	now := map[string]settled{}
	for _, there := range list {
		id := first[there.First]
		t := r.Thread(id)
		if t == nil {
			continue
		}
		if here := t.Resolved != nil; here != there.Resolved && there.Resolved == t.SettledOutside { // it changed here
			if err := able.Resolve(ctx, at.Name, there.ID, here); err != nil {
				return err
			}
			now[id] = settled{Resolved: here, here: true}
		} else if there.Resolved != t.SettledOutside {
			now[id] = settled{Resolved: there.Resolved, by: there.By}
		}
	}
	if len(now) == 0 {
		return nil
	}
	_, err = c.Book.Change(ctx, repo, caller, gitd.Person{}, fmt.Sprintf("Resolve threads as in pull request %d", pull), func(r *review.Review) error {
		for id, s := range now {
			t := r.Thread(id)
			if t == nil || t.SettledOutside == s.Resolved {
				continue
			}
			t.SettledOutside = s.Resolved
			switch {
			case s.here: // a later change here is for the next call
			case !s.Resolved:
				t.Resolved = nil
			case t.Resolved == nil:
				t.Resolved = &review.Resolution{By: gitd.Person{Name: oneLine(cmp.Or(s.by, at.Forge.Title()))}, Time: c.Now().UTC()}
			}
		}
		return nil
	})
	return err
}

// withoutTrailer returns a comment without the mark of ramus.
func withoutTrailer(body string) string {
	if i := strings.LastIndex(body, "<!-- ramus:"); i >= 0 {
		body = body[:i]
	}
	return strings.TrimSpace(body)
}

// withoutMentions returns a text that mentions nobody at a forge. Blocks of code stay as they are.
func withoutMentions(words string) string {
	var b strings.Builder
	isCode := false
	for l := range strings.Lines(words) {
		if strings.HasPrefix(strings.TrimLeft(l, " "), "```") {
			isCode = !isCode
		}
		if !isCode {
			l = strings.ReplaceAll(l, "@", "@\u200b")
		}
		b.WriteString(l)
	}
	return b.String()
}

// Unposted returns the remarks that a pull request with a commit as its head lacks, the oldest first. It is a method of engineer.Lines.
func (c *Comments) Unposted(ctx context.Context, repo *gitd.Repo, caller record.Caller, base string, head gitd.Hash) (list []forge.Remark, err error) {
	r, err := c.Book.Read(ctx, repo, caller)
	if err != nil {
		return nil, err
	}
	var start gitd.Hash
	for _, t := range r.Threads {
		var root int64
		for i, m := range t.Remarks {
			if i == 0 {
				root = m.Outside
			}
			if m.Outside != 0 {
				continue
			}
			one := forge.Remark{ID: m.ID, Body: "**" + render.MarkdownText(cmp.Or(m.By.Name, "Somebody"), 100) + "**: " + withoutMentions(m.Text)}
			if i > 0 {
				if root == 0 {
					break // the thread must be there first
				}
				one.On = forge.Comment{ID: root, Path: t.Anchor.Path, Line: t.Anchor.To}
				list = append(list, one)
				continue
			}
			if start == "" {
				if start, err = repo.MergeBase(ctx, "refs/heads/"+base, string(head)); err != nil && !errors.Is(err, gitd.ErrNotFound) {
					return nil, err
				}
				start = cmp.Or(start, head)
			}
			p, err := c.follower.Find(ctx, repo, t.Anchor, anchor.Ends{Base: start, Commit: head})
			if errors.Is(err, gitd.ErrNotFound) {
				continue
			}
			if err != nil {
				return nil, err
			}
			one.On = forge.Comment{Path: t.Anchor.Path, Line: t.Anchor.To, Commit: string(t.Anchor.Commit), Side: "RIGHT"}
			if p.Fits() {
				one.On.Path, one.On.Line, one.On.Commit = p.Path, p.To, string(head)
			}
			if t.Anchor.Side == anchor.Old {
				one.On.Side = "LEFT"
			}
			list = append(list, one)
		}
	}
	return list, nil
}
