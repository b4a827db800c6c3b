package tasks

import (
	"encoding/json"
	"time"
)

// Workflow is a parsed and checked workflow file. It is immutable.
type Workflow struct {
	ID   string
	Repo RepoSpec
	// … nodes, transitions, inputs; see Parse.
}

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
	// LLM tells whether an endpoint is configured; without one an llm node is a mistake.
	LLM bool
}

// Parse reads and checks a workflow file. All mistakes are reported at once:
// the error is then of type Problems.
func Parse(name string, data []byte, o Options) (*Workflow, error) { panic("not built") }

// Problem is one mistake in a file.
type Problem struct {
	File    string `json:"file"`
	Line    int    `json:"line"`
	Column  int    `json:"column"`
	Message string `json:"message"`
	Source  string `json:"source"` // the line itself
}

// Problems are all mistakes of a file, in order of their place.
type Problems []Problem

// Error lists them, each with file:line:column, the line and a mark below it.
func (p Problems) Error() string { panic("not built") }

// WorkflowSchema is the JSON Schema of workflow files, for editors.
func WorkflowSchema() json.RawMessage { panic("not built") }

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
	Lines   []string      `json:"lines,omitempty"`
	Timeout time.Duration `json:"timeout,omitempty"` // from execution.timeout_ms; 0 is the executor's default
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

// Machine is the state of one run of a workflow. It is not safe for concurrent
// use: one goroutine owns it. The same calls in the same order give the same steps.
type Machine struct{}

// NewMachine starts a run. context is what templates see as `context`
// (run_id, branch, base_branch, repo_id, caller); input is checked against the
// workflow's declared inputs.
func NewMachine(w *Workflow, input, context map[string]any) (*Machine, error) { panic("not built") }

// Next returns the steps that became ready since the last call, in a fixed order.
func (m *Machine) Next() ([]Step, error) { panic("not built") }

// Finish takes a step's result and follows its transitions.
func (m *Machine) Finish(id string, r StepResult) error { panic("not built") }

// Outcome is how a run ended.
type Outcome struct {
	OK bool `json:"ok"`
	// Failed is the step whose failure no transition handled; Error says why in words.
	Failed string `json:"failed,omitempty"`
	Error  string `json:"error,omitempty"`
}

// Done tells whether the run has ended: no step is ready or running.
func (m *Machine) Done() (Outcome, bool) { panic("not built") }

// State is the run's state as output mappings have made it (a deep copy).
func (m *Machine) State() map[string]any { panic("not built") }
