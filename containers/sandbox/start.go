package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/containers/cgroup"
	"github.com/ramus-dev/ramus/containers/layer"
	"github.com/ramus-dev/ramus/containers/proc"
	"github.com/ramus-dev/ramus/containers/runner"
	"github.com/ramus-dev/ramus/internal/text"
)

// runnerTasks is the number of tasks that the threads of the runner may take beyond the limit of the commands. The limit of the
// control group is higher by the same number again, so that a fork storm does not keep process 1 from starting a thread.
const runnerTasks = 64

// Start makes a container and returns when its runner answers.
func (s *Engine) Start(ctx context.Context, spec containers.Spec) (containers.Container, error) {
	if spec.Dir == "" || spec.Key == "" || spec.Owner == "" {
		return containers.Container{}, errors.New("cannot start a sandbox: a key, an owner and a folder are needed")
	}
	probe, cgroups, err := s.probe(ctx)
	if err != nil {
		return containers.Container{}, err
	}
	dir, err := filepath.Abs(spec.Dir)
	if err != nil {
		return containers.Container{}, fmt.Errorf("cannot start a sandbox: %w", err)
	}
	st := state{
		ID: newContainerID(), Key: spec.Key, Owner: spec.Owner, Dir: dir,
		Created: s.now().UTC(), Labels: spec.Labels, Boot: proc.BootID(),
	}
	defer s.noteStarting(st.ID)()
	if err := s.startState(ctx, probe, cgroups, spec, &st); err != nil {
		err = fmt.Errorf("cannot start a sandbox for %s: %w", spec.Key, err)
		if undo := s.undoStart(ctx, &st); undo != nil {
			err = errors.Join(err, undo)
		}
		return containers.Container{}, err
	}
	return containers.Container{ID: st.ID, Key: st.Key, Running: true, Created: st.Created, Labels: st.Labels}, nil
}

// noteStarting keeps a container out of the list until the function that it returns is called.
func (s *Engine) noteStarting(id string) (done func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.starting == nil {
		s.starting = map[string]bool{}
	}
	s.starting[id] = true
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.starting, id)
	}
}

// undoStart removes a container that could not be started, with its folders, in which no command has run. It ignores the end of ctx.
func (s *Engine) undoStart(ctx context.Context, st *state) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTimeout)
	defer cancel()
	if err := s.Remove(ctx, st.ID); err != nil {
		return err
	}
	var errs []error
	for _, name := range boxFolders {
		errs = append(errs, layer.RemoveTree(filepath.Join(st.Dir, name)))
	}
	return errors.Join(errs...)
}

// startState starts the container of a state and sets the rest of the state. After an error, the caller removes the
// started parts.
func (s *Engine) startState(ctx context.Context, probe *bwrapProbe, cgroups *cgroup.Root, spec containers.Spec, st *state) error {
	limits := spec.Limits.WithDefaults()
	if err := os.MkdirAll(s.home(st.ID), 0o700); err != nil {
		return err
	}
	if cgroups.Usable() {
		st.Cgroups = cgroups.Folders(st.ID)
	}
	if err := s.save(*st); err != nil {
		return err
	}
	if err := s.makeFolders(st.Dir); err != nil {
		return err
	}
	group := cgroup.Limits{Memory: limits.Memory, PIDs: limits.PIDs + 2*runnerTasks, CPUs: limits.CPUs}
	if err := cgroups.Create(st.Cgroups, group); err != nil {
		return err
	}
	files, err := s.openInherited(st, cgroups)
	if err != nil {
		return err
	}
	defer files.close()
	b, err := s.newBox(probe, st.Dir, limits)
	if err != nil {
		return err
	}
	defer b.close()
	config, err := files.config(st.ID, spec, limits)
	if err != nil {
		return err
	}
	return s.launch(ctx, b, cgroups, st, files, config)
}

// inherited are the files that the runner inherits, from descriptor 3 on.
type inherited struct {
	socket, spool *os.File
	memory        *os.File // nil if memory is not limited
}

func (s *Engine) openInherited(st *state, cgroups *cgroup.Root) (_ *inherited, err error) {
	f := &inherited{}
	defer func() {
		if err != nil {
			f.close()
		}
	}()
	if f.socket, err = listenUnix(s.home(st.ID), "runner.sock"); err != nil {
		return nil, err
	}
	if f.spool, err = os.Open(filepath.Join(st.Dir, "spool")); err != nil {
		return nil, err
	}
	f.memory, err = cgroups.OOMFile(st.Cgroups)
	return f, err
}

