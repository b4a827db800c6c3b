package tasks

import (
	"context"
	"encoding/json"
	"errors"
)

// Task is one action on a work tree.
type Task struct {
	Name string
	Doc  string
	// Schema is the JSON Schema of the parameters, derived from the task's parameter struct.
	Schema json.RawMessage
	// Run performs the task. The returned value survives JSON. A task that ran with a bad result (tests failed) reports
	// that in its Output, not as an error.
	Run func(ctx context.Context, sh Shell, params json.RawMessage) (Output, error)
	// ReadOnly tasks change nothing in the work tree.
	ReadOnly bool
}

// Output is the result of a task.
type Output struct {
	// OK selects the default transition.
	OK bool `json:"ok"`
	// Value is the structured result (tests passed, files listed …).
	Value any `json:"value,omitempty"`
	// Result is the result of the command, if there was one.
	Result *Result `json:"result,omitempty"`
	// Command is the command line that ran.
	Command string `json:"command,omitempty"`
}

// ErrParams is the kind of every mistake in a task's parameters.
var ErrParams = errors.New("wrong parameters")

// ErrNoWay means that a work tree has nothing that a task can run: no known tests, linter or build.
var ErrNoWay = errors.New("nothing to run")
