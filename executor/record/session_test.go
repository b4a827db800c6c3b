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
		counted := 0
		for _, s := range list {
			counted += s.Runs
		}
		if len(list) != x.size || counted != x.runs {
			t.Errorf("%d runs: %+v", x.runs, list)
		}
	}
}

// TestSessionState takes the state of a session from its last run.
func TestSessionState(t *testing.T) {
	caller, err := record.RunCaller("a")
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		state  record.State
		reason record.Reason
		want   record.SessionState
		said   string
	}{
		{record.StateRunning, "", record.SessionRunning, ""},
		{record.StateComplete, "", record.SessionStopped, ""},
		{record.StateFailed, record.ReasonCommandFailed, record.SessionError, "it broke"},
		{record.StateFailed, record.ReasonCancelled, record.SessionStopped, ""},
	} {
		list := record.Sessions([]record.Run{{ID: "a", Caller: caller, Repo: "app", Kind: record.KindAgent, State: x.state,
			Reason: x.reason, Error: "it broke", Agent: &record.AgentCall{Name: "coder"}}})
		if len(list) != 1 || list[0].State != x.want || list[0].Error != x.said {
			t.Errorf("%s %s: %+v", x.state, x.reason, list)
		}
	}
}

func TestSetSession(t *testing.T) {
	var r record.Run
	for _, e := range []record.Event{
		{Type: record.EventAgent, Kind: "message", Message: "hello"},
		{Type: record.EventPrompt, Kind: record.AgentSession, Message: "other"},
	} {
		if r.SetSession(e); r.Session != "" {
			t.Errorf("%+v sets the session %q", e, r.Session)
		}
	}
	if r.SetSession(record.Event{Type: record.EventAgent, Kind: record.AgentSession, Message: "id"}); r.Session != "id" {
		t.Errorf("the session is %q", r.Session)
	}
}
