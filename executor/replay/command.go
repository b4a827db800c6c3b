package replay

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/tasks/workflow"
)

const (
	// MaxCommands bounds the commands of a run.
	MaxCommands = 1000
	// MaxTimes bounds how often each command is run again.
	MaxTimes = 10
	// maxLine is how many bytes of a command a journal has. Longer ones were cut.
	maxLine = 16 << 10
)

// Command is a command or a task of a run.
type Command struct {
	Step string `json:"step"`
	Node string `json:"node,omitempty"`
	Text string `json:"command"` // as people read it
	// Why is the reason why it cannot be run again. It is empty if it can.
	Why string `json:"why,omitempty"`

	caller record.Caller
	parent gitd.Hash // the branch before it
	after  gitd.Hash // the branch after it
	exit   *int
	reason string // why it did not end by itself
	shell  *record.Command
	task   *record.TaskCall
}

// Commands returns the commands of a run, in the order of their ends. events is its journal. Returns
// [record.ErrInvalid] if the run has none, and [gitd.ErrTooLarge] if it has more than [MaxCommands].
func Commands(r record.Run, events []record.Event) ([]Command, error) {
	began := map[string]record.Event{}
	var list []Command
	for _, e := range events {
		switch e.Type {
		case record.EventStepStarted:
			began[e.Step] = e
		case record.EventStepFinished:
			b, known := began[e.Step]
			delete(began, e.Step)
			if !known || !isWork(b.Kind) {
				continue
			}
			c := Command{Step: e.Step, Node: b.Node, Text: cmp.Or(b.Command, b.Task, b.Kind), caller: r.Caller, parent: b.Parent,
				after: cmp.Or(e.Commit, b.Parent), exit: e.Exit, reason: e.Reason}
			c.Why = c.prepare(r, b, e)
			list = append(list, c)
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%w run: %s has no command that ended", record.ErrInvalid, r.Name())
	}
	if len(list) > MaxCommands {
		return nil, fmt.Errorf("%s has %d commands, at most %d are run again: %w", r.Name(), len(list), MaxCommands, gitd.ErrTooLarge)
	}
	return list, nil
}

// isWork reports whether steps of a kind work on the files of a branch.
func isWork(kind string) bool {
	return slices.Contains([]string{string(workflow.KindShell), string(workflow.KindTask), string(record.KindAgent),
		string(record.KindTerminal)}, kind)
}

// prepare sets the work of a command. Returns the reason why it cannot be run again, or "".
func (c *Command) prepare(r record.Run, began, ended record.Event) string {
	var data struct {
		Caller record.Caller `json:"caller"` // whose container, when it is not the run's own
	}
	if json.Unmarshal(began.Data, &data) == nil && !data.Caller.IsZero() {
		c.caller = data.Caller
	}
	switch {
	case began.Kind == string(record.KindAgent):
		return "it is a turn of an agent"
	case began.Kind == string(record.KindTerminal):
		return "it was typed at a terminal, whose state is not recorded"
	case ended.Reused != nil:
		return "nothing ran, the result is that of " + ended.Reused.Run + ", step " + ended.Reused.Step
	case c.parent == "":
		return "the commit from which it began is not recorded"
	case len(began.With) > 0 || len(ended.With) > 0:
		return "it worked in several repositories"
	case len(r.Secrets) > 0:
		return "the run had secrets of its own, which are not kept"
	case ended.Exit == nil:
		return "it has no exit status"
	case began.Kind == string(workflow.KindTask):
		return c.prepareTask(r, began)
	}
	return c.prepareShell(r, began)
}

func (c *Command) prepareShell(r record.Run, began record.Event) string {
	if r.Kind != record.KindExec || r.Exec == nil {
		if len(began.Command) >= maxLine {
			return "it is too long to be recorded completely"
		}
		c.shell = &record.Command{Shell: began.Command}
		return ""
	}
	switch {
	case r.Exec.Background:
		return "it went on in the background"
	case r.Exec.Setup:
		return "it set a container up for good"
	case len(r.Exec.Env) > 0:
		return "it had environment variables, whose values are not kept"
	}
	shell := *r.Exec
	c.shell = &shell
	return ""
}

func (c *Command) prepareTask(r record.Run, began record.Event) string {
	if r.Kind == record.KindTask && r.Task != nil {
		task := *r.Task
		c.task = &task
		return ""
	}
	// The command of a task is its name and its parameters.
	params, ok := strings.CutPrefix(began.Command, began.Task)
	if began.Task == "" || !ok {
		return "its task is not recorded"
	}
	c.task = &record.TaskCall{Name: began.Task}
	if params = strings.TrimSpace(params); params != "" && json.Unmarshal([]byte(params), &c.task.Params) != nil {
		return "its parameters are not recorded completely"
	}
	return ""
}

// Choose returns the commands of steps, with the others left out by a reason. Without steps it returns all. Returns
// [record.ErrNotFound] if a step has no command.
func Choose(all []Command, steps []string) ([]Command, error) {
	if len(steps) == 0 {
		return all, nil
	}
	for _, s := range steps {
		if !slices.ContainsFunc(all, func(c Command) bool { return c.Step == s }) {
			return nil, fmt.Errorf("step %q has no command that ended: %w", s, record.ErrNotFound)
		}
	}
	list := slices.Clone(all)
	for i := range list {
		if !slices.Contains(steps, list[i].Step) {
			list[i].Why = notAsked
		}
	}
	return list, nil
}

// LeaveOut leaves out the commands for which refuse returns a reason.
func LeaveOut(list []Command, refuse func(record.Command) string) {
	for i := range list {
		if c := &list[i]; c.Why == "" && c.shell != nil {
			c.Why = refuse(*c.shell)
		}
	}
}

// notAsked is the reason of commands that were left out by the request.
const notAsked = "it was not asked for"
