package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A data folder may lie deeper than a socket address can say.
func TestSocketInADeepFolder(t *testing.T) {
	data := t.TempDir()
	for range 5 {
		data = filepath.Join(data, strings.Repeat("d", 100))
	}
	lock, err := lockFolder(data)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if _, err := lockFolder(data); !errors.Is(err, errLocked) {
		t.Errorf("a second lock: %v", err)
	}
	if err := os.WriteFile(socketPath(data), nil, 0o600); err != nil { // what a dead process left
		t.Fatal(err)
	}
	l, err := listenSocket(data)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	info, err := os.Stat(socketPath(data))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket's mode is %v, %v", info.Mode(), err)
	}
	said := make(chan error, 1)
	go func() {
		conn, err := l.Accept()
		if err == nil {
			_, err = io.WriteString(conn, "hello")
			conn.Close()
		}
		said <- err
	}()
	conn, err := dialSocket(t.Context(), data)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if b, err := io.ReadAll(conn); err != nil || string(b) != "hello" {
		t.Errorf("%q, %v", b, err)
	}
	if err := <-said; err != nil {
		t.Error(err)
	}
}
