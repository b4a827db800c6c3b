package runner

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

const (
	defaultGrace = 5 * time.Second
	// drainTime bounds the wait for the end of output once everything that
	// could write was killed; only a process that cannot die holds it longer.
	drainTime = 2 * time.Second
	// diskGrace is what a command that writes too much gets at most: it goes on writing.
	diskGrace = time.Second
	pollTime  = 200 * time.Millisecond
	// pipeSize lets a command print a good deal while the runner is not scheduled.
	pipeSize    = 256 << 10
	streamPause = 200 * time.Microsecond
)

// command is one command line, from its start until it is forgotten.
type command struct {
	id         string
	line       string
	background bool
	started    time.Time
	timeout    time.Duration
	grace      time.Duration
	stdout     *spool
	stderr     *spool

	stdin  *os.File // the writing end, or nil
	tty    *os.File // the terminal's master, or nil
	inputs sync.Mutex

	killed  chan struct{} // closed by Kill
	kill    sync.Once     // closes killed
	why     string        // the reason, and says in words; written before killed is closed
	says    string
	exited  chan syscall.WaitStatus   // of the main process
	drained chan struct{}             // both streams reached their end
	closers []interface{ stopRead() } // streams to give up on
	done    chan struct{}             // closed when exit stands

	// Guarded by server.mu.
	pid     int // process, group and session; 0 when it could not start
	running bool
	exit    Exit
	ended   time.Time // of the main process
	cut     bool      // its input broke off while it ran
}

// start runs a command as asked. A program that cannot be run is no failure of
// start: the command then ends with 126 or 127 and says why on its stderr, as a shell's would.
func (s *server) start(r *Request) (*command, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.commands[r.ID] != nil {
		return nil, failf(FailKnown, "command %s was already started", r.ID)
	}
	if err := s.makeRoom(); err != nil {
		return nil, err
	}
	c := &command{
		id: r.ID, line: r.line(), background: r.Background, started: time.Now(),
		timeout: r.Timeout, grace: defaulted(r.Grace, defaultGrace),
		stdout: &spool{folder: s.spool}, stderr: &spool{folder: s.spool},
		killed: make(chan struct{}), exited: make(chan syscall.WaitStatus, 1),
		drained: make(chan struct{}), done: make(chan struct{}), running: true,
	}
	// What stands before it runs, to compare with afterwards.
	disk, memory := newDiskGuard(s.cfg), s.oomKills()
	var err error
	s.user.do(func() { err = s.launch(c, r) })
	if err != nil {
		var cannot *cannotRun
		if !errors.As(err, &cannot) {
			return nil, err
		}
		fmt.Fprintf(c.stderr, "ramus: %v\n", cannot)
		c.stdout.end()
		c.stderr.end()
		c.running = false
		c.exit = Exit{Code: cannot.code, Stderr: c.stderr.count(), Duration: time.Since(c.started)}
		close(c.drained)
		close(c.done)
	}
	s.commands[c.id] = c
	s.order = append(s.order, c)
	if c.running {
		go (&follower{s: s, c: c, disk: disk, memory: memory}).follow()
	}
	return c, nil
}

// makeRoom forgets the oldest background command that ended when too many are
// remembered. Foreground ones are left: somebody is going to ask for them.
func (s *server) makeRoom() error {
	if len(s.commands) < s.cfg.Commands {
		return nil
	}
	for _, c := range s.order {
		if c.background && !c.running {
			s.drop(c)
			return nil
		}
	}
	return failf(FailFull, "cannot start a command: %d are remembered already", len(s.commands))
}

// drop forgets an ended command; the caller holds mu.
func (s *server) drop(c *command) {
	delete(s.commands, c.id)
	for i, o := range s.order {
		if o == c {
			s.order = append(s.order[:i], s.order[i+1:]...)
			break
		}
	}
	c.stdout.drop()
	c.stderr.drop()
}

