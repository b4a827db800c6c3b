package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/gateway/client"
)

// TestSocketInADeepFolder has a data folder whose path is too long for a socket address.
func TestSocketInADeepFolder(t *testing.T) {
	t.Parallel()
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
	if err := os.WriteFile(socketPath(data), nil, 0o600); err != nil { // the remains of a dead process
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

// TestAwaitFolder waits for a data folder. The waiting process prints the owner of the folder, and gets
// the folder when the owner releases it.
func TestAwaitFolder(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	lock, err := lockFolder(data)
	if err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	if _, err := awaitFolder(t.Context(), &said, data, 0); !errors.Is(err, errLocked) || said.String() != "" {
		t.Errorf("without waiting: %v, %q", err, said.String())
	}
	if _, err := awaitFolder(t.Context(), &said, data, time.Nanosecond); !errors.Is(err, errLocked) {
		t.Errorf("after the wait: %v", err)
	}
	want := fmt.Sprintf("waiting up to 1ns for another ramus (process %d)", os.Getpid())
	if !strings.Contains(said.String(), want) {
		t.Errorf("it says %q, want %q", said.String(), want)
	}
	stopped, stop := context.WithCancel(t.Context())
	stop()
	if _, err := awaitFolder(stopped, io.Discard, data, time.Hour); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}

	waiting, announce := io.Pipe()
	got := make(chan error, 1)
	go func() {
		again, err := awaitFolder(t.Context(), announce, data, time.Hour)
		if err == nil {
			err = again.Close()
		}
		got <- err
	}()
	if _, err := waiting.Read(make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	waiting.Close()
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-got; err != nil {
		t.Errorf("when the folder is given back: %v", err)
	}
}

// TestEndingHangsUpOnNobody connects while a server ends. A client gets an answer, or finds no socket.
func TestEndingHangsUpOnNobody(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	for range 5 {
		l, err := listenSocket(data)
		if err != nil {
			t.Fatal(err)
		}
		d := door{data: data}
		server := &http.Server{ConnState: d.changed,
			Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "{}") })}
		var group sync.WaitGroup
		group.Go(func() { _ = server.Serve(l) })
		came := make(chan struct{}, 8)
		for range 8 {
			group.Go(func() {
				for {
					found := false
					c := client.Socket(func(ctx context.Context) (net.Conn, error) {
						conn, err := dialSocket(ctx, data)
						found = err == nil
						return conn, err
					})
					_, err := c.Health(context.Background())
					select {
					case came <- struct{}{}:
					default:
					}
					if !found {
						return
					}
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		<-came
		if err := d.close(t.Context()); err != nil {
			t.Error(err)
		}
		if err := server.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		group.Wait()
	}
	if left, err := os.ReadDir(data); len(left) > 0 || err != nil {
		t.Errorf("still there: %v, %v", left, err)
	}
}

// TestWhyEngine checks that the log and doctor explain the choice of an engine, and the obstacle to the
// other.
func TestWhyEngine(t *testing.T) {
	t.Parallel()
	broken := errors.New("bwrap is missing")
	for _, x := range []struct {
		setting         string
		sandbox, docker error
		want            string
	}{
		{"auto", nil, nil, "engine: auto takes the sandbox, which works here"},
		{"auto", nil, broken, "engine: auto takes the sandbox, which works here"},
		{"auto", broken, nil, "engine: auto takes docker, because the sandbox does not work here: bwrap is missing"},
		{"auto", broken, broken, "engine: auto takes the sandbox, although neither it nor docker works here"},
		{"docker", broken, nil, "engine: docker in the configuration"},
		{"sandbox", broken, nil, "engine: sandbox in the configuration"},
	} {
		if got := whyEngine(x.setting, x.sandbox, x.docker); got != x.want {
			t.Errorf("%+v: %q", x, got)
		}
	}
}
