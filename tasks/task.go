package tasks

import (
	"context"
	"encoding/json"
)

// Task is one thing that can be done.
type Task struct {
	Name string
	Doc  string
	// Schema is the JSON Schema of the parameters, derived from the task's parameter struct.
	Schema json.RawMessage
	// Run does it. The returned value survives JSON. A task that ran and came
	// to a bad end (tests failed) reports so in its Output, not as an error.
	Run func(ctx context.Context, sh Shell, params json.RawMessage) (Output, error)
	// ReadOnly tasks change nothing in the work tree.
	ReadOnly bool
}

// Output is a task's outcome.
type Output struct {
	// OK decides which transition is taken by default.
	OK bool `json:"ok"`
	// Value is the structured result (tests passed, files listed …).
	Value any `json:"value,omitempty"`
	// Result is the command behind it, where there was one.
	Result *Result `json:"result,omitempty"`
	// Command is the command line that was run.
	Command string `json:"command,omitempty"`
}

// Library lists the tasks of ramus, sorted by name.
func Library() []Task { panic("not built") }

// Lookup finds a library task by name.
func Lookup(name string) (Task, bool) { panic("not built") }
