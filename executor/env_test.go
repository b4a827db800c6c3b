package executor_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/internal/redact/redacttest"
)

const envValue = "bvMu2kqT9wYp-an-unregistered-value"

// TestEnvIsInNoRecord sets the environment of a request. The values reach the command and no
// record. The names are recorded.
func TestEnvIsInNoRecord(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	request := func(name, line string) record.Request {
		return record.Request{Caller: caller(t, name), Repo: "demo",
			Command: &record.Command{Shell: line, Env: []string{"TOKEN=" + envValue, "EMPTY="}}}
	}
	var out bytes.Buffer
	res, err := w.x.Exec(t.Context(), request("run:env",
		`test "$TOKEN" = `+envValue[:4]+`"`+envValue[4:]+`" && echo got ${#TOKEN}; exit 3`), &out, nil)
	if err != nil || out.String() != "got 34\n" {
		t.Fatalf("%+v, %v, %q", res, err, out.String())
	}
	run, err := w.x.Run(t.Context(), res.Run)
	if err != nil || strings.Join(run.Exec.Env, " ") != "TOKEN EMPTY" {
		t.Errorf("the record has the environment %q: %v", run.Exec.Env, err)
	}
	if _, err := w.x.Retry(t.Context(), res.Run, run.Asker); !errors.Is(err, record.ErrConflict) ||
		!strings.Contains(err.Error(), "TOKEN, EMPTY") {
		t.Errorf("a retry without the values: %v", err)
	}
	bad := request("run:env", "true")
	bad.Command.Env = []string{envValue}
	if _, err := w.x.Submit(t.Context(), bad); !errors.Is(err, record.ErrInvalid) || strings.Contains(err.Error(), envValue) {
		t.Errorf("an entry without a name: %v", err)
	}

	// A run whose command has begun keeps its environment. One that waits does not run without
	// its environment.
	first, err := w.x.Submit(t.Context(),
		request("run:env", `echo begun; until test -e go; do sleep 0.05; done; rm go; echo still ${#TOKEN}`))
	if err != nil {
		t.Fatal(err)
	}
	w.until(first.Name(), printed("begun"))
	second, err := w.x.Submit(t.Context(), request("run:env", "echo ran > ran.txt"))
	if err != nil {
		t.Fatal(err)
	}
	w.stop(true)
	w.start()
	w.release(first, "go")
	if r := w.ended(first.Name()); r.State != record.StateComplete || !strings.Contains(w.stdout(first.Name(), "exec"), "still 34") {
		t.Errorf("the command that had begun: %s %s %s", r.State, r.Reason, r.Error)
	}
	if r := w.ended(second.Name()); r.Reason != record.ReasonEnvLost || r.Hint == "" || !strings.Contains(r.Error, "TOKEN, EMPTY") {
		t.Errorf("the command that had not: %s %s %q, hint %q", r.State, r.Reason, r.Error, r.Hint)
	}
	if out := w.inRepo("ls-tree", "--name-only", "ramus/run-env"); strings.Contains(out, "ran.txt") {
		t.Errorf("it was run all the same: %s", out)
	}
	w.stop(false)
	hits, err := redacttest.Folder(t.Context(), w.data, envValue, "sandbox", "fleet/hosts", "fleet/old")
	if err != nil || len(hits) > 0 {
		t.Errorf("found %q, %v", hits, err)
	}
	w.start()
}

// TestCloseKeepsTurns closes the executor while a command runs and others wait for it. None of them begins, neither
// before the end of the executor nor after its start.
func TestCloseKeepsTurns(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	first, err := w.x.Submit(t.Context(), record.Request{Caller: caller(t, "run:turns"), Repo: "demo",
		Command: &record.Command{Shell: `echo begun; until test -e go; do sleep 0.05; done; rm go`}})
	if err != nil {
		t.Fatal(err)
	}
	w.until(first.Name(), printed("begun"))
	var waiting []record.Run
	for range 32 {
		r, err := w.x.Submit(t.Context(), record.Request{Caller: caller(t, "run:turns"), Repo: "demo",
			Command: &record.Command{Shell: "true"}})
		if err != nil {
			t.Fatal(err)
		}
		waiting = append(waiting, r)
	}
	w.stop(true)
	w.start()
	for _, r := range waiting {
		now, err := w.x.Run(t.Context(), r.Name())
		if err != nil || now.State != record.StateSubmitted {
			t.Errorf("%s does not wait: %s, %v", r.Name(), now.State, err)
		}
		if err := w.x.Stop(t.Context(), r.Name(), r.Asker); err != nil {
			t.Error(err)
		}
	}
	w.release(first, "go")
	if r := w.ended(first.Name()); r.State != record.StateComplete {
		t.Errorf("the command that had begun: %s %s %s", r.State, r.Reason, r.Error)
	}
}
