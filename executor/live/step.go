package live

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/tasks/workflow"
)

// Beginning is a step in the journal at the time when the run is taken up.
type Beginning struct {
	// Last is its last EventStepStarted, or nil. Starts counts them.
	Last   *record.Event
	Starts int
	// Done is its EventStepFinished, or nil.
	Done *record.Event
}

// Beginning returns a step as the journal has it.
func (l *Run) Beginning(step string) Beginning {
	l.mu.Lock()
	defer l.mu.Unlock()
	var b Beginning
	for i := range l.events {
		if e := &l.events[i]; e.Step == step {
			switch e.Type {
			case record.EventStepStarted:
				b.Last = e
				b.Starts++
			case record.EventStepFinished:
				b.Done = e
			}
		}
	}
	return b
}

// Result returns the result of a step that has ended.
func (b Beginning) Result() (workflow.StepResult, error) {
	var f record.StepResult
	if err := json.Unmarshal(b.Done.Data, &f); err != nil {
		return f.Result, fmt.Errorf("cannot read the journal's result: %w", err)
	}
	return f.Result, nil
}

// CommandID returns the name of a step's command in its runner. Each beginning has its own.
func (l *Run) CommandID(step string, start int) string {
	sum := sha256.Sum256([]byte(l.Initial.Name() + "\x00" + step))
	return hex.EncodeToString(sum[:10]) + "-" + strconv.Itoa(start)
}

// SetPlace tells followers the run's place in line for a container, or with place 0 the reason why its container does
// not start yet.
func (l *Run) SetPlace(place int, why string) {
	l.Change(func(r *record.Run) { r.Place = place })
	if why != "" {
		_ = l.Emit(record.Event{Type: record.EventContainer, Message: record.ContainerWaits + why}, false) // nothing follows from it
	}
	if place > 0 {
		_ = l.Emit(record.Event{Type: record.EventQueued, Message: strconv.Itoa(place)},
			false) // repeated with the next place
	}
}

// Note journals how a step was taken up.
func (l *Run) Note(step, text string) {
	_ = l.Emit(record.Event{Type: record.EventRecovered, Step: step, Message: text},
		false) // an event that counts follows and meets the same error
}

// ReasonOfStep returns the reason that the journal holds for a failed step.
func (l *Run) ReasonOfStep(step string, otherwise record.Reason) record.Reason {
	b := l.Beginning(step)
	if b.Done == nil {
		return otherwise
	}
	switch b.Done.Reason {
	case "timeout":
		return record.ReasonTimedOut
	case "disk_full":
		return record.ReasonDiskFull
	case "memory":
		return record.ReasonOutOfMemory
	case string(record.ReasonRejected), string(record.ReasonModel), string(record.ReasonMergeConflict),
		string(record.ReasonConflict), string(record.ReasonNotCommitted), string(record.ReasonBranchGone):
		return record.Reason(b.Done.Reason)
	}
	return otherwise
}

// Removed journals which secrets were taken out of a thing, once each.
func (l *Run) Removed(step, kind string, names []string, where string) error {
	for _, name := range names {
		message := name + " in " + where
		known := false
		for _, e := range l.Journalled() {
			known = known || e.Type == record.EventSecret && e.Kind == kind && e.Message == message
		}
		if known {
			continue
		}
		if err := l.Emit(record.Event{Type: record.EventSecret, Step: step, Kind: kind, Message: message}, false); err != nil {
			return err
		}
	}
	return nil
}
