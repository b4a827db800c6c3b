package workflow

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/tasks/service"
)

// Workflow is a parsed and checked workflow file. It is immutable and may be
// used by several machines at once.
type Workflow struct {
	ID   string
	Repo RepoSpec
	// Concurrency says which runs do not work at the same time.
	Concurrency Concurrency
	// On says which events start the workflow.
	On On

	file        string
	source      string
	description string
	inputs      []Input
	nodes       []*graphNode
	byID        map[string]*graphNode
	start       *graphNode
	needs       []string
}

// Description returns the description in the file.
func (w *Workflow) Description() string { return w.description }

// File returns the name that was passed to Parse.
func (w *Workflow) File() string { return w.file }

// Source returns the parsed text.
func (w *Workflow) Source() []byte { return []byte(w.source) }

// Inputs returns the declared inputs, in written order.
func (w *Workflow) Inputs() []Input { return slices.Clone(w.inputs) }

// Images reports whether a node of the workflow names an image.
func (w *Workflow) Images() bool {
	return slices.ContainsFunc(w.nodes, func(n *graphNode) bool { return n.image != nil })
}

// Needs returns the names of the sub-workflows that the workflow calls directly, sorted.
func (w *Workflow) Needs() []string { return slices.Clone(w.needs) }

// Nodes returns the nodes in written order, for display.
func (w *Workflow) Nodes() []Node {
	list := make([]Node, len(w.nodes))
	for i, n := range w.nodes {
		list[i] = n.Node
	}
	return list
}

