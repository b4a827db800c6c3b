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
	// drainTime bounds the wait for the end of output after every process that could write was killed. Only a process
	// that cannot die takes longer.
	drainTime = 2 * time.Second
	// diskGrace bounds the grace of a command that fills the disk, because it continues to write.
	diskGrace = time.Second
	pollTime  = 200 * time.Millisecond
	// pipeSize allows a command to print while the runner is not scheduled.
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
	brake      brake // of a command with a window

	stdin  *os.File // the writing end, or nil
	tty    *os.File // the terminal's master, or nil
	inputs sync.Mutex

	killed  chan struct{} // closed by kill
	kill    sync.Once     // closes killed
	why     string        // the reason for the kill; written before killed is closed, as is message
	message string
	exited  chan syscall.WaitStatus   // of the main process
	drained chan struct{}             // closed when both streams have ended
	closers []interface{ stopRead() } // streams whose reading is stopped in the end
	done    chan struct{}             // closed when exit is set

	// server.mu guards the fields below.
	pid     int // of process, group and session; 0 if the program could not start
	running bool
	exit    Exit
	ended   time.Time // when the main process ended
	cut     bool      // its input broke off while it ran
}

// start starts a command. A program that cannot be run is no error of start. Like in a shell, the command then ends
// with 126 or 127 and an explanation on its stderr.
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
		stdout: &spool{folder: s.spool, window: r.Window}, stderr: &spool{folder: s.spool},
		killed: make(chan struct{}), exited: make(chan syscall.WaitStatus, 1),
		drained: make(chan struct{}), done: make(chan struct{}), running: true,
	}
	// newDiskGuard and oomKills read the state before the command runs, for a later comparison.
	disk, memory := newDiskGuard(s.cfg), s.oomKills()
	var err error
	s.user.do(func() { err = s.launch(c, r) })
	if err != nil {
		var cannot *cannotRun
		if !errors.As(err, &cannot) {
			return nil, err
		}
		fmt.Fprintf(c.stderr, "ramus: %v\n", cannot)
		c.stdout.finish()
		c.stderr.finish()
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

// makeRoom forgets the oldest background command that has ended if too many are remembered. It keeps foreground
// commands, because a client is going to ask for them.
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

// drop forgets a command that has ended. The caller holds mu.
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

// cannotRun is the reason why a program did not start, with the exit code of a shell.
type cannotRun struct {
	code int
	what string
	err  error
}

func (e *cannotRun) Error() string { return "cannot run " + e.what + ": " + e.err.Error() }

// launch starts the program of c. It runs on the user thread with mu held.
func (s *server) launch(c *command, r *Request) error {
	dir, err := s.directory(string(r.Dir))
	if err != nil {
		return failf(FailBad, "%v", err)
	}
	files, err := c.openFiles(r)
	defer files.closeInside()
	if err != nil {
		files.closeOutside(c)
		return failf(FailInternal, "%v", err)
	}

	if err := s.exec(c, r, s.environment(r), dir, files.inside); err != nil {
		files.closeOutside(c)
		return err
	}
	c.pump(files.outs)
	return nil
}

// commandFiles are the files that connect a command with the runner.
type commandFiles struct {
	inside [3]uintptr // stdin, stdout and stderr of the command
	opened []int      // the descriptors in inside
	outs   []*os.File // the runner's sides of stdout and stderr, or only the terminal
}

// closeInside closes the runner's copies of the command's descriptors.
func (f *commandFiles) closeInside() {
	for _, fd := range f.opened {
		unix.Close(fd)
	}
}

// closeOutside closes the runner's sides of the files of a command that did not start.
func (f *commandFiles) closeOutside(c *command) {
	for _, file := range append(f.outs, c.stdin, c.tty) {
		if file != nil {
			file.Close()
		}
	}
}

// openFiles opens the files of a command. It sets c.tty or, if the request has input, c.stdin. The result is valid after an
// error too, so that the caller can close it.
func (c *command) openFiles(r *Request) (*commandFiles, error) {
	f := &commandFiles{}
	if r.TTY != nil {
		master, slave, err := openTerminal(*r.TTY)
		if err != nil {
			return f, fmt.Errorf("cannot open a terminal: %w", err)
		}
		f.opened = append(f.opened, slave)
		f.inside = [3]uintptr{uintptr(slave), uintptr(slave), uintptr(slave)}
		c.tty = master
		f.outs = append(f.outs, c.tty)
		return f, nil
	}

	if r.Stdin {
		in, out, err := openPipe()
		if err != nil {
			return f, err
		}
		f.opened = append(f.opened, in)
		f.inside[0] = uintptr(in)
		c.stdin = pollable(out, "stdin")
	} else {
		null, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return f, fmt.Errorf("cannot open /dev/null: %w", err)
		}
		f.opened = append(f.opened, null)
		f.inside[0] = uintptr(null)
	}

	for i := 1; i <= 2; i++ {
		in, out, err := openPipe()
		if err != nil {
			return f, err
		}
		// The kernel refuses a larger pipe to users with many pipes. The usual size works too.
		_, _ = unix.FcntlInt(uintptr(out), unix.F_SETPIPE_SZ, pipeSize)
		f.opened = append(f.opened, out)
		f.inside[i] = uintptr(out)
		f.outs = append(f.outs, pollable(in, "output"))
	}
	return f, nil
}

// openPipe returns the reading and the writing side of a pipe.
func openPipe() (in, out int, err error) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return -1, -1, fmt.Errorf("cannot make a pipe: %w", err)
	}
	return p[0], p[1], nil
}

