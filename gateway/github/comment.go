package github

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/go-github/v66/github"
)

// States of a Review.
const (
	ReviewApproved  = "approved"
	ReviewChanges   = "changes_requested"
	ReviewCommented = "commented"
	ReviewDismissed = "dismissed"
	ReviewPending   = "pending"
)

// Review is one review of a pull request, without its comments on lines.
type Review struct {
	ID          int64     `json:"id"`
	User        string    `json:"user"`
	Bot         bool      `json:"bot,omitempty"`
	State       string    `json:"state"` // in lower case
	Body        string    `json:"body,omitempty"`
	Commit      string    `json:"commit,omitempty"`
	URL         string    `json:"url,omitempty"`
	SubmittedAt time.Time `json:"submitted_at,omitzero"`
}

// Comment is a comment on a line of a pull request. If Issue is set, it is one in the conversation.
type Comment struct {
	ID        int64     `json:"id"`
	Issue     bool      `json:"issue,omitempty"`
	InReplyTo int64     `json:"in_reply_to,omitempty"`
	Review    int64     `json:"review,omitempty"` // the review of the comment
	User      string    `json:"user"`
	Bot       bool      `json:"bot,omitempty"`
	Body      string    `json:"body"`
	Path      string    `json:"path,omitempty"`
	Line      int       `json:"line,omitempty"` // 0 if the comment is on the whole file, or outdated
	Side      string    `json:"side,omitempty"` // LEFT, RIGHT
	DiffHunk  string    `json:"diff_hunk,omitempty"`
	Commit    string    `json:"commit,omitempty"`
	URL       string    `json:"url,omitempty"`
	CreatedAt time.Time `json:"created_at,omitzero"`
}

func reviewOf(r *github.PullRequestReview) Review {
	return Review{ID: r.GetID(), User: r.GetUser().GetLogin(), Bot: isBot(r.GetUser()), State: strings.ToLower(r.GetState()), Body: bounded(r.GetBody()),
		Commit: r.GetCommitID(), URL: r.GetHTMLURL(), SubmittedAt: r.GetSubmittedAt().Time}
}

func commentOf(r *github.PullRequestComment) Comment {
	return Comment{ID: r.GetID(), InReplyTo: r.GetInReplyTo(), Review: r.GetPullRequestReviewID(), User: r.GetUser().GetLogin(), Bot: isBot(r.GetUser()),
		Body: bounded(r.GetBody()), Path: r.GetPath(), Line: r.GetLine(), Side: r.GetSide(), DiffHunk: lastLines(r.GetDiffHunk()),
		Commit: r.GetCommitID(), URL: r.GetHTMLURL(), CreatedAt: r.GetCreatedAt().Time}
}

func issueCommentOf(r *github.IssueComment) Comment {
	return Comment{ID: r.GetID(), Issue: true, User: r.GetUser().GetLogin(), Bot: isBot(r.GetUser()), Body: bounded(r.GetBody()),
		URL: r.GetHTMLURL(), CreatedAt: r.GetCreatedAt().Time}
}

func isBot(u *github.User) bool { return u.GetType() == "Bot" }

const (
	// maxText is GitHub's limit for a body in characters, and maxBytes in bytes.
	maxText  = 65536
	maxBytes = maxText * utf8.UTFMax
	// maxHunk bounds a diff hunk, in bytes. GitHub has no bound.
	maxHunk = 32 << 10
)

// bounded clips a text to GitHub's own limit.
func bounded(text string) string {
	if len(text) > maxBytes {
		text = strings.ToValidUTF8(text[:maxBytes], "")
	}
	return text
}

// lastLines clips a diff hunk to its end, because a comment is on its last line.
func lastLines(hunk string) string {
	if len(hunk) <= maxHunk {
		return hunk
	}
	hunk = hunk[len(hunk)-maxHunk:]
	_, rest, _ := strings.Cut(hunk, "\n")
	return strings.ToValidUTF8(cmp.Or(rest, hunk), "")
}

// Reviews returns the submitted reviews of a pull request, oldest first.
func (c *Client) Reviews(ctx context.Context, repo Name, number int) ([]Review, error) {
	all, err := list(ctx, c, request{what: "list reviews", repo: repo}, reviewOf,
		func(ctx context.Context, gh *github.Client, o github.ListOptions) ([]*github.PullRequestReview, *github.Response, error) {
			return gh.PullRequests.ListReviews(ctx, repo.Owner, repo.Repo, number, &o)
		})
	all = slices.DeleteFunc(all, func(r Review) bool { return r.State == ReviewPending })
	slices.SortStableFunc(all, func(a, b Review) int { return a.SubmittedAt.Compare(b.SubmittedAt) })
	return all, err
}

// Comments returns all comments of a pull request, on lines and in the conversation, oldest first.
func (c *Client) Comments(ctx context.Context, repo Name, number int) ([]Comment, error) {
	lines, err := c.lineComments(ctx, repo, number)
	if err != nil {
		return nil, err
	}
	conversation, err := c.conversation(ctx, repo, number)
	if err != nil {
		return nil, err
	}
	all := append(lines, conversation...)
	slices.SortStableFunc(all, func(a, b Comment) int { return a.CreatedAt.Compare(b.CreatedAt) })
	return all, nil
}

func (c *Client) lineComments(ctx context.Context, repo Name, number int) ([]Comment, error) {
	return list(ctx, c, request{what: "list the comments on lines", repo: repo}, commentOf,
		func(ctx context.Context, gh *github.Client, o github.ListOptions) ([]*github.PullRequestComment, *github.Response, error) {
			return gh.PullRequests.ListComments(ctx, repo.Owner, repo.Repo, number, &github.PullRequestListCommentsOptions{ListOptions: o})
		})
}

