package tasks

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ramus-dev/ramus/tasks/browser"
)

// Shell is what a task needs of the world: a work tree and a way to run
// commands in it. The executor provides one over a container; LocalShell is one
// over a plain folder. Package taskstest says in tests what every Shell keeps.
type Shell interface {
	// Exec runs one command line with `sh -c` in the work tree's root. A
	// command that fails is a Result with its exit code, not an error. A timeout
	// of 0 is the Shell's default. A command with a NUL byte is an error.
	Exec(ctx context.Context, command string, timeout time.Duration) (Result, error)
	// ReadFile, WriteFile and ListFiles name files by slash-separated path below
	// the work tree; a path that leaves it (by "..", absolute, or through a
	// symlink) is refused with ErrRefused, and so is .git and what is in it. A
	// symlink that stays in the work tree is followed. Files above MaxFile are
	// refused with ErrTooLarge. A file that is missing is fs.ErrNotExist.
	ReadFile(ctx context.Context, path string) ([]byte, error)
	// WriteFile makes missing folders and keeps the mode of a file that exists;
	// a new one has mode 0644.
	WriteFile(ctx context.Context, path string, content []byte) error
	// ListFiles lists files and symlinks (not folders) that match a glob with **
	// ("" is all), sorted; see [ParseGlob]. .git and what .gitignore excludes are
	// left out.
	ListFiles(ctx context.Context, pattern string) ([]string, error)
	// Commit commits what changed now; empty hash when nothing did. Paths name
	// files or folders to which the commit is limited; none means everything.
	Commit(ctx context.Context, message string, paths []string) (hash string, err error)
	// Push makes the branch's commits visible on the server. The executor does
	// so after every command anyway. Remote and branch may be empty.
	Push(ctx context.Context, remote, branch string) error
	// Branch is the caller's branch.
	Branch() string
}

// Browser is a Shell that can look at what its work tree serves, in a real browser.
type Browser interface {
	Shell
	// Browse does one check: it starts the application, looks at the page, ends the
	// application, and keeps pictures, trace, console and requests as evidence. A
	// page with faults is a check that says so, not an error; what could not be
	// looked at is UNVERIFIED with the reason. Mistakes in the spec are [ErrParams].
	Browse(ctx context.Context, s browser.Spec) (browser.Check, error)
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

// MaxFile is the size in bytes of the largest file that a Shell reads or writes.
const MaxFile = 16 << 20

// What a Shell refuses.
var (
	// ErrRefused: the path is none of the work tree's files.
	ErrRefused = errors.New("refused")
	// ErrTooLarge: the file is larger than MaxFile.
	ErrTooLarge = fmt.Errorf("file is larger than %d MiB", MaxFile>>20)
)