// cannotRun is why a program did not start, with the exit code a shell would give.
type cannotRun struct {
	code int
	what string
	err  error
}

func (e *cannotRun) Error() string { return "cannot run " + e.what + ": " + e.err.Error() }

// launch forks. It runs on the user thread with mu held.
func (s *server) launch(c *command, r *Request) error {
	dir, err := s.directory(string(r.Dir))
	if err != nil {
		return failf(FailBad, "%v", err)
	}
	env := s.environment(r)
	var open []int
	defer func() {
		for _, fd := range open {
			unix.Close(fd)
		}
	}()
	var files [3]uintptr
	if r.TTY != nil {
		master, slave, err := openTerminal(*r.TTY)
		if err != nil {
			return failf(FailInternal, "cannot open a terminal: %v", err)
		}
		open = append(open, slave)
		files = [3]uintptr{uintptr(slave), uintptr(slave), uintptr(slave)}
		c.tty = master
	} else {
		if r.Stdin {
			var p [2]int
			if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
				return failf(FailInternal, "cannot make a pipe: %v", err)
			}
			open = append(open, p[0])
			c.stdin = pollable(p[1], "stdin")
			files[0] = uintptr(p[0])
		} else {
			null, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				return failf(FailInternal, "cannot open /dev/null: %v", err)
			}
			open = append(open, null)
			files[0] = uintptr(null)
		}
	}
	var outs []*os.File
	giveUp := func() {
		for _, f := range append(outs, c.stdin, c.tty) {
			if f != nil {
				f.Close()
			}
		}
	}
	if r.TTY == nil {
		for i := 1; i <= 2; i++ {
			var p [2]int
			if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
				giveUp()
				return failf(FailInternal, "cannot make a pipe: %v", err)
			}
			// Refused to users who hold many pipes; the usual size does too.
			_, _ = unix.FcntlInt(uintptr(p[1]), unix.F_SETPIPE_SZ, pipeSize)
			open = append(open, p[1])
			files[i] = uintptr(p[1])
			outs = append(outs, pollable(p[0], "output"))
		}
	} else {
		outs = append(outs, c.tty)
	}
	if err := s.exec(c, r, env, dir, files); err != nil {
		giveUp()
		return err
	}
	var pumps sync.WaitGroup
	for i, f := range outs {
		to := []*spool{c.stdout, c.stderr}[i]
		pumps.Go(func() {
			pump(to, f)
			to.end()
			if f != c.tty {
				f.Close()
			}
		})
		c.closers = append(c.closers, stream{f})
	}
	if r.TTY != nil {
		c.stderr.end()
	}
	go func() {
		pumps.Wait()
		close(c.drained)
	}()
	return nil
}

type stream struct{ *os.File }

func (f stream) stopRead() { _ = f.SetReadDeadline(time.Unix(1, 0)) }

// pump copies until nobody can write any more, or until it is told to stop.
func pump(to *spool, from *os.File) {
	buf := make([]byte, 4<<10)
	flowing := 0
	for {
		n, err := from.Read(buf)
		if n > 0 {
			_, _ = to.Write(buf[:n])
		}
		// Programs that print much print it in small pieces, each of which
		// would cost a write, a read and a packet. Once it is a stream, a pause
		// in which the pipe fills makes few large ones of them.
		if n >= len(buf)/2 {
			flowing = 0
		} else if flowing += n; flowing > 1<<20 {
			time.Sleep(streamPause)
		}
		if err != nil {
			// A terminal whose last user left says EIO, which is its end of file.
			return
		}
		if n == len(buf) && len(buf) < pipeSize {
			buf = make([]byte, pipeSize)
		}
	}
}

// pollable makes a file whose reads and writes wait in the poller, not in a
// thread: threads come out of the container's limit of processes.
func pollable(fd int, name string) *os.File {
	_ = unix.SetNonblock(fd, true)
	return os.NewFile(uintptr(fd), name)
}

