package executor_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/record"
)

// serve starts a program that listens in a caller's container, and waits until it does.
func (w *world) serve(name, line string, ports ...int) {
	w.t.Helper()
	if _, err := exec.LookPath("python3"); err != nil {
		w.t.Skip("cannot run here: python3 is what listens in the container")
	}
	if _, err := w.x.Exec(w.t.Context(), record.Request{Caller: caller(w.t, name), Repo: "demo",
		Command: &record.Command{Shell: line, Background: true}}, io.Discard, io.Discard); err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	for {
		open, err := w.x.Programs.Ports(ctx, caller(w.t, name))
		if err != nil {
			w.t.Fatalf("ports: %v, %v", open, err)
		}
		if len(open) == len(ports) {
			for i := range ports {
				if ports[i] != open[i] {
					w.t.Fatalf("ports: %v, want %v", open, ports)
				}
			}
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func ask(t *testing.T, conn net.Conn) string {
	t.Helper()
	if _, err := io.WriteString(conn, "GET /greeting.txt HTTP/1.0\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(conn)
	if err != nil {
		t.Fatal(err)
	}
	return string(answer)
}

func TestPorts(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	x, c := w.x, caller(t, "run:app")
	if _, err := x.Programs.Ports(t.Context(), c); !errors.Is(err, record.ErrNotFound) {
		t.Errorf("ports of nobody: %v", err)
	}
	w.exec("run:app", "true")
	w.serve("run:app", "python3 -m http.server --bind 127.0.0.1 8123 & exec python3 -m http.server --bind ::1 8124", 8123, 8124)
	for _, port := range []int{8123, 8124} {
		conn, err := x.Programs.DialPort(t.Context(), c, port)
		if err != nil {
			t.Fatal(err)
		}
		if got := ask(t, conn); !strings.HasSuffix(got, "hello\n") {
			t.Errorf("port %d says %q", port, got)
		}
		if err := errors.Join(conn.Close(), conn.Close()); err != nil {
			t.Error(err)
		}
	}
	if _, err := x.Programs.DialPort(t.Context(), c, 8125); !errors.Is(err, executor.ErrNoPort) {
		t.Errorf("a port that nothing listens at: %v", err)
	}
	if _, err := x.Programs.DialPort(t.Context(), c, 7070); err == nil || errors.Is(err, executor.ErrNoPort) {
		t.Errorf("the door's port: %v", err)
	}
	for _, port := range []int{0, -1, 65536} {
		if _, err := x.Programs.DialPort(t.Context(), c, port); !errors.Is(err, record.ErrInvalid) {
			t.Errorf("port %d: %v", port, err)
		}
	}
	// The connections to a removed container end, and nothing makes another container.
	conn, err := x.Programs.DialPort(t.Context(), c, 8123)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := x.Fleet.Remove(t.Context(), c.String()); err != nil {
		t.Fatal(err)
	}
	if n, err := conn.Read(make([]byte, 1)); err == nil {
		t.Errorf("%d bytes come from a container that is gone", n)
	}
	if _, err := x.Programs.Ports(t.Context(), c); !errors.Is(err, executor.ErrGone) {
		t.Errorf("ports of a container that is gone: %v", err)
	}
	if _, err := x.Programs.DialPort(t.Context(), c, 8123); !errors.Is(err, executor.ErrGone) {
		t.Errorf("a port of a container that is gone: %v", err)
	}
}

// TestPortsStayAwake checks that a connection keeps its container awake, and that the
// end of the executor ends the connection.
func TestPortsStayAwake(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(x *executor.Executor) { x.Fleet.Capacity = 1 })
	w.exec("run:app", "true")
	w.serve("run:app", "exec python3 -m http.server --bind 127.0.0.1 8123", 8123)
	conn, err := w.x.Programs.DialPort(t.Context(), caller(t, "run:app"), 8123)
	if err != nil {
		t.Fatal(err)
	}
	processes, err := w.x.Programs.Processes(t.Context(), "run:app")
	if err != nil || len(processes) != 1 {
		t.Fatalf("%v, %v", processes, err)
	}
	if err := w.x.Programs.StopProcess(t.Context(), "run:app", processes[0].ID); err != nil {
		t.Fatal(err)
	}
	// Nothing runs in the container any more, and another caller waits for its place.
	done := make(chan error, 1)
	go func() {
		_, err := w.x.Exec(t.Context(), record.Request{Caller: caller(t, "run:other"), Repo: "demo",
			Command: &record.Command{Shell: "true"}}, io.Discard, io.Discard)
		done <- err
	}()
	for w.x.Stats().Queue == 0 {
		select {
		case err := <-done:
			t.Fatalf("the container of an open connection was put to sleep: %v", err)
		case <-time.After(10 * time.Millisecond):
		}
	}
	if _, err := w.x.Programs.Ports(t.Context(), caller(t, "run:app")); err != nil {
		t.Errorf("while the connection is open: %v", err)
	}
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
	if err := <-done; err != nil {
		t.Errorf("after the connection was closed: %v", err)
	}
}

func TestCloseEndsConnections(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.exec("run:app", "true")
	w.serve("run:app", "exec python3 -m http.server --bind 127.0.0.1 8123", 8123)
	conn, err := w.x.Programs.DialPort(t.Context(), caller(t, "run:app"), 8123)
	if err != nil {
		t.Fatal(err)
	}
	w.stop(false)
	if n, err := conn.Read(make([]byte, 1)); err == nil {
		t.Errorf("%d bytes come after the end", n)
	}
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
	if _, err := w.x.Programs.DialPort(t.Context(), caller(t, "run:app"), 8123); err == nil {
		t.Error("a closed executor connects")
	}
	w.start()
}
