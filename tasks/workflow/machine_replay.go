package workflow

import (
	"fmt"
	"slices"
)

// Recorded is the result of one step in a journal.
type Recorded struct {
	Step   string     `json:"step"` // the ID of the step
	Result StepResult `json:"result"`
}

// Replay rebuilds a machine from the results of a run, in the order in which [Machine.Finish] got them. pending are the
// steps without a result, which are to be performed next.
//
// If until is empty, all results are used. So a run continues after the server was killed. Otherwise until is the ID of
// a node or of a step. The machine stops when that node is about to run for the first time, and it is among the pending
// steps. So a run is resumed at a node. Later results are not used, and used is the number of those that were. Returns
// an error if until is never reached, or if a result has no step in the current workflow.
func Replay(w *Workflow, input, context map[string]any, results []Recorded, until string) (m *Machine, pending []Step, used int, err error) {
	if m, err = NewMachine(w, input, context); err != nil {
		return nil, nil, 0, err
	}
	for ; ; used++ {
		steps, err := m.Next()
		if err != nil {
			return nil, nil, 0, err
		}
		if until != "" && slices.ContainsFunc(steps, func(s Step) bool { return s.Node == until || s.ID == until }) {
			return m, m.Running(), used, nil
		}
		if used == len(results) {
			break
		}
		if err := m.Finish(results[used].Step, results[used].Result); err != nil {
			return nil, nil, 0, fmt.Errorf("the recorded run does not fit the workflow %s: %w", w.ID, err)
		}
	}
	if until != "" {
		return nil, nil, 0, fmt.Errorf("the recorded run never came to %q", until)
	}
	return m, m.Running(), used, nil
}
