package gitd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// This file is the only place of the package that starts native git.

const (
	// stderrMax bounds what is remembered of a child's stderr: enough for
	// git's own message, not for a client that makes git print without end.
	stderrMax = 16 << 10
	// outputMax bounds answers that are collected in memory.
	outputMax = 256 << 20
	// killGrace is how long a cancelled child may take to remove its lock and
	// temporary files (git does so on SIGTERM) before SIGKILL.
	killGrace = 2 * time.Second
)

// gitPath is looked up once, so that a later change of PATH cannot put another
// program in git's place.
var gitPath = sync.OnceValues(func() (string, error) {
	p, err := exec.LookPath("git")
	if err != nil {
		return "", fmt.Errorf("cannot find git: %w", err)
	}
	return p, nil
})

// child describes one run of native git.
type child struct {
	// repo becomes GIT_DIR, so that git discovers nothing. Empty for verbs
	// that take their repository as an argument.
	repo string
	// args is the verb and its arguments. Whatever comes from outside stands
	// after --end-of-options or --.
	args []string
	// dir is the working directory; "/" when empty.
	dir string
	// config is a list of "key=value" that stand above every config file.
	// They travel in the environment: git's own children get them too, and
	// the process list does not show them.
	config []string
	// env adds "KEY=value" to the scrubbed environment.
	env []string
	// in must return from Read when the context ends, or be an [os.File]: the
	// goroutine that copies it is waited for.
	in  io.Reader
	out io.Writer
	// files are the child's file descriptors from 3 on; its own children get them, too.
	files []*os.File
	// progress receives stderr as it comes, beside the error's copy.
	progress io.Writer
	// cpu and memory bound the child and, each for itself, its children; zero
	// means no bound. Time is bounded by the context.
	cpu    time.Duration
	memory int64
	// file bounds, in bytes, each file that the child writes.
	file int64
}

// configAlways is what every child runs with.
var configAlways = []string{
	"safe.directory=*", // Root may belong to another user; who may read it is the grant's business
	"core.hooksPath=/dev/null",
	"core.fsmonitor=false",
	"core.alternateRefsCommand=true",
	"core.attributesFile=/dev/null",
	"core.excludesFile=/dev/null",
	"core.askPass=",
	"credential.helper=",
	"protocol.allow=never",
	"gc.auto=0",
	"maintenance.auto=false",
	"receive.autogc=false",
	"core.fsync=all",
	"core.fsyncMethod=fsync",
}

// environ is the whole environment of a child; nothing of the server's own is
// inherited but PATH, which git needs for ssh.
func (c child) environ() []string {
	env := []string{
		"PATH=" + os.Getenv("PATH"),
		"HOME=/nonexistent",
		"LC_ALL=C",
		"GIT_CONFIG_NOSYSTEM=1",
		"GIT_CONFIG_GLOBAL=/dev/null",
		"GIT_ATTR_NOSYSTEM=1",
		"GIT_TERMINAL_PROMPT=0",
		// A pushed refs/replace/* must not change what is read or merged.
		"GIT_NO_REPLACE_OBJECTS=1",
		"GIT_NO_LAZY_FETCH=1",
	}
	if c.repo != "" {
		env = append(env, "GIT_DIR="+c.repo)
	}
	env = append(env, c.env...)
	n := 0
	for _, list := range [][]string{configAlways, c.config} {
		for _, kv := range list {
			k, v, _ := strings.Cut(kv, "=")
			i := strconv.Itoa(n)
			env = append(env, "GIT_CONFIG_KEY_"+i+"="+k, "GIT_CONFIG_VALUE_"+i+"="+v)
			n++
		}
	}
	return append(env, "GIT_CONFIG_COUNT="+strconv.Itoa(n))
}

// gitError is a child that did not exit with 0.
type gitError struct {
	verb   string
	code   int // exit code; -1 when it was ended by a signal
	stderr string
	err    error // of exec, or the context's
}

