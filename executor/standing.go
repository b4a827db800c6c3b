package executor

import (
	"context"
	"encoding/json"
)

// Amendment is what changes in a run of KindConversation.
type Amendment struct {
	// Events are journalled, in order, all or none.
	Events []Event
	// State, Reason and Error replace the run's when State is set.
	State  State
	Reason Reason
	Error  string
	// Record replaces Run.Record when it is set.
	Record json.RawMessage
}

// Stand claims a run of KindConversation: one that nothing of the executor works at.
// Whoever claimed it keeps its journal and its record by [Executor.Amend]; the work is done by other
// runs of the same caller. The request needs Key, Caller and Repo. A second
// claim with the same caller and key returns the first one's run, and fresh is false.
func (x *Executor) Stand(ctx context.Context, r Request, record json.RawMessage) (run Run, fresh bool, err error) {
	panic("not built")
}

// Amend changes a run of KindConversation. When it returns, all of it is in the
// run's ref, as one commit, or none of it is. was is the number of the last
// event that the change is based on: when there are later ones it is
// ErrConflict, and nothing happened. Below 0 it is not looked at.
func (x *Executor) Amend(ctx context.Context, run string, was int64, a Amendment) (Run, error) {
	panic("not built")
}

// Standing lists the runs of KindConversation, oldest first.
func (x *Executor) Standing() []Run { panic("not built") }