func (f *inherited) close() {
	for _, file := range f.list() {
		file.Close()
	}
}

// list returns the files that are open, in the order of their descriptors.
func (f *inherited) list() []*os.File {
	return slices.DeleteFunc([]*os.File{f.socket, f.spool, f.memory}, func(file *os.File) bool { return file == nil })
}

// config returns the runner's configuration, as JSON.
func (f *inherited) config(id string, spec containers.Spec, limits containers.Limits) (string, error) {
	memory := ""
	if f.memory != nil {
		memory = "/proc/self/fd/5"
	}
	b, err := json.Marshal(runner.Config{
		Listen: "fd:3", ClientKey: spec.ClientKey,
		// By this path only the runner reaches its spool. The folder has no name inside, and process 1 does not let other
		// processes look through its descriptors.
		Spool:      "/proc/self/fd/4",
		Work:       containers.WorkDir,
		DoorFolder: containers.DoorFolder,
		// By the id on the command line the process is found if ramus crashed before it noted the number.
		Env:    append([]string{"RAMUS_CONTAINER=" + id}, spec.Env...),
		Output: limits.Output, FileSize: limits.FileSize, DiskFree: limits.DiskFree,
		PIDs:   limits.PIDs + runnerTasks,
		Memory: memory,
	})
	return string(b), err
}

// launch starts bubblewrap around the runner, waits for the runner, and notes its process in the state.
func (s *Engine) launch(ctx context.Context, b *box, cgroups *cgroup.Root, st *state, files *inherited, config string) (err error) {
	status, err := os.OpenFile(s.statusFile(st.ID), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer status.Close()
	logFile, err := os.OpenFile(filepath.Join(s.home(st.ID), "log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer logFile.Close()

	cmd := b.command(files.list(), status, []string{containers.RunnerProgram, "runner", config})
	cmd.Stdout, cmd.Stderr = logFile, logFile
	if err := b.start(cmd, cgroups, st.Cgroups); err != nil {
		return err
	}
	// The outer process of bubblewrap only waits for the inner one. It is ended below, so that there is one process fewer for
	// each container and nothing to wait for.
	ended := make(chan struct{})
	go func() { cmd.Wait(); close(ended) }()
	defer func() {
		if err != nil {
			// If bubblewrap were killed before it has released its child, the child would wait forever and unnoticed.
			s.awaitChild(st.ID, ended)
		}
		cmd.Process.Kill()
		<-ended
	}()
	// The descriptor of this process would keep the socket open after the end of the runner.
	files.socket.Close()

	if err := s.awaitRunner(ctx, st.ID, ended); err != nil {
		return err
	}
	if st.PID, err = statusPID(s.statusFile(st.ID)); err == nil {
		st.Start, err = proc.Start(st.PID)
	}
	if err != nil {
		return err
	}
	return s.save(*st)
}

// awaitRunner returns when the runner greets a connection. A connection alone proves nothing, because the socket listens before
// the runner is started. ended is closed when the process has ended.
func (s *Engine) awaitRunner(ctx context.Context, id string, ended <-chan struct{}) error {
	explain := func(err error) error {
		if said := readEnd(filepath.Join(s.home(id), "log"), 2000); said != "" {
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
	conn, err := dialUnix(ctx, s.home(id), "runner.sock")
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

// readEnd returns the end of a small text file, for an error message. Returns "" if the file cannot be read.
func readEnd(name string, limit int) string {
	b, err := os.ReadFile(name)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(strings.ToValidUTF8(text.End(string(b), limit), "?"))
}

// boxFolders are the folders of a container that it may write to, parents first.
var boxFolders = []string{"work", "artifacts", "cache", "cache/home", "spool"}

// makeFolders makes the folders that a container may write to. They belong to the user that the container runs as. The folder
// above them stays closed to that user.
func (s *Engine) makeFolders(dir string) error {
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
	// The container sees the file at /etc/hosts. Names may be added while it runs.
	hosts := filepath.Join(dir, hostsName)
	if err := os.WriteFile(hosts, []byte(hostsText), 0o644); err != nil {
		return err
	}
	return os.Chmod(hosts, 0o644) // independent of the umask, because commands read it
}
