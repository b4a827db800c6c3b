package way

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ramus-dev/ramus/containers/runner"
)

// Sidecar is the argument of `way sidecar`, as JSON. It runs in a standing container of the pod, one at a time. Its
// stdin has the frames FrameInput and FrameEnd, and its stdout the others. If stdin breaks off, the host is gone, and
// the sidecar is killed.
type Sidecar struct {
	Args  []string
	Env   []string // "K=V", added to the environment of the image
	Home  string
	PIDs  int64  // processes of the user in a user namespace; 0 means no limit
	Owner string // the installation
	// Engine identifies the process that asks. `way release` spares its sidecars.
	Engine string
}

// Report is the end of a sidecar.
type Report struct {
	Code   int    // 128+n if signal n ended it
	OOM    bool   // the kernel killed a process because memory ran out
	Memory int64  // the highest use that was measured, in bytes
	Error  string // why the program could not be started; otherwise empty
}

// measurePause is the pause between two looks at the memory.
const measurePause = 250 * time.Millisecond

// runSidecar runs a program. The exit status tells only whether the report was written.
func runSidecar(text string, stdin *os.File) (int, error) {
	var s Sidecar
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return 0, fmt.Errorf("cannot read the sidecar's description: %w", err)
	}
	if len(s.Args) == 0 || !filepath.IsAbs(s.Home) {
		return 0, errors.New("cannot run a sidecar: a program and a home are needed")
	}
	lock, err := lockContainer()
	if err != nil {
		return 0, err
	}
	if lock == nil {
		return Busy, nil
	}
	defer lock.Close()
	// Processes and files of an earlier sidecar must not reach this one.
	killOthers()
	if err := emptyFolder("/tmp", filepath.Base(lockFile)); err != nil {
		return 0, err
	}
	if err := os.MkdirAll(s.Home, 0o700); err != nil {
		return 0, fmt.Errorf("cannot make the home of a sidecar: %w", err)
	}
	out := &FrameWriter{W: os.Stdout}
	report, err := s.run(stdin, out)
	if err != nil {
		return 0, err
	}
	b, err := json.Marshal(report)
	if err == nil {
		err = out.Frame(FrameReport, b)
	}
	return 0, err
}

// Busy is the exit status of `way sidecar` if another sidecar has the container.
const Busy = 124

// lockFile is locked while a sidecar has the container. It is in the folder that the container has for itself.
const lockFile = "/tmp/.ramus-sidecar"

// lockContainer returns the open lock, or nil if another sidecar has it.
func lockContainer() (*os.File, error) {
	fd, err := unix.Open(lockFile, unix.O_RDWR|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, fmt.Errorf("cannot lock the container: %w", err)
	}
	if err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		unix.Close(fd)
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = nil
		}
		return nil, err
	}
	return os.NewFile(uintptr(fd), lockFile), nil
}

// end kills the sidecar of the container if it belongs to an installation, and to one of some engines.
func end(owner string, engines func(string) bool) error {
	lock, err := lockContainer()
	if err != nil || lock != nil {
		lock.Close() // nothing runs, or the file is not there to lock
		return err
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return fmt.Errorf("cannot find the sidecar: %w", err)
	}
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			continue
		}
		line, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if err != nil {
			continue // it has ended
		}
		args := strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00")
		var s Sidecar
		if len(args) == 4 && args[0] == Program && args[1] == "way" && args[2] == "sidecar" &&
			json.Unmarshal([]byte(args[3]), &s) == nil && s.Owner == owner && engines(s.Engine) {
			if !killOthers() {
				return errors.New("cannot end the sidecar: its processes do not end")
			}
			return nil
		}
	}
	return nil
}

// run runs the program until it has ended and nothing of it is left.
func (s Sidecar) run(stdin *os.File, out *FrameWriter) (Report, error) {
	// Orphans become children of this process, which waits for their end.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return Report{}, fmt.Errorf("cannot adopt orphans: %w", err)
	}
	if s.PIDs > 0 && runner.OwnUsers() {
		limit := unix.Rlimit{Cur: uint64(s.PIDs), Max: uint64(s.PIDs)}
		if err := unix.Setrlimit(unix.RLIMIT_NPROC, &limit); err != nil {
			return Report{}, fmt.Errorf("cannot limit processes: %w", err)
		}
	}
	before := oomKills()
	cmd := exec.Command(s.Args[0], s.Args[1:]...)
	cmd.Dir, cmd.Env = "/", s.environment(os.Environ())
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	in, err := cmd.StdinPipe()
	if err != nil {
		return Report{}, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return Report{}, err
	}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return Report{}, err
	}
	if err := out.Frame(FrameReady, nil); err != nil {
		return Report{}, err
	}
	restore := raiseScore()
	err = cmd.Start()
	restore()
	if err != nil {
		return Report{Code: 127, Error: err.Error()}, nil
	}
	go watchHost(stdin)
	go feed(stdin, in)
	var copying sync.WaitGroup
	copying.Go(func() { _, _ = io.Copy(out.Of(FrameStdout), stdout) })
	copying.Go(func() { _, _ = io.Copy(out.Of(FrameStderr), stderr) })
	var peak atomic.Int64
	ended := make(chan struct{})
	var measuring sync.WaitGroup
	measuring.Go(func() { measure(&peak, ended) })

	state, err := cmd.Process.Wait() // not cmd.Wait, which closes the pipes before they are empty
	killOthers()
	copying.Wait()
	close(ended)
	measuring.Wait()
	if err != nil {
		return Report{}, fmt.Errorf("cannot wait for the sidecar: %w", err)
	}
	r := Report{Code: state.ExitCode(), Memory: peak.Load(), OOM: oomKills() > before}
	if ws, ok := state.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		r.Code = 128 + int(ws.Signal())
	}
	return r, nil
}

