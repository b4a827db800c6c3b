package gitcmd

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ramus-dev/ramus/gitd/object"
)

// Runner starts the children of one server. The zero value is ready for use.
type Runner struct {
	// Lock is a lock file that every child inherits, or nil. A later server that gets the lock for
	// itself knows that no child of this one is alive. It must not change after the first Start.
	Lock *os.File

	group   Group
	started atomic.Uint64
}

// Started returns the number of children that were started. They may have started others.
func (r *Runner) Started() uint64 { return r.started.Load() }

// Enter adds work of the server that must end before [Runner.Close] returns, as [Group.Enter] does.
func (r *Runner) Enter(ctx context.Context) (_ context.Context, done func(), err error) {
	return r.group.Enter(ctx)
}

// Err returns [ErrClosed] after Close.
func (r *Runner) Err() error { return r.group.Err() }

// Close ends all children and waits for them. Later calls of Start fail.
func (r *Runner) Close() { r.group.Close() }

// Start starts git in a process group of its own. When ctx ends, the group receives SIGTERM
// and, after 2 seconds, SIGKILL.
func (r *Runner) Start(ctx context.Context, c Command) (*Process, error) {
	path, err := Path()
	if err != nil {
		return nil, err
	}
	ctx, done, err := r.group.Enter(ctx)
	if err != nil {
		return nil, fmt.Errorf("cannot run git %s: %w", c.Args[0], err)
	}
	p := &Process{ctx: ctx, verb: c.Args[0], stderr: &Tail{Max: StderrMax}, done: done}
	cmd := exec.CommandContext(ctx, path, c.Args...)
	cmd.Env = c.environ()
	if cmd.Dir = c.Dir; c.Dir == "" {
		cmd.Dir = "/"
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = c.In, c.Out, p.stderr
	if c.Progress != nil {
		cmd.Stderr = io.MultiWriter(p.stderr, c.Progress)
	}
	cmd.ExtraFiles = c.Files
	if r.Lock != nil {
		cmd.ExtraFiles = append(slices.Clip(c.Files), r.Lock)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error {
		pid := cmd.Process.Pid
		p.mu.Lock()
		p.kill = time.AfterFunc(killGrace, func() { unix.Kill(-pid, unix.SIGKILL) })
		p.mu.Unlock()
		return unix.Kill(-pid, unix.SIGTERM)
	}
	// A grandchild that keeps the pipes open must not block the caller.
	cmd.WaitDelay = 2 * killGrace
	p.cmd = cmd
	r.started.Add(1)
	if err := cmd.Start(); err != nil {
		done()
		return nil, fmt.Errorf("cannot start git %s: %w", c.Args[0], err)
	}
	if err := p.bound(c); err != nil {
		unix.Kill(-cmd.Process.Pid, unix.SIGKILL)
		p.Wait()
		return nil, fmt.Errorf("cannot limit git %s: %w", c.Args[0], err)
	}
	return p, nil
}

// Run starts a child and waits for its end.
func (r *Runner) Run(ctx context.Context, c Command) error {
	p, err := r.Start(ctx, c)
	if err != nil {
		return err
	}
	return p.Wait()
}

// Output runs a child and returns its stdout. More than [OutputMax] bytes are an error.
func (r *Runner) Output(ctx context.Context, c Command) ([]byte, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	b := &Buffer{Max: OutputMax, Full: func() {
		cancel(fmt.Errorf("git %s: more than %d bytes of output: %w", c.Args[0], OutputMax, object.ErrTooLarge))
	}}
	c.Out = b
	if err := r.Run(ctx, c); err != nil {
		return b.buf.Bytes(), err
	}
	return b.buf.Bytes(), nil
}
