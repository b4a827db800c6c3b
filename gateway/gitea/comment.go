package gitea

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/ramus-dev/ramus/gateway/forge"
	"github.com/ramus-dev/ramus/gateway/forge/rest"
)

// review is a review in an answer.
type review struct {
	ID          int64     `json:"id"`
	User        *user     `json:"user"` // null for a team
	State       string    `json:"state"`
	Body        string    `json:"body"`
	Commit      string    `json:"commit_id"`
	Dismissed   bool      `json:"dismissed"`
	Comments    int       `json:"comments_count"`
	URL         string    `json:"html_url"`
	SubmittedAt time.Time `json:"submitted_at"`
}

// The states of a review at Gitea.
var states = map[string]string{"APPROVED": forge.ReviewApproved, "REQUEST_CHANGES": forge.ReviewChanges,
	"COMMENT": forge.ReviewCommented}

// comment is a comment in an answer, on a line or in the conversation.
type comment struct {
	ID        int64     `json:"id"`
	User      *user     `json:"user"`
	Body      string    `json:"body"`
	URL       string    `json:"html_url"`
	CreatedAt time.Time `json:"created_at"`

	Review   int64  `json:"pull_request_review_id"`
	Path     string `json:"path"`
	Line     int    `json:"position"`
	OldLine  int    `json:"original_position"`
	DiffHunk string `json:"diff_hunk"`
	Commit   string `json:"commit_id"`
}

func (m comment) comment() forge.Comment {
	out := forge.Comment{ID: m.ID, Issue: m.Path == "", Review: m.Review, Body: forge.Bounded(m.Body), Path: m.Path,
		URL: m.URL, CreatedAt: m.CreatedAt,
		Commit: m.Commit, DiffHunk: forge.LastLines(m.DiffHunk)}
	if m.User != nil {
		out.User = m.User.Login
	}
	switch {
	case m.Line > 0:
		out.Line, out.Side = m.Line, "RIGHT"
	case m.OldLine > 0:
		out.Line, out.Side = m.OldLine, "LEFT"
	}
	return out
}

func (c *Client) reviews(ctx context.Context, repo forge.Name, n int) ([]review, error) {
	return list[review](ctx, c, "list reviews", repo, "pulls", number(n), "reviews")
}

// Reviews returns the submitted reviews of a pull request, oldest first.
func (c *Client) Reviews(ctx context.Context, repo forge.Name, n int) ([]forge.Review, error) {
	all, err := c.reviews(ctx, repo, n)
	if err != nil {
		return nil, err
	}
	var out []forge.Review
	for _, r := range all {
		state, ok := states[r.State]
		if !ok || r.User == nil {
			continue // a request, or not submitted
		}
		if r.Dismissed {
			state = forge.ReviewDismissed
		}
		out = append(out, forge.Review{ID: r.ID, User: r.User.Login, State: state, Body: forge.Bounded(r.Body),
			Commit: r.Commit, URL: r.URL, SubmittedAt: r.SubmittedAt})
	}
	slices.SortStableFunc(out, func(a, b forge.Review) int { return a.SubmittedAt.Compare(b.SubmittedAt) })
	return out, nil
}

// Comments returns all comments of a pull request, on lines and in the conversation, oldest first.
func (c *Client) Comments(ctx context.Context, repo forge.Name, n int) ([]forge.Comment, error) {
	lines, err := c.lineComments(ctx, repo, n)
	if err != nil {
		return nil, err
	}
	conversation, err := c.conversation(ctx, repo, n)
	if err != nil {
		return nil, err
	}
	all := append(lines, conversation...)
	slices.SortStableFunc(all, func(a, b forge.Comment) int { return a.CreatedAt.Compare(b.CreatedAt) })
	return all, nil
}

