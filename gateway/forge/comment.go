package forge

import "time"

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
	Shown       string    `json:"shown,omitempty"` // the user's name for people, if User is an id
	Bot         bool      `json:"bot,omitempty"`
	State       string    `json:"state"` // in lower case
	Body        string    `json:"body,omitempty"`
	Commit      string    `json:"commit,omitempty"`
	URL         string    `json:"url,omitempty"`
	SubmittedAt time.Time `json:"submitted_at,omitzero"`
}

// Remark is a text about a line of a pull request that is not at the forge yet.
type Remark struct {
	ID   string
	Body string
	// On is the comment that it answers, if it has an ID. Otherwise Path, Line, Side and Commit of On say which line it is about.
	On Comment
}

// LinesAt says how the comments on lines of work are those of its pull request at a forge.
type LinesAt struct {
	Pull  int    `json:"pull"`
	URL   string `json:"url,omitempty"`
	Forge string `json:"forge"` // its name for people
	// Lines is set if new threads begin at their lines there. Otherwise they are in the conversation.
	Lines bool `json:"lines"`
	// Resolves is set if a thread that is resolved at one place is so at the other.
	Resolves bool `json:"resolves"`
}

// Thread is a thread on a line of a pull request.
type Thread struct {
	ID       string
	First    int64 // the comment that begins it
	Resolved bool
	By       string // the user who resolved it; empty if nobody did, or the forge does not say
}

// Comment is a comment on a line of a pull request. If Issue is set, it is one in the conversation.
type Comment struct {
	ID        int64     `json:"id"`
	Issue     bool      `json:"issue,omitempty"`
	InReplyTo int64     `json:"in_reply_to,omitempty"`
	Review    int64     `json:"review,omitempty"` // the review of the comment
	Thread    string    `json:"thread,omitempty"` // the discussion of the comment, at forges that name them
	User      string    `json:"user"`
	Shown     string    `json:"shown,omitempty"` // the user's name for people, if User is an id
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
