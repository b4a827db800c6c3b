package workflow

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Workflow is a parsed and checked workflow file. It is immutable and may be
// used by several machines at once.
type Workflow struct {
	ID   string
	Repo RepoSpec

	file        string
	source      string
	description string
	inputs      []Input
	nodes       []*node
	byID        map[string]*node
	start       *node
	needs       []string
}

// Description is what the file says about itself.
func (w *Workflow) Description() string { return w.description }

// File is the name that was given to Parse.
func (w *Workflow) File() string { return w.file }

// Source is the text that was parsed.
func (w *Workflow) Source() []byte { return []byte(w.source) }

// Inputs are the declared inputs, in written order.
func (w *Workflow) Inputs() []Input { return slices.Clone(w.inputs) }

// Needs names the sub-workflows that it calls itself, sorted.
func (w *Workflow) Needs() []string { return slices.Clone(w.needs) }

// Nodes lists the nodes in written order, for display.
func (w *Workflow) Nodes() []Node {
	list := make([]Node, len(w.nodes))
	for i, n := range w.nodes {
		list[i] = n.Node
	}
	return list
}

// Describe draws the workflow for a terminal: each node with what it does, and
// where its transitions lead.
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

// Node is what can be shown of a node before it runs.
type Node struct {
	ID          string `json:"id"`
	Kind        Kind   `json:"kind"`
	Description string `json:"description,omitempty"`
	Line        int    `json:"line"` // in the file
	// Action is the command template, the task, the sub-workflow, the model or the gate's message, as written.
	Action string `json:"action"`
	// Section is the first node of the fan-out section it belongs to, or "".
	Section string `json:"section,omitempty"`
}

// Input is a declared input of a workflow.
type Input struct {
	Name        string `json:"name"`
	Type        string `json:"type"` // string (default), number, integer, boolean, list, object, any
	Required    bool   `json:"required,omitempty"`
	Default     any    `json:"default,omitempty"` // nil: none
	Description string `json:"description,omitempty"`
}

// node is a node of the graph.
type node struct {
	Node
	column int

	command    *template // shell
	background bool
	task       string // task
	params     *param // task and workflow; nil: none
	llm        *llmNode
	gate       *gateNode
	workflow   string // workflow
	inherit    bool

	timeout   time.Duration
	retries   int
	maxVisits int
	when      *condition
	outputs   []output
	dependsOn []string

	next    []*transition // in written order
	section *section      // the fan-out section it belongs to; nil: the main line
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
	into         string // of a fan-in: the state key of the lines' outputs
	sometimes    bool   // it has a condition, if perhaps a wrong one
	line, column int
}

// fanOut starts several lines.
type fanOut struct {
	count  int        // lines, when over is nil
	over   *condition // a list: one line for each element
	branch bool       // each line has a branch of its own
	as     string     // state key of the element in each line
}

// section is the part of the graph that runs once in each line of a fan-out.
type section struct {
	entry  *node
	out    *fanOut
	target string // of the fan-in
	into   string
}

// The ends of a run that a transition can name instead of a node.
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

// Options say what a workflow may refer to.
type Options struct {
	// Load returns the text of the workflow called id (a sub-workflow); nil knows none.
	Load func(id string) ([]byte, error)
	// RepoID is the repository that the workflow runs on, which a node's repo_id may name as well as
	// the file's repo. Empty: it is not known yet, and all nodes must name the same one, which is then
	// that of a file without repo.
	RepoID string
	// LLM tells whether an endpoint is configured; without one an llm node is a mistake.
	LLM bool
}

// Kind of a step.
type Kind string

// The kinds of steps.
const (
	KindShell    Kind = "shell"    // a command line
	KindTask     Kind = "task"     // a library task
	KindLLM      Kind = "llm"      // a question to a model
	KindHuman    Kind = "human"    // a gate: a person approves or rejects
	KindWorkflow Kind = "workflow" // a sub-workflow as a run of its own (inherit_branch says on which branch)
	KindFork     Kind = "fork"     // a fan-out line with a branch of its own begins: branch it from the run's branch
	KindJoin     Kind = "join"     // fan-in: merge the branches of Lines, in order
)

// Step is one thing to do next. It is data only and survives JSON.
type Step struct {
	// ID is unique in the run: "test", "test#2" when visited again, "judge[3]" in fan-out line 3.
	ID   string `json:"id"`
	Node string `json:"node"`
	Kind Kind   `json:"kind"`
	// Line is the fan-out line it belongs to ("" is the main line; "judge[3]").
	// A line with a branch of its own has Branch set.
	Line   string `json:"line,omitempty"`
	Branch bool   `json:"branch,omitempty"`
	// Command of a shell step, expanded and quoted.
	Command string `json:"command,omitempty"`
	// Task and Params of a task step, expanded.
	Task   string          `json:"task,omitempty"`
	Params json.RawMessage `json:"params,omitempty"`
	// LLM of an llm step.
	LLM *LLMCall `json:"llm,omitempty"`
	// Human of a gate.
	Human *Gate `json:"human,omitempty"`
	// Sub of a workflow step.
	Sub *SubCall `json:"sub,omitempty"`
	// Lines of a join step: the lines whose branches are merged, in order.
	Lines []string `json:"lines,omitempty"`
	// Background shell steps start a process that later steps find running; the
	// step ends when it has started.
	Background bool          `json:"background,omitempty"`
	Timeout    time.Duration `json:"timeout,omitempty"` // from execution.timeout_ms; 0 is the executor's default
}

// LLMCall is a question to a model.
type LLMCall struct {
	Model     string          `json:"model,omitempty"`
	System    string          `json:"system,omitempty"`
	Prompt    string          `json:"prompt"`
	MaxTokens int             `json:"max_tokens,omitempty"`
	Schema    json.RawMessage `json:"schema,omitempty"` // the answer must be JSON that fits it
}

// Gate is a question to a person.
type Gate struct {
	Message string   `json:"message"`
	Allowed []string `json:"allowed,omitempty"` // who may answer; empty: whoever may approve runs
}

// SubCall starts a sub-workflow.
type SubCall struct {
	Workflow      string         `json:"workflow"`
	InheritBranch bool           `json:"inherit_branch"`
	Input         map[string]any `json:"input,omitempty"`
}

// StepResult is what a step came to; it survives JSON.
type StepResult struct {
	OK bool `json:"ok"`
	// Output is what conditions and output mappings see as `result`: for shell
	// steps {stdout, stderr, exit_code, timed_out}, for tasks their value beside
	// those, for llm {text, json}, for gates {approved, by, comment}, for
	// sub-workflows {status, state}, for joins {conflicts}.
	Output map[string]any `json:"output,omitempty"`
	Error  string         `json:"error,omitempty"` // the step could not be done at all
}

// Outcome is how a run ended.
type Outcome struct {
	OK bool `json:"ok"`
	// Failed is the step whose failure no transition handled; Error says why in words.
	Failed string `json:"failed,omitempty"`
	Error  string `json:"error,omitempty"`
}
