package gateway_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway"
	"github.com/ramus-dev/ramus/gateway/client"
	"github.com/ramus-dev/ramus/gitd"
)

// TestExec runs commands like a terminal, with a token over TCP.
func TestExec(t *testing.T) {
	t.Parallel()
	r := open(t, true, func(s *gateway.Server) { s.Heartbeat = 20 * time.Millisecond })
	r.repo(t, "app")
	token := r.token(t, gitd.Grant{Subject: "ada", Repo: "app", Scopes: []string{"write"}})
	c := r.bearer(t, token)
	ctx := t.Context()

	t.Run("streams, input, bytes and status", func(t *testing.T) {
		var stdout, stderr bytes.Buffer
		input := strings.Repeat("\x00\xff\n", 100_000)
		res, err := c.Exec(ctx, "otter",
			gateway.ExecRequest{Repo: "app", Command: record.Command{Shell: "cat; echo err >&2; exit 3"}},
			client.ExecOptions{Stdin: strings.NewReader(input), Stdout: &stdout, Stderr: &stderr})
		if err != nil {
			t.Fatal(err)
		}
		if res.ExitCode != 3 || stdout.String() != input || stderr.String() != "err\n" {
			t.Errorf("status %d, %d bytes, %q", res.ExitCode, stdout.Len(), stderr.String())
		}
		run, err := c.Run(ctx, res.Run)
		if err != nil || run.Asker.Name != "ada" {
			t.Errorf("asked by %+v, %v: want the token's subject", run.Asker, err)
		}
	})

	t.Run("hanging up stops it", func(t *testing.T) {
		hung, hangUp := context.WithCancel(ctx)
		_, err := c.Exec(hung, "otter",
			gateway.ExecRequest{Command: record.Command{Shell: "echo kept > kept; echo ready; sleep 600"}},
			client.ExecOptions{Stdout: onWrite(hangUp)})
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("%v", err)
		}
		run := ended(t, c, "otter")
		if run.Reason != record.ReasonCancelled {
			t.Errorf("it ended as %s (%s)", run.State, run.Reason)
		}
		changes, err := c.Changes(ctx, "otter")
		if err != nil || len(changes) != 1 || changes[0].Path != "kept" {
			t.Errorf("%+v, %v: want the files to be committed", changes, err)
		}
	})

	t.Run("a repeated request that hangs up leaves the first alone", func(t *testing.T) {
		request := gateway.ExecRequest{Repo: "app", Key: "k",
			Command: record.Command{Shell: "echo ready; until [ -e go ]; do sleep 0.05; done; rm go; exit 5"}}
		ready, announce := context.WithCancel(ctx)
		answer := make(chan error, 1)
		var result record.Result
		go func() {
			var err error
			result, err = c.Exec(ctx, "stoat", request, client.ExecOptions{Stdout: onWrite(announce)})
			answer <- err
		}()
		<-ready.Done()
		body, err := json.Marshal(request)
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			req, err := http.NewRequestWithContext(ctx, "POST", r.web.URL+"/api/callers/stoat/exec", bytes.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Authorization", "Bearer "+token)
			resp, err := r.web.Client().Do(req)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := resp.Body.Read(make([]byte, 1)); err != nil || resp.StatusCode != 200 {
				t.Errorf("asked again it answers %d, %v", resp.StatusCode, err)
			}
			resp.Body.Close()
		}
		r.touch(t, "go")
		if err := <-answer; err != nil || result.ExitCode != 5 {
			t.Errorf("the first gets %+v, %v", result, err)
		}
	})

	t.Run("detached it goes on", func(t *testing.T) {
		hung, hangUp := context.WithCancel(ctx)
		_, err := c.Exec(hung, "otter", gateway.ExecRequest{Command: record.Command{Shell: "echo ready; sleep 1; exit 5"}},
			client.ExecOptions{Stdout: onWrite(hangUp), Detach: true})
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("%v", err)
		}
		if run := ended(t, c, "otter"); run.Exit == nil || *run.Exit != 5 {
			t.Errorf("%+v", run)
		}
	})

	t.Run("events resume where they broke", func(t *testing.T) {
		run, err := c.Run(ctx, "otter")
		if err != nil {
			t.Fatal(err)
		}
		all, err := c.Journal(ctx, run.Name())
		if err != nil || len(all) < 3 {
			t.Fatalf("%d events, %v", len(all), err)
		}
		req, err := http.NewRequestWithContext(ctx, "GET", r.web.URL+"/api/runs/otter/events", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+c.Token)
		req.Header.Set("Last-Event-ID", "2")
		resp, err := r.web.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(b), "id: 2\n") || !strings.Contains(string(b), "id: 3\n") ||
			!strings.Contains(string(b), "event: end\ndata: {") {
			t.Errorf("after 2:\n%s", b)
		}
		for _, bad := range []string{"x", "-1"} {
			req.Header.Set("Last-Event-ID", bad)
			resp, err := r.web.Client().Do(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != 400 {
				t.Errorf("Last-Event-ID %s: status %d", bad, resp.StatusCode)
			}
		}
	})

	t.Run("git is mounted", func(t *testing.T) {
		dir := t.TempDir()
		for _, x := range []struct {
			token string
			ok    bool
		}{{c.Token, true}, {"garbage", false},
			{r.token(t, gitd.Grant{Subject: "eve", Repo: "other", Scopes: []string{"admin"}}), false}} {
			cmd := exec.Command("git", "-c", "http.extraHeader=Authorization: Bearer "+x.token, "clone", "-q", "-b",
				"ramus/run-otter", r.web.URL+"/app.git", dir+"/"+x.token[:5]+x.token[len(x.token)-5:])
			cmd.Env = append(cmd.Environ(), "GIT_TERMINAL_PROMPT=0", "GIT_CONFIG_NOSYSTEM=1", "HOME="+dir)
			if out, err := cmd.CombinedOutput(); (err == nil) != x.ok {
				t.Errorf("clone with %.8s…: %v: %s", x.token, err, out)
			}
		}
	})

	t.Run("streams are bounded, and end when the server drains", func(t *testing.T) {
		watching := make(chan error, 1)
		go func() {
			var err error
			for _, err = range r.local.Watch(ctx, "") {
			}
			watching <- err
		}()
		// One bearer may have at most a quarter of the streams.
		var open []*http.Response
		status := 0
		for range 100 {
			req, err := http.NewRequestWithContext(ctx, "GET", r.web.URL+"/api/watch", nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Authorization", "Bearer "+c.Token)
			resp, err := r.web.Client().Do(req)
			if err != nil {
				t.Fatal(err)
			}
			open = append(open, resp)
			if status = resp.StatusCode; status != 200 {
				break
			}
		}
		if status != http.StatusTooManyRequests || len(open) != 65 {
			t.Errorf("stream %d: status %d, want 429 for the 65th", len(open), status)
		}
		r.Drain()
		for _, resp := range open {
			if _, err := io.ReadAll(resp.Body); err != nil {
				t.Error(err)
			}
			resp.Body.Close()
		}
		if err := <-watching; err == nil {
			t.Error("the watcher was not told that it missed something")
		}
	})
}

