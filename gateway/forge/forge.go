package forge

import "context"

// Forge reads and writes pull requests. Its methods are safe for concurrent use. They wait during rate limits and
// outages until ctx ends. An error means that the forge refused for good ([ErrNotFound], [ErrRefused]) or that ctx
// ended.
type Forge interface {
	// Title returns the name of the forge for people, such as "GitHub".
	Title() string
	// Me returns the author of the posts of ramus.
	Me(ctx context.Context) (string, error)
	// CanWrite reports whether a user may push to a repository.
	CanWrite(ctx context.Context, repo Name, user string) (bool, error)
	// Pull returns a pull request.
	Pull(ctx context.Context, repo Name, number int) (Pull, error)
	// CreatePull opens a pull request. If the branch has one already, CreatePull returns that one.
	CreatePull(ctx context.Context, repo Name, p NewPull) (Pull, error)
	// EditPull replaces title and body. An empty one is not changed.
	EditPull(ctx context.Context, repo Name, number int, title, body string) (Pull, error)
	// RequestReview requests a review from users, perhaps again. It leaves out users that the forge does not accept.
	RequestReview(ctx context.Context, repo Name, number int, users []string) error
	// Reviews returns the submitted reviews of a pull request, oldest first.
	Reviews(ctx context.Context, repo Name, number int) ([]Review, error)
	// Comments returns all comments of a pull request, on lines and in the conversation, oldest first.
	Comments(ctx context.Context, repo Name, number int) ([]Comment, error)
	// Checks returns the newest check of each name for a commit.
	Checks(ctx context.Context, repo Name, commit string) ([]Check, error)
	// Reply answers a comment, once for each mark. The answer is in the comment's thread if that is on a line, and
	// otherwise in the conversation.
	Reply(ctx context.Context, repo Name, number int, to Comment, body, mark string) (Comment, error)
	// Say posts a comment in the conversation, once for each mark.
	Say(ctx context.Context, repo Name, number int, body, mark string) (Comment, error)
	// DeleteBranch deletes a branch. A missing branch is no error.
	DeleteBranch(ctx context.Context, repo Name, branch string) error
	// FileURL returns the address of a file of a commit, for people and as the address of a picture. Everybody who may
	// read the repository can open it.
	FileURL(repo Name, commit, path string) string
}

// Labeler is the ability of a Forge to label pull requests.
type Labeler interface {
	// AddLabels adds labels. Existing ones stay.
	AddLabels(ctx context.Context, repo Name, number int, labels []string) error
}

// LineCommenter is the ability of a Forge to begin a thread on a line of a pull request.
type LineCommenter interface {
	// CommentLine comments on a line, once for each mark. Path, Line, Side and Commit of at say which.
	CommentLine(ctx context.Context, repo Name, number int, at Comment, body, mark string) (Comment, error)
}

// Resolver is the ability of a Forge to resolve the threads on lines of a pull request.
type Resolver interface {
	// Threads returns the threads on lines, the oldest first.
	Threads(ctx context.Context, repo Name, number int) ([]Thread, error)
	// Resolve resolves a thread, or opens it again. One that is so already is no error.
	Resolve(ctx context.Context, repo Name, thread string, resolved bool) error
}

// Repo is a repository at a forge. The zero value is none.
type Repo struct {
	Forge Forge
	Name  Name
}
