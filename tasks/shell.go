package tasks

import (
	"context"
	"time"
)

// Shell is what a task needs of the world: a work tree and a way to run
// commands in it. The executor provides one over a container; LocalShell is one
// over a plain folder.
type Shell interface {
	// Exec runs one command line with `sh -c` in the work tree's root. A
	// command that fails is a Result with its exit code, not an error.
	Exec(ctx context.Context, command string, timeout time.Duration) (Result, error)
	// ReadFile, WriteFile and ListFiles name files by slash-separated path below
	// the work tree; a path that leaves it (by "..", absolute, or through a
	// symlink) is refused.
	ReadFile(ctx context.Context, path string) ([]byte, error)
	WriteFile(ctx context.Context, path string, content []byte) error
	// ListFiles lists files (not folders) that match a glob with ** ("" is all);
	// .git and what .gitignore excludes are left out.
	ListFiles(ctx context.Context, pattern string) ([]string, error)
	// Commit commits what changed now; empty hash when nothing did.
	Commit(ctx context.Context, message string, paths []string) (hash string, err error)
	// Push makes the branch's commits visible on the server. The executor does
	// so after every command anyway. Remote and branch may be empty.
	Push(ctx context.Context, remote, branch string) error
	// Branch is the caller's branch.
	Branch() string
}

// Result is how a command ended. Stdout and Stderr are capped in memory; the
// whole output is kept elsewhere.
type Result struct {
	Stdout     string `json:"stdout"`
	Stderr     string `json:"stderr"`
	ExitCode   int    `json:"exit_code"`
	TimedOut   bool   `json:"timed_out,omitempty"`
	Truncated  bool   `json:"truncated,omitempty"`
	DurationMS int64  `json:"duration_ms"`
}
