package containers

import (
	"bytes"
	"context"
	"encoding/json"
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
	"time"

	"golang.org/x/sys/unix"

	"github.com/ramus-dev/ramus/containers/proc"
)

// sidecarRun is a sidecar of this process.
type sidecarRun struct {
	of    string                  // the container
	stop  context.CancelCauseFunc // ends it
	ended chan struct{}           // closed when nothing of it is left
}

func validSidecarID(id string) bool { return validID(sidecarPrefix, id) }

// bwrapTasks is bubblewrap's own share of a sidecar's limit of processes: the one
// outside, which waits, and process 1.
const bwrapTasks = 2

// Beside runs a program in a sandbox of its own in another one's network. It sees
// the host's /usr and [Sandbox.Browser], and nothing of either container's folders.
func (s *Sandbox) Beside(ctx context.Context, id string, c Sidecar) (_ SidecarExit, err error) {
	exit := SidecarExit{Image: s.Name()}
	wrap := func(err error) error { return fmt.Errorf("sandbox: %w", err) }
	if err := c.Valid(); err != nil {
		return exit, wrap(err)
	}
	probe, cgroups, err := s.probe(ctx)
	if err != nil {
		return exit, wrap(err)
	}
	st := sandboxState{
		ID: newID(sidecarPrefix), Key: c.Key, Owner: c.Owner, Of: id, Created: s.now().UTC(), Boot: bootID(),
	}
	if cgroups.usable() {
		st.Cgroups = cgroups.folders(st.ID)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	run := &sidecarRun{of: id, stop: cancel, ended: make(chan struct{})}
	s.mu.Lock()
	if s.beside == nil {
		s.beside = map[string]*sidecarRun{}
	}
	s.beside[st.ID] = run
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.beside, st.ID)
		s.mu.Unlock()
		close(run.ended)
	}()

	// Noted before it starts, so that a crash of ramus at any moment leaves
	// something to find it by.
	if err := os.MkdirAll(s.home(st.ID), 0o700); err != nil {
		return exit, wrap(err)
	}
	defer func() {
		// Also when ctx is over: that is what ends it.
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTimeout)
		defer cancel()
		if rerr := s.removeSidecar(undo, &st); rerr != nil {
			err = errors.Join(err, wrap(rerr))
		}
	}()
	if err := s.save(st); err != nil {
		return exit, wrap(err)
	}
	limits := c.Bounds()
	group := limits
	group.PIDs += bwrapTasks
	if err := cgroups.create(st.Cgroups, group); err != nil {
		return exit, wrap(err)
	}
	b, err := s.sidecarBox(probe, limits)
	if err != nil {
		return exit, wrap(err)
	}
	defer b.close()
	if id != "" {
		// Now that Remove would find this: a container that is there still will
		// not be gone before this is.
		if b.network, err = s.network(id); err != nil {
			return exit, wrap(err)
		}
		defer b.network.Close()
		if b.spot == "" {
			if err := b.findOwner(); err != nil {
				return exit, wrap(err)
			}
			defer b.owner.Close()
		}
	}
	if err := s.follow(ctx, b, c, cgroups, &st, &exit); err != nil {
		return exit, wrap(err)
	}
	exit.OOM = cgroups.oomKills(st.Cgroups) > 0
	exit.Memory = cgroups.peak(st.Cgroups)
	return exit, nil
}

