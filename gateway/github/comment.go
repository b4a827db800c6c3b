package github

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/go-github/v66/github"
	"github.com/ramus-dev/ramus/gateway/forge"
)

func reviewOf(r *github.PullRequestReview) forge.Review {
	return forge.Review{ID: r.GetID(), User: r.GetUser().GetLogin(), Bot: isBot(r.GetUser()),
		State: strings.ToLower(r.GetState()), Body: forge.Bounded(r.GetBody()),
		Commit: r.GetCommitID(), URL: r.GetHTMLURL(), SubmittedAt: r.GetSubmittedAt().Time}
}

func commentOf(r *github.PullRequestComment) forge.Comment {
	return forge.Comment{ID: r.GetID(), InReplyTo: r.GetInReplyTo(), Review: r.GetPullRequestReviewID(),
		User: r.GetUser().GetLogin(), Bot: isBot(r.GetUser()),
		Body: forge.Bounded(r.GetBody()), Path: r.GetPath(), Line: r.GetLine(), Side: r.GetSide(),
		DiffHunk: forge.LastLines(r.GetDiffHunk()),
		Commit:   r.GetCommitID(), URL: r.GetHTMLURL(), CreatedAt: r.GetCreatedAt().Time}
}

func issueCommentOf(r *github.IssueComment) forge.Comment {
	return forge.Comment{ID: r.GetID(), Issue: true, User: r.GetUser().GetLogin(), Bot: isBot(r.GetUser()),
		Body: forge.Bounded(r.GetBody()),
		URL:  r.GetHTMLURL(), CreatedAt: r.GetCreatedAt().Time}
}

func isBot(u *github.User) bool { return u.GetType() == "Bot" }

// maxText is GitHub's limit for a body, in characters.
const maxText = 65536

// Reviews returns the submitted reviews of a pull request, oldest first.
func (c *Client) Reviews(ctx context.Context, repo forge.Name, number int) ([]forge.Review, error) {
	all, err := list(ctx, c, request{what: "list reviews", repo: repo}, reviewOf,
		func(ctx context.Context, gh *github.Client, o github.ListOptions) ([]*github.PullRequestReview,
			*github.Response, error) {
			return gh.PullRequests.ListReviews(ctx, repo.Owner, repo.Repo, number, &o)
		})
	all = slices.DeleteFunc(all, func(r forge.Review) bool { return r.State == forge.ReviewPending })
	slices.SortStableFunc(all, func(a, b forge.Review) int { return a.SubmittedAt.Compare(b.SubmittedAt) })
	return all, err
}

// Comments returns all comments of a pull request, on lines and in the conversation, oldest first.
func (c *Client) Comments(ctx context.Context, repo forge.Name, number int) ([]forge.Comment, error) {
	lines, err := c.lineComments(ctx, repo, number)
	if err != nil {
		return nil, err
	}
	conversation, err := c.conversation(ctx, repo, number)
	if err != nil {
		return nil, err
	}
	all := append(lines, conversation...)
	slices.SortStableFunc(all, func(a, b forge.Comment) int { return a.CreatedAt.Compare(b.CreatedAt) })
	return all, nil
}

func (c *Client) lineComments(ctx context.Context, repo forge.Name, number int) ([]forge.Comment, error) {
	return list(ctx, c, request{what: "list the comments on lines", repo: repo}, commentOf,
		func(ctx context.Context, gh *github.Client, o github.ListOptions) ([]*github.PullRequestComment,
			*github.Response, error) {
			return gh.PullRequests.ListComments(ctx, repo.Owner, repo.Repo, number,
				&github.PullRequestListCommentsOptions{ListOptions: o})
		})
}

func (c *Client) conversation(ctx context.Context, repo forge.Name, number int) ([]forge.Comment, error) {
	return list(ctx, c, request{what: "list the comments of the conversation", repo: repo}, issueCommentOf,
		func(ctx context.Context, gh *github.Client, o github.ListOptions) ([]*github.IssueComment,
			*github.Response, error) {
			return gh.Issues.ListComments(ctx, repo.Owner, repo.Repo, number,
				&github.IssueListCommentsOptions{ListOptions: o})
		})
}

