package mcp

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/catalog"
	"github.com/ramus-dev/ramus/gateway/comment"
	"github.com/ramus-dev/ramus/gateway/engineer"
	"github.com/ramus-dev/ramus/gateway/lookup"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gitd"
)

// doorInstructions describe the tools of the door to the agent in a container.
const doorInstructions = `These tools work in your own container, on your own branch. What lib_… tools do is recorded in this run's journal as ramus saw it, and what they change is committed with your step.`

// Threads hands the threads of runs over to the fallback runner, and posts what agents say.
type Threads interface {
	// MayHandOver reports whether a fallback runner is configured and the run answers a thread.
	MayHandOver(run record.Run) bool
	// HandOver hands the thread of a run over, with prompt as the request. It returns when the hand-over is durable.
	HandOver(ctx context.Context, of record.Run, prompt string) (record.Run, error)
	// Answers reports whether the run answers a thread.
	Answers(run record.Run) bool
	// Reply posts a text of the run's agent in the run's thread. told is false if it was left out.
	Reply(ctx context.Context, run record.Run, text string) (told bool, err error)
	// AgentChannels returns the channels in which agents may post.
	AgentChannels() []string
	// PostMessage posts a text of the run's agent in one of these channels. told is false if it was left out.
	PostMessage(ctx context.Context, run record.Run, channel, text string) (told bool, err error)
}

// Door serves MCP to the agent in a container. Its tools are the [catalog.List] of the policy in the journal of the
// run. The policy is decided before the agent starts. The tasks of the library run in the agent's own container. An
// agent that works for a task may submit further tasks to e and can access only these. An agent that answers a mention
// may hand its thread over through threads. An agent may answer the comments on lines of its own branch. All of e, threads and comments may be nil. version is the version that the server
// reports.
//
// Each request is independent, so a removed container leaves no state. Work for a request ends with the request.
func Door(x *executor.Executor, e *engineer.Engineer, threads Threads, comments *comment.Comments, version string) func(executor.Visitor) http.Handler {
	return func(v executor.Visitor) http.Handler {
		d := &door{x: x, engineer: e, threads: threads, comments: comments, version: version, visitor: v}
		return http.HandlerFunc(d.serve)
	}
}

// door serves MCP to one container.
type door struct {
	x        *executor.Executor
	engineer *engineer.Engineer // nil if there are no tasks
	threads  Threads            // nil if there are no threads
	comments *comment.Comments  // nil if there are none on lines
	version  string
	visitor  executor.Visitor
}

func (d *door) serve(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != Path {
		http.NotFound(w, r)
		return
	}
	// The request may come from a page under test in the container's browser instead of the agent.
	if err := rebound(r, "", nil); err != nil {
		http.Error(w, "ramus: "+err.Error(), http.StatusForbidden)
		return
	}
	log := d.x.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	ts := toolset{tools: d.tools(r.Context()), instructions: doorInstructions, version: d.version, secrets: d.x.Secrets,
		log: log, now: d.x.Now,
		who: route.Who{Subject: d.visitor.Caller.String(), Scopes: []string{"write"}}}
	server := ts.server(r.Context(), "")
	out := &writer{ResponseWriter: w, rc: http.NewResponseController(w)}
	sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server }, &sdk.StreamableHTTPOptions{
		Stateless: true, PropagateRequestCancellation: true, DisableLocalhostProtection: true, MaxRequestBodyBytes: maxBody,
	}).ServeHTTP(out, r)
	if out.refused != 0 {
		w.WriteHeader(out.refused)
		_, _ = w.Write(out.text) // an error means that the container has gone
	}
}

// tools returns the tools that the visitor may use now.
func (d *door) tools(ctx context.Context) []usableTool {
	run := d.visitor.Run()
	offer := catalog.Offer{Browser: d.x.Browser != nil, Comments: d.comments != nil && run.ID != ""}
	if offer.Comments {
		_, offer.Review = comment.Reviewed(run)
	}
	if d.threads != nil && run.ID != "" {
		offer.Fallback, offer.Thread, offer.Channels = d.threads.MayHandOver(run), d.threads.Answers(d.inThread(run)),
			d.threads.AgentChannels()
	}
	var own record.Task
	if d.engineer != nil {
		if t, err := d.engineer.Task(ctx, d.visitor.Caller.ID()); err == nil && t.Caller() == d.visitor.Caller {
			own, offer.Task = t, true
		}
	}

	listed := offer.WithoutPolicy() // a run without a policy passed no gate and has no tools of sessions
	if run.ID != "" {
		if p, known := catalog.ReadDecision(ctx, d.x, run.Name()); known {
			listed = catalog.List(p.Policy, offer)
		}
	}
	return d.register(listed, run, own)
}