// network opens the network namespace of a container that runs.
func (s *Sandbox) network(id string) (*os.File, error) {
	if !validSandboxID(id) {
		return nil, fmt.Errorf("no container %q: %w", id, ErrGone)
	}
	st, err := s.load(id)
	if err != nil {
		return nil, err
	}
	gone := func() error { return fmt.Errorf("container %s does not run: %w", id, ErrGone) }
	if !s.alive(&st) {
		return nil, gone()
	}
	f, err := os.Open("/proc/" + strconv.Itoa(st.PID) + "/ns/net")
	// Asked again: what was opened is the container's if it lives still.
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

// sidecarBox is a sandbox that shows the host's programs and the browser lane's.
func (s *Sandbox) sidecarBox(probe *bwrapProbe, l Limits) (*sandboxBox, error) {
	b, err := s.bareBox(probe, l)
	if err != nil {
		return nil, err
	}
	b.beside, b.home, b.hold = true, SidecarHome, make(chan struct{})
	visible := []string{"/usr", "/bin", "/sbin"}
	if s.Browser != "" {
		dir, err := filepath.Abs(s.Browser)
		if err != nil {
			return nil, err
		}
		b.binds = append(b.binds, boxBind{src: dir, dst: BrowserDir})
	}
	b.path = visiblePath("", visible)
	if err := b.prepare(); err != nil {
		b.close()
		return nil, err
	}
	return b, nil
}

// findOwner opens the user namespace that the network belongs to.
func (b *sandboxBox) findOwner() (err error) {
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

// findNsenter finds what a ramus that is not root needs besides bubblewrap.
func findNsenter() (nsenter, setpriv string, err error) {
	if nsenter, err = exec.LookPath("nsenter"); err == nil {
		setpriv, err = exec.LookPath("setpriv")
	}
	if err != nil {
		return "", "", fmt.Errorf("cannot enter a container's network (%w); install the package \"util-linux\": %w", err, ErrUnavailable)
	}
	return nsenter, setpriv, nil
}

// follow starts a sidecar, feeds it, and returns when it has ended and all it
// wrote was handed on, or when ctx has ended.
func (s *Sandbox) follow(ctx context.Context, b *sandboxBox, c Sidecar, cgroups *cgroupRoot, st *sandboxState, exit *SidecarExit) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	status, err := os.OpenFile(s.statusFile(st.ID), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer status.Close()

	b.more = append([]string{"RAMUS_SIDECAR=" + st.ID}, c.Env...) // the first names its process
	cmd := b.command(nil, status, c.Args)
	// Always pipes: with a file of the host's itself the program could do more than
	// read it or write to its end.
	out := &sidecarOutput{}
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
	var waited error
	var ending sync.WaitGroup
	ending.Go(func() { waited = cmd.Wait() })
	for _, stream := range []struct {
		from *os.File
		to   io.Writer
	}{{in.stdout, sidecarStream{out, c.Stdout, false}}, {in.stderr, sidecarStream{out, c.Stderr, true}}} {
		ending.Go(func() {
			if _, err := io.Copy(stream.to, stream.from); err != nil {
				cancel(fmt.Errorf("cannot hand its output on: %w", err))
			}
		})
	}
	ended := make(chan struct{})
	go func() { ending.Wait(); close(ended) }()
	go func() { // as long as Stdin's Read blocks; see Sidecar
		defer in.stdin.Close()
		if c.Stdin == nil {
			return
		}
		if err := c.Feed(in.stdin); err != nil {
			cancel(err)
		}
	}()
	// By its process it is found when ramus dies, and known to have ended below.
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
	cmd.Process.Kill() // bubblewrap's outer process has nothing to wait for any more
	<-ended
	exit.Duration = time.Since(began)
	switch {
	case err != nil:
		return err
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	var code *exec.ExitError
	if waited != nil && !errors.As(waited, &code) {
		return fmt.Errorf("cannot wait for the sidecar: %w", waited)
	}
	exit.Code = cmd.ProcessState.ExitCode()
	if exit.Code < 0 { // bubblewrap itself was killed
		exit.Code = 128 + 9
	}
	if exit.Code != 128+9 && !statusExit(s.statusFile(st.ID)) {
		return fmt.Errorf("%w: %s", ErrUnavailable, out.beginning())
	}
	return nil
}

// statusExit tells whether bubblewrap got so far as to see its program end.
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

// sidecarPipes are a sidecar's standard streams: our ends of them, and its own.
type sidecarPipes struct {
	stdin, stdout, stderr *os.File
	theirs                []*os.File
}

// pipes connects the command's standard streams. They are its user's own, so that
// it may open /dev/stdout, too.
func (b *sandboxBox) pipes(cmd *exec.Cmd) (_ *sidecarPipes, err error) {
	p := &sidecarPipes{}
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	pipe := func() (r, w *os.File) {
		if err != nil {
			return nil, nil
		}
		if r, w, err = os.Pipe(); err == nil && b.spot != "" {
			err = r.Chown(b.uid, b.uid)
		}
		return r, w
	}
	var in, out, errOut *os.File
	in, p.stdin = pipe()
	p.stdout, out = pipe()
	p.stderr, errOut = pipe()
	p.theirs = []*os.File{in, out, errOut}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, out, errOut
	return p, err
}

// closeTheirs lets the ends of the sidecar be its own: with its last process they close.
func (p *sidecarPipes) closeTheirs() {
	for _, f := range p.theirs {
		f.Close()
	}
}

func (p *sidecarPipes) close() {
	p.closeTheirs()
	for _, f := range []*os.File{p.stdin, p.stdout, p.stderr} {
		f.Close()
	}
}

// sidecarOutput hands on what a sidecar writes.
type sidecarOutput struct {
	mu   sync.Mutex   // guards the below, and the writers
	said bytes.Buffer // the beginning of stderr, for an error message
}

type sidecarStream struct {
	out    *sidecarOutput
	w      io.Writer // nil drops it
	stderr bool
}

func (k sidecarStream) Write(p []byte) (int, error) {
	k.out.mu.Lock()
	defer k.out.mu.Unlock()
	if k.stderr {
		k.out.said.Write(p[:min(len(p), 2000-k.out.said.Len())])
	}
	if k.w == nil {
		return len(p), nil
	}
	return k.w.Write(p)
}

func (o *sidecarOutput) beginning() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.TrimSpace(strings.ToValidUTF8(o.said.String(), "?"))
}

// removeSidecar kills what is left of a sidecar and forgets it.
func (s *Sandbox) removeSidecar(ctx context.Context, st *sandboxState) error {
	wrap := func(err error) error { return fmt.Errorf("cannot remove sidecar %s: %w", st.ID, err) }
	if err := s.kill(ctx, st); err != nil {
		return wrap(err)
	}
	if err := removeCgroups(ctx, st.Cgroups); err != nil {
		return wrap(err)
	}
	if err := os.RemoveAll(s.home(st.ID)); err != nil {
		return wrap(err)
	}
	return nil
}

// endSidecars ends those of one container, whoever started them.
func (s *Sandbox) endSidecars(ctx context.Context, of string) error {
	s.mu.Lock()
	var ours []*sidecarRun
	for _, run := range s.beside {
		if run.of == of {
			ours = append(ours, run)
		}
	}
	s.mu.Unlock()
	for _, run := range ours {
		run.stop(fmt.Errorf("container %s was removed: %w", of, ErrGone))
	}
	for _, run := range ours {
		select {
		case <-run.ended:
		case <-ctx.Done():
			return fmt.Errorf("a sidecar does not end: %w", context.Cause(ctx))
		}
	}
	return s.sweepSidecars(ctx, func(st sandboxState) bool { return st.Of == of })
}

// SweepSidecars removes the sidecars of an owner that no Beside of this engine runs.
func (s *Sandbox) SweepSidecars(ctx context.Context, owner string) error {
	if owner == "" {
		return errors.New("cannot sweep sidecars: an owner is needed")
	}
	return s.sweepSidecars(ctx, func(st sandboxState) bool { return st.Owner == owner })
}

func (s *Sandbox) sweepSidecars(ctx context.Context, which func(sandboxState) bool) error {
	entries, err := os.ReadDir(s.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return fmt.Errorf("cannot list sidecars: %w", err)
	}
	var errs []error
	for _, e := range entries {
		id := e.Name()
		s.mu.Lock()
		ours := s.beside[id] != nil
		s.mu.Unlock()
		if ours || !validSidecarID(id) {
			continue
		}
		st, err := s.load(id)
		if errors.Is(err, ErrGone) {
			// Just removed, or begun when ramus died, and nothing started.
			if fi, err := e.Info(); err == nil && s.now().Sub(fi.ModTime()) > statusGrace {
				errs = append(errs, os.RemoveAll(s.home(id)))
			}
			continue
		} else if err != nil {
			errs = append(errs, err)
			continue
		}
		if which(st) {
			errs = append(errs, s.removeSidecar(ctx, &st))
		}
	}
	return errors.Join(errs...)
}
