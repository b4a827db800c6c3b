package containers

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/ramus-dev/ramus/containers/layer"
	"github.com/ramus-dev/ramus/containers/proc"
	"github.com/ramus-dev/ramus/containers/runner"
)

// SandboxUID is the host user that sandboxes run as when ramus is root and
// [Sandbox.UID] is zero. It lies in a range that no distribution hands out. It
// is not "nobody", whom other daemons share: they could trace a sandbox, and
// one that escaped could trace them.
const SandboxUID = 60999

// Abilities an engine may lack; see [Sandbox.Lacks].
const (
	AbilityMemory   = "memory limit"
	AbilityCPU      = "cpu limit"
	AbilityPIDs     = "pids limit by cgroup"
	AbilityTmpSize  = "limit of /tmp"
	AbilityNoUserNS = "user namespaces switched off inside"
	AbilityBeside   = "sidecars"
	AbilityImage    = "images"
	AbilityRootUser = "root inside"
)

// Sandbox is an [Engine] made of bubblewrap: no daemon, no image, no root. A
// container is a set of namespaces over the host's own /usr, read-only; the
// user inside is a plain one, outside as well as inside. Its processes belong
// to nobody but the kernel: they outlive ramus, and another Sandbox value over
// the same Dir finds them again.
//
// When ramus itself is root, bubblewrap is started as an unprivileged user all
// the same ([Sandbox.UID]): an escape would not be root's, and the way that is
// taken is the one that runs everywhere.
//
// What it cannot give, here or anywhere: images (the tools are the host's, as
// installed, and readable), root inside, and a runner of another user than the
// commands' (the kernel's rules for process 1 and a system call filter keep them
// apart instead). A command can read on its list of mounts where on the host its
// folders lie. What it cannot give on this machine, [Sandbox.Lacks] tells.
//
// The zero value with Dir set is ready to use. Fields must not change after the
// first call.
type Sandbox struct {
	// Dir holds one folder a container: its state and its socket. Mode 0700,
	// made when missing.
	Dir string
	// Runner is the program whose `runner` subcommand becomes process 1; it
	// must be static, or its libraries lie below /usr. Default: this program.
	Runner string
	// Program is what commands have at [Program]. Default: Runner.
	Program string
	// ReadOnly are paths of the host shown read-only at the same place inside,
	// such as a module cache. Missing ones are left out.
	ReadOnly []string
	// Browser is a folder of the host with the browser lane's program and driver
	// (make browser fills one); sidecars see it at [BrowserDir]. Empty: they do not.
	Browser string
	// Bwrap is bubblewrap's program; default "bwrap", found in PATH.
	Bwrap string
	// UID and its group of the same number are who sandboxes run as when ramus
	// is root; default [SandboxUID]. Otherwise they run as ramus's own user.
	UID int
	// Log hears of what went wrong where no caller can be told; default none.
	Log *slog.Logger
	// Now is the clock; default time.Now.
	Now func() time.Time

	assigning sync.Mutex // held while a state that was written before is written anew

	mu       sync.Mutex // guards the below
	probed   *bwrapProbe
	cgroups  *cgroupRoot // nil until probed; its zero value when there is none
	starting map[string]bool
	beside   map[string]*sidecarRun // the sidecars of this process, by id
}

var _ Engine = (*Sandbox)(nil)

// Name is "sandbox".
func (s *Sandbox) Name() string { return "sandbox" }

// Close does nothing: containers go on, and the engine holds nothing open.
func (s *Sandbox) Close() error { return nil }

func (s *Sandbox) now() time.Time {
	if s.Now != nil {
		return s.Now()
	}
	return time.Now()
}

func (s *Sandbox) log() *slog.Logger {
	if s.Log != nil {
		return s.Log
	}
	return slog.New(slog.DiscardHandler)
}

// user is who bubblewrap runs as, and whether that differs from ramus's user.
func (s *Sandbox) user() (id int, other bool) {
	if os.Geteuid() != 0 {
		return os.Geteuid(), false
	}
	if s.UID != 0 {
		return s.UID, true
	}
	return SandboxUID, true
}

func (s *Sandbox) runnerPath() (string, error) {
	if s.Runner != "" {
		return filepath.Abs(s.Runner)
	}
	return os.Executable()
}

// home is the folder of one container below Dir.
func (s *Sandbox) home(id string) string { return filepath.Join(s.Dir, id) }

