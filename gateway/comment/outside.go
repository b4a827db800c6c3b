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

// Hear adds the comments of a pull request to the threads of a caller. A comment on lines of a commit that is not here is left out.
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
	comments = slices.DeleteFunc(slices.Clone(comments), func(x forge.Comment) bool { return x.Issue && !x.Bot || known[x.ID] })
	if len(comments) == 0 {
		return nil
	}
	_, err = c.Book.Change(ctx, repo, caller, gitd.Person{}, fmt.Sprintf("Hear comments of pull request %d", pull), func(r *review.Review) error {
		for _, x := range comments {
			if c.note(r, x, pull, own) || x.Issue {
				continue
			}
			if err := c.hear(ctx, repo, r, x, pull); err != nil {
				return err
			}
		}
		return nil
	})
	return err
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

// hear adds one comment.
func (c *Comments) hear(ctx context.Context, repo *gitd.Repo, r *review.Review, x forge.Comment, pull int) error {
	words, err := c.clean(withoutTrailer(x.Body))
	if err != nil {
		return nil // it is empty, or too long for a thread
	}
	m := review.Remark{ID: review.NewID("forge", repo.Name(), fmt.Sprint(pull), fmt.Sprint(x.ID)), Kind: review.ByForge, Time: x.CreatedAt.UTC(),
		By: gitd.Person{Name: oneLine(cmp.Or(x.Shown, x.User))}, Text: words, Outside: x.ID}
	if x.Bot {
		m.Kind, m.By = review.ByAgent, c.Book.Bot
	}
	if x.InReplyTo != 0 {
		for i := range r.Threads {
			if t := &r.Threads[i]; len(t.Remarks) < review.MaxRemarks && slices.ContainsFunc(t.Remarks, func(m review.Remark) bool { return m.Outside == x.InReplyTo }) {
				t.Remarks = append(t.Remarks, m)
			}
		}
		return nil
	}
	if x.Line == 0 || len(r.Threads) >= review.MaxThreads || gitd.CheckHash(gitd.Hash(x.Commit)) != nil {
		return nil
	}
	at := anchor.Ends{Base: gitd.Hash(x.Commit), Commit: gitd.Hash(x.Commit)}
	side := anchor.New
	if x.Side == "LEFT" {
		side = anchor.Old
		base, err := repo.Base(ctx)
		if err != nil {
			return err
		}
		if at.Base, err = repo.MergeBase(ctx, "refs/heads/"+base, x.Commit); errors.Is(err, gitd.ErrNotFound) {
			return nil
		} else if err != nil {
			return err
		}
	}
	a, _, err := anchor.Make(ctx, repo, at, side, x.Path, x.Line, 0)
	switch {
	case errors.Is(err, gitd.ErrNotFound), errors.Is(err, anchor.ErrLines), errors.Is(err, gitd.ErrTooLarge), errors.Is(err, gitd.ErrInvalid):
		return nil
	case err != nil:
		return err
	}
	t, err := newThread(ctx, repo, a, m)
	if t.Pull = pull; err == nil {
		r.Threads = append(r.Threads, t)
	}
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