// pump starts copying the outputs of a command to its spools. drained is closed when all have ended.
func (c *command) pump(outs []*os.File) {
	var pumps sync.WaitGroup
	for i, f := range outs {
		to := []*spool{c.stdout, c.stderr}[i]
		pumps.Go(func() {
			if to.window > 0 {
				c.pumpWindow(f)
			} else {
				pump(to, f)
			}
			to.finish()
			if f != c.tty {
				f.Close()
			}
		})
		c.closers = append(c.closers, outputStream{f, &c.brake})
	}
	if c.tty != nil {
		c.stderr.finish()
	}

	go func() {
		pumps.Wait()
		close(c.drained)
	}()
}

// outputStream is the reading side of an output, which may be a terminal.
type outputStream struct {
	*os.File
	brake *brake
}

func (f outputStream) stopRead() {
	_ = f.SetReadDeadline(time.Unix(1, 0))
	f.brake.release()
}

// windowRead is the number of bytes that a command with a window may print after its brake was asked.
const windowRead = 16 << 10

// pumpWindow is pump for a command with a window. It waits for the brake.
func (c *command) pumpWindow(from *os.File) {
	buf := make([]byte, windowRead)
	var at int64
	for {
		c.brake.wait(at)
		n, err := from.Read(buf)
		if n > 0 {
			_, _ = c.stdout.Write(buf[:n])
			at += int64(n)
		}
		if err != nil {
			return
		}
	}
}

// pump copies from from to to until no process can write any more, or until it is stopped.
func pump(to *spool, from *os.File) {
	buf := make([]byte, 4<<10)
	flowing := 0
	for {
		n, err := from.Read(buf)
		if n > 0 {
			_, _ = to.Write(buf[:n])
		}
		// Programs with much output often write it in small pieces. Each would cost a write, a read and a packet. After
		// the first MB, a pause in which the pipe fills turns them into few large ones.
		if n >= len(buf)/2 {
			flowing = 0
		} else if flowing += n; flowing > 1<<20 {
			time.Sleep(streamPause)
		}
		if err != nil {
			// A terminal returns EIO after its last user has closed it, which is its end of file.
			return
		}
		if n == len(buf) && len(buf) < pipeSize {
			buf = make([]byte, pipeSize)
		}
	}
}

// pollable returns a file whose reads and writes wait in the poller and not in a thread, because threads count against
// the container's limit of processes.
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
	// The files of package pty block. Copies of their descriptors do not have to.
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

// directory resolves a folder below the work tree. A command can leave the work tree by itself, so directory only
// catches mistakes in requests.
func (s *server) directory(dir string) (string, error) {
	rel := dir
	if filepath.IsAbs(dir) {
		r, err := filepath.Rel(s.cfg.Work, filepath.Clean(dir))
		if err != nil {
			return "", fmt.Errorf("cannot run in %q: it is not below %s", dir, s.cfg.Work)
		}
		rel = r
	}
	if rel == "" {
		return s.cfg.Dir, nil
	}
	if rel == "." {
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
		return "", fmt.Errorf("cannot run in %q: it is not a folder", dir)
	}
	return filepath.Join(s.cfg.Work, rel), nil
}

// environment returns the environment of the runner, the container and the command. The cookie is last, because
// programs that write their title over their environment reach it last.
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

// lastWins removes all but the last setting of each variable, because programs differ in which of two they use.
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

// exec finds and starts the program, like execvp(3).
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
		if len(r.Guard) > 0 {
			return s.execGuarded(c, r, program, argv, env, dir, files, ch)
		}
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

// execGuarded starts a program of a guarded command.
func (s *server) execGuarded(c *command, r *Request, program string, argv, env []string, dir string, files [3]uintptr, ch *child) error {
	p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return failf(FailInternal, "cannot guard the command: %v", err)
	}
	defer unix.Close(p[1])
	ours := os.NewFile(uintptr(p[0]), "guard")
	pid, err := s.fork("/proc/self/exe", append([]string{"ramus", "runner", "guard", program}, argv...), env, dir, files,
		r.TTY != nil, ch, uintptr(p[1]))
	if err != nil {
		ours.Close()
		return &cannotRun{126, argv[0], err}
	}
	c.pid = pid
	go s.watchGuard(c, r.Guard, ours)
	return nil
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

// hasBelongings reports whether a process of c other than its main process is alive.
func (s *server) hasBelongings(c *command) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	its, _ := s.belongings(c)
	return len(its) > 0
}

func (s *server) groupGone(c *command) bool {
	return errors.Is(syscall.Kill(-c.pid, 0), syscall.ESRCH)
}

// feed copies stdin until its end. It passes on the end only if complete returns true.
func (c *command) feed(from io.Reader, complete func() bool) {
	to := c.stdin
	if c.tty != nil {
		to = c.tty
	}
	if to == nil {
		_, _ = io.Copy(io.Discard, from)
		return
	}
	// A sender does not need to know that a command no longer reads, so the rest is discarded.
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

// killCommand kills a command like a timeout does.
func (s *server) killCommand(r *Request) error {
	c, err := s.find(r.ID)
	if err != nil {
		return err
	}
	c.kill.Do(func() {
		c.why, c.message = defaulted(r.Reason, ReasonKilled), r.Message
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
	return nil, failf(FailUnknown, "command %s is not remembered", id)
}

func (s *server) forget(id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.commands[id]
	if c == nil {
		return failf(FailUnknown, "command %s is not remembered", id)
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
		all = append(all, State{ID: c.id, Started: c.started, Background: c.background, Running: c.running, Exit: exit,
			Line: c.line, Cut: c.cut})
	}
	return all
}