// sandboxState is what is known of a container, written before it starts so
// that a crash of ramus at any moment leaves something to find it by.
type sandboxState struct {
	ID      string            `json:"id"`
	Key     string            `json:"key"`
	Owner   string            `json:"owner"`
	Dir     string            `json:"dir,omitempty"` // Spec.Dir
	Of      string            `json:"of,omitempty"`  // of a sidecar: the container beside which it runs
	Created time.Time         `json:"created"`
	Labels  map[string]string `json:"labels,omitempty"`
	// Boot is the kernel's boot id: a process id means nothing after a reboot.
	Boot string `json:"boot"`
	// PID is process 1 of the container as the host counts, Start its start
	// time in clock ticks since boot: together they name a process for ever.
	PID   int    `json:"pid,omitempty"`
	Start uint64 `json:"start,omitempty"`
	// Cgroups are absolute folders to be emptied and removed.
	Cgroups []string `json:"cgroups,omitempty"`
}

const maxSandboxState = 1 << 20 // bytes of a state file; labels are the only part that grows

func (s *Sandbox) load(id string) (sandboxState, error) {
	var st sandboxState
	if !validSandboxID(id) && !validSidecarID(id) {
		return st, fmt.Errorf("cannot read the state of container %q: %w", id, ErrGone)
	}
	f, err := os.Open(filepath.Join(s.home(id), "state.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return st, fmt.Errorf("no container %s: %w", id, ErrGone)
	} else if err != nil {
		return st, fmt.Errorf("cannot read the state of container %s: %w", id, err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxSandboxState))
	if err == nil {
		err = json.Unmarshal(b, &st)
	}
	if err == nil && st.ID != id {
		err = fmt.Errorf("it names %q", st.ID)
	}
	if err != nil {
		return st, fmt.Errorf("cannot read the state of container %s: %w", id, err)
	}
	return st, nil
}

func (s *Sandbox) save(st sandboxState) error {
	b, err := json.Marshal(st)
	if err == nil && len(b) > maxSandboxState {
		err = fmt.Errorf("its labels take more than %d bytes", maxSandboxState)
	}
	if err == nil {
		err = replaceFile(filepath.Join(s.home(st.ID), "state.json"), b, true)
	}
	if err != nil {
		return fmt.Errorf("cannot keep the state of container %s: %w", st.ID, err)
	}
	return nil
}

func newSandboxID() string { return newID(sandboxPrefix) }

// Ids of containers and of sidecars begin differently, so that neither is taken
// for the other.
const sandboxPrefix, sidecarPrefix = "sb", "sc"

func newID(prefix string) string {
	var b [8]byte
	rand.Read(b[:])
	return prefix + hex.EncodeToString(b[:])
}

func validSandboxID(id string) bool { return validID(sandboxPrefix, id) }

// validID keeps an id from naming a file elsewhere.
func validID(prefix, id string) bool {
	rest, ok := strings.CutPrefix(id, prefix)
	if !ok || len(rest) != 16 {
		return false
	}
	_, err := hex.DecodeString(rest)
	return err == nil
}

// Start makes a container and returns when its runner answers.
func (s *Sandbox) Start(ctx context.Context, spec Spec) (_ Container, err error) {
	if spec.Dir == "" || spec.Key == "" || spec.Owner == "" {
		return Container{}, errors.New("cannot start a sandbox: a key, an owner and a folder are needed")
	}
	probe, cgroups, err := s.probe(ctx)
	if err != nil {
		return Container{}, err
	}
	dir, err := filepath.Abs(spec.Dir)
	if err != nil {
		return Container{}, fmt.Errorf("cannot start a sandbox: %w", err)
	}
	st := sandboxState{
		ID: newSandboxID(), Key: spec.Key, Owner: spec.Owner, Dir: dir,
		Created: s.now().UTC(), Labels: spec.Labels, Boot: bootID(),
	}
	limits := spec.Limits.WithDefaults()
	wrap := func(err error) error { return fmt.Errorf("cannot start a sandbox for %s: %w", spec.Key, err) }

	s.mu.Lock()
	if s.starting == nil {
		s.starting = map[string]bool{}
	}
	s.starting[st.ID] = true
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.starting, st.ID)
		s.mu.Unlock()
	}()

	if err := os.MkdirAll(s.home(st.ID), 0o700); err != nil {
		return Container{}, wrap(err)
	}
	defer func() {
		if err == nil {
			return
		}
		// The caller may have given up already; what was begun is undone all the same.
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTimeout)
		defer cancel()
		if rerr := s.Remove(undo, st.ID); rerr != nil {
			err = errors.Join(err, rerr)
			return
		}
		for _, name := range boxFolders { // nothing has been run in it
			err = errors.Join(err, layer.RemoveTree(filepath.Join(dir, name)))
		}
	}()
	if cgroups.usable() {
		st.Cgroups = cgroups.folders(st.ID)
	}
	if err := s.save(st); err != nil {
		return Container{}, wrap(err)
	}
	if err := s.makeFolders(dir); err != nil {
		return Container{}, wrap(err)
	}
	group := limits
	group.PIDs += 2 * runnerTasks
	if err := cgroups.create(st.Cgroups, group); err != nil {
		return Container{}, wrap(err)
	}
	ln, err := listenUnixIn(s.home(st.ID), "runner.sock")
	if err != nil {
		return Container{}, wrap(err)
	}
	defer ln.Close()
	spool, err := os.Open(filepath.Join(dir, "spool"))
	if err != nil {
		return Container{}, wrap(err)
	}
	defer spool.Close()

	b, err := s.newBox(probe, dir, limits)
	if err != nil {
		return Container{}, wrap(err)
	}
	defer b.close()
	inherited := []*os.File{ln, spool}
	memory, err := cgroups.oomFile(st.Cgroups)
	if err != nil {
		return Container{}, wrap(err)
	}
	oomPath := ""
	if memory != nil {
		defer memory.Close()
		inherited, oomPath = append(inherited, memory), "/proc/self/fd/5"
	}
	cfg, err := json.Marshal(runner.Config{
		Listen: "fd:3", ClientKey: spec.ClientKey,
		// By this path the runner reaches its spool and nobody else does: the
		// folder has no name inside, and process 1 does not let others look
		// through its descriptors.
		Spool: "/proc/self/fd/4",
		Work:  WorkDir,
		// The id on the command line is how a process is known to be ours when
		// ramus died before it could note its number.
		Env:    append([]string{"RAMUS_CONTAINER=" + st.ID}, spec.Env...),
		Output: limits.Output, FileSize: limits.FileSize, DiskFree: limits.DiskFree,
		PIDs:   limits.PIDs + runnerTasks,
		Memory: oomPath,
	})
	if err != nil {
		return Container{}, wrap(err)
	}
	status, err := os.OpenFile(s.statusFile(st.ID), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return Container{}, wrap(err)
	}
	defer status.Close()
	logFile, err := os.OpenFile(filepath.Join(s.home(st.ID), "log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return Container{}, wrap(err)
	}
	defer logFile.Close()

	cmd := b.command(inherited, status, []string{RunnerProgram, "runner", string(cfg)})
	cmd.Stdout, cmd.Stderr = logFile, logFile
	if err := b.start(cmd, cgroups, st.Cgroups); err != nil {
		return Container{}, wrap(err)
	}
	// bubblewrap's outer process only waits for the inner one; it is ended below,
	// which leaves one process fewer a container and nothing to wait for.
	ended := make(chan struct{})
	go func() { cmd.Wait(); close(ended) }()
	defer func() {
		if err != nil {
			// Killed before it told its child to go on, it would leave one that
			// waits for ever, and that nobody knows of.
			s.awaitChild(st.ID, ended)
		}
		cmd.Process.Kill()
		<-ended
	}()
	// The copies of this process would keep the socket answering after the runner died.
	ln.Close()

	if err := s.awaitRunner(ctx, st.ID, ended); err != nil {
		return Container{}, wrap(err)
	}
	st.PID, err = statusPID(s.statusFile(st.ID))
	if err == nil {
		st.Start, err = proc.Start(st.PID)
	}
	if err != nil {
		return Container{}, wrap(err)
	}
	if err := s.save(st); err != nil {
		return Container{}, wrap(err)
	}
	return Container{ID: st.ID, Key: st.Key, Running: true, Created: st.Created, Labels: st.Labels}, nil
}

