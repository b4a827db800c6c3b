package live

import (
	"encoding/json"

	"github.com/ramus-dev/ramus/executor/record"
)

// SetState moves the run to a state and journals it, durably if the run ends or waits.
func (l *Run) SetState(s record.State, reason record.Reason, text string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.run.State, l.run.Reason, l.run.Error, l.run.Hint = s, reason, text, l.hintLocked(reason)
	now := l.folder.Now().UTC()
	e := record.Event{Type: record.EventRunState, State: s, Reason: string(reason)}
	switch s {
	case record.StateRunning:
		if l.run.StartedAt.IsZero() {
			l.run.StartedAt = now
		}
		l.run.Place, l.run.Gate = 0, nil
	case record.StateComplete, record.StateFailed:
		l.run.EndedAt, l.run.Place, l.run.Gate = now, 0, nil
		e.With = record.Moves(l.run.With)
		e.Commit = l.run.Head
		if data := record.Marshal(ended{l.run.Output}); len(data) <= maxOutput {
			e.Data = data
		}
	}
	l.run = CleanRun(l.folder.Secrets, l.run)
	e.Message = text
	return l.EmitLocked(e, s != record.StateRunning) // a later event has all of it
}

// ended is the data of the run.state event with which a run ends. So the journal alone has the result if the server
// stops before the run is sealed.
type ended struct {
	Output map[string]any `json:"output,omitempty"`
}

// maxOutput is how large a run's output may be to be in its journal too, in bytes.
const maxOutput = 1 << 20

// HadEnded takes over from the journal how the run ended. It returns false if the run had not ended.
func (l *Run) HadEnded() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	var end *record.Event
	for i := range l.events {
		switch e := &l.events[i]; e.Type {
		case record.EventRunState:
			end = e
		case record.EventStepFinished:
			if l.run.Kind == record.KindExec || l.run.Kind == record.KindTask {
				l.run.Exit = e.Exit
			}
		case record.EventMerge:
			var m record.Landed
			if json.Unmarshal(e.Data, &m) == nil && m.Merged {
				l.run.Merged = m.Commit
			}
			l.run.Pull = m.Pull
		}
	}
	if end == nil || end.State != record.StateComplete && end.State != record.StateFailed {
		return false
	}
	l.run.State, l.run.Reason, l.run.Error, l.run.EndedAt = end.State, record.Reason(end.Reason), end.Message, end.Time
	l.run.Hint, l.run.Place = l.hintLocked(l.run.Reason), 0
	if end.Commit != "" {
		l.run.Head = end.Commit
	}
	l.run.With = record.Advance(l.run.With, end.With)
	var data ended
	if json.Unmarshal(end.Data, &data) == nil {
		l.run.Output = data.Output
	}
	return true
}

// hintLocked returns the remedy for the run's end. Refused hosts come first, because they are often the cause. mu is
// held.
func (l *Run) hintLocked(reason record.Reason) string {
	hint := reason.Hint()
	if reason != record.ReasonCommandFailed && reason != record.ReasonTimedOut {
		return hint
	}
	var refused []string
	for i := range l.events {
		if e := &l.events[i]; e.Type == record.EventEgress && e.Reason == record.EgressRefused {
			refused = append(refused, e.Message)
		}
	}
	if more := record.EgressHint(refused); more != "" {
		hint = more + "; " + hint
	}
	return hint
}
