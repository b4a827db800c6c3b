package executor

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/runs"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/tasks"
	"github.com/ramus-dev/ramus/tasks/library"
	"github.com/ramus-dev/ramus/tasks/workflow"
)

// The types of lower rooms that the rooms above the executor use. They import neither tasks nor containers.
type (
	// TaskInfo is a library task.
	TaskInfo = tasks.Task
	// Workflow is a checked workflow.
	Workflow = workflow.Workflow
	// RepoSpec is a workflow's repo block.
	RepoSpec = workflow.RepoSpec
	// Problems are all mistakes of a workflow file.
	Problems = workflow.Problems
	// LLMCall is a question to a model.
	LLMCall = workflow.LLMCall
	// Process is a background process of a caller.
	Process = containers.CommandState
)

// CallerStatus is one line of `ramus ps`.
type CallerStatus = runs.CallerStatus

// The kinds of errors of containers that users of an executor see.
var (
	ErrBusy           = containers.ErrBusy
	ErrUnavailable    = containers.ErrUnavailable
	ErrGone           = containers.ErrGone
	ErrNoPort         = containers.ErrNoPort
	ErrUnknownProcess = containers.ErrUnknownCommand
)

// Library returns the library tasks by name.
func Library() []TaskInfo { return library.All() }

// TaskNames returns the names of the library's tasks.
func TaskNames() []string {
	var names []string
	for _, t := range library.All() {
		names = append(names, t.Name)
	}
	return names
}

// WorkflowSchema returns the JSON Schema of workflow files, for editors.
func WorkflowSchema() json.RawMessage { return workflow.Schema() }

// Check reads a workflow as Submit would. Sub-workflows are those given, or else the base's. The error has all mistakes, and is
// then [Problems].
func (x *Executor) Check(ctx context.Context, name string, text []byte, repo string, sub map[string]string) (*Workflow, error) {
	load := loader{sub: sub, used: map[string]string{}}
	if repo != "" {
		r, err := x.Git.Repo(repo)
		if err != nil {
			return nil, err
		}
		load.repo = r
	}
	return workflow.Parse(ctx, name, text, workflow.Options{Load: load.load(ctx), RepoID: repo, LLM: x.LLM != nil})
}

// loader finds workflow files. It takes the files that the request has, and the base's otherwise. It keeps the files
// that were used, so that a run has its own text.
type loader struct {
	repo *gitd.Repo // nil for the given tasks only
	base string     // branch; empty for the repository's default
	sub  map[string]string
	used map[string]string
}

// read returns a file of the base.
func (l *loader) read(ctx context.Context, name string) (string, error) {
	if l.repo == nil {
		return "", fmt.Errorf("%w request: a workflow file of a repository needs the repository's name", record.ErrInvalid)
	}
	base := l.base
	if base == "" {
		var err error
		if base, err = l.repo.Base(ctx); err != nil {
			return "", err
		}
	}
	text, err := l.repo.ReadFile(ctx, "refs/heads/"+base, name, maxWorkflow)
	return string(text), err
}

func (l *loader) load(ctx context.Context) func(id string) ([]byte, error) {
	return func(id string) ([]byte, error) {
		text, given := l.sub[id]
		if !given {
			var err error
			if text, err = l.read(ctx, WorkflowDir+"/"+id+".yaml"); err != nil {
				return nil, fmt.Errorf("workflow %q: %w", id, err)
			}
		}
		l.used[id] = text
		return []byte(text), nil
	}
}