// awaitRunner returns when the runner greets a connection. The socket listens
// before the runner lives, so a connection alone proves nothing.
func (s *Sandbox) awaitRunner(ctx context.Context, id string, ended <-chan struct{}) error {
	explain := func(err error) error {
		if said := tail(filepath.Join(s.home(id), "log"), 2000); said != "" {
			err = fmt.Errorf("%w: %s", err, said)
		}
		return err
	}
	// The end of the process explains a broken connection best.
	settle := func() {
		select {
		case <-ended:
		case <-time.After(time.Second):
		}
	}
	conn, err := dialUnixIn(ctx, s.home(id), "runner.sock")
	if err != nil {
		settle() // a runner that ends at once takes the socket with it
		return explain(err)
	}
	defer conn.Close()
	greeted := make(chan error, 1)
	go func() {
		var b [4]byte
		_, err := io.ReadFull(conn, b[:])
		if err == nil && string(b[:]) != "SSH-" {
			err = fmt.Errorf("the runner greets with %q", b)
		}
		greeted <- err
	}()
	select {
	case err = <-greeted:
		if err == nil {
			return nil
		}
		settle()
	case <-ended:
		err = errors.New("the runner ended at once")
		conn.Close()
		<-greeted
	case <-ctx.Done():
		err = context.Cause(ctx)
		conn.Close()
		<-greeted
	}
	return explain(err)
}

