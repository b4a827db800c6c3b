package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// server is a server under test, a process with its children.
type server struct {
	name  string
	url   string
	cmd   *exec.Cmd
	stdin io.Closer
	group string // its control group, if one could be made
	ended chan error
	log   *tail
}

// starting is how long a server may take to print its address.
const starting = 30 * time.Second

// start starts a server and waits for the line of its standard output that ready recognises. It does not wait if ready
// is nil.
func (b *bench) start(ctx context.Context, name string, env []string, ready func(line string) (url string, ok bool), program string, args ...string) (*server, error) {
	cmd := exec.Command(program, args...)
	cmd.Env, cmd.Dir = append(plainEnv(), env...), b.dir
	// The terminal's interrupts reach only the bench, which stops the servers in its own order.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return b.startCommand(ctx, name, cmd, ready)
}

// startCommand is start for a prepared command. It runs in a process group of its own.
func (b *bench) startCommand(ctx context.Context, name string, cmd *exec.Cmd, ready func(string) (string, bool)) (*server, error) {
	s := &server{name: name, cmd: cmd, ended: make(chan error, 1), log: new(tail)}
	s.cmd.Stderr = s.log
	in, err := s.cmd.StdinPipe() // our peers end with it, even if the bench is killed
	if err != nil {
		return nil, err
	}
	s.stdin = in
	out, theirs, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	s.cmd.Stdout = theirs
	s.cmd.WaitDelay = time.Second // a process that the server leaves may hold its outputs open
	s.makeGroup()
	s.enterGroup()
	err = s.cmd.Start()
	theirs.Close()
	if err != nil {
		out.Close()
		return nil, joined(fmt.Errorf("cannot start %s: %w", name, err), s.leaveGroup())
	}
	s.joinGroup()
	urls := make(chan string, 1)
	var reading sync.WaitGroup
	reading.Go(func() {
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			if ready == nil {
				continue
			}
			if url, ok := ready(lines.Text()); ok {
				select {
				case urls <- url:
				default:
				}
			}
		}
		io.Copy(io.Discard, out) // a line that was too long
	})
	reading.Go(func() { s.ended <- s.cmd.Wait() })
	b.onExit(func(ctx context.Context) error {
		err := s.stop(ctx)
		out.Close()
		reading.Wait()
		return err
	})
	if ready == nil {
		return s, nil
	}
	select {
	case s.url = <-urls:
		return s, nil
	case err := <-s.ended:
		s.ended <- err
		return nil, fmt.Errorf("%s ended at once: %w: %s", name, err, s.log)
	case <-time.After(starting):
		return nil, fmt.Errorf("%s does not serve within %v: %s", name, starting, s.log)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// serving reads the first line that our servers print.
func serving(line string) (string, bool) {
	url, ok := strings.CutPrefix(line, "serving ")
	return url, ok && strings.HasPrefix(url, "http://")
}

// stop stops the server and all its processes.
func (s *server) stop(ctx context.Context) error {
	if s.cmd == nil {
		return nil
	}
	s.stdin.Close()
	s.cmd.Process.Signal(syscall.SIGTERM)
	var err error
	select {
	case <-s.ended:
	case <-time.After(time.Minute): // the longest time that ramus itself needs
		err = fmt.Errorf("%s did not stop within a minute and was killed", s.name)
		s.cmd.Process.Kill()
		<-s.ended
	}
	syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL)
	for _, pid := range s.pids() {
		syscall.Kill(pid, syscall.SIGKILL) // a process that it left
	}
	s.cmd = nil
	return joined(err, s.leaveGroup())
}

