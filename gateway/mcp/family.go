package mcp

import (
	"cmp"
	"context"
	"encoding/json"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/catalog"
	"github.com/ramus-dev/ramus/gateway/engineer"
	"github.com/ramus-dev/ramus/gateway/route"
)

// taskTools returns the tools that submit tasks and follow submitted tasks. The engineer limits their number and
// depth.
func (d *door) taskTools(own record.Task) []usableTool {
	f := family{door: d, own: own}
	tool := func(t catalog.Tool, output json.RawMessage, hints toolHints,
		call func(context.Context, *toolCall) (toolResult, error)) usableTool {
		return usableTool{Tool: t, Output: output, Access: route.AccessWrite, Hints: hints, Call: call}
	}
	look := toolHints{ReadOnly: true, Idempotent: true}
	return []usableTool{
		tool(catalog.ReplyToThread, schemaFor[spoken](), toolHints{}, f.reply),
		tool(catalog.SpawnTask, schemaFor[submitted](), toolHints{Open: true}, f.spawn),
		tool(catalog.ChildStatus, schemaFor[taskStatus](), look, f.status),
		tool(catalog.ActiveChildren, schemaFor[activeTasks](), look, f.active),
		tool(catalog.MessageTask, schemaFor[taskStatus](), toolHints{}, f.message),
		tool(catalog.CancelTask, schemaFor[taskStatus](), toolHints{Destructive: true, Idempotent: true}, f.cancel),
	}
}

// family is a task whose agent uses a door, and the tasks that it submitted. The agent reaches no other task.
type family struct {
	door *door
	own  record.Task
}

// child returns a task of the family. Any other one is not found.
func (f family) child(ctx context.Context, id string) (record.Task, error) {
	t, err := f.door.engineer.Task(ctx, id)
	if err != nil {
		return record.Task{}, err
	}
	if t.Parent != f.own.ID {
		return record.Task{}, route.NotFound("task", id)
	}
	return t, nil
}

// key returns a key of the agent for the engineer. The prefix keeps the keys of different tasks apart. Returns "" if key
// is empty.
func (f family) key(key string) string {
	if key == "" {
		return ""
	}
	return f.own.ID + ":" + key
}

func (f family) reply(ctx context.Context, c *toolCall) (toolResult, error) {
	var a struct {
		Text string `json:"text"`
	}
	if err := c.read(&a); err != nil {
		return toolResult{}, err
	}
	told, err := f.door.engineer.Progress(ctx, f.own.ID, a.Text)
	return toolResult{value: spoken{told}}, err
}

func (f family) spawn(ctx context.Context, c *toolCall) (toolResult, error) {
	var a delegation
	if err := c.read(&a); err != nil {
		return toolResult{}, err
	}
	t, err := f.door.engineer.Submit(ctx, engineer.Submission{Description: a.Description, Context: a.Context,
		Repo: f.own.Repo, Base: cmp.Or(a.Base, f.own.Base), Agent: a.Agent, Asker: f.own.Asker, Parent: f.own.ID,
		Key: f.key(a.Key)})
	return toolResult{value: submitted{t.ID, record.StateSubmitted}}, err
}

func (f family) status(ctx context.Context, c *toolCall) (toolResult, error) {
	id, err := c.taskID()
	if err != nil {
		return toolResult{}, err
	}
	t, err := f.child(ctx, id)
	return toolResult{value: statusOf(t)}, err
}

func (f family) active(ctx context.Context, _ *toolCall) (toolResult, error) {
	all, err := f.door.engineer.Tasks(ctx, engineer.TaskFilter{Repo: f.own.Repo, Active: true, Max: 1000})
	var list []record.Task
	for _, t := range all {
		if t.Parent == f.own.ID {
			list = append(list, t)
		}
	}
	return activeOf(list, missing{}), err
}

func (f family) message(ctx context.Context, c *toolCall) (toolResult, error) {
	var a struct {
		ID   string `json:"task_id"`
		Text string `json:"text"`
		Key  string `json:"key"`
	}
	if err := c.read(&a); err != nil {
		return toolResult{}, err
	}
	t, err := f.child(ctx, a.ID)
	if err != nil {
		return toolResult{}, err
	}
	t, err = f.door.engineer.Say(ctx, t.ID, f.key(a.Key), a.Text, f.door.agent())
	return toolResult{value: statusOf(t)}, err
}

func (f family) cancel(ctx context.Context, c *toolCall) (toolResult, error) {
	id, err := c.taskID()
	if err != nil {
		return toolResult{}, err
	}
	t, err := f.child(ctx, id)
	if err != nil {
		return toolResult{}, err
	}
	t, err = f.door.engineer.Cancel(ctx, t.ID, false, f.door.agent())
	return toolResult{value: statusOf(t)}, err
}
