package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/containers/cgroup"
	"github.com/ramus-dev/ramus/containers/proc"
)

// run is a sidecar that this process has started.
type run struct {
	of    string                  // the container
	stop  context.CancelCauseFunc // ends it
	ended chan struct{}           // closed when nothing of it is left
}

// bwrapTasks is the number of processes of bubblewrap in a sidecar: the outer one, which waits, and process 1.
const bwrapTasks = 2

// RunSidecar runs a program in a container of its own, in the network of container id. The program sees the host's /usr and
// [Engine.Browser], and no folder of a container. See [containers.Sidecars].
func (s *Engine) RunSidecar(ctx context.Context, id string, c containers.Sidecar) (exit containers.SidecarExit, err error) {
	exit.Image = s.Name()
	defer func() {
		if err != nil {
			err = fmt.Errorf("sandbox: %w", err)
		}
	}()
	if err := c.Valid(); err != nil {
		return exit, err
	}
	probe, cgroups, err := s.probe(ctx)
	if err != nil {
		return exit, err
	}
	st := state{
		ID: newID(sidecarPrefix), Key: c.Key, Owner: c.Owner, Of: id, Created: s.now().UTC(), Boot: proc.BootID(),
	}
	if cgroups.Usable() {
		st.Cgroups = cgroups.Folders(st.ID)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer s.noteSidecar(st.ID, &run{of: id, stop: cancel, ended: make(chan struct{})})()

	// The state is written before the start, so that the sidecar can be found after a crash of ramus at any moment.
	if err := os.MkdirAll(s.home(st.ID), 0o700); err != nil {
		return exit, err
	}
	defer func() {
		// Even if ctx is done: that is the way to end a sidecar.
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTimeout)
		defer cancel()
		if rerr := s.removeSidecar(undo, &st); rerr != nil {
			err = errors.Join(err, rerr)
		}
	}()
	if err := s.save(st); err != nil {
		return exit, err
	}
	limits := c.Bounds()
	group := cgroup.Limits{Memory: limits.Memory, PIDs: limits.PIDs + bwrapTasks, CPUs: limits.CPUs}
	if err := cgroups.Create(st.Cgroups, group); err != nil {
		return exit, err
	}
	b, err := s.sidecarBox(probe, limits)
	if err != nil {
		return exit, err
	}
	defer b.close()
	// Remove finds the sidecar from here on. So a container that still exists will not be gone before the sidecar is.
	if err := s.joinNetwork(b, id); err != nil {
		return exit, err
	}
	defer b.leaveNetwork()
	if err := s.follow(ctx, b, c, cgroups, &st, &exit); err != nil {
		return exit, err
	}
	exit.OOM = cgroups.OOMKills(st.Cgroups) > 0
	exit.Memory = cgroups.Peak(st.Cgroups)
	return exit, nil
}

// noteSidecar lets Remove end a sidecar of this process, until the function that it returns is called.
func (s *Engine) noteSidecar(id string, r *run) (done func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sidecars == nil {
		s.sidecars = map[string]*run{}
	}
	s.sidecars[id] = r
	return func() {
		s.mu.Lock()
		delete(s.sidecars, id)
		s.mu.Unlock()
		close(r.ended)
	}
}

// joinNetwork sets the network of a sidecar's box to that of a container. It does nothing if id is "".
func (s *Engine) joinNetwork(b *box, id string) (err error) {
	if id == "" {
		return nil
	}
	if b.network, err = s.network(id); err != nil {
		return err
	}
	if b.spot != "" {
		return nil
	}
	if err := b.findOwner(); err != nil {
		b.leaveNetwork()
		return err
	}
	return nil
}

// leaveNetwork closes the files that joinNetwork opened.
func (b *box) leaveNetwork() {
	for _, f := range []*os.File{b.network, b.owner} {
		if f != nil {
			f.Close()
		}
	}
}

// network opens the network namespace of a container that runs.
func (s *Engine) network(id string) (*os.File, error) {
	if !validContainerID(id) {
		return nil, fmt.Errorf("no container %q: %w", id, containers.ErrGone)
	}
	st, err := s.load(id)
	if err != nil {
		return nil, err
	}
	gone := func() error { return fmt.Errorf("container %s does not run: %w", id, containers.ErrGone) }
	if !s.alive(&st) {
		return nil, gone()
	}
	f, err := os.Open("/proc/" + strconv.Itoa(st.PID) + "/ns/net")
	// Asked again: if the container still runs, the namespace is its own.
	if !s.alive(&st) {
		if err == nil {
			f.Close()
		}
		return nil, gone()
	}
	if err != nil {
		return nil, fmt.Errorf("cannot open the network of container %s: %w", id, err)
	}
	return f, nil
}

// sidecarBox returns a box that shows the programs of the host and [Engine.Browser].
func (s *Engine) sidecarBox(probe *bwrapProbe, l containers.Limits) (*box, error) {
	b, err := s.bareBox(probe, l)
	if err != nil {
		return nil, err
	}
	b.sidecar, b.home, b.hold = true, containers.SidecarHome, make(chan struct{})
	visible := []string{"/usr", "/bin", "/sbin"}
	if s.Browser != "" {
		dir, err := filepath.Abs(s.Browser)
		if err != nil {
			return nil, err
		}
		b.binds = append(b.binds, bind{src: dir, dst: containers.BrowserDir})
	}
	b.path = visiblePath("", visible)
	if err := b.prepare(); err != nil {
		b.close()
		return nil, err
	}
	return b, nil
}