func (e *gitError) Error() string {
	s := "git " + e.verb + ": " + e.err.Error()
	if e.stderr != "" {
		s += ": " + e.stderr
	}
	return s
}

func (e *gitError) Unwrap() error { return e.err }

// exitCode is the exit code of the child that err tells of, or -1.
func exitCode(err error) int {
	var e *gitError
	if errors.As(err, &e) {
		return e.code
	}
	return -1
}

// process is a running child. wait must be called once.
type process struct {
	cmd    *exec.Cmd
	ctx    context.Context
	verb   string
	stderr *tail
	kill   *time.Timer
	mu     sync.Mutex // guards kill
	done   func()
}

// start runs git in a process group of its own; when ctx ends the group gets
// SIGTERM and, killGrace later, SIGKILL.
func (s *Server) start(ctx context.Context, c child) (*process, error) {
	path, err := gitPath()
	if err != nil {
		return nil, err
	}
	ctx, done, err := s.family.enter(ctx)
	if err != nil {
		return nil, fmt.Errorf("cannot run git %s: %w", c.args[0], err)
	}
	p := &process{ctx: ctx, verb: c.args[0], stderr: &tail{max: stderrMax}, done: done}
	cmd := exec.CommandContext(ctx, path, c.args...)
	cmd.Env = c.environ()
	if cmd.Dir = c.dir; c.dir == "" {
		cmd.Dir = "/"
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = c.in, c.out, p.stderr
	if c.progress != nil {
		cmd.Stderr = io.MultiWriter(p.stderr, c.progress)
	}
	cmd.ExtraFiles = c.files
	if s.family.lock != nil {
		cmd.ExtraFiles = append(slices.Clip(c.files), s.family.lock)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error {
		pid := cmd.Process.Pid
		p.mu.Lock()
		p.kill = time.AfterFunc(killGrace, func() { unix.Kill(-pid, unix.SIGKILL) })
		p.mu.Unlock()
		return unix.Kill(-pid, unix.SIGTERM)
	}
	// A grandchild that keeps the pipes open must not hold the caller.
	cmd.WaitDelay = 2 * killGrace
	p.cmd = cmd
	s.stats.children.Add(1)
	if err := cmd.Start(); err != nil {
		done()
		return nil, fmt.Errorf("cannot start git %s: %w", c.args[0], err)
	}
	if err := p.bound(c); err != nil {
		unix.Kill(-cmd.Process.Pid, unix.SIGKILL)
		p.wait()
		return nil, fmt.Errorf("cannot limit git %s: %w", c.args[0], err)
	}
	return p, nil
}

// bound sets resource limits on the running child. It has read nothing of its
// input yet, or next to nothing, and what it forks inherits them.
func (p *process) bound(c child) error {
	pid := p.cmd.Process.Pid
	set := func(what int, n uint64) error {
		err := unix.Prlimit(pid, what, &unix.Rlimit{Cur: n, Max: n}, nil)
		if errors.Is(err, unix.ESRCH) {
			return nil // it has ended already
		}
		return err
	}
	var err error
	if c.cpu > 0 {
		err = errors.Join(err, set(unix.RLIMIT_CPU, uint64((c.cpu+time.Second-1)/time.Second)))
	}
	if c.memory > 0 {
		err = errors.Join(err, set(unix.RLIMIT_AS, uint64(c.memory)))
	}
	if c.file > 0 {
		err = errors.Join(err, set(unix.RLIMIT_FSIZE, uint64(c.file)))
	}
	return errors.Join(err, set(unix.RLIMIT_CORE, 0))
}

// wait waits for the child's end and releases what start took.
func (p *process) wait() error {
	err := p.cmd.Wait()
	p.mu.Lock()
	if p.kill != nil && p.kill.Stop() {
		// The leader went on SIGTERM; whatever of its group stayed goes now.
		unix.Kill(-p.cmd.Process.Pid, unix.SIGKILL)
	}
	p.mu.Unlock()
	cause := context.Cause(p.ctx)
	p.done() // ends p.ctx
	if err == nil {
		return nil
	}
	e := &gitError{verb: p.verb, code: -1, stderr: p.stderr.String(), err: err}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		e.code = exit.ExitCode()
	}
	if cause != nil {
		e.err = cause
	}
	return e
}

// run starts a child and waits for it.
func (s *Server) run(ctx context.Context, c child) error {
	p, err := s.start(ctx, c)
	if err != nil {
		return err
	}
	return p.wait()
}

// output runs a child and returns its stdout, at most outputMax bytes.
func (s *Server) output(ctx context.Context, c child) ([]byte, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	b := &bounded{max: outputMax, full: func() {
		cancel(fmt.Errorf("git %s: more than %d bytes of output: %w", c.args[0], outputMax, ErrTooLarge))
	}}
	c.out = b
	if err := s.run(ctx, c); err != nil {
		return b.buf.Bytes(), err
	}
	return b.buf.Bytes(), nil
}

// bounded is a buffer that calls full instead of growing beyond max.
type bounded struct {
	buf  bytes.Buffer
	max  int
	full func()
}

func (b *bounded) Write(p []byte) (int, error) {
	if b.buf.Len()+len(p) > b.max {
		b.full()
		return 0, ErrTooLarge
	}
	return b.buf.Write(p)
}

// tail keeps the last max bytes written to it.
type tail struct {
	mu  sync.Mutex // guards buf
	buf []byte
	max int
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, p...)
	if extra := len(t.buf) - t.max; extra > 0 {
		t.buf = append(t.buf[:0], t.buf[extra:]...)
	}
	return len(p), nil
}

