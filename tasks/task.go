package tasks

import (
	"context"
	"encoding/json"
	"errors"
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

// ErrParams is what every mistake in a task's parameters is.
var ErrParams = errors.New("wrong parameters")

// ErrNoWay is the kind of error when a work tree has nothing that a task could
// run: no tests, no linter, no build that is known.
var ErrNoWay = errors.New("nothing to run")
