package client

import (
	"context"
	"net/url"

	"github.com/ramus-dev/ramus/executor/review"
	"github.com/ramus-dev/ramus/gateway/comment"
	"github.com/ramus-dev/ramus/gitd"
)

// reviewPath returns the path of the review of a caller, in one of its repositories.
func reviewPath(caller, in, path string) string {
	at := "/api/workspaces/" + url.PathEscape(caller) + "/review" + path
	if in != "" {
		at += "?in=" + url.QueryEscape(in)
	}
	return at
}

// Review returns the threads of a caller. An empty in means its own repository.
func (c *Client) Review(ctx context.Context, caller, in string) (comment.View, error) {
	return get[comment.View](ctx, c, reviewPath(caller, in, ""))
}

// SendComments sends comments together, as one prompt to an agent.
func (c *Client) SendComments(ctx context.Context, caller, in string, s comment.Sending) (comment.Sent, error) {
	return post[comment.Sent](ctx, c, reviewPath(caller, in, "/batches"), s)
}

// AnswerComment answers in a thread without telling an agent.
func (c *Client) AnswerComment(ctx context.Context, caller, in, thread, text string, by gitd.Person) (review.Thread, error) {
	return post[review.Thread](ctx, c, reviewPath(caller, in, "/threads/"+url.PathEscape(thread)+"/answers"), map[string]any{"text": text, "by": by})
}

// ResolveComment closes a thread, or opens it again. unworthy says that its finding is not worth saying again.
func (c *Client) ResolveComment(ctx context.Context, caller, in, thread string, open, unworthy bool, by gitd.Person) (review.Thread, error) {
	return post[review.Thread](ctx, c, reviewPath(caller, in, "/threads/"+url.PathEscape(thread)+"/resolve"),
		map[string]any{"open": open, "unworthy": unworthy, "by": by})
}

// TakeSuggestion makes a suggestion of a comment a commit, and returns its name. n is its number in the comment, from 0.
func (c *Client) TakeSuggestion(ctx context.Context, caller, in, thread, remark string, n int, by gitd.Person) (gitd.Hash, error) {
	t, err := post[struct {
		Commit gitd.Hash `json:"commit"`
	}](ctx, c, reviewPath(caller, in, "/threads/"+url.PathEscape(thread)+"/take"), map[string]any{"comment": remark, "suggestion": n, "by": by})
	return t.Commit, err
}