func (s *server) leaveGroup() (err error) {
	if s.group == "" {
		return nil
	}
	for range 1500 { // killed processes may take a moment to end
		if err = os.Remove(s.group); err == nil || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	return err
}

// makeGroup makes a control group for the server that starts next. A group counts CPU time in nanoseconds, including
// that of orphaned children. Without permission for it, cpu reads the process tree instead.
func (s *server) makeGroup() {
	for _, root := range []string{"/sys/fs/cgroup/cpuacct", "/sys/fs/cgroup"} {
		if _, err := os.Stat(filepath.Join(root, "cgroup.procs")); err != nil {
			continue
		}
		dir := filepath.Join(root, fmt.Sprintf("ramus-bench-%d-%d", os.Getpid(), groups.Add(1)))
		if os.Mkdir(dir, 0o755) == nil {
			s.group = dir
			return
		}
	}
}

var groups atomic.Int64

// enterGroup has the command enter the group before it becomes the server, so that no child is outside. A command that
// starts as another user has no permission to enter. joinGroup moves it.
func (s *server) enterGroup() {
	if s.group == "" || s.cmd.SysProcAttr.Credential != nil {
		return
	}
	sh, err := exec.LookPath("sh")
	if err != nil {
		return
	}
	s.cmd.Args = append([]string{"sh", "-c", `echo $$ >"$0/cgroup.procs"; exec "$@"`, s.group, s.cmd.Path},
		s.cmd.Args[1:]...)
	s.cmd.Path = sh
}

func (s *server) joinGroup() {
	if s.group != "" && s.cmd.SysProcAttr.Credential != nil {
		os.WriteFile(filepath.Join(s.group, "cgroup.procs"), []byte(strconv.Itoa(s.cmd.Process.Pid)), 0o644)
	}
}

// cpu returns the CPU time of the server and its children, in ms.
func (s *server) cpu() float64 {
	if s.group != "" {
		if text, err := os.ReadFile(filepath.Join(s.group, "cpuacct.usage")); err == nil {
			ns, _ := strconv.ParseFloat(strings.TrimSpace(string(text)), 64)
			return ns / 1e6
		}
		text, _ := os.ReadFile(filepath.Join(s.group, "cpu.stat"))
		for line := range strings.Lines(string(text)) {
			if us, ok := strings.CutPrefix(line, "usage_usec "); ok {
				v, _ := strconv.ParseFloat(strings.TrimSpace(us), 64)
				return v / 1e3
			}
		}
	}
	ticks := 0.0
	for _, pid := range s.pids() {
		f := statFields(pid)
		for i := 13; i < 17 && i < len(f); i++ { // utime, stime, and those of ended children
			v, _ := strconv.ParseFloat(f[i], 64)
			ticks += v
		}
	}
	return ticks * 10 // a tick is 10 ms on every Linux
}

// pids returns the server's processes.
func (s *server) pids() []int {
	if s.group != "" {
		return groupPIDs(s.group)
	}
	return descendants(s.cmd.Process.Pid)
}

func groupPIDs(dir string) []int {
	text, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	var out []int
	for _, f := range strings.Fields(string(text)) {
		if pid, err := strconv.Atoi(f); err == nil {
			out = append(out, pid)
		}
	}
	return out
}

// rss returns the memory of the server's processes, in MB. Shared pages count once. own is the part that does not
// belong to files. A program is a file, of which the kernel maps larger pieces than are used, and which it can reclaim.
func (s *server) rss() (mb, own float64) {
	for _, pid := range s.pids() {
		kb, anonymous := pss(pid)
		mb, own = mb+kb/1024, own+anonymous/1024
	}
	return mb, own
}

// pss returns a process's share of memory in kB, and the part that does not belong to files.
func pss(pid int) (kb, anonymous float64) {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	for line := range strings.Lines(string(text)) {
		if v, ok := strings.CutPrefix(line, "Pss:"); ok {
			kb, _ = strconv.ParseFloat(strings.Fields(v)[0], 64)
		}
		if v, ok := strings.CutPrefix(line, "Pss_Anon:"); ok {
			anonymous, _ = strconv.ParseFloat(strings.Fields(v)[0], 64)
		}
	}
	return kb, anonymous
}

// watch samples memory until stop is called. stop returns the peaks in the units of rss.
func (s *server) watch() (stop func() (mb, own float64)) {
	done := make(chan struct{})
	var w sync.WaitGroup
	var mb, own float64
	w.Go(func() {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			all, part := s.rss()
			mb, own = max(mb, all), max(own, part)
			select {
			case <-tick.C:
			case <-done:
				return
			}
		}
	})
	return func() (float64, float64) {
		close(done)
		w.Wait()
		return mb, own
	}
}

// statFields returns the fields of /proc/PID/stat, the first at index 0. It returns nil if the process does not exist.
func statFields(pid int) []string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil
	}
	s := string(text)
	i := strings.LastIndexByte(s, ')') // names may contain any character
	if i < 0 {
		return nil
	}
	return append([]string{strconv.Itoa(pid), ""}, strings.Fields(s[i+1:])...)
}

// descendants returns a process and all processes below it.
func descendants(root int) []int {
	children := map[int][]int{}
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if f := statFields(pid); len(f) > 3 {
			parent, _ := strconv.Atoi(f[3])
			children[parent] = append(children[parent], pid)
		}
	}
	out := []int{root}
	for i := 0; i < len(out); i++ {
		out = append(out, children[out[i]]...)
	}
	return out
}

// plainEnv returns an environment in which git has no configuration except the repository's.
func plainEnv() []string {
	// GIT_CONFIG_GLOBAL=/dev/null is missing on purpose. A root that writes there replaces the device by a file.
	return []string{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "LC_ALL=C", "TMPDIR=" + os.TempDir(),
		"GIT_CONFIG_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0"}
}

// tail keeps the end of its input.
type tail struct {
	mu   sync.Mutex // guards text
	text []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	if n := len(t.text) - 2000; n > 0 {
		t.text = append(t.text[:0], t.text[n:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.text))
}
