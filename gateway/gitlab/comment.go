package gitlab

import (
	"context"
	"hash/fnv"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/gateway/forge"
	"github.com/ramus-dev/ramus/gateway/forge/rest"
	"github.com/ramus-dev/ramus/internal/pattern"
)

// note is a comment in an answer.
type note struct {
	ID        int64     `json:"id"`
	Type      string    `json:"type"` // DiffNote, DiscussionNote, or empty
	Body      string    `json:"body"`
	Author    user      `json:"author"`
	System    bool      `json:"system"`
	CreatedAt time.Time `json:"created_at"`
	Position  *struct {
		HeadSHA string `json:"head_sha"`
		OldPath string `json:"old_path"`
		NewPath string `json:"new_path"`
		OldLine int    `json:"old_line"`
		NewLine int    `json:"new_line"`
	} `json:"position"`
}

type discussion struct {
	ID    string `json:"id"`
	Notes []note `json:"notes"`
}

func (n note) comment(thread string, first int64) forge.Comment {
	out := forge.Comment{ID: n.ID, Thread: thread, Issue: n.Position == nil, User: n.Author.Username,
		Bot: n.Author.isBot(), Body: forge.Bounded(n.Body),
		CreatedAt: n.CreatedAt}
	if first != n.ID {
		out.InReplyTo = first
	}
	if p := n.Position; p != nil {
		out.Path, out.Line, out.Side, out.Commit = p.NewPath, p.NewLine, "RIGHT", p.HeadSHA
		if p.NewLine == 0 && p.OldLine != 0 {
			out.Path, out.Line, out.Side = p.OldPath, p.OldLine, "LEFT"
		}
	}
	return out
}

func (c *Client) discussions(ctx context.Context, repo forge.Name, n int) ([]discussion, error) {
	return list[discussion](ctx, c, "list comments", repo, nil, "merge_requests", number(n), "discussions")
}

// Comments returns all comments of a merge request, on lines and in the conversation, oldest first.
func (c *Client) Comments(ctx context.Context, repo forge.Name, n int) ([]forge.Comment, error) {
	all, err := c.discussions(ctx, repo, n)
	if err != nil {
		return nil, err
	}
	var out []forge.Comment
	for _, d := range all {
		for _, one := range d.Notes {
			if !one.System {
				out = append(out, one.comment(d.ID, d.Notes[0].ID))
			}
		}
	}
	slices.SortStableFunc(out, func(a, b forge.Comment) int { return a.CreatedAt.Compare(b.CreatedAt) })
	return out, nil
}

// Reviews returns the present verdicts of people, oldest first. GitLab has no list of reviews. Approvals are as they
// are now. For somebody who requests changes, the review is the newest note of GitLab's that says so.
func (c *Client) Reviews(ctx context.Context, repo forge.Name, n int) ([]forge.Review, error) {
	var approvals struct {
		By []struct {
			User user      `json:"user"`
			At   time.Time `json:"approved_at"`
		} `json:"approved_by"`
	}
	if err := c.do(ctx, "list approvals", http.MethodGet, repo, nil, &approvals, nil, "merge_requests", number(n),
		"approvals"); err != nil {
		return nil, err
	}
	var out []forge.Review
	for _, a := range approvals.By {
		out = append(out, forge.Review{ID: derived("approved", a.User.Username, a.At.UTC().Format(time.RFC3339Nano)),
			User: a.User.Username, Bot: a.User.isBot(),
			State: forge.ReviewApproved, SubmittedAt: a.At})
	}
	var reviewers []struct {
		User  user   `json:"user"`
		State string `json:"state"`
	}
	if err := c.do(ctx, "list reviewers", http.MethodGet, repo, nil, &reviewers, nil, "merge_requests", number(n),
		"reviewers"); err != nil {
		return nil, err
	}
	var notes []discussion
	for _, r := range reviewers {
		if r.State != "requested_changes" {
			continue
		}
		if notes == nil {
			var err error
			if notes, err = c.discussions(ctx, repo, n); err != nil {
				return nil, err
			}
		}
		review := forge.Review{ID: derived("changes", r.User.Username), User: r.User.Username, Bot: r.User.isBot(),
			State: forge.ReviewChanges}
		for _, d := range notes {
			for _, one := range d.Notes {
				if one.System && one.Author.ID == r.User.ID && one.Body == "requested changes" &&
					!one.CreatedAt.Before(review.SubmittedAt) {
					review.ID, review.SubmittedAt = one.ID, one.CreatedAt
				}
			}
		}
		out = append(out, review)
	}
	slices.SortStableFunc(out, func(a, b forge.Review) int { return a.SubmittedAt.Compare(b.SubmittedAt) })
	return out, nil
}

// derived returns a number for an object without one. It is larger than the numbers of GitLab.
func derived(parts ...string) int64 {
	sum := fnv.New64a()
	_, _ = sum.Write([]byte(strings.Join(parts, "\x00"))) // never fails
	return int64(sum.Sum64()>>2 | 1<<61)
}

// Reply answers a comment in its discussion, once for each mark.
func (c *Client) Reply(ctx context.Context, repo forge.Name, n int, to forge.Comment, body, mark string) (forge.Comment, error) {
	if to.Issue || to.Thread == "" {
		return c.Say(ctx, repo, n, body, mark)
	}
	return c.post(ctx, "answer a comment", repo, n, to, body, mark, "merge_requests", number(n), "discussions",
		to.Thread, "notes")
}

// Say posts a comment in the conversation, once for each mark.
func (c *Client) Say(ctx context.Context, repo forge.Name, n int, body, mark string) (forge.Comment, error) {
	return c.post(ctx, "comment on a merge request", repo, n, forge.Comment{}, body, mark, "merge_requests",
		number(n), "notes")
}

func (c *Client) post(ctx context.Context, what string, repo forge.Name, n int, to forge.Comment, body, mark string, parts ...string) (forge.Comment, error) {
	write := func(ctx context.Context, trailer string, done func() (bool, error)) (forge.Comment, error) {
		r, err := c.request(what, http.MethodPost, repo, map[string]string{"body": c.text(body, trailer)}, parts...)
		if err != nil {
			return forge.Comment{}, err
		}
		r.Done = done
		var made note
		_, err = c.api().Do(ctx, r, &made, func() bool { return made.ID != 0 })
		return made.comment(to.Thread, made.ID), err
	}
	return c.api().Post(ctx, rest.Post{What: what, Where: repo, Mark: mark, Me: c.Me, Write: write,
		Read: func(ctx context.Context) ([]forge.Comment, error) { return c.Comments(ctx, repo, n) }})
}

// command is a line that GitLab may obey.
var command = pattern.New(`(?m)^([ \t]*)/([A-Za-z_]+[ \t\r]*$|[A-Za-z_]+[ \t])`)

// text prepares a body for a post. No line of it is a command.
func (c *Client) text(body, trailer string) string {
	return forge.Body(command.ReplaceAllString(c.Secrets.String(body), `$1\/$2`), trailer, maxText, site)
}
