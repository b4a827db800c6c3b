package catalog

import (
	"context"
	"encoding/json"
	"iter"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/gate"
)

// Decision is the data of an event of type [record.EventPolicy]. It has the policy and the tools that the policy
// leaves. The fields of the policy are fields of the decision.
type Decision struct {
	gate.Policy
	Tools []string `json:"tools"`
	// Starter is the user who began the thread. It is empty for a program and if the user is not known.
	Starter string `json:"starter,omitempty"`
}

// Decide returns a decision with the tools that the server has for the run.
func Decide(p gate.Policy, o Offer) Decision {
	return Decision{Policy: p, Tools: Names(List(p, o))}
}

// Journal reads the journals of runs.
type Journal interface {
	Events(ctx context.Context, run string, after int64, follow bool) iter.Seq2[record.Event, error]
}

// ReadDecision returns the decision in the journal of a run. ok is false if there is none.
func ReadDecision(ctx context.Context, j Journal, run string) (d Decision, ok bool) {
	for e, err := range j.Events(ctx, run, 0, false) {
		var d Decision
		if err == nil && e.Type == record.EventPolicy && json.Unmarshal(e.Data, &d) == nil {
			return d, true
		}
	}
	return Decision{}, false
}