// environment returns the variables of the program. Those of the cluster are not for it.
func (s Sidecar) environment(own []string) []string {
	env := []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	for _, v := range own {
		if !strings.HasPrefix(v, "KUBERNETES_") {
			env = append(env, v)
		}
	}
	return append(append(env, "HOME="+s.Home), s.Env...)
}

// feed passes stdin on until its end. It ends with the process, because a Read of stdin cannot be interrupted.
func feed(stdin io.Reader, to io.WriteCloser) {
	r := bufio.NewReaderSize(stdin, maxFrame)
	buf := make([]byte, 0, maxFrame)
	open := true
	for {
		kind, data, err := ReadFrame(r, buf)
		switch {
		case err != nil:
			endAll() // the host is gone
		case kind == FrameInput && open:
			if _, err := to.Write(data); err != nil {
				open = false // the program reads no more
			}
		case kind == FrameEnd:
			to.Close()
			open = false
		}
	}
}

// watchHost ends the sidecar when the host is gone, even if the program does not read its input.
func watchHost(stdin *os.File) {
	fds := []unix.PollFd{{Fd: int32(stdin.Fd())}}
	for {
		n, err := unix.Poll(fds, -1)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return
		}
		if n > 0 && fds[0].Revents&(unix.POLLHUP|unix.POLLERR|unix.POLLNVAL) != 0 {
			endAll()
		}
	}
}

// endAll kills the sidecar and this process.
func endAll() {
	killOthers()
	os.Exit(Failed)
}

// killOthers kills all other processes of the container, except process 1, and reaps those that are children. It runs
// in a container of its own, not as root. Elsewhere process 1 is not hold, and nothing is killed. Reports whether none
// is left.
func killOthers() bool {
	if os.Getpid() == 1 || os.Getuid() == 0 || !heldHere() {
		return false
	}
	for range 2000 {
		if err := syscall.Kill(-1, syscall.SIGKILL); err != nil {
			return true
		}
		time.Sleep(5 * time.Millisecond) // they end meanwhile, and fork no more
		for {
			if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); pid <= 0 || err != nil {
				break
			}
		}
	}
	return false
}

// heldHere reports whether process 1 is this program's hold.
func heldHere() bool {
	b, err := os.ReadFile("/proc/1/cmdline")
	return err == nil && strings.HasSuffix(string(b), "\x00way\x00hold\x00")
}

// emptyFolder removes the entries of a folder but one.
func emptyFolder(dir, but string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("cannot empty %s: %w", dir, err)
	}
	for _, e := range entries {
		if e.Name() == but {
			continue
		}
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return fmt.Errorf("cannot empty %s: %w", dir, err)
		}
	}
	return nil
}

// raiseScore has the next child be killed first if memory runs out.
func raiseScore() (restore func()) {
	const file = "/proc/self/oom_score_adj"
	old, err := os.ReadFile(file)
	if err != nil || os.WriteFile(file, []byte("1000"), 0) != nil {
		return func() {}
	}
	return func() { _ = os.WriteFile(file, old, 0) }
}

// Files of the container's control group, for versions 2 and 1.
var (
	oomFiles    = []string{"/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control"}
	memoryFiles = []string{"/sys/fs/cgroup/memory.current", "/sys/fs/cgroup/memory/memory.usage_in_bytes"}
)

func firstFile(names []string) string {
	for _, name := range names {
		if b, err := os.ReadFile(name); err == nil {
			return string(b)
		}
	}
	return ""
}

func oomKills() int64 { return runner.ParseOOMKills(firstFile(oomFiles)) }

// measure keeps the highest use of memory until ended is closed.
func measure(peak *atomic.Int64, ended <-chan struct{}) {
	tick := time.NewTicker(measurePause)
	defer tick.Stop()
	for {
		n, _ := strconv.ParseInt(strings.TrimSpace(firstFile(memoryFiles)), 10, 64)
		peak.Store(max(peak.Load(), n))
		select {
		case <-tick.C:
		case <-ended:
			return
		}
	}
}