// Describe returns a drawing of the workflow for a terminal, with the action and the transitions of each node.
func (w *Workflow) Describe() string {
	var b strings.Builder
	b.WriteString(w.ID)
	if w.description != "" {
		b.WriteString(": " + w.description)
	}
	b.WriteByte('\n')
	for _, n := range w.nodes {
		action, _, more := strings.Cut(strings.TrimSpace(n.Action), "\n")
		if more {
			action += " …"
		}
		indent := "  "
		if n.section != nil {
			indent += "| "
		}
		fmt.Fprintf(&b, "%s%s  [%s] %s\n", indent, n.ID, n.Kind, action)
		for _, t := range n.next {
			fmt.Fprintf(&b, "%s    → %s", indent, t.to)
			if t.on != "success" && t.when == nil {
				b.WriteString(" on " + t.on)
			}
			if t.when != nil {
				b.WriteString(" when " + strings.Join(strings.Fields(t.when.source), " "))
			}
			switch {
			case t.fanOut != nil && t.fanOut.over != nil:
				b.WriteString(", a line for each of " + t.fanOut.over.source)
			case t.fanOut != nil:
				fmt.Fprintf(&b, ", %d lines", t.fanOut.count)
			case t.fanIn:
				b.WriteString(", together")
			}
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// Node has the parts of a node that are known before it runs.
type Node struct {
	ID          string `json:"id"`
	Kind        Kind   `json:"kind"`
	Description string `json:"description,omitempty"`
	Line        int    `json:"line"` // in the file
	// Action is the command template, the task, the sub-workflow, the model or the gate's message, as written.
	Action string `json:"action"`
	// Section is the first node of its fan-out section, or "".
	Section string `json:"section,omitempty"`
}

// Input is a declared input of a workflow.
type Input struct {
	Name        string `json:"name"`
	Type        string `json:"type"` // string (default), number, integer, boolean, list, object, any
	Required    bool   `json:"required,omitempty"`
	Default     any    `json:"default,omitempty"` // nil if there is none
	Description string `json:"description,omitempty"`
}

// graphNode is a node of the graph.
type graphNode struct {
	Node
	column int

	command    *template // shell
	background bool
	pure       *bool  // nil if the file does not say
	task       string // task
	params     *param // task and workflow; nil if there is none
	llm        *llmNode
	gate       *gateNode
	workflow   string // workflow
	inherit    bool

	image    *template // of shell and task nodes; nil if there is none
	services []service.Service
	matrix   *matrix // nil if there is none

	timeout   time.Duration
	retries   int
	maxVisits int
	when      *condition
	outputs   []output
	dependsOn []string

	next    []*transition // in written order
	section *section      // the fan-out section of the node; nil for the main line
}

type llmNode struct {
	model, system, prompt *template // system and model may be nil
	maxTokens             int
	schema                json.RawMessage
}

type gateNode struct {
	message *template
	allowed []string
}

// output is one entry of an output mapping.
type output struct {
	key  string
	expr *condition
}

// transition leads from one node to the next.
type transition struct {
	from, to     string
	on           string // success, failure or always
	when         *condition
	fanOut       *fanOut
	fanIn        bool
	into         string // state key of the lines' outputs, for a fan-in
	sometimes    bool   // the transition has a condition, even if a wrong one
	line, column int
}

// fanOut starts several lines.
type fanOut struct {
	count  int        // number of lines if over is nil
	over   *condition // a list, with one line for each element
	branch bool       // each line has a branch of its own
	as     string     // state key of the element in each line
}

// section is the part of the graph that runs once in each line of a fan-out.
type section struct {
	entry  *graphNode
	out    *fanOut
	target string // of the fan-in
	into   string
}

// Targets of transitions that end the run.
const (
	endComplete = "$complete"
	endFailed   = "$failed"
)

// RepoSpec is the repo block of a workflow.
type RepoSpec struct {
	ID             string `json:"id,omitempty"`
	BaseBranch     string `json:"base_branch,omitempty"`
	MergeOnSuccess bool   `json:"merge_on_success,omitempty"`
	MergeStrategy  string `json:"merge_strategy,omitempty"` // rebase (default), merge, squash, ff
}

// Concurrency is the concurrency block of a workflow.
type Concurrency struct {
	// Group names the runs of the repository of which at most one works at a time. Empty means no group.
	Group string `json:"group,omitempty"`
	// CancelPrevious stops the other runs of the group, or without a group those of the workflow, that wait or work.
	CancelPrevious bool `json:"cancel_previous,omitempty"`
}

// Options determine the names that a workflow may use.
type Options struct {
	// Load returns the text of a sub-workflow by id. If it is nil, no other workflows are known.
	Load func(id string) ([]byte, error)
	// RepoID is the repository of the run. A node's repo_id may name it as well as the file's repo. If it is empty, the
	// repository is not known yet, and all nodes must name the same one, which becomes that of a file without repo.
	RepoID string
	// LLM is true if a model endpoint is configured. Without one an llm node is a mistake.
	LLM bool
}

// Kind is the kind of a step.
type Kind string

// Kinds of steps.
const (
	KindShell    Kind = "shell"    // a command line
	KindTask     Kind = "task"     // a library task
	KindLLM      Kind = "llm"      // a question to a model
	KindHuman    Kind = "human"    // a gate, at which a person approves or rejects
	KindWorkflow Kind = "workflow" // a sub-workflow as a run of its own, on the branch that inherit_branch selects
	KindFork     Kind = "fork"     // the start of a fan-out line with a branch of its own, made from the run's branch
	KindJoin     Kind = "join"     // a fan-in, which merges the branches of Lines, in order
)

// Step is one action to perform next. It is pure data and survives JSON.
type Step struct {
	// ID is unique in the run, as "test", "test#2" for the second visit, "judge[3]" in fan-out line 3, and "test(1.26,postgres)"
	// for a cell of a matrix.
	ID   string `json:"id"`
	Node string `json:"node"`
	Kind Kind   `json:"kind"`
	// Line is the fan-out line of the step, as "judge[3]", or "" for the main line. Branch is true if the line has a
	// branch of its own.
	Line   string `json:"line,omitempty"`
	Branch bool   `json:"branch,omitempty"`
	// Command is the expanded and quoted command of a shell step.
	Command string `json:"command,omitempty"`
	// Task and Params are those of a task step, expanded.
	Task   string          `json:"task,omitempty"`
	Params json.RawMessage `json:"params,omitempty"`
	// Cell is the cell of a matrix that the step is for, as "1.26,postgres", or "".
	Cell string `json:"cell,omitempty"`
	// Image is that of the step's container, or "" for the run's own. Services run next to the container until the step ends.
	Image    string            `json:"image,omitempty"`
	Services []service.Service `json:"services,omitempty"`
	// LLM is the question of an llm step.
	LLM *LLMCall `json:"llm,omitempty"`
	// Human is the question of a gate.
	Human *Gate `json:"human,omitempty"`
	// Sub is the call of a workflow step.
	Sub *SubCall `json:"sub,omitempty"`
	// Lines of a join step are the lines whose branches are merged, in order.
	Lines []string `json:"lines,omitempty"`
	// Background shell steps start a process for later steps. The step ends when the process has started.
	Background bool `json:"background,omitempty"`
	// Pure says whether the result follows from the files and the container. Nil means that the file does not say.
	Pure    *bool         `json:"pure,omitempty"`
	Timeout time.Duration `json:"timeout,omitempty"` // from execution.timeout_ms; 0 means the executor's default
}

// LLMCall is a question to a model.
type LLMCall struct {
	Model     string          `json:"model,omitempty"`
	System    string          `json:"system,omitempty"`
	Prompt    string          `json:"prompt"`
	MaxTokens int             `json:"max_tokens,omitempty"`
	Schema    json.RawMessage `json:"schema,omitempty"` // the answer must be JSON that matches it
}

// Gate is a question to a person.
type Gate struct {
	Message string   `json:"message"`
	Allowed []string `json:"allowed,omitempty"` // people who may answer; if empty, those who may approve runs
}

// SubCall starts a sub-workflow.
type SubCall struct {
	Workflow      string         `json:"workflow"`
	InheritBranch bool           `json:"inherit_branch"`
	Input         map[string]any `json:"input,omitempty"`
}

// StepResult is the result of a step. It survives JSON.
type StepResult struct {
	OK bool `json:"ok"`
	// Output is `result` in conditions and output mappings. Shell steps have {stdout, stderr, exit_code, timed_out},
	// tasks the same and their value, llm steps {text, json}, gates {approved, by, comment}, sub-workflows {status,
	// state}, and joins {conflicts}.
	Output map[string]any `json:"output,omitempty"`
	Error  string         `json:"error,omitempty"` // set if the step could not be performed at all
}

// Outcome is the result of a run.
type Outcome struct {
	OK bool `json:"ok"`
	// Failed is the step whose failure no transition handled. Error describes the failure.
	Failed string `json:"failed,omitempty"`
	Error  string `json:"error,omitempty"`
}
