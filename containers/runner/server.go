package runner

import (
	"errors"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// server is the state of the runner.
type server struct {
	cfg      Config
	log      *slog.Logger
	user     *userThread
	spool    *spoolFolder
	door     *door
	forwards *forwards
	env      []string
	score    *oomScore

	// mu guards the fields below. It is held during a fork and during every look at the process table, so that a pid
	// cannot be reaped and given to another process between finding and using it.
	mu       sync.Mutex
	commands map[string]*command
	order    []*command // oldest first
	children map[int]*child
}

// child is a process that the runner started itself.
type child struct {
	command *command // nil for SFTP servers
	ended   func(syscall.WaitStatus)
}

// fork starts a process of the commands' user. The caller holds mu and runs on the user thread. ended is called with mu
// held and must not block. more are its descriptors from 3 on.
func (s *server) fork(program string, argv, env []string, dir string, files [3]uintptr, tty bool, c *child, more ...uintptr) (int, error) {
	attr := &syscall.ProcAttr{Dir: dir, Env: env, Files: append(files[:], more...), Sys: &syscall.SysProcAttr{Setsid: true, Setctty: tty}}
	if s.cfg.UID != 0 {
		attr.Sys.Credential = &syscall.Credential{Uid: uint32(s.cfg.UID), Gid: uint32(s.cfg.GID)}
	}
	// The fork inherits the score. The runner's own is restored at once.
	s.score.raise()
	pid, err := syscall.ForkExec(program, argv, attr)
	s.score.restore()
	if err != nil {
		return 0, err
	}
	s.children[pid] = c
	return pid, nil
}

// reap takes the exit status of every process that has ended: the runner's own children and the orphans that process 1
// inherits. No other code waits for processes, so no status gets lost.
func (s *server) reap() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &ws, syscall.WNOHANG, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
		if c := s.children[pid]; c != nil {
			delete(s.children, pid)
			c.ended(ws)
		}
	}
}

// others reports whether a process that the runner started for anything but c is alive.
func (s *server) others(c *command) bool {
	for _, ch := range s.children {
		if ch.command == nil || ch.command != c {
			return true
		}
	}
	for _, o := range s.commands {
		if o != c && o.running {
			return true
		}
	}
	return false
}

// belongings returns the processes that belong to c, and those that belong to no running command. A process belongs to
// a command if the main process of the command is an ancestor of it, if the main process leads its session, or if it or
// an ancestor has the command's cookie.
func (s *server) belongings(c *command) (its, nobodys []int) {
	mains := map[int]*command{}
	spared := map[int]bool{}
	for pid, ch := range s.children {
		if ch.command == nil {
			spared[pid] = true
		}
	}
	running := map[string]*command{}
	for _, o := range s.commands {
		if o.running && o.pid > 0 {
			mains[o.pid] = o
			running[o.id] = o
		}
	}
	var all []process
	cookies := map[int]string{}
	s.user.do(func() {
		all = processes()
		patience := 50 // for all processes together, in case they hide their environment on purpose
		for _, p := range all {
			if p.zombie || spared[p.pid] || mains[p.session] != nil {
				continue
			}
			id, blank := cookie(p.pid)
			for ; blank && patience > 0; patience-- {
				time.Sleep(time.Millisecond)
				id, blank = cookie(p.pid)
			}
			cookies[p.pid] = id
		}
	})
	parents := make(map[int]process, len(all))
	for _, p := range all {
		parents[p.pid] = p
	}
	var owner func(p process, depth int) (*command, bool)
	owner = func(p process, depth int) (o *command, isSpared bool) {
		if spared[p.pid] || spared[p.session] {
			return nil, true
		}
		if o := mains[p.pid]; o != nil {
			return o, false
		}
		if o := mains[p.session]; o != nil {
			return o, false
		}
		if o := running[cookies[p.pid]]; o != nil {
			return o, false
		}
		if up, ok := parents[p.parent]; ok && depth < 4096 {
			return owner(up, depth+1)
		}
		return nil, false
	}
	for _, p := range all {
		if p.zombie {
			continue
		}
		switch o, isSpared := owner(p, 0); {
		case isSpared:
		case o == nil:
			nobodys = append(nobodys, p.pid)
		case o == c:
			its = append(its, p.pid)
		}
	}
	return its, nobodys
}

// signal sends sig to all processes of c, and continues stopped ones.
func (s *server) signal(c *command, sig syscall.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	its, nobodys := s.belongings(c)
	// The process group comes first, as with a terminal, and then the processes that left it.
	if c.pid > 0 {
		_ = syscall.Kill(-c.pid, sig)
		_ = syscall.Kill(-c.pid, syscall.SIGCONT)
	}
	for _, pid := range append(its, nobodys...) {
		if g, err := unix.Getpgid(pid); err == nil && g == c.pid {
			continue
		}
		_ = syscall.Kill(pid, sig)
		_ = syscall.Kill(pid, syscall.SIGCONT)
	}
}

// sweep kills all processes that belong to c or to no command, and waits for their end, because nothing may write to
// the work tree after a command. [drainTime] bounds the wait. Only processes that hang in the kernel outlive it.
func (s *server) sweep(c *command) {
	late := time.Now().Add(drainTime)
	for wait := 100 * time.Microsecond; s.sweepOnce(c) && time.Now().Before(late); wait = min(wait*2, 50*time.Millisecond) {
		time.Sleep(wait) // the dead are reaped meanwhile, which needs mu
	}
}

// sweepOnce reports whether there was a process to kill.
func (s *server) sweepOnce(c *command) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.others(c) {
		// The kernel kills all processes in one step, which is faster than any fork bomb.
		return !errors.Is(syscall.Kill(-1, syscall.SIGKILL), syscall.ESRCH)
	}
	// Stop the processes, look again, and kill them when no new ones appear. If the processes of a fork bomb were
	// killed one by one, new ones would take their places.
	stopped := map[int]bool{}
	for range 100 {
		its, nobodys := s.belongings(c)
		victims := append(its, nobodys...)
		fresh := false
		for _, pid := range victims {
			if !stopped[pid] {
				stopped[pid], fresh = true, true
				_ = syscall.Kill(pid, syscall.SIGSTOP)
			}
		}
		if !fresh {
			for _, pid := range victims {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
			return len(victims) > 0
		}
	}
	// Processes that escape a hundred attempts endanger the container anyway.
	s.log.Warn("killing every process: one command's could not be caught", "command", c.id)
	_ = syscall.Kill(-1, syscall.SIGKILL)
	return true
}

// oomScore makes the kernel prefer commands to the runner when memory runs out.
type oomScore struct {
	file     *os.File // opened before the runner became undumpable; nil if that is not possible
	own      string
	commands string
}

// likelier is the difference between the scores of commands and of the runner. The maximum score is 1000.
const likelier = 300

func openOOMScore() *oomScore {
	own, err := os.ReadFile("/proc/self/oom_score_adj")
	if err != nil {
		return &oomScore{}
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(own)))
	if err != nil {
		return &oomScore{}
	}
	f, err := os.OpenFile("/proc/self/oom_score_adj", os.O_WRONLY, 0)
	if err != nil {
		return &oomScore{}
	}
	return &oomScore{file: f, own: strconv.Itoa(n), commands: strconv.Itoa(min(n+likelier, 1000))}
}

func (o *oomScore) raise()   { o.write(o.commands) }
func (o *oomScore) restore() { o.write(o.own) }

func (o *oomScore) write(v string) {
	if o.file != nil {
		// A failure is no error, because the kernel still takes the largest process first.
		_, _ = o.file.WriteAt([]byte(v), 0)
	}
}
