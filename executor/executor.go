package executor

import (
	"context"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"time"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/tasks"
)

// Executor runs commands for callers. Its exported fields are its options and
// may be changed until Open. Methods are safe for concurrent use.
type Executor struct {
	// Data is the data folder: live/, index.db.
	Data string
	Git  *gitd.Server
	// Fleet gives containers. The executor opens and closes it.
	Fleet *containers.Fleet
	// Image is the task image.
	Image  string
	Limits containers.Limits
	// Env is set for every command, "K=V".
	Env []string
	// Egress lists host names ("registry.example.org", "*.example.org", with :PORT
	// where it is not 80 or 443) that containers may reach by the door's proxy. Empty: none.
	Egress []string
	// Timeout of a command that names none; default 30 min. RunTimeout of a whole run; default 24 h.
	Timeout, RunTimeout time.Duration
	// Bot is the committer of every commit; default ramus <ramus@localhost>.
	Bot gitd.Person
	// LLM answers llm nodes; nil: there is none.
	LLM LLM
	// Door, when set, serves what a container asks at its door beside git and
	// the proxy, by path prefix ("/mcp/").
	Door map[string]func(Caller) http.Handler
	Log  *slog.Logger
	Now  func() time.Time
}

// LLM is a model endpoint.
type LLM interface {
	Ask(ctx context.Context, call tasks.LLMCall) (text string, err error)
}

// Open starts the fleet, adopts what an earlier process left, and resumes every run that had not ended.
func (x *Executor) Open(ctx context.Context) error { panic("not built") }

// Close stops taking work, waits for commands until ctx ends, and leaves containers for the next process when keep is set.
func (x *Executor) Close(ctx context.Context, keep bool) error { panic("not built") }

// Request asks for a run.
type Request struct {
	// Key makes the request idempotent: a second one with the same caller and
	// key finds the first. It becomes the run's ID; empty: a new one.
	Key string `json:"key,omitempty"`
	// Caller to work for; zero: a new "run:" caller.
	Caller Caller `json:"caller,omitzero"`
	Repo   string `json:"repo,omitempty"` // required for a caller that is new
	Base   string `json:"base,omitempty"` // branch; default the repository's HEAD
	// Exactly one of: Workflow (the text of a file that a person named), File (a path read
	// from the repository's base), Command, Task.
	Workflow string         `json:"workflow,omitempty"`
	File     string         `json:"file,omitempty"`
	Command  *Command       `json:"command,omitempty"`
	Task     *TaskCall      `json:"task,omitempty"`
	Input    map[string]any `json:"input,omitempty"`
	// Retry or resume: the run ("CALLER/RUN") whose results up to the node From are taken over.
	Of    string      `json:"of,omitempty"`
	From  string      `json:"from,omitempty"`
	Asker gitd.Person `json:"asker,omitzero"`
	// Priority of waiting: cancel runs of the same workflow and repository that
	// still wait or work ("cancel previous").
	CancelPrevious bool `json:"cancel_previous,omitempty"`
}

// Command is one command line of a caller.
type Command struct {
	Args    []string      `json:"args,omitempty"`  // run as they are
	Shell   string        `json:"shell,omitempty"` // run by sh -c when Args is empty
	Dir     string        `json:"dir,omitempty"`
	Env     []string      `json:"env,omitempty"`
	Timeout time.Duration `json:"timeout,omitempty"`
	// Background starts a process that later commands find running.
	Background bool      `json:"background,omitempty"`
	Stdin      io.Reader `json:"-"`
}

// TaskCall is one library task with its parameters.
type TaskCall struct {
	Name   string         `json:"name"`
	Params map[string]any `json:"params,omitempty"`
}

// Submit claims a run and starts it. It returns once the claim is durable.
func (x *Executor) Submit(ctx context.Context, r Request) (Run, error) { panic("not built") }

// Result is what a command came to.
type Result struct {
	Run      string        `json:"run"`
	ExitCode int           `json:"exit_code"`
	TimedOut bool          `json:"timed_out,omitempty"`
	Reason   string        `json:"reason,omitempty"`
	Commit   gitd.Hash     `json:"commit,omitempty"` // empty: nothing changed
	Duration time.Duration `json:"duration"`
	Stdout   Stream        `json:"stdout"`
	Stderr   Stream        `json:"stderr"`
}

// Exec runs one command for a caller as a run of its own and copies its output
// as it comes; nil writers discard. A command that fails is a Result, not an error.
// When ctx ends the command is stopped.
func (x *Executor) Exec(ctx context.Context, r Request, stdout, stderr io.Writer) (Result, error) {
	panic("not built")
}

