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