func openTerminal(t TTY) (master *os.File, slave int, err error) {
	m, sl, err := pty.Open()
	if err != nil {
		return nil, 0, err
	}
	defer m.Close()
	defer sl.Close()
	if err := unix.IoctlSetWinsize(int(m.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: t.Rows, Col: t.Cols}); err != nil {
		return nil, 0, err
	}
	// pty's files block; copies of their descriptors need not.
	mfd, err := unix.FcntlInt(m.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, 0, err
	}
	sfd, err := unix.FcntlInt(sl.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		unix.Close(mfd)
		return nil, 0, err
	}
	return pollable(mfd, "terminal"), sfd, nil
}

// directory resolves a folder below the work tree. The command could go
// elsewhere by itself; this is for requests that did not mean to.
func (s *server) directory(dir string) (string, error) {
	rel := dir
	if filepath.IsAbs(dir) {
		r, err := filepath.Rel(s.cfg.Work, filepath.Clean(dir))
		if err != nil {
			return "", fmt.Errorf("cannot run in %q: it is not below %s", dir, s.cfg.Work)
		}
		rel = r
	}
	if rel == "" || rel == "." {
		return s.cfg.Work, nil
	}
	if !filepath.IsLocal(rel) {
		return "", fmt.Errorf("cannot run in %q: it is not below %s", dir, s.cfg.Work)
	}
	root, err := os.OpenRoot(s.cfg.Work)
	if err != nil {
		return "", fmt.Errorf("cannot open the work tree: %w", err)
	}
	defer root.Close()
	info, err := root.Stat(rel)
	if err != nil {
		return "", fmt.Errorf("cannot run in %q: %w", dir, err)
	}
	if !info.IsDir() {
		return "", fmt.Errorf("cannot run in %q: it is no folder", dir)
	}
	return filepath.Join(s.cfg.Work, rel), nil
}

// environment is the runner's, the container's, the command's, and the cookie
// last, where programs that write their title over their environment reach it last.
func (s *server) environment(r *Request) []string {
	env := append([]string(nil), s.env...)
	if r.TTY != nil {
		env = append(env, "TERM="+defaulted(r.TTY.Term, "xterm-256color"))
	}
	for _, kv := range r.Env {
		env = append(env, string(kv))
	}
	return lastWins(append(env, cookieName+"="+r.ID))
}

// lastWins keeps the last setting of each variable: programs differ in which of two they believe.
func lastWins(env []string) []string {
	last := make(map[string]int, len(env))
	for i, kv := range env {
		k, _, _ := strings.Cut(kv, "=")
		last[k] = i
	}
	out := env[:0]
	for i, kv := range env {
		k, _, _ := strings.Cut(kv, "=")
		if last[k] == i {
			out = append(out, kv)
		}
	}
	return out
}

// exec finds and forks the program, as execvp(3) would.
func (s *server) exec(c *command, r *Request, env []string, dir string, files [3]uintptr) error {
	argv := []string{"sh", "-c", string(r.Shell)}
	candidates := []string{"/bin/sh"}
	if len(r.Args) > 0 {
		argv = argv[:0]
		for _, a := range r.Args {
			argv = append(argv, string(a))
		}
		candidates = lookUp(argv[0], env, dir)
	}
	found := error(syscall.ENOENT)
	for _, program := range candidates {
		at := program
		if !filepath.IsAbs(at) {
			at = filepath.Join(dir, at)
		}
		info, err := os.Stat(at)
		switch {
		case errors.Is(err, fs.ErrPermission):
			found = syscall.EACCES
			continue
		case err != nil:
			continue
		case info.IsDir() || info.Mode()&0o111 == 0:
			found = syscall.EACCES
			continue
		}
		ended := func(ws syscall.WaitStatus) {
			c.ended = time.Now()
			c.exited <- ws
		}
		ch := &child{command: c, ended: ended}
		pid, err := s.fork(program, argv, env, dir, files, r.TTY != nil, ch)
		if errors.Is(err, syscall.ENOEXEC) {
			pid, err = s.fork("/bin/sh", append([]string{"sh", program}, argv[1:]...), env, dir, files, r.TTY != nil, ch)
		}
		if err == nil {
			c.pid = pid
			return nil
		}
		if errors.Is(err, syscall.EACCES) {
			found = err
			continue
		}
		if errors.Is(err, syscall.ENOENT) {
			err = fmt.Errorf("its interpreter or library: %w", err)
			return &cannotRun{127, argv[0], err}
		}
		return &cannotRun{126, argv[0], err}
	}
	if errors.Is(found, syscall.ENOENT) {
		return &cannotRun{127, argv[0], errors.New("command not found")}
	}
	return &cannotRun{126, argv[0], found}
}

