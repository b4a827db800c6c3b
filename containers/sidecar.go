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

// Paths inside a sidecar.
const (
	// BrowserDir has the program and the driver of browser checks, ramus-browser and driver/. They come from the image or, in
	// the sandbox, from a folder of the host (sandbox.Engine.Browser).
	BrowserDir = "/opt/ramus-browser"
	// SidecarHome is HOME. It is memory, as /tmp is.
	SidecarHome = "/tmp/home"
)

// Sidecar is a program in a container of its own that shares the network of another container and nothing else. It
// shares no file, no process, and no user that the other could trace. It has no capabilities and no mounts. It can
// write only to /tmp and its home, which count as its memory.
//
// The sidecar shares the whole network. It reaches everything that listens on 127.0.0.1 of the other container, and the
// other reaches everything that the sidecar listens on, including abstract unix sockets.
type Sidecar struct {
	Owner string // the installation, as in [Spec]; [Fleet.RunSidecar] sets it
	// Key is a name for people, as "browser:run:fancy-mallard".
	Key string
	// Image is the image to start from. The sandbox ignores it and shows the programs of the host.
	Image string
	Args  []string // the program and its arguments, without a shell
	Env   []string // "K=V"
	// Limits has Memory (default 1 GiB), CPUs (default 2), PIDs (default 256) and Tmp (default 512 MiB, at most half of Memory).
	// The other fields are ignored.
	Limits Limits
	// Stdin is read until it ends or the sidecar does. If it is nil, the input is empty. A Read that blocks at the end
	// of the sidecar is not awaited.
	Stdin io.Reader
	// Stdout and Stderr get the output as it is written, never both at a time. A nil writer discards it. A Write that
	// fails ends the sidecar. No Write is in progress after RunSidecar has returned.
	Stdout, Stderr io.Writer
	// Unqueued starts the sidecar without waiting for others. It is for a program that runs as long as an agent works.
	Unqueued bool
}

// Bounds returns Limits with the defaults of sidecars for the fields that are zero.
func (s Sidecar) Bounds() Limits {
	l := s.Limits
	l.Memory = cmp.Or(l.Memory, 1<<30)
	l.PIDs = cmp.Or(l.PIDs, 256)
	return l.WithDefaults()
}

// Valid returns an error if a field that is needed is missing. Engines call it first.
func (s Sidecar) Valid() error {
	if s.Owner == "" || s.Key == "" || len(s.Args) == 0 {
		return errors.New("a key, an owner and a program are needed")
	}
	return nil
}

// Feed copies Stdin to the sidecar, for an engine. It returns only errors of Stdin, because a program does not have to
// read to the end.
func (s Sidecar) Feed(w io.Writer) error {
	in := source{r: s.Stdin}
	io.Copy(w, &in)
	if in.err != nil {
		return fmt.Errorf("cannot read its input: %w", in.err)
	}
	return nil
}

// source remembers the error of a reader, which tells it from an error of a writer.
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

// SidecarExit is the end of a sidecar.
type SidecarExit struct {
	Code     int    // 128+n if signal n ended it
	OOM      bool   // the kernel killed a process because memory ran out
	Image    string // with digest; "sandbox" in the sandbox
	Memory   int64  // the highest use that was measured, in bytes; 0 if not known
	Duration time.Duration
}

// RunSidecar runs a sidecar of a container until it ends. See [Sidecars]. At most [Fleet].Sidecars run at once, in
// order of arrival. ctx bounds the wait too. Close ends the sidecars that run and those that wait. Returns [ErrLacks]
// if the engine has no sidecars.
//
// RunSidecar does not keep the container awake. The caller needs a [Lease].
func (f *Fleet) RunSidecar(ctx context.Context, id string, s Sidecar) (SidecarExit, error) {
	exit, err := f.runSidecar(ctx, id, s)
	if err != nil {
		return exit, fmt.Errorf("cannot run %s as a sidecar of container %s: %w", cmp.Or(s.Key, "a sidecar"),
			cmp.Or(id, "(none)"), err)
	}
	return exit, nil
}

func (f *Fleet) runSidecar(ctx context.Context, id string, s Sidecar) (SidecarExit, error) {
	engine, err := AsSidecars(f.Engine)
	if err != nil {
		return SidecarExit{}, err
	}
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
	return engine.RunSidecar(ctx, id, s)
}

// queueSidecars makes the queue of sidecars. A semaphore serves callers in order.
func (f *Fleet) queueSidecars() {
	f.Sidecars = cmp.Or(f.Sidecars, max(2, runtime.NumCPU()))
	f.sidecars = semaphore.NewWeighted(int64(f.Sidecars))
}

// sweepSidecars removes the sidecars that an earlier process left. Nothing waits for that, because the engine distinguishes them from
// those of this process, and sidecars that stay end with their containers.
func (f *Fleet) sweepSidecars() {
	engine, ok := f.Engine.(Sidecars)
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(f.base, fleetRemoving)
	defer cancel()
	if err := engine.SweepSidecars(ctx, f.owner); err != nil && f.base.Err() == nil {
		f.log().Warn("sidecars of an earlier process may be left", "err", err)
	}
}
