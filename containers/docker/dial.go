package docker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ramus-dev/ramus/containers"
)

// dialWait bounds the wait for a runner whose queue of connections is full.
const dialWait = 30 * time.Second

// Dial opens a stream to the runner. The engine is asked only about containers
// that this Engine has not seen yet, or when the runner does not answer: while
// the engine restarts, containers that live on stay within reach.
func (e *Engine) Dial(ctx context.Context, id string) (net.Conn, error) {
	wrap := func(err error) error { return fmt.Errorf("cannot reach container %s: %w", id, err) }
	dir, err := e.socketDir(ctx, id)
	if err != nil {
		return nil, wrap(err)
	}
	conn, err := dialSocket(ctx, dir)
	if err == nil {
		return conn, nil
	}
	if !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, fs.ErrNotExist) {
		return nil, wrap(err)
	}
	// Nobody listens. Whether that is for good the engine knows, if it cannot be seen.
	e.mu.Lock()
	p, known := e.process1[id]
	e.mu.Unlock()
	if known && p.endsSoon(ctx) {
		return nil, wrap(fmt.Errorf("it has ended: %w", containers.ErrGone))
	}
	c, ierr := e.inspect(ctx, id)
	switch {
	case ierr != nil:
		return nil, wrap(errors.Join(ierr, err))
	case c.State == nil || !c.State.Running:
		return nil, wrap(fmt.Errorf("it has ended: %w", containers.ErrGone))
	}
	return nil, wrap(err)
}

// dialSocket connects to the socket in dir. The folder is written by the
// container: what lies there is opened without following a link and must be a
// socket, so that a container cannot turn the host's connection towards a
// socket of the host's. Going by descriptor also does away with the limit of
// 108 bytes for a socket's path.
func dialSocket(ctx context.Context, dir string) (net.Conn, error) {
	d, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: dir, Err: err}
	}
	defer unix.Close(d)
	path := dir + "/" + socketName
	s, err := unix.Openat(d, socketName, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(s)
	var st unix.Stat_t
	if err := unix.Fstat(s, &st); err != nil {
		return nil, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return nil, fmt.Errorf("%s is not a socket", path)
	}
	dialer := net.Dialer{Timeout: dialWait}
	return dialer.DialContext(ctx, "unix", fmt.Sprintf("/proc/self/fd/%d", s))
}
