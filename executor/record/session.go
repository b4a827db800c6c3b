package record

import (
	"cmp"
	"slices"
	"time"
)

// SessionState is the state of a session with an agent.
type SessionState string

// The states of a session.
const (
	SessionRunning SessionState = "running" // a run of it is not over
	SessionStopped SessionState = "stopped" // the session can be continued
	SessionError   SessionState = "error"   // its last run failed; the session can still be continued
)

// Session is the conversation of a caller with one agent under one label, over all runs.
type Session struct {
	Caller Caller       `json:"caller"`
	Agent  string       `json:"agent"`
	Label  string       `json:"label"`        // AgentCall.Session
	ID     string       `json:"id,omitempty"` // of the agent's own; empty if the agent reports none
	State  SessionState `json:"state"`
	Runs   int          `json:"runs"`
	Last   string       `json:"last"`            // the name of the last run
	Error  string       `json:"error,omitempty"` // the error of that run
	At     time.Time    `json:"at"`              // the end of that run or, before its end, its start
	// Began is the time of its first run. Runs before a change of the repository do not count.
	Began time.Time `json:"began"`
}

// Sessions returns the sessions of a caller, the most recently used first. They follow from its runs, which are in order, oldest
// first.
func Sessions(runs []Run) []Session {
	list := []Session{}
	repos := map[string]string{} // by the name of the last run
	for _, r := range runs {
		if r.Kind != KindAgent || r.Agent == nil {
			continue
		}
		at := slices.IndexFunc(list, func(s Session) bool { return s.Agent == r.Agent.Name && s.Label == r.Agent.Session })
		if at < 0 {
			at = len(list)
			list = append(list, Session{Caller: r.Caller, Agent: r.Agent.Name, Label: r.Agent.Session})
		}
		s := &list[at]
		if s.Runs++; repos[s.Last] != r.Repo {
			s.Began = r.CreatedAt
		}
		repos[r.Name()] = r.Repo
		s.ID = cmp.Or(r.Session, s.ID)
		s.Last, s.Error, s.State, s.At = r.Name(), "", SessionStopped, r.EndedAt
		switch {
		case !r.Ended():
			s.State = SessionRunning
		case r.State == StateFailed && r.Reason != ReasonCancelled:
			s.State, s.Error = SessionError, r.Error
		}
		if s.At.IsZero() {
			s.At = r.CreatedAt
		}
	}
	slices.SortStableFunc(list, func(a, b Session) int { return b.At.Compare(a.At) })
	return list
}
