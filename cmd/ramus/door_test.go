package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ramus-dev/ramus/internal/shortpath"
)

// TestSocketOfKilledServer connects while the socket of a killed server is open elsewhere, as in a child of that server
// that has not executed its own program yet. Such a connection has no answer.
func TestSocketOfKilledServer(t *testing.T) {
	s := newChatServer(t, "")
	s.start()
	conn, err := dialSocket(t.Context(), s.data)
	if err != nil {
		t.Fatalf("a server that runs: %v", err)
	}
	conn.Close()
	release := holdSockets(t, s.cmd.Process.Pid)
	defer release()
	s.kill(syscall.SIGKILL)

	err = shortpath.To(s.data, socketName, func(path string) error {
		conn, err := net.Dial("unix", path)
		if err == nil {
			err = conn.Close()
		}
		return err
	})
	if err != nil {
		t.Fatalf("the socket is not open any more: %v", err)
	}
	if conn, err := dialSocket(t.Context(), s.data); !errors.Is(err, unix.ECONNREFUSED) || conn != nil {
		t.Fatalf("a server that was killed: %v", err)
	}
	if got := s.ramus("repo", "list"); !strings.Contains(got, "sample") {
		t.Errorf("the next command printed %q", got)
	}
}

// holdSockets keeps the sockets of a process open until release is called.
func holdSockets(t *testing.T, pid int) (release func()) {
	process, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(process)
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var held []int
	for _, e := range entries {
		n, err := strconv.Atoi(e.Name())
		if to, _ := os.Readlink(filepath.Join(dir, e.Name())); err != nil || !strings.HasPrefix(to, "socket:") {
			continue
		}
		fd, err := unix.PidfdGetfd(process, n, 0)
		if errors.Is(err, unix.EBADF) { // it was closed meanwhile
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, fd)
	}
	return func() {
		for _, fd := range held {
			unix.Close(fd)
		}
	}
}
