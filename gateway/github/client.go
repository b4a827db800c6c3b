package github

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/ramus-dev/ramus/internal/redact"
)

// The kinds of error of this package. A RateLimit that lasts longer than the
// caller's patience, and an API that is down, are neither.
var (
	// ErrNotFound: there is no such thing, or the token may not know of it.
	ErrNotFound = errors.New("not found at GitHub")
	// ErrRefused: GitHub will never do that: the request itself is wrong, or not allowed.
	ErrRefused = errors.New("refused by GitHub")
)

// Name is a repository at GitHub.
type Name struct{ Owner, Repo string }

// String is "owner/repo".
func (n Name) String() string { return n.Owner + "/" + n.Repo }

// ParseName reads the name from an upstream's URL, https:// or ssh, or from "owner/repo".
func ParseName(upstream string) (Name, bool) { panic("not built") }

// Access is what a token has to be good for. A token is asked for one repository
// and for no more than that.
type Access string

// The accesses.
const (
	AccessRead  Access = "read"  // contents
	AccessWrite Access = "write" // contents and pull requests; issues, checks and members to read
)

// Tokens gives tokens: an App's installation, or a token that somebody made.
type Tokens interface {
	Token(ctx context.Context, repo Name, a Access) (string, error)
}

// Client speaks to GitHub's REST API. Its exported fields are its options and
// may be changed until the first call. Methods are safe for concurrent use. They
// wait out rate limits (primary and secondary, by Retry-After and
// X-RateLimit-Reset) and an API that is down, until ctx ends; an error means
// that GitHub refused for good ([ErrNotFound], [ErrRefused]) or that ctx ended.
type Client struct {
	URL    string // of the API; default https://api.github.com/
	Tokens Tokens
	HTTP   *http.Client // nil: one with a time-out of 30 s
	// Secrets are removed from all that is posted. nil: there are none.
	Secrets *redact.Secrets
	Log     *slog.Logger
	// Now and Sleep are the clock; a test replaces both or none.
	Now   func() time.Time
	Sleep func(ctx context.Context, d time.Duration) error
	// Patience is the longest pause that the client chooses itself; default 1 min.
	Patience time.Duration
}

// Pull is a pull request.
type Pull struct {
	Number      int       `json:"number"`
	URL         string    `json:"url"` // for people
	Title       string    `json:"title"`
	Body        string    `json:"body,omitempty"`
	Open        bool      `json:"open"`
	Draft       bool      `json:"draft,omitempty"`
	Merged      bool      `json:"merged,omitempty"`
	MergeCommit string    `json:"merge_commit,omitempty"`
	Head        string    `json:"head"` // branch
	HeadSHA     string    `json:"head_sha"`
	Base        string    `json:"base"` // branch
	Author      string    `json:"author"`
	Requested   []string  `json:"requested,omitempty"` // users whose review is asked for
	Labels      []string  `json:"labels,omitempty"`
	UpdatedAt   time.Time `json:"updated_at,omitzero"`
}

// NewPull asks for a pull request. Head is a branch of the same repository.
type NewPull struct {
	Head, Base, Title, Body string
	Draft                   bool
}

// The states of a Review.
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

// Comment is a comment on a line of a pull request or, when Issue is set, in its
// conversation.
type Comment struct {
	ID        int64     `json:"id"`
	Issue     bool      `json:"issue,omitempty"`
	InReplyTo int64     `json:"in_reply_to,omitempty"`
	Review    int64     `json:"review,omitempty"` // it was submitted with
	User      string    `json:"user"`
	Bot       bool      `json:"bot,omitempty"`
	Body      string    `json:"body"`
	Path      string    `json:"path,omitempty"`
	Line      int       `json:"line,omitempty"` // 0: of the whole file, or outdated
	Side      string    `json:"side,omitempty"` // LEFT, RIGHT
	DiffHunk  string    `json:"diff_hunk,omitempty"`
	Commit    string    `json:"commit,omitempty"`
	URL       string    `json:"url,omitempty"`
	CreatedAt time.Time `json:"created_at,omitzero"`
}

// Check is a check run, or a workflow run, of a commit.
type Check struct {
	ID         int64  `json:"id"`
	Workflow   bool   `json:"workflow,omitempty"` // a workflow run, not a check run
	Name       string `json:"name"`
	Commit     string `json:"commit"`
	Branch     string `json:"branch,omitempty"`
	Status     string `json:"status"`               // queued, in_progress, completed
	Conclusion string `json:"conclusion,omitempty"` // success, failure, timed_out …
	URL        string `json:"url,omitempty"`
	Title      string `json:"title,omitempty"`
	Summary    string `json:"summary,omitempty"`
	Text       string `json:"text,omitempty"`
	Pulls      []int  `json:"pulls,omitempty"` // it is for
}

// Failed tells whether a check has ended and found fault.
func (c Check) Failed() bool { panic("not built") }

// Pull reads a pull request.
func (c *Client) Pull(ctx context.Context, repo Name, number int) (Pull, error) { panic("not built") }

// FindPull finds the newest pull request of a branch, open or not.
func (c *Client) FindPull(ctx context.Context, repo Name, head string) (p Pull, found bool, err error) {
	panic("not built")
}

// CreatePull opens a pull request. Where GitHub says that there is one for the
// branch already, that one is returned: an answer that was lost opens no second.
func (c *Client) CreatePull(ctx context.Context, repo Name, p NewPull) (Pull, error) {
	panic("not built")
}

// EditPull replaces title and body; an empty one is left as it is.
func (c *Client) EditPull(ctx context.Context, repo Name, number int, title, body string) (Pull, error) {
	panic("not built")
}

// AddLabels adds labels; those that are there stay.
func (c *Client) AddLabels(ctx context.Context, repo Name, number int, labels []string) error {
	panic("not built")
}

// Reviews lists the submitted reviews of a pull request, oldest first.
func (c *Client) Reviews(ctx context.Context, repo Name, number int) ([]Review, error) {
	panic("not built")
}

// Comments lists all comments of a pull request, on lines and in the
// conversation, oldest first.
func (c *Client) Comments(ctx context.Context, repo Name, number int) ([]Comment, error) {
	panic("not built")
}

// Reply answers a comment: in its thread when it is on a line, in the
// conversation otherwise. mark makes the answer known again: a second Reply with
// the same mark finds the first one, however that ended.
func (c *Client) Reply(ctx context.Context, repo Name, number int, to Comment, body, mark string) (Comment, error) {
	panic("not built")
}

// Say comments in the conversation, once for each mark.
func (c *Client) Say(ctx context.Context, repo Name, number int, body, mark string) (Comment, error) {
	panic("not built")
}

// RequestReview asks users for a review (again). Those who cannot be asked are left out.
func (c *Client) RequestReview(ctx context.Context, repo Name, number int, users []string) error {
	panic("not built")
}

// CanWrite tells whether a user may push to the repository.
func (c *Client) CanWrite(ctx context.Context, repo Name, user string) (bool, error) {
	panic("not built")
}

// Checks lists the newest check run of each name for a commit.
func (c *Client) Checks(ctx context.Context, repo Name, commit string) ([]Check, error) {
	panic("not built")
}

// DeleteBranch deletes a branch; one that is not there is no error.
func (c *Client) DeleteBranch(ctx context.Context, repo Name, branch string) error {
	panic("not built")
}

// Me is the login that the client's posts come from ("ramus[bot]").
func (c *Client) Me(ctx context.Context) (string, error) { panic("not built") }