// boxFolders are those of a container's folder that it may write to, parents first.
var boxFolders = []string{"work", "artifacts", "cache", "cache/home", "spool"}

// makeFolders makes what the container may write. They belong to the user that
// the container runs as; the folder above them stays closed to it.
func (s *Sandbox) makeFolders(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	uid, other := s.user()
	for _, name := range boxFolders {
		p := filepath.Join(dir, name)
		if err := os.Mkdir(p, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		if other {
			if err := os.Lchown(p, uid, uid); err != nil {
				return err
			}
		}
	}
	return nil
}

// List finds the containers of one owner. One whose state cannot be read is
// logged and left out: nothing is known of it that could be told.
func (s *Sandbox) List(ctx context.Context, owner string) ([]Container, error) {
	entries, err := os.ReadDir(s.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("cannot list sandboxes: %w", err)
	}
	var list []Container
	for _, e := range entries {
		id := e.Name()
		s.mu.Lock()
		starting := s.starting[id]
		s.mu.Unlock()
		if starting || !validSandboxID(id) {
			continue
		}
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("cannot list sandboxes: %w", err)
		}
		st, err := s.load(id)
		if errors.Is(err, ErrGone) {
			continue
		} else if err != nil {
			s.log().Warn("a container is left out of the list", "id", id, "err", err)
			continue
		}
		if st.Owner != owner {
			continue
		}
		list = append(list, Container{ID: id, Key: st.Key, Running: s.alive(&st), Created: st.Created, Labels: st.Labels})
	}
	slices.SortFunc(list, func(a, b Container) int { return a.Created.Compare(b.Created) })
	return list, nil
}

// Dial connects to the runner's socket.
func (s *Sandbox) Dial(ctx context.Context, id string) (net.Conn, error) {
	st, err := s.load(id)
	if err != nil {
		return nil, err
	}
	if !s.alive(&st) {
		return nil, fmt.Errorf("cannot reach container %s: its process 1 has ended: %w", id, ErrGone)
	}
	conn, err := dialUnixIn(ctx, s.home(id), "runner.sock")
	if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("cannot reach container %s: %w: %w", id, ErrGone, err)
	} else if err != nil {
		return nil, fmt.Errorf("cannot reach container %s: %w", id, err)
	}
	return conn, nil
}

const (
	// removeTimeout bounds the clean-up of a start that failed.
	removeTimeout = 30 * time.Second
	// statusGrace is how long bubblewrap may take from its start to naming its
	// child; only a ramus that died in between ever waits for it.
	statusGrace = 5 * time.Second
)

// Remove kills the container and its sidecars, waits until the last process is
// gone, and forgets it. What it wrote stays in its folder.
func (s *Sandbox) Remove(ctx context.Context, id string) error {
	if !validSandboxID(id) {
		return nil
	}
	st, err := s.load(id)
	if errors.Is(err, ErrGone) {
		if err := os.RemoveAll(s.home(id)); err != nil { // begun, and nothing noted yet
			return fmt.Errorf("cannot remove container %s: %w", id, err)
		}
		return nil
	} else if err != nil {
		return err
	}
	if err := s.kill(ctx, &st); err != nil {
		return fmt.Errorf("cannot remove container %s: %w", id, err)
	}
	// Only now: one that is being started sees that the container is gone, or is seen here.
	if err := s.endSidecars(ctx, id); err != nil {
		return fmt.Errorf("cannot remove container %s: %w", id, err)
	}
	if err := removeCgroups(ctx, st.Cgroups); err != nil {
		return fmt.Errorf("cannot remove container %s: %w", id, err)
	}
	s.assigning.Lock() // nothing is written into the folder meanwhile
	defer s.assigning.Unlock()
	// Last: until here a second Remove finds what a first one left.
	if err := os.RemoveAll(s.home(id)); err != nil {
		return fmt.Errorf("cannot remove container %s: %w", id, err)
	}
	return nil
}

// kill ends process 1, and with it every other, and returns when they are gone.
func (s *Sandbox) kill(ctx context.Context, st *sandboxState) error {
	if st.PID == 0 && st.Boot == bootID() && s.now().Sub(st.Created) < statusGrace {
		s.awaitStatus(ctx, st)
	}
	if !s.alive(st) {
		return nil
	}
	return killAndWait(ctx, st.PID, func() bool { return s.alive(st) })
}