func lookUp(name string, env []string, dir string) []string {
	if strings.Contains(name, "/") {
		return []string{name}
	}
	var path string
	for _, kv := range env {
		if v, ok := strings.CutPrefix(kv, "PATH="); ok {
			path = v
		}
	}
	var all []string
	for _, d := range filepath.SplitList(path) {
		if d == "" {
			d = "."
		}
		if !filepath.IsAbs(d) {
			d = filepath.Join(dir, d)
		}
		all = append(all, filepath.Join(d, name))
	}
	return all
}

// hasBelongings tells whether anything of c is alive besides its main process.
func (s *server) hasBelongings(c *command) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	its, _ := s.belongings(c)
	return len(its) > 0
}

func (s *server) groupGone(c *command) bool {
	return errors.Is(syscall.Kill(-c.pid, 0), syscall.ESRCH)
}

// feed copies stdin until its end. The end is passed on only if complete says
// that it was meant.
func (c *command) feed(from io.Reader, complete func() bool) {
	to := c.stdin
	if c.tty != nil {
		to = c.tty
	}
	if to == nil {
		_, _ = io.Copy(io.Discard, from)
		return
	}
	// A command that no longer reads is none of the sender's business: the rest is thrown away.
	if _, err := io.Copy(to, from); err != nil {
		_, _ = io.Copy(io.Discard, from)
		return
	}
	if !complete() {
		return
	}
	if c.tty != nil {
		_, _ = c.tty.Write([]byte{4})
		return
	}
	c.inputs.Lock()
	defer c.inputs.Unlock()
	to.Close()
}

func (c *command) resize(rows, cols uint16) {
	if c.tty == nil {
		return
	}
	conn, err := c.tty.SyscallConn()
	if err != nil {
		return
	}
	_ = conn.Control(func(fd uintptr) {
		_ = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: cols})
	})
}

// end kills a command as a timeout would.
func (s *server) end(r *Request) error {
	c, err := s.find(r.ID)
	if err != nil {
		return err
	}
	c.kill.Do(func() {
		c.why, c.says = defaulted(r.Reason, ReasonKilled), r.Message
		close(c.killed)
	})
	return nil
}

func (s *server) find(id string) (*command, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.commands[id]; c != nil {
		return c, nil
	}
	return nil, failf(FailUnknown, "no command %s is remembered", id)
}

func (s *server) forget(id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.commands[id]
	if c == nil {
		return failf(FailUnknown, "no command %s is remembered", id)
	}
	if c.running {
		return failf(FailRunning, "cannot forget command %s: it is running", id)
	}
	s.drop(c)
	return nil
}

func (s *server) list() []State {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]State, 0, len(s.order))
	for _, c := range s.order {
		exit := c.exit
		if c.running {
			exit.Stdout, exit.Stderr = c.stdout.count(), c.stderr.count()
		}
		all = append(all, State{ID: c.id, Started: c.started, Background: c.background, Running: c.running, Exit: exit, Line: c.line, Cut: c.cut})
	}
	return all
}
