package trigger

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/durable"
)

// state is the memory of a trigger, as its file has it.
type state struct {
	Since time.Time `json:"since"` // the trigger was first seen
	// Last is the last handled time of a schedule.
	Last time.Time `json:"last,omitzero"`
	// Tips are the last seen tips of the branches of a push trigger. They are nil until it has looked once.
	Tips map[string]gitd.Hash `json:"tips,omitempty"`
	// Failures is the number of the latest runs that failed, one after another.
	Failures int       `json:"failures,omitempty"`
	Why      string    `json:"why,omitempty"`     // the error of the last failure
	Paused   time.Time `json:"paused,omitzero"`   // the zero time if it is not paused
	Run      string    `json:"run,omitempty"`     // the last run that it claimed
	Counted  []string  `json:"counted,omitempty"` // the latest runs whose end was counted
}

const (
	maxState   = 4 << 20 // of a file, in bytes
	maxCounted = 200
	// failuresPause is how many failures in a row pause a trigger.
	failuresPause = 3
)

// entry is a trigger with its state.
type entry struct {
	Trigger
	file string

	claiming sync.Mutex // held while an event is claimed, so that the limit counts right

	mu     sync.Mutex // guards the fields below
	state  state
	starts []time.Time // of the last hour, the oldest first
	active int         // runs that are followed
	// refused counts the events that were not started, because the trigger was paused or over its limit. It is not
	// kept, because a flood of events must not write to the disk.
	refused int64
}

// openEntry reads the state of a trigger. A trigger without a state is a new one.
func openEntry(t Trigger, dir string, now time.Time) (*entry, error) {
	e := &entry{Trigger: t, file: filepath.Join(dir, t.Name+".json")}
	info, err := os.Stat(e.file)
	if err == nil && info.Size() > maxState {
		return nil, fmt.Errorf("cannot read the state of trigger %s: %s has more than %d bytes", t.Name, e.file, maxState)
	}
	b, err := os.ReadFile(e.file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return e, e.change(func(s *state) { s.Since, s.Last = now.UTC(), now.UTC() })
	case err != nil:
		return nil, fmt.Errorf("cannot read the state of trigger %s: %w", t.Name, err)
	}
	if err := json.Unmarshal(b, &e.state); err != nil {
		return nil, fmt.Errorf("cannot read the state of trigger %s: %s: %w; remove the file, and it begins as a new one", t.Name, e.file, err)
	}
	if e.state.Last.IsZero() {
		e.state.Last = now.UTC() // it has become a schedule
	}
	return e, nil
}

// change changes the state. The change is on disk when change returns, or it is undone.
func (e *entry) change(f func(*state)) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	before := e.state
	f(&e.state)
	b, err := json.MarshalIndent(e.state, "", "  ")
	if err == nil {
		err = durable.Replace(e.file, append(b, '\n'), true)
	}
	if err != nil {
		e.state = before
		return fmt.Errorf("cannot keep the state of trigger %s: %w", e.Name, err)
	}
	return nil
}

func (e *entry) lastTime() time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.state.Last
}

func (e *entry) snapshot() (s state, active int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.state, e.active
}

// count counts the end of a run once, and pauses the trigger after the last of several failures in a row. paused is
// true if this end has paused it.
func (e *entry) count(run string, failed bool, why string, now time.Time) (paused bool, err error) {
	if s, _ := e.snapshot(); slices.Contains(s.Counted, run) {
		return false, nil
	}
	err = e.change(func(s *state) {
		// A new slice, because an undone change must not have changed the old one.
		s.Counted = append(slices.Clone(s.Counted[max(0, len(s.Counted)-maxCounted+1):]), run)
		if !failed {
			s.Failures, s.Why = 0, ""
			return
		}
		s.Failures++
		s.Why = oneLine(why)
		if s.Failures >= failuresPause && s.Paused.IsZero() {
			s.Paused, paused = now.UTC(), true
		}
	})
	return paused && err == nil, err
}