// onWrite is a writer that calls a function at each write.
type onWrite func()

func (f onWrite) Write(b []byte) (int, error) { f(); return len(b), nil }

// ended follows the last run of a caller to its end and returns the run.
func ended(t *testing.T, c *client.Client, caller string) record.Run {
	t.Helper()
	run, err := c.Run(t.Context(), caller)
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range c.Events(t.Context(), run.Name(), 0) {
		if err != nil {
			t.Fatal(err)
		}
	}
	if run, err = c.Run(t.Context(), run.Name()); err != nil {
		t.Fatal(err)
	}
	return run
}

// resetWriter is a connection that the client resets after some writes.
type resetWriter struct {
	http.ResponseWriter
	left int
}

func (w *resetWriter) Write(b []byte) (int, error) {
	if w.left--; w.left < 0 {
		return 0, &net.OpError{Op: "write", Net: "tcp", Err: os.NewSyscallError("write", syscall.ECONNRESET)}
	}
	return w.ResponseWriter.Write(b)
}

func (w *resetWriter) SetWriteDeadline(time.Time) error { return nil }
func (w *resetWriter) Flush()                           {}

// TestResetOfAStream checks that a reset of a stream by the client is not logged as an error of the server.
func TestResetOfAStream(t *testing.T) {
	t.Parallel()
	var said strings.Builder // of one request that has ended
	r := open(t, false, func(s *gateway.Server) {
		s.Log, s.Heartbeat = slog.New(slog.NewTextHandler(&said, nil)), time.Millisecond
	})
	w := &resetWriter{httptest.NewRecorder(), 2}
	r.LocalHandler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/api/watch", nil))
	if log := said.String(); strings.Contains(log, "level=ERROR") || !strings.Contains(log, "status=499") {
		t.Errorf("the log:\n%s", log)
	}
}
