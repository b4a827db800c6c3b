package record_test

import (
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
)

// TestSessionBegan takes the first run as the begin of a session, and the first one after a change of the repository.
func TestSessionBegan(t *testing.T) {
	caller, err := record.RunCaller("a")
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	var runs []record.Run
	for i, repo := range []string{"app", "app", "app", "library", "library"} {
		runs = append(runs, record.Run{ID: string(rune('a' + i)), Caller: caller, Repo: repo, Kind: record.KindAgent,
			State: record.StateComplete, CreatedAt: at.Add(time.Duration(i) * time.Hour),
			Agent: &record.AgentCall{Name: "coder", Session: map[bool]string{true: "docs"}[i == 1]}})
	}
	for _, x := range []struct {
		runs        int
		label       string
		after, size int // in hours; sessions
	}{{1, "", 0, 1}, {2, "docs", 1, 2}, {3, "", 0, 2}, {4, "", 3, 2}, {5, "", 3, 2}, {5, "docs", 1, 2}} {
		list := record.Sessions(runs[:x.runs])
		for _, s := range list {
			if want := at.Add(time.Duration(x.after) * time.Hour); s.Label == x.label && !s.Began.Equal(want) {
				t.Errorf("the session %q of %d runs began %s, want %s", x.label, x.runs, s.Began, want)
			}
		}
		if len(list) != x.size {
			t.Errorf("%d runs: %+v", x.runs, list)
		}
	}
}
