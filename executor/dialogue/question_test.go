package dialogue

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ramus-dev/ramus/executor/acp"
	"github.com/ramus-dev/ramus/executor/agent"
	"github.com/ramus-dev/ramus/executor/attachment"
	"github.com/ramus-dev/ramus/executor/live"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/step"
	"github.com/ramus-dev/ramus/gitd"
)

// TestQuestionSteps asks after a restart of the server. The question has a step of its own, so that an answer to the
// earlier one does not reach it.
func TestQuestionSteps(t *testing.T) {
	dir := t.TempDir()
	offer := acp.Question{Options: []acp.Option{{ID: "yes", Kind: acp.AllowOnce}, {ID: "no", Kind: acp.RejectOnce}}}
	for n := 1; n <= 3; n++ {
		d := newDialogue(t, dir)
		events := d.run.Journalled()
		f := d.run.Follow(0, record.Span{})
		ctx, kill := context.WithCancel(t.Context())
		asks := make(chan error, 1)
		go func() {
			_, err := d.askPermission(ctx, "turn-1", offer)
			asks <- err
		}()
		for e := range f.Events(ctx) {
			if e.Seq > int64(len(events)) && e.Type == record.EventGate {
				break
			}
		}
		if want := fmt.Sprintf("turn-1/permission-%d", n); d.run.Snapshot().Gate.Step != want {
			t.Errorf("the question is %s, want %s", d.run.Snapshot().Gate.Step, want)
		}
		if n > 1 {
			old := record.Decision{Step: fmt.Sprintf("turn-1/permission-%d", n-1), Approved: true, By: "late"}
			if err := d.Decide(old); !errors.Is(err, record.ErrConflict) {
				t.Errorf("an answer to the earlier question: %v", err)
			}
		}
		d.run.End() // nothing is journalled any more, as if the server was killed
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
		d := newDialogue(t, dir)
		defer d.run.End()
		offer := acp.Question{Options: []acp.Option{{ID: "ever", Name: "Ever", Kind: acp.AllowAlways},
			{ID: "yes", Name: "Yes", Kind: acp.AllowOnce},
			{ID: "no", Name: "No", Kind: acp.RejectOnce}}}
		answers := make(chan string, 3)
		for range 3 {
			go func() {
				option, err := agentTurn{&step.Work{Run: d.run, Info: step.Info{ID: "turn-1"}}, d}.AskPermission(t.Context(), offer)
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
				if err := d.Decide(wrong); !errors.Is(err, record.ErrInvalid) {
					t.Errorf("%+v: %v", wrong, err)
				}
			}
			if err := d.Decide(c.given); err != nil {
				t.Error(err)
			}
			if got := <-answers; got != c.want {
				t.Errorf("the agent hears %q, want %q", got, c.want)
			}
			// The second answer sees the first, also while the next question is open.
			synctest.Wait()
			var before *record.AnsweredError
			err := d.Decide(record.Decision{Step: fmt.Sprintf("turn-1/permission-%d", i+1), Approved: true, By: "late"})
			if !errors.As(err, &before) || !errors.Is(err, record.ErrConflict) || before.Decision.By != c.given.By ||
				before.Decision.Option != c.want || before.At.IsZero() {
				t.Errorf("the second answer: %v", err)
			}
		}
		if err := d.Decide(record.Decision{Approved: true}); !errors.Is(err, record.ErrConflict) {
			t.Errorf("nothing is asked: %v", err)
		}
	})
}

// TestNobodyAnswers refuses a question of a program after some time. One that a run keeps waits as long as the run.
func TestNobodyAnswers(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		d := newDialogue(t, dir)
		defer d.run.End()
		offer := acp.Question{Options: []acp.Option{{ID: "yes", Kind: acp.AllowOnce}, {ID: "no", Kind: acp.RejectOnce}}}
		began := time.Now()
		got, err := d.Ask(t.Context(), record.Gate{Step: "turn-1", Message: "May I?"}, offer, false)
		if err != nil || got.Approved || got.Option != "no" || time.Since(began) != d.all.Waits.Person ||
			!strings.Contains(got.Comment, "nobody answered") {
			t.Errorf("got %+v, %v after %s, want a refusal after %s", got, err, time.Since(began), d.all.Waits.Person)
		}
		ctx, end := context.WithCancelCause(t.Context())
		time.AfterFunc(10*d.all.Waits.Person, func() { end(record.ErrClosed) })
		began = time.Now()
		_, err = d.Ask(ctx, record.Gate{Step: "plan", Message: "Is the plan good?"}, offer, true)
		if !errors.Is(err, record.ErrClosed) || time.Since(began) != 10*d.all.Waits.Person {
			t.Errorf("a question that is kept: got %v after %s, want %v", err, time.Since(began), record.ErrClosed)
		}
	})
}

// newDialogue returns the dialogue of a run. Its journal is in a folder.
func newDialogue(t *testing.T, dir string) *Dialogue {
	t.Helper()
	c, err := record.RunCaller("asker")
	if err != nil {
		t.Fatal(err)
	}
	folder := &live.Folder{Dir: dir, Now: time.Now}
	run, err := folder.Open(record.Run{Caller: c, ID: "1", Kind: record.KindAgent, Agent: &record.AgentCall{Name: "coder"}})
	if err != nil {
		t.Fatal(err)
	}
	all := &Dialogues{
		Agents:      func() map[string]agent.Agent { return map[string]agent.Agent{"coder": {Name: "coder"}} },
		Attachments: func(record.Run) attachment.Files { return attachment.Files{} },
		Bot:         gitd.Person{Name: "ramus"},
		Waits:       agent.Waits{}.WithDefaults(),
		Now:         time.Now,
	}
	return all.New(&step.Run{Run: run}, nil)
}
