package executor_test

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/remains"
)

// makes is a command that leaves a small and a hidden artifact, a change, and output on both streams.
const makes = "mkdir -p /artifacts/sub; echo report >/artifacts/sub/report.txt; echo x >>made; echo out; echo err >&2; "

// TestEveryEndingHasEvidence ends runs in every possible way, including the death of the server. Each run
// has its whole journal, manifest and artifacts. RAMUS_ENDINGS is the number of rounds. The default is 1.
func TestEveryEndingHasEvidence(t *testing.T) {
	t.Parallel()
	rounds := 1
	if n, err := strconv.Atoi(os.Getenv("RAMUS_ENDINGS")); err == nil {
		rounds = n
	}
	w := newWorld(t, nil)
	by := gitd.Person{Name: "Ada", Email: "ada@example.com"}
	count := 0
	for round := range rounds {
		id := func(kind string) record.Caller { return caller(t, fmt.Sprintf("run:%s-%d", kind, round)) }
		submit := func(kind string, req record.Request) record.Run {
			t.Helper()
			req.Caller, req.Repo, req.Asker = id(kind), "demo", by
			r, err := w.x.Submit(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		shell := func(kind, line string, timeout time.Duration) record.Run {
			t.Helper()
			return submit(kind, record.Request{Command: &record.Command{Shell: line, Timeout: timeout}})
		}
		printed := func(r record.Run) {
			t.Helper()
			w.until(r.Name(), func(e record.Event) bool { return e.Type == record.EventOutput })
		}
		// The timeout is long enough to make the files. It passes while other runs end.
		slow := shell("timeout", makes+"sleep 600", 4*time.Second)
		for _, ending := range []struct {
			name    string
			end     func(name string) record.Run
			state   record.State
			reason  record.Reason
			verdict record.Verdict
			files   []string
			said    string // a part of Unverified
		}{
			{"success", func(name string) record.Run {
				return submit(name, record.Request{Workflow: "id: w\nnodes:\n  - id: make\n    run: " +
					strconv.Quote(makes+"printf 'test:\\n\\t@echo fine\\n' >Makefile") +
					"\n  - id: check\n    task: lib_run_tests\n"})
			}, record.StateComplete, "", record.VerdictVerified,
				[]string{"artifacts/sub/report.txt", "evidence/changes.diff"}, ""},
			{"unverified", func(name string) record.Run { return shell(name, makes, 0) },
				record.StateComplete, "", record.VerdictUnverified, []string{"artifacts/sub/report.txt"}, "no check ran"},
			{"failure", func(name string) record.Run { return shell(name, makes+"exit 3", 0) },
				record.StateFailed, record.ReasonCommandFailed, record.VerdictFailed,
				[]string{"artifacts/sub/report.txt"}, "no check ran"},
			{"cancel", func(name string) record.Run {
				r := shell(name, makes+"sleep 600", 0)
				printed(r)
				if err := w.x.Stop(t.Context(), r.Name(), by); err != nil {
					t.Error(err)
				}
				return r
			}, record.StateFailed, record.ReasonCancelled, record.VerdictFailed, []string{"artifacts/sub/report.txt"}, ""},
			{"cancel-in-line", func(name string) record.Run {
				first := shell(name, "echo begun; sleep 600", 0)
				printed(first)
				second := shell(name, "echo never", 0)
				for _, r := range []record.Run{second, first} {
					if err := w.x.Stop(t.Context(), r.Name(), by); err != nil {
						t.Error(err)
					}
				}
				return second
			}, record.StateFailed, record.ReasonCancelled, record.VerdictFailed, nil, ""},
			{"rejected", func(name string) record.Run {
				r := submit(name, record.Request{Workflow: "id: w\nnodes:\n  - id: make\n    run: " +
					strconv.Quote(makes) + "\n  - id: ask\n    human: {message: fine?}\n"})
				if r = w.wait(r.Name()); r.State != record.StateAwaitingReview {
					t.Fatalf("%+v", r)
				}
				if m := w.sealed(r.Name()); m.State != record.StateAwaitingReview || m.Verdict != record.VerdictUnverified {
					t.Errorf("while it waits: %s, %s", m.State, m.Verdict)
				}
				if _, err := w.x.Decide(t.Context(), r.Name(), record.Decision{By: "Ada"}); err != nil {
					t.Error(err)
				}
				return r
			}, record.StateFailed, record.ReasonRejected, record.VerdictFailed, []string{"artifacts/sub/report.txt"}, ""},
			{"timeout", func(string) record.Run { return slow },
				record.StateFailed, record.ReasonTimedOut, record.VerdictFailed, []string{"artifacts/sub/report.txt"},
				"no check ran"},
			{"container-killed", func(name string) record.Run {
				r := shell(name, makes+"sleep 600", 0)
				printed(r)
				remains.KillContainers(w.data)
				return r
			}, record.StateFailed, record.ReasonContainerLost, record.VerdictFailed, nil, "began but has no result"},
			{"answered", func(name string) record.Run {
				r, _, err := w.x.Claim(t.Context(), record.Request{Key: "k", Caller: id(name), Repo: "demo", Asker: by})
				if err != nil {
					t.Fatal(err)
				}
				if r, err = w.x.End(t.Context(), r.Name(), executor.Ending{Output: map[string]any{"answer": "forty-two"}}); err != nil {
					t.Fatal(err)
				}
				return r
			}, record.StateComplete, "", record.VerdictNone, nil, ""},
			{"server-killed", func(string) record.Run { return w.killedServer(round) },
				record.StateComplete, "", record.VerdictUnverified, []string{"output/"}, "no check ran"},
		} {
			count++
			r := w.wait(ending.end(ending.name).Name())
			if r.State != ending.state || r.Reason != ending.reason {
				t.Errorf("%s: %s %s %s, want %s %s", ending.name, r.State, r.Reason, r.Error, ending.state, ending.reason)
			}
			m := w.complete(r)
			if m.Verdict != ending.verdict || !strings.Contains(strings.Join(m.Unverified, "\n"), ending.said) {
				t.Errorf("%s: verdict %s, want %s; %q", ending.name, m.Verdict, ending.verdict, m.Unverified)
			}
			for _, name := range ending.files {
				if !slices.ContainsFunc(m.Files, func(f record.ManifestFile) bool { return strings.HasPrefix(f.Name, name) }) {
					t.Errorf("%s: %s is missing in %+v", ending.name, name, m.Files)
				}
			}
		}
	}
	if left, err := filepath.Glob(filepath.Join(w.data, "live", "*", "*")); err != nil || len(left) > 0 {
		t.Errorf("left in live/: %v, %v", left, err)
	}
	t.Logf("%d runs, all complete", count)
}

// complete reads all evidence of a run that has ended and compares it.
func (w *world) complete(r record.Run) record.Manifest {
	t := w.t
	t.Helper()
	m := w.sealed(r.Name())
	for m.State != r.State { // the evidence of the wait of a run that waited is there first
		time.Sleep(10 * time.Millisecond)
		m = w.sealed(r.Name())
	}
	if m.Run != r.Name() || m.Reason != r.Reason || m.EndedAt.IsZero() || m.CreatedAt.IsZero() || m.Verdict == "" || m.Repo != "demo" {
		t.Errorf("%s: %+v", r.Name(), m)
	}
	for _, f := range m.Files {
		in, err := w.x.Artifact(t.Context(), r.Name(), f.Name)
		if err != nil {
			t.Errorf("%s: %v", r.Name(), err)
			continue
		}
		h := sha256.New()
		n, err := io.Copy(h, in)
		if err = errors.Join(err, in.Close()); err != nil || n != f.Size || hex.EncodeToString(h.Sum(nil)) != f.SHA256 || f.Type == "" {
			t.Errorf("%s: %s has %d bytes: %v; %+v", r.Name(), f.Name, n, err, f)
		}
	}
	var last record.Event
	steps := 0
	for e, err := range w.x.Events(t.Context(), r.Name(), 0, false) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Seq != last.Seq+1 {
			t.Errorf("%s: event %d after %d", r.Name(), e.Seq, last.Seq)
		}
		if e.Type == record.EventStepFinished {
			steps++
		}
		last = e
	}
	if last.Type != record.EventRunState || last.State != r.State {
		t.Errorf("%s: the journal ends with %+v", r.Name(), last)
	}
	if len(m.Commands) != steps {
		t.Errorf("%s: %d commands in the manifest, %d in the journal", r.Name(), len(m.Commands), steps)
	}
	if _, err := w.x.Artifact(t.Context(), r.Name(), "journal.jsonl"); err != nil {
		t.Errorf("%s: %v", r.Name(), err)
	}
	return m
}

// killedServer runs a workflow in another process, which is killed in the middle. This process continues
// the workflow.
func (w *world) killedServer(round int) record.Run {
	w.t.Helper()
	w.stop(true)
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0])
	key := fmt.Sprint("job-", round)
	cmd.Env = append(os.Environ(), "RAMUS_TEST_CRASH="+w.data, "RAMUS_TEST_RUNNER="+runnerBinary, "RAMUS_TEST_NODES=6",
		"RAMUS_TEST_KEY="+key)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	for lines := bufio.NewScanner(out); lines.Scan() && lines.Text() != "claimed"; {
	}
	timer := time.AfterFunc(time.Duration(rand.IntN(1000))*time.Millisecond, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	_, _ = io.Copy(io.Discard, out)
	_ = cmd.Wait() // killed, or ended before that
	w.start()
	r, err := w.x.Run(w.t.Context(), "run:crash/"+key)
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}
