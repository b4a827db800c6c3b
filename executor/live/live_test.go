package live_test

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor/live"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/internal/redact"
)

// open opens a run of a folder.
func open(t *testing.T, f *live.Folder, r record.Run) *live.Run {
	t.Helper()
	l, err := f.Open(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.End)
	return l
}

func folder(t *testing.T) (*live.Folder, record.Run) {
	t.Helper()
	c, err := record.RunCaller("a")
	if err != nil {
		t.Fatal(err)
	}
	secrets, _ := redact.New(map[string]string{"TOKEN": "hunter-2-hunter-2"})
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	return &live.Folder{Dir: t.TempDir(), Secrets: secrets, Now: func() time.Time { return now }},
		record.Run{ID: "1", Caller: c, Kind: record.KindExec, Repo: "r", State: record.StateSubmitted}
}

// read returns the events of a reader until its end, as text.
func read(ctx context.Context, f *live.Follower) string {
	var b strings.Builder
	for e := range f.Events(ctx) {
		fmt.Fprintf(&b, "%s %s%s\n", e.Type, e.Step, e.Message)
	}
	return b.String()
}

func emit(t *testing.T, l *live.Run, e record.Event) {
	t.Helper()
	if err := l.Emit(e, false); err != nil {
		t.Fatal(err)
	}
}

