package workflow

import (
	"fmt"
	"slices"
)

// Recorded is the result of one step, as a journal keeps it.
type Recorded struct {
	Step   string     `json:"step"` // its ID
	Result StepResult `json:"result"`
}

// Replay rebuilds a machine from the results of a run, in the order in which
// they were given to [Machine.Finish], and returns it with the steps that wait
// for a result: those to do next.
//
// With until empty all results are used: that is how a run goes on after the
// server was killed. With until the ID of a node or of a step, the machine
// stops where that is about to be done for the first time, and it is among the
// pending steps: that is how a run is resumed at a node. Results behind that
// point are left aside, used tells how many were not; an until that was never
// reached is an error, and so is a result that the workflow, as it is now, has
// no step for.
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