// Filter narrows a listing; zero fields do not.
type Filter struct {
	Repo, Caller string
	State        State
	Live         bool // only what has not ended
	Max          int  // default 100
}

// Runs lists runs, newest first.
func (x *Executor) Runs(ctx context.Context, f Filter) ([]Run, error) { panic("not built") }

// Run finds a run by "CALLER/RUN", by caller (its latest run), by id, or by a unique part of one.
func (x *Executor) Run(ctx context.Context, name string) (Run, error) { panic("not built") }

// CallerStatus is one line of `ramus ps`.
type CallerStatus struct {
	Caller    Caller                 `json:"caller"`
	Repo      string                 `json:"repo"`
	Branch    string                 `json:"branch"`
	Head      gitd.Hash              `json:"head"`
	Runs      int                    `json:"runs"`
	Last      Run                    `json:"last"`
	Container *containers.HostStatus `json:"container,omitempty"`
}

// Callers lists callers, the most recently active first.
func (x *Executor) Callers(ctx context.Context, f Filter) ([]CallerStatus, error) { panic("not built") }

// Caller finds a caller by "run:ID", "ID", or a unique part of it.
func (x *Executor) Caller(ctx context.Context, name string) (CallerStatus, error) { panic("not built") }

// Events follows a run from after sequence number after: first what is
// journalled, then what happens, live output included, until the run has ended
// (or ctx). With follow unset it stops at the journal's end.
func (x *Executor) Events(ctx context.Context, run string, after int64, follow bool) iter.Seq2[Event, error] {
	panic("not built")
}

// Watch follows what happens in every run (of one caller, when named) from now on.
func (x *Executor) Watch(ctx context.Context, caller string) iter.Seq2[Event, error] {
	panic("not built")
}

// Output opens a command's whole output; stream is "stdout" or "stderr".
func (x *Executor) Output(ctx context.Context, run, step, stream string) (io.ReadCloser, error) {
	panic("not built")
}

// Stop cancels a run, or all of a caller's runs and its container when name is a caller. What stands is committed first.
func (x *Executor) Stop(ctx context.Context, name string, by gitd.Person) error { panic("not built") }

// Retry starts a failed run again: a workflow at the failed step, a command from its beginning.
func (x *Executor) Retry(ctx context.Context, run string, by gitd.Person) (Run, error) {
	panic("not built")
}

// Decision answers a gate.
type Decision struct {
	Step     string `json:"step,omitempty"` // empty: the only one open
	Approved bool   `json:"approved"`
	By       string `json:"by"`
	Comment  string `json:"comment,omitempty"`
}

// Decide answers a run's gate; the run goes on.
func (x *Executor) Decide(ctx context.Context, run string, d Decision) (Run, error) {
	panic("not built")
}

// Merge brings a caller's branch into a branch (default: its base) of its repository.
type Merge struct {
	Into     string        `json:"into,omitempty"`
	Strategy gitd.Strategy `json:"strategy,omitempty"` // default rebase
	Message  string        `json:"message,omitempty"`
	Delete   bool          `json:"delete,omitempty"` // the caller's branch and container afterwards
	By       gitd.Person   `json:"by,omitzero"`
}

// Merge merges a caller's branch. A conflict is a result.
func (x *Executor) Merge(ctx context.Context, caller string, m Merge) (gitd.MergeResult, error) {
	panic("not built")
}

// Rollback moves a caller's branch to an earlier commit of its own by a new
// commit with that tree; nothing is lost.
func (x *Executor) Rollback(ctx context.Context, caller, to string, by gitd.Person) (gitd.Hash, error) {
	panic("not built")
}

// Processes lists a caller's background processes.
func (x *Executor) Processes(ctx context.Context, caller string) ([]containers.CommandState, error) {
	panic("not built")
}

// StopProcess ends one background process.
func (x *Executor) StopProcess(ctx context.Context, caller, id string) error { panic("not built") }

// Reindex rebuilds the index from refs alone.
func (x *Executor) Reindex(ctx context.Context) (runs int, err error) { panic("not built") }

// Stats are the numbers behind /metrics and /health.
type Stats struct {
	Runs     map[State]int  `json:"runs"` // since start, by state now
	Commands int64          `json:"commands"`
	Commits  int64          `json:"commits"`
	Queue    int            `json:"queue"`
	Hosts    map[string]int `json:"hosts"` // by state
	Capacity int            `json:"capacity"`
}

// Stats returns them.
func (x *Executor) Stats() Stats { panic("not built") }
