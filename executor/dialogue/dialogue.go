package dialogue

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/executor/agent"
	"github.com/ramus-dev/ramus/executor/attachment"
	"github.com/ramus-dev/ramus/executor/browse"
	"github.com/ramus-dev/ramus/executor/live"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/shell"
	"github.com/ramus-dev/ramus/executor/step"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/redact"
	"github.com/ramus-dev/ramus/tasks/workflow"
)

// Dialogues has what the dialogues of all runs share. The fields may be changed until the first call of a method. All must
// be set, unless their comment describes the zero value.
type Dialogues struct {
	// Context ends with the cause [record.ErrClosed] when the server stops.
	Context context.Context
	// Agents returns the configured agents by name, and Bounds the bounds of their commands. Both may change.
	Agents func() map[string]agent.Agent
	Bounds func() Bounds
	Fleet  *containers.Fleet
	// Shells has the terminals of callers.
	Shells    *shell.Shells
	Inspector *browse.Inspector
	// Folder has the outputs of runs at work.
	Folder *live.Folder
	// Attachments returns the files of a run's prompts.
	Attachments func(r record.Run) attachment.Files
	History     History
	// MCP is true if containers have a server of MCP at their door.
	MCP bool
	// Bot gives the answer of nobody.
	Bot gitd.Person
	// Secrets are removed from prompts and questions. Nil means that there are none.
	Secrets *redact.Secrets
	// Waits bounds how long agents and people may take.
	Waits agent.Waits
	Now   func() time.Time
}

// Bounds are the bounds of the commands that an agent has run by ACP.
type Bounds struct {
	Timeout, RunTimeout time.Duration
	Output              int64 // bytes
}

// History has the earlier runs.
type History interface {
	// OfCaller returns the runs of a caller, the oldest first.
	OfCaller(c record.Caller) []record.Run
	Runs(ctx context.Context, f record.Filter) ([]record.Run, error)
	// Events returns the events of a run after a sequence number.
	Events(ctx context.Context, run string, after int64, follow bool) iter.Seq2[record.Event, error]
}

// Steps runs the steps of a run.
type Steps interface {
	// Once runs a step, or returns its result in the journal.
	Once(ctx context.Context, info step.Info, do Do) (workflow.StepResult, error)
	// Task returns the work of a task of the library, and fills in its step.
	Task(name string, params json.RawMessage, timeout time.Duration, info *step.Info) (Do, error)
}

// Do is the work of a step.
type Do = func(context.Context, *step.Work) (step.Outcome, error)

// Dialogue is the conversation of a run. Methods are safe for concurrent use, apart from Lead.
type Dialogue struct {
	all    *Dialogues
	run    *step.Run
	steps  Steps
	asking chan struct{} // holds one token, because the run asks one question at a time

	// The lock of run guards all below.
	noPrompts bool   // its agent has had its last turn
	asked     *asked // the question that waits for a person
	talk      *talk  // the agent's turn at work; nil between turns
}

// New returns the dialogue of a run.
func (a *Dialogues) New(run *step.Run, steps Steps) *Dialogue {
	return &Dialogue{all: a, run: run, steps: steps, asking: make(chan struct{}, 1)}
}

// Agent returns an agent by its name. The name may be empty if there is only one agent.
func (a *Dialogues) Agent(name string) (agent.Agent, error) {
	agents := a.Agents()
	names := slices.Sorted(maps.Keys(agents))
	if name == "" && len(names) == 1 {
		name = names[0]
	}
	if found, ok := agents[name]; ok {
		return found, nil
	}
	switch {
	case len(names) == 0:
		return agent.Agent{}, fmt.Errorf("%w agent %q: none is configured; see `agents` in the configuration",
			record.ErrInvalid, name)
	case name == "":
		return agent.Agent{}, fmt.Errorf("%w request: it names no agent; known are %s", record.ErrInvalid,
			strings.Join(names, ", "))
	}
	return agent.Agent{}, fmt.Errorf("%w agent %q; known are %s", record.ErrInvalid, name, strings.Join(names, ", "))
}

// knows reports whether the run's agent has ended a turn for its caller before.
func (a *Dialogues) knows(ctx context.Context, r record.Run) (bool, error) {
	runs, err := a.History.Runs(ctx, record.Filter{Repo: r.Repo, Caller: r.Caller.String(), Max: 50})
	if err != nil {
		return false, err
	}
	for _, before := range runs {
		if before.Caller != r.Caller || before.ID == r.ID || before.Agent == nil || before.Agent.Name != r.Agent.Name {
			continue
		}
		for e, err := range a.History.Events(ctx, before.Name(), 0, false) {
			if err != nil {
				return false, err
			}
			if e.Type == record.EventStepFinished && e.Kind == string(record.KindAgent) && e.OK != nil && *e.OK {
				return true, nil
			}
		}
	}
	return false, nil
}
