package executor

import (
	"encoding/json"
	"maps"
	"sync"
	"sync/atomic"

	"github.com/ramus-dev/ramus/executor/record"
)

// Outcome is a kind of end of a run.
type Outcome struct {
	Kind   record.Kind
	State  record.State
	Reason record.Reason // empty if complete
}

// ModelUse adds up calls of models by one provider.
type ModelUse struct {
	Calls, InputTokens, OutputTokens, CostMicros int64
}

// Outcomes are the ends of runs since the start.
type Outcomes struct {
	Runs    map[Outcome]int64
	Seconds map[Outcome]float64 // from the creation of these runs to their end
	Models  map[string]ModelUse // by provider
}

// Observer hears of the ends of runs. Its methods must not wait.
type Observer interface {
	// Ended is called with each run that has ended and its events, which it must not change.
	Ended(r record.Run, events []record.Event)
	// Told is called when the origin of a run knows its end.
	Told(r record.Run)
}

// tally adds up work since the start. Its zero value is ready.
type tally struct {
	commands, commits       atomic.Int64
	checksRun, checksReused atomic.Int64

	mu  sync.Mutex // guards sum
	sum Outcomes   // the ends of runs
}

// count counts a command that has ended.
func (n *tally) count(committed bool) {
	n.commands.Add(1)
	if committed {
		n.commits.Add(1)
	}
}

// countCheck counts a check that has ended.
func (n *tally) countCheck(reused bool) {
	if reused {
		n.checksReused.Add(1)
	} else {
		n.checksRun.Add(1)
	}
}

// providers are the names of providers that are counted. Other names come from journals of other releases.
var providers = map[string]bool{"anthropic": true, "openai": true, "gemini": true}

// add counts a run that has ended.
func (n *tally) add(r record.Run, events []record.Event) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.sum.Runs == nil {
		n.sum = Outcomes{make(map[Outcome]int64), make(map[Outcome]float64), make(map[string]ModelUse)}
	}
	k := Outcome{r.Kind, r.State, r.Reason}
	n.sum.Runs[k]++
	n.sum.Seconds[k] += max(0, r.EndedAt.Sub(r.CreatedAt)).Seconds()
	for i := range events {
		var c record.ModelCall
		if events[i].Type != record.EventUsage || json.Unmarshal(events[i].Data, &c) != nil || c.Refused || !providers[c.Provider] {
			continue
		}
		u := n.sum.Models[c.Provider]
		u.Calls++
		u.InputTokens += max(0, c.InputTokens)
		u.OutputTokens += max(0, c.OutputTokens)
		u.CostMicros += max(0, c.CostMicros)
		n.sum.Models[c.Provider] = u
	}
}

// Outcomes returns the ends of runs since the start.
func (x *Executor) Outcomes() Outcomes {
	x.tally.mu.Lock()
	defer x.tally.mu.Unlock()
	s := x.tally.sum
	return Outcomes{maps.Clone(s.Runs), maps.Clone(s.Seconds), maps.Clone(s.Models)}
}

// observe counts a run that has ended, or waits for a person.
func (x *Executor) observe(l *liveRun) {
	r := l.Snapshot()
	x.runs.countEnd(r)
	if !r.Ended() {
		return
	}
	events := l.Journalled()
	x.tally.add(r, events)
	if x.Observer != nil {
		x.Observer.Ended(r, events)
	}
}