// findOwner opens the user namespace that owns the network.
func (b *box) findOwner() (err error) {
	if b.nsenter, b.setpriv, err = findNsenter(); err != nil {
		return err
	}
	fd, err := unix.IoctlRetInt(int(b.network.Fd()), unix.NS_GET_USERNS)
	if err != nil {
		return fmt.Errorf("cannot find who the container's network belongs to: %w", err)
	}
	unix.CloseOnExec(fd)
	b.owner = os.NewFile(uintptr(fd), "user namespace")
	return nil
}

// findNsenter finds the programs that a ramus that is not root needs besides bubblewrap.
func findNsenter() (nsenter, setpriv string, err error) {
	if nsenter, err = exec.LookPath("nsenter"); err == nil {
		setpriv, err = exec.LookPath("setpriv")
	}
	if err != nil {
		return "", "", fmt.Errorf("cannot enter a container's network (%w); install the package \"util-linux\": %w",
			err, containers.ErrUnavailable)
	}
	return nsenter, setpriv, nil
}

// follow starts a sidecar and feeds it. It returns when the sidecar has ended and all its output was passed on, or when ctx is done.
func (s *Engine) follow(ctx context.Context, b *box, c containers.Sidecar, cgroups *cgroup.Root, st *state, exit *containers.SidecarExit) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	status, err := os.OpenFile(s.statusFile(st.ID), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer status.Close()

	b.more = append([]string{"RAMUS_SIDECAR=" + st.ID}, c.Env...) // the first names its process
	cmd := b.command(nil, status, c.Args)
	// Always pipes: with a file of the host the program could do more than read it or write to its end.
	in, err := b.pipes(cmd)
	if err != nil {
		return err
	}
	defer in.close()
	began := time.Now()
	if err := b.start(cmd, cgroups, st.Cgroups); err != nil {
		return err
	}
	defer close(b.hold)
	in.closeTheirs()
	out := &sidecarOutput{}
	waited, ended := in.copyStreams(cmd, c, out, cancel)

	// By its process the sidecar is found after a crash of ramus, and is known to have ended below.
	s.awaitChild(st.ID, ended)
	if pid, err := statusPID(s.statusFile(st.ID)); err == nil {
		if start, err := proc.Start(pid); err == nil {
			st.PID, st.Start = pid, start
		}
	}
	err = s.save(*st)
	if err == nil {
		select {
		case <-ended:
		case <-ctx.Done():
		}
	}
	undo, done := context.WithTimeout(context.WithoutCancel(ctx), removeTimeout)
	defer done()
	if kerr := s.kill(undo, st); kerr != nil && err == nil {
		err = kerr
	}
	cmd.Process.Kill() // the outer process of bubblewrap has nothing to wait for any more
	<-ended
	exit.Duration = time.Since(began)
	switch {
	case err != nil:
		return err
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	var code *exec.ExitError
	if *waited != nil && !errors.As(*waited, &code) {
		return fmt.Errorf("cannot wait for the sidecar: %w", *waited)
	}
	exit.Code = cmd.ProcessState.ExitCode()
	if exit.Code < 0 { // bubblewrap itself was killed
		exit.Code = 128 + 9
	}
	if exit.Code != 128+9 && !statusExit(s.statusFile(st.ID)) {
		return fmt.Errorf("%w: %s", containers.ErrUnavailable, out.beginning())
	}
	return nil
}

// copyStreams connects the standard streams of a running command with those of c. ended is closed when the command has
// ended and its output was passed on. waited is then its result. A stream of c that fails cancels the sidecar.
func (p *sidecarPipes) copyStreams(cmd *exec.Cmd, c containers.Sidecar, out *sidecarOutput, cancel context.CancelCauseFunc) (waited *error, ended chan struct{}) {
	waited, ended = new(error), make(chan struct{})
	var ending sync.WaitGroup
	ending.Go(func() { *waited = cmd.Wait() })
	for _, stream := range []struct {
		from *os.File
		to   io.Writer
	}{{p.stdout, sidecarStream{out, c.Stdout, false}}, {p.stderr, sidecarStream{out, c.Stderr, true}}} {
		ending.Go(func() {
			if _, err := io.Copy(stream.to, stream.from); err != nil {
				cancel(fmt.Errorf("cannot hand its output on: %w", err))
			}
		})
	}
	go func() { ending.Wait(); close(ended) }()
	go func() { // may outlive the sidecar, while a Read of Stdin blocks; see [containers.Sidecar]
		defer p.stdin.Close()
		if c.Stdin == nil {
			return
		}
		if err := c.Feed(p.stdin); err != nil {
			cancel(err)
		}
	}()
	return waited, ended
}

// statusExit reports whether bubblewrap has seen its program end.
func statusExit(name string) bool {
	f, err := os.Open(name)
	if err != nil {
		return false
	}
	defer f.Close()
	for d := json.NewDecoder(io.LimitReader(f, 64<<10)); ; {
		var v struct {
			Code *int `json:"exit-code"`
		}
		if d.Decode(&v) != nil {
			return false
		}
		if v.Code != nil {
			return true
		}
	}
}
