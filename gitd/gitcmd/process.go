package gitcmd

import (
	"context"
	"errors"
	"os/exec"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Process is a running child. Wait must be called once.
type Process struct {
	cmd    *exec.Cmd
	ctx    context.Context
	verb   string
	stderr *Tail
	kill   *time.Timer
	mu     sync.Mutex // guards kill
	done   func()
}

// Context returns the context of the child. It ends before Wait returns.
func (p *Process) Context() context.Context { return p.ctx }

// bound sets resource limits on the running child. The child has read little or none of its
// input by then, and its own children inherit the limits.
func (p *Process) bound(c Command) error {
	pid := p.cmd.Process.Pid
	set := func(what int, n uint64) error {
		err := unix.Prlimit(pid, what, &unix.Rlimit{Cur: n, Max: n}, nil)
		if errors.Is(err, unix.ESRCH) {
			return nil // the child has ended already
		}
		return err
	}
	var err error
	if c.CPU > 0 {
		err = errors.Join(err, set(unix.RLIMIT_CPU, uint64((c.CPU+time.Second-1)/time.Second)))
	}
	if c.Memory > 0 {
		err = errors.Join(err, set(unix.RLIMIT_AS, uint64(c.Memory)))
	}
	if c.File > 0 {
		err = errors.Join(err, set(unix.RLIMIT_FSIZE, uint64(c.File)))
	}
	return errors.Join(err, set(unix.RLIMIT_CORE, 0))
}

// Wait waits for the end of the child and releases its resources. It returns an [Error] if the
// child failed or was ended.
func (p *Process) Wait() error {
	err := p.cmd.Wait()
	p.mu.Lock()
	if p.kill != nil && p.kill.Stop() {
		// The leader ended on SIGTERM. This ends the rest of its group.
		unix.Kill(-p.cmd.Process.Pid, unix.SIGKILL)
	}
	p.mu.Unlock()
	cause := context.Cause(p.ctx)
	p.done() // ends p.ctx
	if err == nil {
		return nil
	}
	e := &Error{verb: p.verb, code: -1, stderr: p.stderr.String(), err: err}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		e.code = exit.ExitCode()
	}
	if cause != nil {
		e.err = cause
	}
	return e
}