// Reply answers a comment. The answer is in the comment's thread if that is on a line, and otherwise in the
// conversation. mark identifies the answer. A second Reply with the same mark finds the first one, however that call
// ended.
func (c *Client) Reply(ctx context.Context, repo forge.Name, number int, to forge.Comment, body, mark string) (forge.Comment, error) {
	if to.Issue || to.ID == 0 {
		return c.Say(ctx, repo, number, body, mark)
	}
	thread := cmp.Or(to.InReplyTo, to.ID) // GitHub does not allow an answer to an answer
	return c.post(ctx, request{what: "answer a comment", repo: repo, write: true}, number, body, mark, c.lineComments,
		func(ctx context.Context, gh *github.Client, text string) (forge.Comment, error) {
			made, _, err := gh.PullRequests.CreateCommentInReplyTo(ctx, repo.Owner, repo.Repo, number, text, thread)
			return commentOf(made), err
		})
}

// CommentLine comments on a line of a pull request, once for each mark. The line must be in the difference of the pull request.
func (c *Client) CommentLine(ctx context.Context, repo forge.Name, number int, at forge.Comment, body, mark string) (forge.Comment, error) {
	side := cmp.Or(at.Side, "RIGHT")
	return c.post(ctx, request{what: "comment on a line", repo: repo, write: true}, number, body, mark, c.lineComments,
		func(ctx context.Context, gh *github.Client, text string) (forge.Comment, error) {
			made, _, err := gh.PullRequests.CreateComment(ctx, repo.Owner, repo.Repo, number, &github.PullRequestComment{Body: &text,
				Path: &at.Path, Line: &at.Line, Side: &side, CommitID: &at.Commit})
			return commentOf(made), err
		})
}

// Say posts a comment in the conversation, once for each mark.
func (c *Client) Say(ctx context.Context, repo forge.Name, number int, body, mark string) (forge.Comment, error) {
	return c.post(ctx, request{what: "comment on a pull request", repo: repo, write: true}, number, body, mark,
		c.conversation,
		func(ctx context.Context, gh *github.Client, text string) (forge.Comment, error) {
			made, _, err := gh.Issues.CreateComment(ctx, repo.Owner, repo.Repo, number, &github.IssueComment{Body: &text})
			return issueCommentOf(made), err
		})
}

// post makes a comment unless there is one with the mark, perhaps from an earlier process.
func (c *Client) post(ctx context.Context, r request, number int, body, mark string,
	read func(context.Context, forge.Name, int) ([]forge.Comment, error),
	write func(context.Context, *github.Client, string) (forge.Comment, error)) (forge.Comment, error) {
	if mark == "" {
		return forge.Comment{}, fmt.Errorf("cannot %s: %w", r.what,
			errors.New("it has no mark, so it could not be found again"))
	}
	if err := c.setup(); err != nil {
		return forge.Comment{}, fmt.Errorf("cannot %s: %w", r.what, err)
	}
	leave, err := c.lanes.Enter(ctx, "mark "+r.repo.String()+" "+mark, 1)
	if err != nil {
		return forge.Comment{}, fmt.Errorf("cannot %s: %w", r.what, err)
	}
	defer leave(0)
	me, err := c.Me(ctx)
	if err != nil {
		return forge.Comment{}, err
	}
	var out forge.Comment
	trailer := forge.Trailer(mark)
	r.done = func() (bool, error) {
		all, err := read(ctx, r.repo, number)
		for _, one := range all {
			if strings.EqualFold(one.User, me) && forge.EndsWith(one.Body, trailer) {
				out = one
				return true, nil
			}
		}
		return false, err
	}
	if was, err := r.done(); was || err != nil {
		return out, err
	}
	err = c.call(ctx, r, func(ctx context.Context, gh *github.Client) error {
		made, err := write(ctx, gh, c.text(body, trailer))
		if err == nil && made.ID == 0 {
			return errEmpty
		}
		out = made
		return err
	})
	return out, err
}

// text prepares a body for a post. It removes secrets, clips the body to GitHub's limit, and adds the trailer.
func (c *Client) text(body, trailer string) string {
	return forge.Body(c.Secrets.String(body), trailer, maxText, site)
}
