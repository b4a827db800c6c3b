package executor

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ramus-dev/ramus/executor/acp"
	"github.com/ramus-dev/ramus/executor/record"
)

// TestAskLeave checks that an agent's question waits for a person for half an hour, that only one question is open at a time, and that
// each is answered once.
func TestAskLeave(t *testing.T) {
	name := filepath.Join(t.TempDir(), "journal")
	synctest.Test(t, func(t *testing.T) {
		x := &Executor{}
		x.defaults()
		j, _, err := record.OpenJournal(name, nil)
		if err != nil {
			t.Fatal(err)
		}
		l := &liveRun{x: x, journal: j, asking: make(chan struct{}, 1)}
		defer l.end()
		offer := acp.Question{Options: []acp.Option{{ID: "ever", Name: "Ever", Kind: acp.AllowAlways},
			{ID: "yes", Name: "Yes", Kind: acp.AllowOnce},
			{ID: "no", Name: "No", Kind: acp.RejectOnce}}}
		answers := make(chan string, 3)
		for range 3 {
			go func() {
				option, err := agentTurn{&work{l: l, s: stepInfo{ID: "turn-1"}}}.AskLeave(t.Context(), offer)
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
