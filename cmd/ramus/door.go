package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/ramus-dev/ramus/gateway/client"
	"github.com/ramus-dev/ramus/internal/shortpath"
)

// socketName is the name of the server's socket in its data folder.
const socketName = "ramus.sock"

func socketPath(data string) string { return filepath.Join(data, socketName) }

// listenSocket opens the unix socket. The lock is held, so an existing socket was left by a dead process.
func listenSocket(data string) (net.Listener, error) {
	if err := os.Remove(socketPath(data)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("cannot remove the old socket: %w", err)
	}
	var l *net.UnixListener
	err := shortpath.To(data, socketName, func(path string) (err error) {
		l, err = net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("cannot listen on %s: %w", socketPath(data), err)
	}
	l.SetUnlinkOnClose(false) // the path goes through the descriptor of the folder, which is closed by then
	if err := os.Chmod(socketPath(data), 0o600); err != nil {
		l.Close()
		return nil, fmt.Errorf("cannot restrict the socket to its owner: %w", err)
	}
	return l, nil
}

func dialSocket(ctx context.Context, data string) (net.Conn, error) {
	return dialNamed(ctx, data, socketName)
}

// dialNamed connects to a socket of a data folder. Returns [unix.ECONNREFUSED] if the server of the socket has ended.
func dialNamed(ctx context.Context, data, name string) (conn net.Conn, err error) {
	err = shortpath.To(data, name, func(path string) (err error) {
		conn, err = new(net.Dialer).DialContext(ctx, "unix", path)
		return err
	})
	if err == nil && !hasListener(conn) {
		conn.Close()
		return nil, &net.OpError{Op: "dial", Net: "unix", Addr: conn.RemoteAddr(), Err: unix.ECONNREFUSED}
	}
	return conn, err
}

// hasListener reports whether the process that listened at the other side of a connection runs. The socket of a killed
// server accepts connections as long as a child of that server has not executed its own program yet (execve(2) closes
// the socket), and resets them then. hasListener reports true if it cannot tell, as in another namespace of processes.
func hasListener(conn net.Conn) bool {
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return true
	}
	var peer *unix.Ucred // of the process that called listen, see unix(7)
	if cerr := raw.Control(func(fd uintptr) {
		peer, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); cerr != nil || err != nil || peer.Pid <= 0 {
		return true
	}
	fd, err := unix.PidfdOpen(int(peer.Pid), 0)
	if err != nil {
		return !errors.Is(err, unix.ESRCH)
	}
	defer unix.Close(fd)
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0) // readable when the process has ended
	return err != nil || n == 0
}

// door is the socket of a server that may end while a client connects. A closed listener drops clients in its queue,
// and [http.Server.Shutdown] drops those that were not read yet. Without door a command that connects while another
// one's server ends would fail.
type door struct {
	data string

	mu    sync.Mutex            // guards the fields below
	heard map[net.Conn]struct{} // connections that are read or answered
	quiet chan struct{}         // closed when there is no such connection; nil if no goroutine waits for that
}

// changed is the server's [http.Server.ConnState].
func (d *door) changed(conn net.Conn, state http.ConnState) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch state {
	case http.StateNew, http.StateActive:
		if d.heard == nil {
			d.heard = make(map[net.Conn]struct{})
		}
		d.heard[conn] = struct{}{}
	default:
		delete(d.heard, conn)
	}
	if len(d.heard) == 0 && d.quiet != nil {
		close(d.quiet)
		d.quiet = nil
	}
}

// close removes the socket and returns when all clients that had connected are answered, or when ctx ends. Later
// clients find no socket, and wait for the folder's lock.
func (d *door) close(ctx context.Context) error {
	const last = socketName + ".last"
	if err := os.Rename(socketPath(d.data), filepath.Join(d.data, last)); err != nil {
		return fmt.Errorf("cannot remove the socket: %w", err)
	}
	defer os.Remove(filepath.Join(d.data, last))
	// The listener accepts connections in order. When this one is answered, all earlier ones were accepted.
	c := client.Socket(func(ctx context.Context) (net.Conn, error) { return dialNamed(ctx, d.data, last) })
	defer c.Close()
	if _, err := c.Health(ctx); err != nil {
		return err
	}
	quiet := make(chan struct{})
	d.mu.Lock()
	if len(d.heard) == 0 {
		close(quiet)
	} else {
		d.quiet = quiet
	}
	d.mu.Unlock()
	select {
	case <-quiet:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