// TestFollow has one reader come before the events and one after. Both get the same ones, and the end.
func TestFollow(t *testing.T) {
	f, r := folder(t)
	l := open(t, f, r)
	early, all, other := l.Follow(0, record.Span{}), f.Watch(record.Caller{}), f.Watch(record.Caller{})
	b, err := record.RunCaller("b")
	if err != nil {
		t.Fatal(err)
	}
	strange := f.Watch(b)
	f.Unwatch(other)
	emit(t, l, record.Event{Type: record.EventNote, Message: "one hunter-2-hunter-2"})
	if err := l.EmitDeferred(record.Event{Type: record.EventNote, Message: "two"}); err != nil {
		t.Fatal(err)
	}
	late := l.Follow(1, record.Span{})
	emit(t, l, record.Event{Type: record.EventNote, Message: "three"})
	l.End()
	emit(t, l, record.Event{Type: record.EventNote, Message: "nobody hears it"})
	want := "note " + f.Secrets.String("one hunter-2-hunter-2") + "\nnote two\nnote three\n"
	if got := read(t.Context(), early); got != want || strings.Contains(got, "hunter") {
		t.Errorf("the early reader got %q, want %q", got, want)
	}
	if got := read(t.Context(), late); got != "note two\nnote three\n" {
		t.Errorf("the late reader got %q", got)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if got := read(ended, all); strings.Count(got, "note") != 3 {
		t.Errorf("the watcher of all runs got %q", got)
	}
	if got := read(ended, other) + read(ended, strange); got != "" {
		t.Errorf("watchers that left, or watch another caller, got %q", got)
	}
	if got := read(t.Context(), l.Follow(2, record.Span{})); got != "note three\n" {
		t.Errorf("a reader after the end got %q", got)
	}
}

// TestEndIsLast has others journal while a run ends. Nothing comes after its end.
func TestEndIsLast(t *testing.T) {
	f, r := folder(t)
	l := open(t, f, r)
	if err := l.SetState(record.StateRunning, "", ""); err != nil {
		t.Fatal(err)
	}
	if err := l.SetState(record.StateAwaitingReview, "", "go on?"); err != nil {
		t.Fatal(err)
	}
	emit(t, l, record.Event{Type: record.EventNote, Message: "while it waits"})
	if err := l.SetState(record.StateFailed, record.ReasonCancelled, "cancelled"); err != nil {
		t.Fatal(err)
	}
	emit(t, l, record.Event{Type: record.EventNote, Message: "too late"})
	if err := l.EmitDeferred(record.Event{Type: record.EventNote, Message: "too late"}); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range l.Journalled() {
		got = append(got, cmp.Or(string(e.State), e.Message))
	}
	if want := []string{"running", "awaiting_review", "while it waits", "failed"}; !slices.Equal(got, want) {
		t.Errorf("the journal has %q, want %q", got, want)
	}
}

// TestOutput prints a rune in two halves and a secret in two writes. Readers get whole runes and no secret, and a reader
// that comes in the middle gets the output before.
func TestOutput(t *testing.T) {
	f, r := folder(t)
	l := open(t, f, r)
	emit(t, l, record.Event{Type: record.EventStepStarted, Step: "s"})
	o, err := l.OpenOutputs("s", l.Beginning("s").Last.Seq, false)
	if err != nil {
		t.Fatal(err)
	}
	early := l.Follow(1, record.Span{})
	write := func(s string) {
		t.Helper()
		if n, err := o.Stdout.Write([]byte(s)); n != len(s) || err != nil {
			t.Fatal(n, err)
		}
	}
	write("a\xc3")
	write("\xa4 hunter-2-")
	write("hunter-2\n")
	middle := l.Follow(1, record.Span{Seq: 1, To: 1})
	write("z\n")
	if err := o.Flush(); err != nil {
		t.Fatal(err)
	}
	if got := o.Stdout.Found(); len(got) != 1 || got[0] != "TOKEN" {
		t.Errorf("found %v", got)
	}
	o.SetTotals(100, 0)
	o.Save()
	stdout, stderr, err := o.Streams()
	if err != nil || stderr.File != "" || !stdout.Truncated || stdout.Bytes != 100 {
		t.Errorf("streams: %+v, %+v, %v", stdout, stderr, err)
	}
	o.Close()
	l.End()
	whole, part := "", ""
	for e := range early.Events(t.Context()) {
		if strings.ContainsRune(e.Message, '\uFFFD') {
			t.Errorf("half of a rune: %q", e.Message)
		}
		if whole += e.Message; e.Span.To != int64(len(whole)) {
			t.Errorf("the output until %q ends at %d", whole, e.Span.To)
		}
	}
	for e := range middle.Events(t.Context()) {
		part += e.Message
	}
	text, err := os.ReadFile(filepath.Join(f.Output(r), stdout.File))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(whole, "hunter") || !strings.HasPrefix(whole, "aä ") || !strings.HasSuffix(whole, "\nz\n") ||
		whole != string(text) || whole != o.Stdout.Tail() {
		t.Errorf("the reader got %q, the file has %q", whole, text)
	}
	if part != whole[1:] {
		t.Errorf("a reader from the second byte got %q of %q", part, whole)
	}
}

// TestSlowReader drops live output for a reader that does not read, and no event of the journal.
func TestSlowReader(t *testing.T) {
	f, r := folder(t)
	l := open(t, f, r)
	emit(t, l, record.Event{Type: record.EventStepStarted, Step: "s"})
	o, err := l.OpenOutputs("s", 1, false)
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	slow := l.Follow(1, record.Span{})
	chunk := []byte(strings.Repeat("x", 1<<18))
	for range 8 {
		if _, err := o.Stdout.Write(chunk); err != nil {
			t.Fatal(err)
		}
	}
	emit(t, l, record.Event{Type: record.EventNote, Message: "last"})
	l.End()
	bytes, last := 0, ""
	for e := range slow.Events(t.Context()) {
		if e.Type == record.EventOutput {
			bytes += len(e.Message)
		}
		last = e.Message
	}
	if bytes == 0 || bytes > 1<<20 || last != "last" {
		t.Errorf("got %d bytes of output, and %.20q at the end", bytes, last)
	}
}

// TestTakenUp ends a run, and opens it again as the next process does.
func TestTakenUp(t *testing.T) {
	f, r := folder(t)
	l := open(t, f, r)
	if err := l.SetState(record.StateRunning, "", ""); err != nil {
		t.Fatal(err)
	}
	emit(t, l, record.Event{Type: record.EventStepStarted, Step: "s"})
	emit(t, l, record.Event{Type: record.EventEgress, Reason: record.EgressRefused, Message: "example.org:443"})
	code := 3
	emit(t, l, record.Event{Type: record.EventStepFinished, Step: "s", Exit: &code, Reason: "timeout"})
	if reason := l.ReasonOfStep("s", record.ReasonCommandFailed); reason != record.ReasonTimedOut {
		t.Errorf("the reason of the step is %s", reason)
	}
	l.End()

	again := open(t, f, r)
	if again.HadEnded() {
		t.Error("a run at work had ended")
	}
	again.Recall()
	if now := again.Snapshot(); now.Step != "s" || now.StartedAt.IsZero() {
		t.Errorf("recalled %+v", now)
	}
	again.Change(func(r *record.Run) { r.Output = map[string]any{"n": "1"} })
	if err := again.SetState(record.StateFailed, record.ReasonCommandFailed, "it failed"); err != nil {
		t.Fatal(err)
	}
	again.End()

	last := open(t, f, r)
	if !last.HadEnded() {
		t.Fatal("the run had not ended")
	}
	now := last.Snapshot()
	if now.State != record.StateFailed || now.Error != "it failed" || now.Output["n"] != "1" || now.Exit == nil ||
		*now.Exit != 3 || !strings.Contains(now.Hint, "example.org") {
		t.Errorf("the end is %+v", now)
	}
	if err := f.Remove(r); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(f.Dir); err != nil || len(left) != 0 {
		t.Errorf("left %v, %v", left, err)
	}
}

// TestLeave has two requests wait for a run. The run continues for the second one, and for nobody after it.
func TestLeave(t *testing.T) {
	f, r := folder(t)
	l := open(t, f, r)
	first := live.NewAttendance(&record.Command{Stdin: strings.NewReader("")}, nil, nil)
	second := live.NewAttendance(&record.Command{}, nil, nil)
	l.BeginFor(first)
	l.Attend(second)
	if _, err := first.Command.Stdin.Read(make([]byte, 1)); err == nil {
		t.Fatal("there is input")
	}
	if n := l.Leave(first); n != 1 || l.Attended() != 1 {
		t.Errorf("%d others, %d wait", n, l.Attended())
	}
	if n := l.Leave(second); n != 0 {
		t.Errorf("%d others", n)
	}
	l.Attend(second)
	l.Attend(nil)
	if n := l.Leave(second); n != 1 {
		t.Errorf("%d others of a run that is kept", n)
	}
}