// lineComments returns the comments on lines. Gitea lists them by review.
func (c *Client) lineComments(ctx context.Context, repo forge.Name, n int) ([]forge.Comment, error) {
	reviews, err := c.reviews(ctx, repo, n)
	if err != nil {
		return nil, err
	}
	var out []forge.Comment
	for _, r := range reviews {
		if r.Comments == 0 || r.State == "PENDING" {
			continue
		}
		some, err := c.reviewComments(ctx, repo, n, r.ID)
		if err != nil {
			return nil, err
		}
		out = append(out, some...)
	}
	return out, nil
}

func (c *Client) reviewComments(ctx context.Context, repo forge.Name, n int, review int64) ([]forge.Comment, error) {
	var all []comment
	err := c.do(ctx, "list the comments on lines", http.MethodGet, repo, nil, &all, nil, "pulls", number(n), "reviews",
		fmt.Sprint(review), "comments")
	var out []forge.Comment
	for _, one := range all {
		out = append(out, one.comment())
	}
	return out, err
}

func (c *Client) conversation(ctx context.Context, repo forge.Name, n int) ([]forge.Comment, error) {
	var all []comment
	err := c.do(ctx, "list the comments of the conversation", http.MethodGet, repo, nil, &all, nil, "issues",
		number(n), "comments")
	var out []forge.Comment
	for _, one := range all {
		out = append(out, one.comment())
	}
	return out, err
}

// Reply answers a comment, once for each mark. An answer to a comment on a line is a comment on the same line.
func (c *Client) Reply(ctx context.Context, repo forge.Name, n int, to forge.Comment, body, mark string) (forge.Comment, error) {
	if to.Issue || to.Path == "" || to.Line == 0 {
		return c.Say(ctx, repo, n, body, mark)
	}
	const what = "answer a comment"
	path, err := c.path(what, repo, []string{"pulls", number(n), "reviews"})
	if err != nil {
		return forge.Comment{}, err
	}
	write := func(ctx context.Context, trailer string, done func() (bool, error)) (forge.Comment, error) {
		side := "new_position"
		if to.Side == "LEFT" {
			side = "old_position"
		}
		line := map[string]any{"path": to.Path, "body": c.text(body, trailer), side: to.Line}
		var made review
		_, err := c.api().Do(ctx, rest.Request{What: what, Method: http.MethodPost, Path: path, Done: done,
			Body: map[string]any{"event": "COMMENT", "comments": []any{line}}}, &made, func() bool { return made.ID != 0 })
		if err != nil || made.ID == 0 {
			return forge.Comment{}, err
		}
		all, err := c.reviewComments(ctx, repo, n, made.ID)
		if err != nil || len(all) == 0 {
			return forge.Comment{}, err
		}
		return all[len(all)-1], nil
	}
	return c.api().Post(ctx, rest.Post{What: what, Where: repo, Mark: mark, Me: c.Me, Write: write,
		Read: func(ctx context.Context) ([]forge.Comment, error) { return c.lineComments(ctx, repo, n) }})
}

// Say posts a comment in the conversation, once for each mark.
func (c *Client) Say(ctx context.Context, repo forge.Name, n int, body, mark string) (forge.Comment, error) {
	const what = "comment on a pull request"
	if _, err := c.Pull(ctx, repo, n); err != nil {
		return forge.Comment{}, err // Gitea fails with an internal error at the comments of a missing one
	}
	path, err := c.path(what, repo, []string{"issues", number(n), "comments"})
	if err != nil {
		return forge.Comment{}, err
	}
	write := func(ctx context.Context, trailer string, done func() (bool, error)) (forge.Comment, error) {
		var made comment
		_, err := c.api().Do(ctx, rest.Request{What: what, Method: http.MethodPost, Path: path, Done: done,
			Body: map[string]string{"body": c.text(body, trailer)}}, &made, func() bool { return made.ID != 0 })
		return made.comment(), err
	}
	return c.api().Post(ctx, rest.Post{What: what, Where: repo, Mark: mark, Me: c.Me, Write: write,
		Read: func(ctx context.Context) ([]forge.Comment, error) { return c.conversation(ctx, repo, n) }})
}

func (c *Client) text(body, trailer string) string {
	return forge.Body(c.Secrets.String(body), trailer, maxText, site)
}
