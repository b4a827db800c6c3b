package pushed

import (
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
)

// TestScreen shows a run: outputs by whole lines, without what would change the terminal.
func TestScreen(t *testing.T) {
	var out strings.Builder
	s := &screen{out: &out}
	exit, at := 1, time.Unix(1700000000, 0)
	for _, e := range []record.Event{
		{Type: record.EventStepStarted, Step: "test", Command: "make\ntest"},
		{Type: record.EventOutput, Step: "test", Kind: "stdout", Message: "one\ntw"},
		{Type: record.EventOutput, Step: "test", Kind: "stderr", Message: "bad\x1b[31m\n"},
		{Type: record.EventOutput, Step: "test", Kind: "stdout", Message: "o"},
		{Type: record.EventStepFinished, Step: "test", Exit: &exit, DurationMS: 1500},
	} {
		s.event(e)
	}
	s.end(record.Run{ID: "r", State: record.StateFailed, Reason: record.ReasonCommandFailed, Error: "it failed", CreatedAt: at,
		EndedAt: at.Add(2 * time.Second)})
	want := []string{"ramus: test  make test", "  one", "  bad", "  two", "ramus: test  exit 1, 1.5 s", "ramus: FAILED after 2.0 s"}
	lines := strings.Split(out.String(), "\n")
	for i, w := range want {
		if i >= len(lines) || !strings.HasPrefix(lines[i], w) {
			t.Errorf("line %d, want %q:\n%s", i, w, out.String())
		}
	}
	if strings.Contains(out.String(), "\x1b") {
		t.Errorf("%q", out.String())
	}
}

// TestScreenLate shows the end of an output that nobody followed.
func TestScreenLate(t *testing.T) {
	var out strings.Builder
	s := &screen{out: &out}
	s.event(record.Event{Type: record.EventStepFinished, Step: "a", Stdout: &record.Stream{Bytes: 8, Tail: "one\ntwo"}})
	if !strings.HasPrefix(out.String(), "  one\n  two\nramus: a  ") {
		t.Errorf("%q", out.String())
	}
}

// TestScreenBounds shows no endless output, and nothing to nobody.
func TestScreenBounds(t *testing.T) {
	var out strings.Builder
	s := &screen{out: &out}
	s.event(record.Event{Type: record.EventOutput, Step: "a", Kind: "stdout", Message: strings.Repeat("x\n", 3*maxOutput)})
	if n := strings.Count(out.String(), "\n"); n != maxOutput+1 || !strings.Contains(out.String(), "there is more output") {
		t.Errorf("%d lines", n)
	}
	out.Reset()
	s = &screen{out: &out}
	s.event(record.Event{Type: record.EventOutput, Step: "a", Kind: "stdout", Message: strings.Repeat("x", 100*maxLine)})
	if n := out.Len(); n > 2*maxLine+100 {
		t.Errorf("%d bytes of a line without an end", n)
	}
	nobody := &screen{}
	nobody.event(record.Event{Type: record.EventOutput, Step: "a", Kind: "stdout", Message: "x\n"})
	nobody.event(record.Event{Type: record.EventStepFinished, Step: "a"})
	nobody.end(record.Run{State: record.StateComplete})
}

// TestScreenEnd shows the result of a run, and how its commits are fetched once it has ended.
func TestScreenEnd(t *testing.T) {
	at := time.Unix(1700000000, 0)
	caller, err := record.RunCaller("otter")
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		what string
		run  record.Run
		want string
	}{
		{"complete", record.Run{State: record.StateComplete, Start: "1", Head: "1"}, "ramus: complete in 2.0 s\n"},
		{"complete with commits", record.Run{State: record.StateComplete, Start: "1", Head: "2"},
			"ramus: complete in 2.0 s\nramus: `git fetch origin ramus/run-otter` brings its commits\n"},
		{"failed", record.Run{State: record.StateFailed, Reason: record.ReasonCommandFailed, Error: "it hung"},
			"ramus: FAILED after 2.0 s (command_failed): it hung\n"},
		{"failed with a hint and commits", record.Run{State: record.StateFailed, Reason: record.ReasonCommandFailed, Error: "it hung",
			Hint: "wait", Start: "1", Head: "2"}, "ramus: FAILED after 2.0 s (command_failed): it hung\nramus: wait\n" +
			"ramus: `git fetch origin ramus/run-otter` brings its commits\n"},
		{"a question after commits", record.Run{State: record.StateAwaitingReview, Start: "1", Head: "2"},
			"ramus: run:otter/r waits for an answer: `ramus approve run:otter/r`\n"},
	} {
		var out strings.Builder
		r := x.run
		r.ID, r.Caller, r.Branch, r.CreatedAt, r.EndedAt = "r", caller, caller.Branch(), at, at.Add(2*time.Second)
		(&screen{out: &out}).end(r)
		if out.String() != x.want {
			t.Errorf("%s: got %q, want %q", x.what, out.String(), x.want)
		}
	}
}

// TestScreenEvents shows one line for each event that is not of an output.
func TestScreenEvents(t *testing.T) {
	exit := 3
	for _, x := range []struct {
		event record.Event
		want  string
	}{
		{record.Event{Type: record.EventQueued, Message: "2 runs are before it"}, "ramus: waits: 2 runs are before it\n"},
		{record.Event{Type: record.EventStepStarted, Step: "a", Task: "lib_run_tests"}, "ramus: a  lib_run_tests\n"},
		{record.Event{Type: record.EventStepStarted, Step: "a", Task: "x", Command: "make"}, "ramus: a  make\n"},
		{record.Event{Type: record.EventStepFinished, Step: "a", DurationMS: 7}, "ramus: a  7 ms\n"},
		{record.Event{Type: record.EventStepFinished, Step: "a", DurationMS: 7, Exit: &exit, Reason: "timeout"},
			"ramus: a  exit 3, timeout, 7 ms\n"},
		{record.Event{Type: record.EventGate, Message: "may it\nrun?"}, "ramus: a question: may it run?\n"},
		{record.Event{Type: record.EventNote, Message: "other"}, ""},
	} {
		var out strings.Builder
		if (&screen{out: &out}).event(x.event); out.String() != x.want {
			t.Errorf("%s: got %q, want %q", x.event.Type, out.String(), x.want)
		}
	}
}