func (c *Client) conversation(ctx context.Context, repo Name, number int) ([]Comment, error) {
	return list(ctx, c, request{what: "list the comments of the conversation", repo: repo}, issueCommentOf,
		func(ctx context.Context, gh *github.Client, o github.ListOptions) ([]*github.IssueComment, *github.Response, error) {
			return gh.Issues.ListComments(ctx, repo.Owner, repo.Repo, number, &github.IssueListCommentsOptions{ListOptions: o})
		})
}

// Reply answers a comment. The answer is in the comment's thread if that is on a line, and otherwise in the
// conversation. mark identifies the answer. A second Reply with the same mark finds the first one, however that call
// ended.
func (c *Client) Reply(ctx context.Context, repo Name, number int, to Comment, body, mark string) (Comment, error) {
	if to.Issue || to.ID == 0 {
		return c.Say(ctx, repo, number, body, mark)
	}
	thread := cmp.Or(to.InReplyTo, to.ID) // GitHub does not allow an answer to an answer
	return c.post(ctx, request{what: "answer a comment", repo: repo, write: true}, number, body, mark, c.lineComments,
		func(ctx context.Context, gh *github.Client, text string) (Comment, error) {
			made, _, err := gh.PullRequests.CreateCommentInReplyTo(ctx, repo.Owner, repo.Repo, number, text, thread)
			return commentOf(made), err
		})
}

// Say posts a comment in the conversation, once for each mark.
func (c *Client) Say(ctx context.Context, repo Name, number int, body, mark string) (Comment, error) {
	return c.post(ctx, request{what: "comment on a pull request", repo: repo, write: true}, number, body, mark, c.conversation,
		func(ctx context.Context, gh *github.Client, text string) (Comment, error) {
			made, _, err := gh.Issues.CreateComment(ctx, repo.Owner, repo.Repo, number, &github.IssueComment{Body: &text})
			return issueCommentOf(made), err
		})
}

// post makes a comment unless there is one with the mark, perhaps from an earlier process.
func (c *Client) post(ctx context.Context, r request, number int, body, mark string,
	read func(context.Context, Name, int) ([]Comment, error), write func(context.Context, *github.Client, string) (Comment, error)) (Comment, error) {
	if mark == "" {
		return Comment{}, fmt.Errorf("cannot %s: %w", r.what, errors.New("it has no mark, so it could not be found again"))
	}
	if err := c.setup(); err != nil {
		return Comment{}, fmt.Errorf("cannot %s: %w", r.what, err)
	}
	leave, err := c.lanes.Enter(ctx, "mark "+r.repo.String()+" "+mark, 1)
	if err != nil {
		return Comment{}, fmt.Errorf("cannot %s: %w", r.what, err)
	}
	defer leave(0)
	me, err := c.Me(ctx)
	if err != nil {
		return Comment{}, err
	}
	var out Comment
	trailer := trailer(mark)
	r.done = func() (bool, error) {
		all, err := read(ctx, r.repo, number)
		for _, one := range all {
			// A quote of a post may contain its mark.
			if strings.EqualFold(one.User, me) && strings.HasSuffix(strings.TrimSpace(one.Body), trailer) {
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

// trailer returns the last line of a post with a mark, a comment that is invisible to people. It is the last line, so
// that no text within a post can imitate it.
func trailer(mark string) string {
	sum := sha256.Sum256([]byte("ramus post\x00" + mark))
	return "<!-- ramus:" + hex.EncodeToString(sum[:16]) + " -->"
}

// cutNote is the end of a text that was too long.
const cutNote = "\n\n*The rest of the text exceeds GitHub's limit.*"

// text prepares a body for a post. It removes secrets, clips the body to GitHub's limit, and adds the trailer.
func (c *Client) text(body, trailer string) string {
	body = strings.ToValidUTF8(c.Secrets.String(body), "�")
	if trailer != "" {
		trailer = "\n\n" + trailer
	}
	if room := maxText - utf8.RuneCountInString(trailer); utf8.RuneCountInString(body) > room {
		body = cut(body, room)
	}
	return body + trailer
}

// cut clips Markdown to a number of characters, at the end of a line if there is one, and closes open parts.
func cut(body string, room int) string {
	const spare = 256 // for closing open parts
	runes := []rune(body)
	kept := string(runes[:room-spare-utf8.RuneCountInString(cutNote)])
	if i := strings.LastIndexByte(kept, '\n'); i > len(kept)/2 {
		kept = kept[:i]
	}
	return kept + closing(kept) + cutNote
}

// longestFence is the length of the longest fence that is closed.
const longestFence = 100

// closing returns the text that closes the code block, or the folded parts, in which a text ends.
func closing(text string) string {
	fence, folded := "", 0
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		mark := line[:len(line)-len(strings.TrimLeft(line, "`"))]
		if mark == "" {
			mark = line[:len(line)-len(strings.TrimLeft(line, "~"))]
		}
		switch {
		case fence == "" && len(mark) >= 3 && len(mark) <= longestFence:
			fence = mark
		case fence != "" && strings.HasPrefix(mark, fence) && mark == line:
			fence = ""
		case fence == "":
			folded = max(0, folded+strings.Count(line, "<details")-strings.Count(line, "</details>"))
		}
	}
	out := ""
	if fence != "" {
		out = "\n" + fence
	}
	return out + strings.Repeat("\n\n</details>", min(folded, 8))
}