// register returns callable tools for a list of tools. run is the run of the agent, and own is the task that the agent
// works for.
func (d *door) register(listed []catalog.Tool, run record.Run, own record.Task) (list []usableTool) {
	forTask := d.taskTools(own)
	if own.ID == "" { // the thread is that of a mention
		forTask = slices.DeleteFunc(forTask, func(t usableTool) bool { return t.Name == catalog.ToolThread })
	}
	known := slices.Concat(forTask, d.commentTools(run))
	for _, tool := range listed {
		switch i := slices.IndexFunc(known, func(t usableTool) bool { return t.Name == tool.Name }); {
		case i >= 0:
			list = append(list, known[i])
		case tool.Name == catalog.ToolStart:
			list = append(list, d.startTool(run, tool))
		case tool.Name == catalog.ToolResume:
			list = append(list, d.resumeTool(run, tool))
		case tool.Name == catalog.ToolThread:
			list = append(list, d.replyTool(d.inThread(run), tool))
		case tool.Name == catalog.ToolPost:
			list = append(list, d.postTool(run, tool))
		case tool.Name == catalog.ToolFallback:
			list = append(list, d.fallbackTool(run, tool))
		default:
			list = append(list, d.libraryTool(tool))
		}
	}
	return list
}

// libraryTool returns the tool of a library task, which runs in the container of the agent.
func (d *door) libraryTool(t catalog.Tool) usableTool {
	readOnly := slices.ContainsFunc(executor.Library(),
		func(task executor.TaskInfo) bool { return task.Name == t.Name && task.ReadOnly })
	return usableTool{
		Tool: t, Access: route.AccessWrite, Hints: toolHints{ReadOnly: readOnly, Destructive: !readOnly},
		Call: func(ctx context.Context, c *toolCall) (toolResult, error) {
			c.tell(t.Name)
			out, err := d.visitor.Task(ctx, t.Name, c.args)
			if err != nil {
				return toolResult{}, err
			}
			r := toolResult{value: out, failed: !out.OK}
			if slices.Contains(catalog.BrowserTools, t.Name) {
				r.pictures = d.pictures(t.Name, out.Value)
			}
			return r, nil
		},
	}
}

// Limits of the pictures in the result of one call. For a model, each picture costs as much as a long text.
const (
	toolPictures   = 6
	faultyPictures = 2
)

// pictures returns the pictures that the result of a browser tool shows. A screenshot tool shows all views. A test
// shows the views that did not pass.
func (d *door) pictures(task string, value any) (list []toolPicture) {
	b, err := json.Marshal(value)
	if err != nil {
		return nil
	}
	var browsed struct {
		Checks []struct {
			Views []struct {
				Verdict    string `json:"verdict"`
				Screenshot string `json:"screenshot"`
			} `json:"views"`
		} `json:"checks"`
	}
	if err := json.Unmarshal(b, &browsed); err != nil {
		return nil // the result is of another kind
	}
	most := toolPictures
	if task == catalog.ToolBrowser {
		most = faultyPictures
	}
	for _, check := range browsed.Checks {
		for _, v := range check.Views {
			if v.Screenshot == "" || task == catalog.ToolBrowser && v.Verdict == string(record.BrowserPass) || len(list) == most {
				continue
			}
			png, err := d.visitor.Picture(v.Screenshot)
			switch {
			case errors.Is(err, record.ErrInvalid):
				list = append(list, toolPicture{name: v.Screenshot +
					" is too large to be shown here; it is in the run's evidence"})
			case err == nil:
				list = append(list, toolPicture{v.Screenshot, png})
			}
		}
	}
	return list
}

// agent returns the agent at the door as a person.
func (d *door) agent() gitd.Person {
	return gitd.Person{Name: d.visitor.Caller.String(), Email: route.Mailbox(d.visitor.Caller.String()) + "@localhost"}
}

// begun is the result of the session tools. They do not wait, because the new run waits for the end of the current
// one.
type begun struct {
	Run   string       `json:"run"`
	State record.State `json:"state"`
}

// nextSuffix ends the id of a run that the agent of another run began, see [lookup.DerivedRunID].
const nextSuffix = "-next"

