package executor

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ramus-dev/ramus/executor/acp"
	"github.com/ramus-dev/ramus/executor/live"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/step"
)

// TestQuestionSteps asks after a restart of the server. The question has a step of its own, so that an answer to the
// earlier one does not reach it.
func TestQuestionSteps(t *testing.T) {
	dir := t.TempDir()
	offer := acp.Question{Options: []acp.Option{{ID: "yes", Kind: acp.AllowOnce}, {ID: "no", Kind: acp.RejectOnce}}}
	for n := 1; n <= 3; n++ {
		x := &Executor{}
		x.defaults()
		l := asker(t, x, dir)
		events := l.Journalled()
		f := l.Follow(0, record.Span{})
		ctx, kill := context.WithCancel(t.Context())
		asks := make(chan error, 1)
		go func() {
			_, err := l.askPermission(ctx, "turn-1", offer)
			asks <- err
		}()
		for e := range f.Events(ctx) {
			if e.Seq > int64(len(events)) && e.Type == record.EventGate {
				break
			}
		}
		if want := fmt.Sprintf("turn-1/permission-%d", n); l.Snapshot().Gate.Step != want {
			t.Errorf("the question is %s, want %s", l.Snapshot().Gate.Step, want)
		}
		if n > 1 {
			old := record.Decision{Step: fmt.Sprintf("turn-1/permission-%d", n-1), Approved: true, By: "late"}
			if err := l.decide(old); !errors.Is(err, record.ErrConflict) {
				t.Errorf("an answer to the earlier question: %v", err)
			}
		}
		l.end() // nothing is journalled any more, as if the server was killed
		kill()
		if err := <-asks; err != nil {
			t.Error(err)
		}
	}
}

// TestAskPermission checks that an agent's question waits for a person for half an hour, that only one question is open
// at a time, and that each is answered once.
func TestAskPermission(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		x := &Executor{}
		x.defaults()
		l := asker(t, x, dir)
		defer l.end()
		offer := acp.Question{Options: []acp.Option{{ID: "ever", Name: "Ever", Kind: acp.AllowAlways},
			{ID: "yes", Name: "Yes", Kind: acp.AllowOnce},
			{ID: "no", Name: "No", Kind: acp.RejectOnce}}}
		answers := make(chan string, 3)
		for range 3 {
			go func() {
				option, err := agentTurn{&step.Work{Run: l.Run, Info: step.Info{ID: "turn-1"}}, l}.AskPermission(t.Context(), offer)
				if err != nil {
					t.Error(err)
				}
				answers <- option
			}()
		}
		for i, c := range []struct {
			given record.Decision
			want  string
		}{{record.Decision{Approved: true, By: "ada"}, "yes"}, {record.Decision{By: "bo"}, "no"},
			{record.Decision{Option: "ever", By: "cy"}, "ever"}} {
			synctest.Wait()
			time.Sleep(30 * time.Minute)
			for _, wrong := range []record.Decision{{Option: "other"}, {Option: "no", Approved: true}} {
				if err := l.decide(wrong); !errors.Is(err, record.ErrInvalid) {
					t.Errorf("%+v: %v", wrong, err)
				}
			}
			if err := l.decide(c.given); err != nil {
				t.Error(err)
			}
			if got := <-answers; got != c.want {
				t.Errorf("the agent hears %q, want %q", got, c.want)
			}
			// The second answer sees the first, also while the next question is open.
			synctest.Wait()
			var before *record.AnsweredError
			err := l.decide(record.Decision{Step: fmt.Sprintf("turn-1/permission-%d", i+1), Approved: true, By: "late"})
			if !errors.As(err, &before) || !errors.Is(err, record.ErrConflict) || before.Decision.By != c.given.By ||
				before.Decision.Option != c.want || before.At.IsZero() {
				t.Errorf("the second answer: %v", err)
			}
		}
		if err := l.decide(record.Decision{Approved: true}); !errors.Is(err, record.ErrConflict) {
			t.Errorf("nothing is asked: %v", err)
		}
	})
}

// asker returns a run whose agent can ask. Its journal is in a folder.
func asker(t *testing.T, x *Executor, dir string) *liveRun {
	t.Helper()
	c, err := record.RunCaller("asker")
	if err != nil {
		t.Fatal(err)
	}
	folder := &live.Folder{Dir: dir, Now: x.Now}
	run, err := folder.Open(record.Run{Caller: c, ID: "1"})
	if err != nil {
		t.Fatal(err)
	}
	return &liveRun{Run: &step.Run{Run: run}, x: x, asking: make(chan struct{}, 1)}
}
