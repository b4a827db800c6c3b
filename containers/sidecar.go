package containers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"time"

	"golang.org/x/sync/semaphore"
)

// Places inside a sidecar.
const (
	// BrowserDir is where the browser lane's program and its driver lie:
	// ramus-browser and driver/, of the image or, of the Sandbox, of a folder of
	// the host's ([Sandbox.Browser]).
	BrowserDir = "/opt/ramus-browser"
	// SidecarHome is HOME, in memory as /tmp is.
	SidecarHome = "/tmp/home"
)

// Sidecar is a program that runs in a container of its own beside another one,
// whose network it shares and nothing else: no file, no process, no user that the
// other could trace. It has no capabilities and no mounts; it can write only to
// /tmp and its home, which are memory and count as its own.
//
// The network is the whole of it: what listens on the other's 127.0.0.1 can be
// reached, and what the sidecar listens at, abstract unix sockets included, can be
// reached by the other.
type Sidecar struct {
	Owner string // the installation, as in [Spec]; [Fleet.Beside] fills it in
	// Key names it for people, "browser:run:fancy-mallard".
	Key string
	// Image to start from; the Sandbox ignores it and shows the host's own programs.
	Image string
	Args  []string // the program and its arguments, no shell
	Env   []string // "K=V"
	// Limits: of these Memory (default 1 GiB), CPUs (default 2), PIDs (default 256)
	// and Tmp (default 512 MiB, at most half of Memory) count.
	Limits Limits
	// Stdin is read until it or the sidecar ends; nil is empty. A Read that blocks
	// when the sidecar has ended is not waited for.
	Stdin io.Reader
	// Stdout and Stderr get what it writes, as it writes it, never both at a time;
	// nil drops it. A Write that fails ends the sidecar. None is under way when
	// Beside has returned.
	Stdout, Stderr io.Writer
	// Unqueued does not wait for its turn among the checks: for a program that stays
	// as long as an agent works.
	Unqueued bool
}

// Bounds are Limits with the defaults of sidecars where they are zero.
func (s Sidecar) Bounds() Limits {
	l := s.Limits
	l.Memory = cmp.Or(l.Memory, 1<<30)
	l.PIDs = cmp.Or(l.PIDs, 256)
	return l.WithDefaults()
}

// Valid tells what is missing. Engines ask it first.
func (s Sidecar) Valid() error {
	if s.Owner == "" || s.Key == "" || len(s.Args) == 0 {
		return errors.New("a key, an owner and a program are needed")
	}
	return nil
}

// Feed copies Stdin to the sidecar, for an engine. The error is Stdin's own: that
// a program does not read to the end is its affair.
func (s Sidecar) Feed(w io.Writer) error {
	in := source{r: s.Stdin}
	io.Copy(w, &in)
	if in.err != nil {
		return fmt.Errorf("cannot read its input: %w", in.err)
	}
	return nil
}

// source tells a reader that fails from a writer that does.
type source struct {
	r   io.Reader
	err error
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if err != nil && err != io.EOF {
		s.err = err
	}
	return n, err
}

// SidecarExit is how a sidecar ended.
type SidecarExit struct {
	Code     int    // 128+n when ended by signal n
	OOM      bool   // the kernel ended something in it because it had used its memory
	Image    string // with digest; of the Sandbox "sandbox"
	Memory   int64  // bytes, the most it was seen to use; 0: not known
	Duration time.Duration
}

// Beside runs a sidecar of a container to its end, in its turn: no more than
// [Fleet.Sidecars] run at once, first come, first served. See [Engine]. ctx bounds
// the waiting too. Close ends the sidecars that run, and those that wait.
//
// It does not keep the container awake: that is the caller's [Lease].
func (f *Fleet) Beside(ctx context.Context, id string, s Sidecar) (SidecarExit, error) {
	exit, err := f.beside(ctx, id, s)
	if err != nil {
		return exit, fmt.Errorf("cannot run %s beside container %s: %w", cmp.Or(s.Key, "a sidecar"), cmp.Or(id, "(none)"), err)
	}
	return exit, nil
}

func (f *Fleet) beside(ctx context.Context, id string, s Sidecar) (SidecarExit, error) {
	if err := f.engineKnown(ctx, engineAwaits); err != nil {
		return SidecarExit{}, err
	}
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		return SidecarExit{}, errClosed
	}
	f.tasks.Add(1) // Close waits for the caller's own goroutine, too
	f.mu.Unlock()
	defer f.tasks.Done()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(f.base, func() { cancel(errClosed) })()
	if !s.Unqueued {
		if err := f.sidecars.Acquire(ctx, 1); err != nil {
			return SidecarExit{}, context.Cause(ctx)
		}
		defer f.sidecars.Release(1)
	}
	s.Owner = f.owner
	return f.Engine.Beside(ctx, id, s)
}

// queueSidecars opens the line. A semaphore lets in first who came first.
func (f *Fleet) queueSidecars() {
	f.Sidecars = cmp.Or(f.Sidecars, max(2, runtime.NumCPU()))
	f.sidecars = semaphore.NewWeighted(int64(f.Sidecars))
}

// sweepSidecars removes what an earlier process left. Nothing waits for it: the
// engine knows its own from those, and what stays goes with its container.
func (f *Fleet) sweepSidecars() {
	ctx, cancel := context.WithTimeout(f.base, fleetRemoving)
	defer cancel()
	if err := f.Engine.SweepSidecars(ctx, f.owner); err != nil && f.base.Err() == nil {
		f.log().Warn("sidecars of an earlier process may be left", "err", err)
	}
}
