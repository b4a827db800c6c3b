package executor

import (
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ramus-dev/ramus/executor/acp"
	"github.com/ramus-dev/ramus/executor/record"
)

// TestAskLeave checks that an agent's question waits for a person for half an hour, and that only one question is open at a time.
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
		answers := make(chan bool, 2)
		for range 2 {
			go func() {
				approved, err := agentTurn{&work{l: l, s: stepInfo{ID: "turn-1"}}}.AskLeave(t.Context(), acp.Question{})
				if err != nil {
					t.Error(err)
				}
				answers <- approved
			}()
		}
		for _, approved := range []bool{true, false} {
			synctest.Wait()
			time.Sleep(30 * time.Minute)
			if err := l.decide(record.Decision{Approved: approved}); err != nil {
				t.Error(err)
			}
			if got := <-answers; got != approved {
				t.Errorf("the agent hears %t, want %t", got, approved)
			}
		}
		if err := l.decide(record.Decision{Approved: true}); err != errNotAsked {
			t.Errorf("nothing is asked: %v", err)
		}
	})
}
