package executor

import (
	"context"
	"time"

	"github.com/ramus-dev/ramus/gitd"
)

// Agent is a coding agent that runs as a command in the caller's container:
// one invocation a turn, the prompt in, its output streamed, what it changed
// committed. It is configured by whoever runs the server, never by a repository.
type Agent struct {
	Name string
	// Image to run in, where the engine has images; empty: Executor.Image.
	Image string
	// Command is an argument vector for the first turn. Resume, when set, is the one
	// for every later turn of the caller, in this container or a new one.
	Command, Resume []string
	// Argument gives the prompt as the last argument; otherwise it is on standard input.
	Argument bool
	Env      []string // "K=V", added to Executor.Env
	// State lists files and folders below the home folder that are the agent's own
	// memory. They are committed to refs/ramus/state/CALLER when a turn ends, and put
	// back before the first turn in a new container.
	State []string
	// Timeout of one turn; default Executor.Timeout.
	Timeout time.Duration
	// Checks are the library tasks that are run after the last turn: "lib_run_tests".
	// A check that finds nothing to run is journalled as skipped.
	Checks []string
}

// AgentCall asks for an agent.
type AgentCall struct {
	Name   string `json:"name"`
	Prompt string `json:"prompt"`
	// Files are offered to the agent beside the work tree; they are kept in the run's ref.
	Files []Attachment `json:"files,omitempty"`
}

// Attachment is a file given along with a prompt: the agent finds it in the
// folder that RAMUS_FILES names, outside the work tree.
type Attachment struct {
	Name    string `json:"name"` // a file name without folders
	Type    string `json:"type,omitempty"`
	Content []byte `json:"-"`
}

// Prompt is something said to an agent that is at work.
type Prompt struct {
	Key   string       `json:"key"` // a prompt with a key that was said before is said once
	Text  string       `json:"text"`
	By    gitd.Person  `json:"by"`
	Files []Attachment `json:"files,omitempty"`
}

// Say hands text to a run's agent at its next turn. It is durable when Say
// returns. A run that is not an agent's, or has had its last turn, is ErrConflict:
// then it takes a new run.
func (x *Executor) Say(ctx context.Context, run string, p Prompt) error {
	panic("not built")
}
