package mcp

import (
	"context"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/review"
	"github.com/ramus-dev/ramus/gateway/catalog"
	"github.com/ramus-dev/ramus/gateway/changes"
	"github.com/ramus-dev/ramus/gateway/comment"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gitd"
)

// threadList is the result of list_comments.
type threadList struct {
	Open    int              `json:"open"`
	Threads []comment.Thread `json:"threads"`
}

// listThreads returns the threads of a work, the open ones or all.
func listThreads(ctx context.Context, comments *comment.Comments, who route.Who, w comment.Work, all bool) (toolResult, error) {
	v, err := comments.Read(ctx, who, w)
	list := threadList{Open: v.Open, Threads: []comment.Thread{}}
	for _, t := range v.Threads {
		if all || t.State != review.Resolved {
			list.Threads = append(list.Threads, t)
		}
	}
	return toolResult{value: list}, err
}

// threadChanged is the result of a change of a thread.
type threadChanged struct {
	Thread   string `json:"thread"`
	Resolved bool   `json:"resolved"`
	Remarks  int    `json:"remarks"`
}

func resultOf(t review.Thread, err error) (toolResult, error) {
	return toolResult{value: threadChanged{t.ID, t.Resolved != nil, len(t.Remarks)}}, err
}

// threadArguments are the arguments of the tools for one thread.
type threadArguments struct {
	Caller string `json:"caller"`
	Thread string `json:"thread"`
	Text   string `json:"text"`
}

// threadTool returns a tool that changes one thread of the work that work returns.
func threadTool(t catalog.Tool, work func(context.Context, string) (comment.Work, error),
	change func(context.Context, comment.Work, threadArguments) (review.Thread, error)) usableTool {
	return usableTool{Tool: t, Output: schemaFor[threadChanged](), Access: route.AccessWrite, Hints: toolHints{Idempotent: true},
		Call: func(ctx context.Context, c *toolCall) (toolResult, error) {
			var a threadArguments
			if err := c.read(&a); err != nil {
				return toolResult{}, err
			}
			w, err := work(ctx, a.Caller)
			if err != nil {
				return toolResult{}, err
			}
			return resultOf(change(ctx, w, a))
		}}
}

// findingTool returns the tool of an agent that reviews the work of another caller.
func (d *door) findingTool(run record.Run, of record.Caller) usableTool {
	return usableTool{Tool: catalog.ReportFinding, Output: schemaFor[comment.Found](), Access: route.AccessWrite, Hints: toolHints{Idempotent: true},
		Call: func(ctx context.Context, c *toolCall) (toolResult, error) {
			var f comment.Finding
			if err := c.read(&f); err != nil {
				return toolResult{}, err
			}
			found, err := d.comments.Report(ctx, run, of, f)
			return toolResult{value: found}, err
		}}
}

// commentTools returns the tools for the comments on the branch of the agent at the door.
func (d *door) commentTools(run record.Run) []usableTool {
	if of, ok := comment.Reviewed(run); ok {
		return []usableTool{d.findingTool(run, of)}
	}
	work := func(ctx context.Context, _ string) (comment.Work, error) {
		st, err := d.x.Named(d.visitor.Caller.String())
		if err != nil {
			return comment.Work{}, err
		}
		return d.comments.Of(ctx, route.Local, st, changes.Window{})
	}
	by := d.agent()
	if run.Agent != nil {
		by.Name = run.Agent.Name
	}
	return []usableTool{
		{Tool: catalog.ListComments, Access: route.AccessWrite, Hints: toolHints{ReadOnly: true, Idempotent: true},
			Call: func(ctx context.Context, c *toolCall) (toolResult, error) {
				var a struct {
					All bool `json:"all"`
				}
				if err := c.read(&a); err != nil {
					return toolResult{}, err
				}
				w, err := work(ctx, "")
				if err != nil {
					return toolResult{}, err
				}
				return listThreads(ctx, d.comments, route.Who{}, w, a.All)
			}},
		threadTool(catalog.AnswerComment, work, func(ctx context.Context, w comment.Work, a threadArguments) (review.Thread, error) {
			return d.comments.Answer(ctx, w, a.Thread, review.Remark{ID: review.NewID("answer", run.Name(), a.Thread, a.Text),
				Kind: review.ByAgent, By: by, Run: run.Name(), Text: a.Text})
		}),
		threadTool(catalog.ResolveComment, work, func(ctx context.Context, w comment.Work, a threadArguments) (review.Thread, error) {
			return d.comments.Resolve(ctx, w, a.Thread, by, true, false)
		}),
	}
}

// commentTools returns the tools for the comments on the workspaces that who sees.
func (api *API) commentTools(who route.Who) []usableTool {
	work := func(ctx context.Context, name string, change bool) (comment.Work, error) {
		st, err := api.Find.Caller(ctx, who, name)
		if err == nil && change {
			err = who.CheckChangeCaller(st)
		}
		if err != nil {
			return comment.Work{}, err
		}
		return api.Comments.Of(ctx, who, st, changes.Window{})
	}
	change := func(ctx context.Context, name string) (comment.Work, error) { return work(ctx, name, true) }
	by := who.Person(gitd.Person{})
	return []usableTool{
		{Tool: catalog.ListCommentsOf, Access: route.AccessRead, Hints: toolHints{ReadOnly: true, Idempotent: true},
			Call: func(ctx context.Context, c *toolCall) (toolResult, error) {
				var a struct {
					Caller string `json:"caller"`
					All    bool   `json:"all"`
				}
				if err := c.read(&a); err != nil {
					return toolResult{}, err
				}
				w, err := work(ctx, a.Caller, false)
				if err != nil {
					return toolResult{}, err
				}
				return listThreads(ctx, api.Comments, who, w, a.All)
			}},
		{Tool: catalog.CommentOnLines, Access: route.AccessWrite, Hints: toolHints{Open: true},
			Call: func(ctx context.Context, c *toolCall) (toolResult, error) {
				var a struct {
					Caller string `json:"caller"`
					comment.Sending
				}
				if err := c.read(&a); err != nil {
					return toolResult{}, err
				}
				w, err := change(ctx, a.Caller)
				if err != nil {
					return toolResult{}, err
				}
				sent, err := api.Comments.Send(ctx, who, w, a.Sending)
				return toolResult{value: sent}, err
			}},
		threadTool(catalog.AnswerCommentOf, change, func(ctx context.Context, w comment.Work, a threadArguments) (review.Thread, error) {
			return api.Comments.Answer(ctx, w, a.Thread, review.Remark{Kind: review.ByPerson, By: by, Text: a.Text})
		}),
		threadTool(catalog.ResolveCommentOf, change, func(ctx context.Context, w comment.Work, a threadArguments) (review.Thread, error) {
			return api.Comments.Resolve(ctx, w, a.Thread, by, true, false)
		}),
	}
}
