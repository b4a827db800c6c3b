package executor

import (
	"errors"

	"github.com/ramus-dev/ramus/executor/record"
)

// hintLocked returns the remedy for the run's end. Refused hosts come first, because they are often the cause. mu is
// held.
func (l *liveRun) hintLocked(reason record.Reason) string {
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

// Causes of the end of a run's context.
var (
	errCancelled  = errors.New("cancelled")
	errStepOver   = errors.New("the command at work has ended")
	errRunTimeout = errors.New("the run's time is up")
	errParked     = errors.New("waits for a person")
)
