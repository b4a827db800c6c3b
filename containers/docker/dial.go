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

// Dial opens a stream to the runner. It asks the engine only about containers that this Engine has not seen yet, or if
// the runner does not answer. So containers that survive a restart of the engine stay reachable during it.
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
	// Nobody listens. The container may have ended. If its process does not show that, the engine knows.
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

// dialSocket connects to the socket in dir. The container can write to dir. So dialSocket opens the socket without
// following a link and requires it to be a socket. Otherwise a container could redirect the connection to a socket of
// the host. A path by descriptor also avoids the limit of 108 bytes for a socket's path.
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
