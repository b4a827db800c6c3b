package browse

import (
	"context"
	"io"
	"sync"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/worktree"
	"github.com/ramus-dev/ramus/gitd"
)

// Step is the step of a run that pages are looked at for.
type Step struct {
	ID    string
	Claim record.Run // the run, as it was claimed
	Run   *Run       // its checks
	Tree  *worktree.Tree
	Host  *containers.Host
	Image string // of the container, with digest; empty if the engine has no images
	// Env is the environment of commands that act for the run's asker.
	Env  []string
	Site *Site
	Shell
}

// Shell runs the commands of a check in the container of its Step.
type Shell interface {
	// Commit commits the work tree as it is.
	Commit(ctx context.Context, subject string) (commit, tree gitd.Hash, err error)
	// NextID returns an id for a command of the step.
	NextID() string
	// Attend runs a command to its end.
	Attend(ctx context.Context, c containers.Command, stdout, stderr io.Writer) (containers.Exit, error)
	// Print returns a writer that writes to w, and to an output of the step.
	Print(w io.Writer, stderr bool) io.Writer
	// ReadFile returns the content of a file of the work tree.
	ReadFile(ctx context.Context, name string) ([]byte, error)
	// Scratch returns the same step in a container of its own, on a commit that a branch has. release ends the container. number is
	// that of the check.
	Scratch(ctx context.Context, commit gitd.Hash, branch string, number int) (s Step, release func(), err error)
}

// Site is a container in which pages are served.
type Site struct {
	turn chan struct{} // holds one token, because one check at a time serves its page

	mu        sync.Mutex // guards installed
	installed string     // the dependencies that a check has installed, and in which container
}

// NewSite returns the Site of a container in which nothing is installed.
func NewSite() *Site { return &Site{turn: make(chan struct{}, 1)} }

// serve waits for the turn to serve a page. The returned function gives it back.
func (s *Site) serve(ctx context.Context) (func(), error) {
	select {
	case s.turn <- struct{}{}:
		return sync.OnceFunc(func() { <-s.turn }), nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// swapInstalled notes the current installation, and returns the earlier note.
func (s *Site) swapInstalled(what string) (before string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, s.installed = s.installed, what
	return before
}