// String returns what was kept as one line without control characters: it ends
// up in logs and terminals, and a client may have written part of it.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var lines []string
	for _, l := range strings.FieldsFunc(string(t.buf), func(r rune) bool { return r == '\n' || r == '\r' }) {
		l = strings.TrimSpace(strings.Map(func(r rune) rune {
			if r < ' ' || r == 0x7f {
				return -1
			}
			return r
		}, l))
		if l != "" {
			lines = append(lines, l)
		}
	}
	return strings.ToValidUTF8(strings.Join(lines, "; "), "\ufffd")
}

// errClosed is the cause of children that end because their server was closed.
var errClosed = errors.New("the Git server is closed")

// family counts the children of a server, so that Close can end and await them.
type family struct {
	mu     sync.Mutex // guards closed, ctx, cancel and additions to live
	closed bool
	ctx    context.Context // made at first use; ended by close
	cancel context.CancelCauseFunc
	live   sync.WaitGroup
	// lock is the root's lock file, inherited by every child: a later server
	// that gets the lock for itself knows that no child of this one lives.
	// Set by Open, then read only.
	lock *os.File
}

// enter counts one child in; the context it returns ends with ctx or with the
// server, and done must be called once.
func (f *family) enter(ctx context.Context) (context.Context, func(), error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, context.Cause(ctx)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil, nil, errClosed
	}
	if f.ctx == nil {
		f.ctx, f.cancel = context.WithCancelCause(context.Background())
	}
	f.live.Add(1)
	ctx, cancel := context.WithCancelCause(ctx)
	home := f.ctx
	stop := context.AfterFunc(home, func() { cancel(context.Cause(home)) })
	return ctx, func() {
		stop()
		cancel(nil)
		f.live.Done()
	}, nil
}

// err is errClosed after close.
func (f *family) err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return errClosed
	}
	return nil
}

// close ends all children and waits for them.
func (f *family) close() {
	f.mu.Lock()
	f.closed = true
	if f.cancel != nil {
		f.cancel(errClosed)
	}
	f.mu.Unlock()
	f.live.Wait()
}