// awaitStatus gives bubblewrap, started by a ramus that died at once, the time
// to say which process it made.
func (s *Sandbox) awaitStatus(ctx context.Context, st *sandboxState) {
	s.mu.Lock()
	ours := s.starting[st.ID] || s.beside[st.ID] != nil
	s.mu.Unlock()
	if ours { // who started it has waited itself
		return
	}
	poll(ctx, statusGrace, nil, func() bool { return s.alive(st) })
}

// awaitChild waits until bubblewrap has noted the process it made, or has ended.
func (s *Sandbox) awaitChild(id string, ended <-chan struct{}) {
	poll(context.Background(), statusGrace, ended, func() bool {
		_, err := statusPID(s.statusFile(id))
		return err == nil
	})
}

// poll returns when done says so, at the latest after d.
func poll(ctx context.Context, d time.Duration, ended <-chan struct{}, done func() bool) {
	deadline := time.NewTimer(d)
	defer deadline.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-ended:
			return
		case <-deadline.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// alive tells whether process 1 of the container runs. Where ramus died before
// it could note the process, it is found by what bubblewrap wrote and its
// command line, and noted in st.
func (s *Sandbox) alive(st *sandboxState) bool {
	if st.Boot != bootID() {
		return false
	}
	if st.PID == 0 {
		pid, err := statusPID(s.statusFile(st.ID))
		if err != nil {
			return false
		}
		line, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
		if err != nil || !bytes.Contains(line, []byte(st.ID)) {
			return false
		}
		start, err := proc.Start(pid)
		if err != nil {
			return false
		}
		st.PID, st.Start = pid, start
		return true
	}
	start, err := proc.Start(st.PID)
	return err == nil && start == st.Start
}

// statusFile is where bubblewrap tells of its child.
func (s *Sandbox) statusFile(id string) string { return filepath.Join(s.home(id), "status") }

// statusPID reads the process that bubblewrap says it made.
func statusPID(name string) (int, error) {
	f, err := os.Open(name)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	var v struct {
		PID int `json:"child-pid"`
	}
	if err := json.NewDecoder(io.LimitReader(f, 64<<10)).Decode(&v); err != nil {
		return 0, fmt.Errorf("cannot read bubblewrap's status: %w", err)
	}
	if v.PID <= 1 {
		return 0, errors.New("bubblewrap's status names no process")
	}
	return v.PID, nil
}

// tail is the end of a small text file, for an error message.
func tail(name string, n int) string {
	b, err := os.ReadFile(name)
	if err != nil {
		return ""
	}
	if len(b) > n {
		b = b[len(b)-n:]
	}
	return strings.TrimSpace(strings.ToValidUTF8(string(b), "?"))
}

// lookBwrap finds bubblewrap, or says how to get it.
func (s *Sandbox) lookBwrap() (string, error) {
	name := s.Bwrap
	if name == "" {
		name = "bwrap"
	}
	p, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("cannot find bubblewrap (%w); install the package \"bubblewrap\": %w", err, ErrUnavailable)
	}
	return filepath.Abs(p)
}

// Process is process 1 of a container, as the host counts.
func (s *Sandbox) Process(ctx context.Context, id string) (pid int, start uint64, err error) {
	st, err := s.load(id)
	if err != nil {
		return 0, 0, err
	}
	if !s.alive(&st) {
		return 0, 0, fmt.Errorf("cannot find the process of container %s: it has ended: %w", id, ErrGone)
	}
	return st.PID, st.Start, nil
}

// Assign gives a container its caller: List tells the new key and labels, also after
// a restart.
func (s *Sandbox) Assign(_ context.Context, id, key string, labels map[string]string) error {
	wrap := func(err error) error { return fmt.Errorf("cannot give container %s to %s: %w", id, key, err) }
	if key == "" {
		return wrap(errors.New("a key is needed"))
	}
	s.assigning.Lock()
	defer s.assigning.Unlock()
	st, err := s.load(id)
	if err != nil {
		return wrap(err)
	}
	st.Key, st.Labels = key, labels
	if err := s.save(st); err != nil {
		return wrap(err)
	}
	return nil
}

// Volumes are none: all that a sandbox writes lies in its folder.
func (s *Sandbox) Volumes(context.Context) ([]string, string) { return nil, "" }

// TaskUID is who sandboxes run as.
func (s *Sandbox) TaskUID() int {
	uid, _ := s.user()
	return uid
}
