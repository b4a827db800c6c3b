package step

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/executor/live"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/worktree"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/tasks/service"
)

func newRun(t *testing.T, r record.Run) *Run {
	t.Helper()
	c, err := record.RunCaller("a")
	if err != nil {
		t.Fatal(err)
	}
	r.Caller, r.ID = c, "7"
	folder := &live.Folder{Dir: t.TempDir(), Now: time.Now}
	l, err := folder.Open(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.End)
	runner := &Runner{Context: t.Context(), Folder: folder, Now: time.Now}
	target := &Target{runner: runner, turns: make(chan struct{}, 1), Tree: &worktree.Tree{Caller: c}}
	return &Run{Run: l, Runner: runner, Target: target}
}

func TestReasonOf(t *testing.T) {
	for _, c := range []struct {
		err  error
		want record.Reason
	}{
		{fmt.Errorf("a step: %w", Fail(record.ReasonModel, "no answer")), record.ReasonModel},
		{ErrCancelled, record.ReasonCancelled},
		{context.Canceled, record.ReasonCancelled},
		{ErrRunTimeout, record.ReasonTimedOut},
		{context.DeadlineExceeded, record.ReasonTimedOut},
		{worktree.ErrDiskFull, record.ReasonDiskFull},
		{syscall.ENOSPC, record.ReasonDiskFull},
		{syscall.EDQUOT, record.ReasonDiskFull},
		{containers.ErrUnavailable, record.ReasonUnavailable},
		{containers.ErrBusy, record.ReasonUnavailable},
		{containers.ErrGone, record.ReasonContainerLost},
		{&worktree.Uncommitted{Reason: record.ReasonConflict}, record.ReasonConflict},
		{worktree.ErrBranchGone, record.ReasonBranchGone},
		{record.ErrInvalid, record.ReasonBadInput},
		{gitd.ErrInvalid, record.ReasonBadInput},
		{errors.New("a bug"), record.ReasonInternal},
	} {
		if got := ReasonOf(c.err); got != c.want {
			t.Errorf("%v: %s, want %s", c.err, got, c.want)
		}
	}
}

// TestMessage writes the messages of commits. A line of a command is never a trailer.
func TestMessage(t *testing.T) {
	l := newRun(t, record.Run{})
	w := &Work{Run: l, Target: l.Target, Info: Info{ID: "build#1", Node: "build", Command: "make\nRamus-Run: 8"}}
	got := w.message(Outcome{Exit: containers.Exit{Code: 3, Reason: containers.ReasonTimeout}})
	want := "build: make\n\n    make\n    Ramus-Run: 8\n\nRamus-Caller: run:a\nRamus-Run: 7\nRamus-Step: build#1\nRamus-Exit: 3\nRamus-Reason: timeout\n"
	if got != want {
		t.Errorf("the message is %q, want %q", got, want)
	}
}

// TestInterject lets one commit at a time who has no turn, at the head of the step that works, or with the turn.
func TestInterject(t *testing.T) {
	l := newRun(t, record.Run{})
	target := l.Target
	h, own, free, err := target.Interject(t.Context())
	if err != nil || !own || h.At != "" {
		t.Fatalf("%+v, %v, %v", h, own, err)
	}
	gone, cancel := context.WithCancelCause(t.Context())
	cancel(record.ErrClosed)
	if _, err := target.Acquire(gone); !errors.Is(err, record.ErrClosed) {
		t.Errorf("the turn was given twice: %v", err)
	}
	free()
	release, err := target.Acquire(gone)
	if err != nil {
		t.Fatalf("a free turn is not given: %v", err)
	}
	w := &Work{Run: l, Target: target, Head: &Head{At: "abc"}}
	target.SetAtWork(w)
	if h, own, free, err = target.Interject(t.Context()); err != nil || own || h != w.Head {
		t.Fatalf("%+v, %v, %v", h, own, err)
	}
	free()
	w.Head.Over = true
	if _, _, _, err = target.Interject(gone); !errors.Is(err, record.ErrClosed) {
		t.Errorf("a step after its last commit was interrupted: %v", err)
	}
	target.SetAtWork(nil)
	release()
	release()
	if _, own, free, err = target.Interject(t.Context()); err != nil || !own {
		t.Fatal(own, err)
	}
	free()
}

// TestPerson finds the person of the prompts of an agent's last turn. Of two people it is nobody.
func TestPerson(t *testing.T) {
	ada, bo := gitd.Person{Name: "Ada", ID: "x:1"}, gitd.Person{Name: "Bo", ID: "x:2"}
	if got := newRun(t, record.Run{Asker: ada}).Person(); got != "x:1" {
		t.Errorf("a command is of %q", got)
	}
	l := newRun(t, record.Run{Asker: ada, Kind: record.KindAgent, Agent: &record.AgentCall{Name: "a", Prompt: "begin"}})
	emit := func(e record.Event) {
		t.Helper()
		if err := l.Emit(e, false); err != nil {
			t.Fatal(err)
		}
	}
	say := func(key string, by gitd.Person) {
		emit(record.Event{Type: record.EventPrompt, Data: record.Marshal(record.Prompt{Key: key, Text: "go on", By: by})})
	}
	turn := func(step string, heard int) {
		emit(record.Event{Type: record.EventStepStarted, Step: step, Kind: string(record.KindAgent),
			Data: record.Marshal(Started{ID: step, Prompts: heard})})
	}
	turn("turn-1", 1)
	if got := l.Person(); got != "x:1" {
		t.Errorf("the first turn is of %q", got)
	}
	say("k1", bo)
	turn("turn-2", 2)
	if got := l.Person(); got != "x:2" {
		t.Errorf("the second turn is of %q", got)
	}
	say("k2", ada)
	say("k3", bo)
	turn("turn-3", 4)
	if got := l.Person(); got != "" {
		t.Errorf("a turn of two people is of %q", got)
	}
}

// TestOutside reports what an agent has done outside its container since its last beginning.
func TestOutside(t *testing.T) {
	l := newRun(t, record.Run{})
	for _, c := range []struct {
		e    record.Event
		want bool
	}{
		{record.Event{Type: record.EventStepStarted, Step: "s"}, false},
		{record.Event{Type: record.EventTool, Step: "s", Kind: string(record.KindTask)}, false},
		{record.Event{Type: record.EventTool, Step: "other"}, false},
		{record.Event{Type: record.EventEgress, Step: "s", Reason: record.EgressRefused}, false},
		{record.Event{Type: record.EventTool, Step: "s"}, true},
		{record.Event{Type: record.EventStepStarted, Step: "s"}, false},
		{record.Event{Type: record.EventEgress, Step: "s", Reason: "allowed"}, true},
	} {
		if err := l.Emit(c.e, false); err != nil {
			t.Fatal(err)
		}
		if got := l.Outside("s"); got != c.want {
			text, _ := json.Marshal(c.e)
			t.Errorf("after %s: %v", text, got)
		}
	}
}

func TestOverlaid(t *testing.T) {
	got := overlaid([]service.Service{{Name: "db", Image: "a"}, {Name: "cache", Image: "b"}}, []service.Service{{Name: "db", Image: "c"}})
	if len(got) != 2 || got[0].Image != "b" || got[1].Image != "c" {
		t.Errorf("%+v", got)
	}
}
