package tasks

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ramus-dev/ramus/tasks/browser"
)

// Shell is the environment of a task: a work tree and a way to run commands in it. The executor provides one over a
// container. LocalShell is one over a plain folder. Package taskstest tests the rules for every Shell.
type Shell interface {
	// Exec runs one command line with `sh -c` in the work tree's root. A command that fails is a Result with its exit
	// code, not an error. A timeout of 0 means the Shell's default. A command with a NUL byte is an error.
	Exec(ctx context.Context, command string, timeout time.Duration) (Result, error)
	// ReadFile, WriteFile and ListFiles name files by slash-separated path below the work tree. They return ErrRefused
	// for a path that leaves it (by "..", absolute, or through a symlink) and for .git and everything in it. They
	// follow a symlink that stays in the work tree. They return ErrTooLarge for files above MaxFile, and fs.ErrNotExist
	// for a missing file.
	ReadFile(ctx context.Context, path string) ([]byte, error)
	// WriteFile makes missing folders and keeps the mode of an existing file. A new file has mode 0644.
	WriteFile(ctx context.Context, path string, content []byte) error
	// ListFiles returns the files and symlinks (not folders) that match a glob with ** ("" matches all), sorted. See
	// [ParseGlob]. It leaves out .git and files that .gitignore excludes.
	ListFiles(ctx context.Context, pattern string) ([]string, error)
	// Commit commits the current changes. Returns an empty hash if there are none. Paths are files or folders to which
	// the commit is limited. No paths mean everything.
	Commit(ctx context.Context, message string, paths []string) (hash string, err error)
	// Push makes the branch's commits visible on the server. The executor also does so after every command. Remote and
	// branch may be empty.
	Push(ctx context.Context, remote, branch string) error
	// Branch returns the caller's branch.
	Branch() string
}

// Browser is a Shell that can check the pages of its work tree in a real browser.
type Browser interface {
	Shell
	// Browse performs one check. It starts the application, checks the page, ends the application, and keeps pictures,
	// trace, console and requests as evidence. A page with faults is the result of a check and not an error. A page
	// that could not be checked is UNVERIFIED with the reason. Mistakes in the spec are [ErrParams].
	Browse(ctx context.Context, s browser.Spec) (browser.Check, error)
}

// Specs is a Shell of a repository whose configuration names the specs of its pages.
type Specs interface {
	Shell
	// SpecFiles returns paths, or patterns of paths. Empty means that the configuration names none.
	SpecFiles() []string
}

// Result is the result of a command. Stdout and Stderr are bounded in memory. The whole output is kept elsewhere.
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

// Errors of a Shell.
var (
	// ErrRefused means that the path is not a file of the work tree.
	ErrRefused = errors.New("refused")
	// ErrTooLarge means that the file is larger than MaxFile.
	ErrTooLarge = fmt.Errorf("file is larger than %d MiB", MaxFile>>20)
)
