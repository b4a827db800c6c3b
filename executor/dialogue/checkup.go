package dialogue

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/settings"
	"github.com/ramus-dev/ramus/executor/step"
	"github.com/ramus-dev/ramus/tasks/workflow"
)

// checkup is a check that is made after the last turn of an agent.
type checkup struct {
	// name is unique among the checks of a run. It names the check's step.
	name string
	// check is the check as evidence names it, a task of the library or [record.CommandCheck].
	check  string
	params json.RawMessage
	run    string // shell text, in place of a task
}

// checkups returns the checks of a repository's configuration, or those of the agent if it has none.
func checkups(s settings.Settings, agent []string) (list []checkup) {
	for _, task := range agent {
		list = append(list, checkup{name: task, check: task})
	}
	if s.Checks == nil {
		return list
	}
	list = nil
	seen := make(map[string]int)
	for _, c := range s.Checks {
		u := checkup{name: c.Task, check: c.Task, params: record.Marshal(c.Params), run: c.Run}
		if c.Run != "" {
			u.name, u.check, u.params = c.Name, record.CommandCheck(c.Name), nil
		} else if c.Name != "" {
			u.name = c.Name
		}
		if seen[u.name]++; seen[u.name] > 1 {
			u.name = fmt.Sprintf("%s-%d", u.name, seen[u.name])
		}
		list = append(list, u)
	}
	return list
}

// addCheckups adds tasks that are not in a list of checks.
func addCheckups(list []checkup, tasks []string) []checkup {
	for _, task := range tasks {
		if !slices.ContainsFunc(list, func(c checkup) bool { return c.name == task }) {
			list = append(list, checkup{name: task, check: task})
		}
	}
	return list
}

// Required returns the checks without which a run of the repository is not verified. Tasks whose outcome has no meaning
// for the code are left out.
func Required(s settings.Settings) (list []record.RequiredCheck) {
	for _, c := range checkups(s, nil) {
		if record.CheckOf(c.check) != "" {
			list = append(list, record.RequiredCheck{Task: c.check, Command: c.command()})
		}
	}
	return list
}

// command returns the command of the check's step, as people read it.
func (c checkup) command() string {
	if c.run != "" {
		return c.run
	}
	return step.TaskLine(c.check, c.params)
}

// work returns the work of the check, and fills in its step.
func (c checkup) work(d *Dialogue, info *step.Info) (Do, error) {
	if c.run == "" {
		do, err := d.steps.Task(c.check, c.params, d.run.Timeout(), info)
		if err != nil {
			return nil, err
		}
		return skipping(do), nil
	}
	info.Kind, info.Command = string(workflow.KindShell), c.run
	do := d.run.Command(record.Command{Shell: c.run}, d.run.Timeout())
	return func(ctx context.Context, w *step.Work) (step.Outcome, error) {
		if err := w.Identify(ctx, c.name); err != nil {
			return step.Outcome{}, err
		}
		return do(ctx, w)
	}, nil
}
