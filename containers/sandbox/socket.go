package sandbox

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/ramus-dev/ramus/internal/shortpath"
)

// listenUnix returns a listening socket. Closing the socket leaves its name in place.
func listenUnix(dir, name string) (f *os.File, err error) {
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

// dialUnix connects to a socket.
func dialUnix(ctx context.Context, dir, name string) (conn net.Conn, err error) {
	// connect waits for a full backlog, but a runner that hangs must not block the caller.
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	err = shortpath.To(dir, name, func(path string) (err error) {
		conn, err = new(net.Dialer).DialContext(ctx, "unix", path)
		return err
	})
	return conn, err
}
