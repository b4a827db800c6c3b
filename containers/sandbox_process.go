package containers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ramus-dev/ramus/internal/shortpath"
)

// bootID names this boot of the kernel.
var bootID = sync.OnceValue(func() string {
	b, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b))
})

// killAndWait kills process 1 of a container and returns when it is gone. The
// kernel lets it go only after every other process of its namespace. still
// tells whether the number means the same process as before.
func killAndWait(ctx context.Context, pid int, still func() bool) error {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if errors.Is(err, unix.ESRCH) {
		return nil
	} else if err != nil {
		return fmt.Errorf("cannot open process %d: %w", pid, err)
	}
	defer unix.Close(fd)
	if !still() { // the descriptor holds whoever has the number now
		return nil
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("cannot kill process %d: %w", pid, err)
	}
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 50)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("cannot wait for process %d: %w", pid, err)
		}
		if n > 0 {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("process %d does not end: %w", pid, err)
		}
	}
}

// listenUnixIn returns a listening socket; closing it leaves the name in place.
func listenUnixIn(dir, name string) (f *os.File, err error) {
	err = shortpath.To(dir, name, func(path string) error {
		ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			return fmt.Errorf("cannot listen at %s: %w", filepath.Join(dir, name), err)
		}
		ln.SetUnlinkOnClose(false)
		defer ln.Close()
		f, err = ln.File()
		return err
	})
	return f, err
}

func dialUnixIn(ctx context.Context, dir, name string) (conn net.Conn, err error) {
	// A full backlog makes connect wait; a runner that is stuck must not hold us.
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	err = shortpath.To(dir, name, func(path string) (err error) {
		conn, err = new(net.Dialer).DialContext(ctx, "unix", path)
		return err
	})
	return conn, err
}