// inThread returns a run with the thread that it speaks in. A run that the agent of a mention began has that of the
// mention.
func (d *door) inThread(run record.Run) record.Run {
	by, id, _ := strings.Cut(run.Parent, "/")
	if run.Origin == nil && by == run.Caller.String() && run.ID == lookup.DerivedRunID(id, nextSuffix) {
		if of, known := d.x.Find(run.Caller, id); known {
			run.Origin = of.Origin
		}
	}
	return run
}

// startTool returns the tool that submits a run after the current one, on the same branch. The new run passes no gate
// and has no policy, so it cannot submit another. A mention has at most two runs.
func (d *door) startTool(run record.Run, tool catalog.Tool) usableTool {
	return usableTool{
		Tool: tool, Output: schemaFor[begun](), Access: route.AccessWrite, Hints: toolHints{Idempotent: true},
		Call: func(ctx context.Context, c *toolCall) (toolResult, error) {
			var a struct {
				Prompt string `json:"prompt"`
				Agent  string `json:"agent"`
			}
			if err := c.read(&a); err != nil {
				return toolResult{}, err
			}
			if a.Agent == "" && run.Agent != nil {
				a.Agent = run.Agent.Name
			}
			next, err := d.x.Submit(ctx, record.Request{Key: lookup.DerivedRunID(run.ID, nextSuffix),
				Caller: run.Caller, Repo: run.Repo, Base: run.Base, Of: run.Name(),
				Asker: run.Asker, Agent: &record.AgentCall{Name: a.Agent, Prompt: a.Prompt}})
			return toolResult{value: begun{next.Name(), next.State}}, err
		},
	}
}

// resumeTool returns the tool that queues a prompt for the next turn of the agent itself.
func (d *door) resumeTool(run record.Run, tool catalog.Tool) usableTool {
	return usableTool{
		Tool: tool, Output: schemaFor[begun](), Access: route.AccessWrite, Hints: toolHints{Idempotent: true},
		Call: func(ctx context.Context, c *toolCall) (toolResult, error) {
			var a struct {
				Prompt string `json:"prompt"`
			}
			if err := c.read(&a); err != nil {
				return toolResult{}, err
			}
			sum := sha256.Sum256([]byte(a.Prompt))
			err := d.x.Prompts.Say(ctx, run.Name(),
				record.Prompt{Key: "self:" + hex.EncodeToString(sum[:]), Text: a.Prompt, By: d.agent()})
			return toolResult{value: begun{run.Name(), run.State}}, err
		},
	}
}

// fallbackTool returns the tool that hands the thread of the run over to the fallback runner.
func (d *door) fallbackTool(run record.Run, tool catalog.Tool) usableTool {
	return usableTool{
		Tool: tool, Output: schemaFor[begun](), Access: route.AccessWrite, Hints: toolHints{Idempotent: true, Open: true},
		Call: func(ctx context.Context, c *toolCall) (toolResult, error) {
			var a struct {
				Prompt string `json:"prompt"`
			}
			if err := c.read(&a); err != nil {
				return toolResult{}, err
			}
			over, err := d.threads.HandOver(ctx, run, a.Prompt)
			return toolResult{value: begun{over.Name(), over.State}}, err
		},
	}
}

// replyTool returns the tool that posts in the thread of a mention.
func (d *door) replyTool(run record.Run, tool catalog.Tool) usableTool {
	return d.sayTool(tool, func(ctx context.Context, _, text string) (bool,
		error) {
		return d.threads.Reply(ctx, run, text)
	})
}

// postTool returns the tool that posts in channels.
func (d *door) postTool(run record.Run, tool catalog.Tool) usableTool {
	return d.sayTool(tool, func(ctx context.Context, channel, text string) (bool, error) {
		return d.threads.PostMessage(ctx, run, channel, text)
	})
}

func (d *door) sayTool(tool catalog.Tool, say func(ctx context.Context, channel, text string) (bool, error)) usableTool {
	return usableTool{
		Tool: tool, Output: schemaFor[spoken](), Access: route.AccessWrite, Hints: toolHints{Open: true},
		Call: func(ctx context.Context, c *toolCall) (toolResult, error) {
			var a struct {
				Channel string `json:"channel"`
				Text    string `json:"text"`
			}
			if err := c.read(&a); err != nil {
				return toolResult{}, err
			}
			told, err := say(ctx, a.Channel, a.Text)
			return toolResult{value: spoken{told}}, err
		},
	}
}

// spoken is the result of the tools that post. Told is false if the message was not posted.
type spoken struct {
	Told bool `json:"told"`
}
