package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/catalog"
	"github.com/ramus-dev/ramus/gateway/engineer"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/text"
)

// instructions describe the use of the server to an assistant. Clients give them to the model together with the tools.
const instructions = `Use submit_task to delegate software development tasks to the engineer agent.

The engineer runs asynchronously: you get back a task_id immediately, and the work happens in the background, on a branch of its own, until its pull request is merged. Track progress with get_task_status.

Good delegation candidates:
- Bug fixes (describe: current behaviour, expected behaviour, affected file or feature)
- New features (describe: what it should do, where it fits in the existing architecture)
- Refactors (describe: what to change and why)
- UI improvements (describe: current UX problem and desired outcome)

Always provide context:
- What is broken or missing
- Relevant file paths if known
- Expected behaviour
- Any constraints or related features

Do not delegate:
- Tasks requiring real-time data or live state
- Tasks that need your ongoing reasoning (analysis, recommendations)`

// readInstructions are the instructions for bearers that may only read.
const readInstructions = `get_task_status, list_active_tasks and get_run show what the engineer agent and other runs are doing.`

// toolRun is the name of the tool that shows a run.
const toolRun = "get_run"

// newServer returns the server that a bearer sees.
func (api *API) newServer(ctx context.Context, who route.Who, session string) *sdk.Server {
	ts := toolset{tools: api.tools(who), version: api.Version, who: who, secrets: api.Secrets, log: api.Log,
		now: api.Now, instructions: instructions}
	if !who.May(route.AccessWrite) {
		ts.instructions = readInstructions
	}
	if api.Engineer == nil {
		ts.instructions = ""
	}
	return ts.server(ctx, session)
}

// tools returns all tools, with the access that each needs.
func (api *API) tools(who route.Who) []usableTool {
	var list []usableTool
	if api.Engineer != nil {
		list = append(list, api.engineerTools(who)...)
	}
	if len(api.Executor.AgentNames()) > 0 {
		list = append(list, api.sessionTools(who)...)
	}
	list = append(list, api.runTool(who), api.answerTool(who))
	if api.Past != nil {
		list = append(list, api.whyTool(who), api.radarTool(who), api.searchTool(who), api.bisectTool(who), api.undoTool(who),
			api.pickTool(who), api.replayTool(who), api.verifyTool(who), api.forkTool(who), api.restartTool(who))
	}
	if api.Past != nil && len(api.Executor.AgentNames()) > 0 {
		list = append(list, api.tournamentTools(who)...)
	}
	if api.Comments != nil {
		list = append(list, api.commentTools(who)...)
	}
	if api.Exports != nil {
		list = append(list, api.exportTool(who), api.importTool(who))
	}
	if api.Shares != nil && api.Shares.Store != nil {
		list = append(list, api.shareTool(who), api.sharesTool(who), api.revokeShareTool(who))
	}
	if api.Leader != nil && api.Leader.Allow {
		list = append(list, api.standbyTool())
	}
	for _, t := range executor.Library() {
		list = append(list, api.libraryTool(who, t))
	}
	return list
}

// submitted is the result of submit_task.
type submitted struct {
	TaskID string       `json:"task_id"`
	Status record.State `json:"status"`
}

// taskStatus is the result of get_task_status.
type taskStatus struct {
	TaskID   string       `json:"task_id"`
	Status   record.State `json:"status"`
	PRURL    *string      `json:"pr_url"`
	PRNumber *int         `json:"pr_number"`
	Error    *string      `json:"error"`
}

// activeTask is one entry of the result of list_active_tasks.
type activeTask struct {
	TaskID      string       `json:"task_id"`
	Description string       `json:"description"`
	Status      record.State `json:"status"`
	PRURL       *string      `json:"pr_url"`
}

// activeTasks is the result of list_active_tasks. It is a struct, because a structured result must be an object.
type activeTasks struct {
	Result []activeTask `json:"result"`
	missing
}

// maxListed limits a text in a list, in bytes, so that the whole list fits into a result.
const maxListed = 1000

// orNull returns a pointer to v. Returns nil if v is zero.
func orNull[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

func statusOf(t record.Task) taskStatus {
	return taskStatus{t.ID, t.Status, orNull(t.PRURL), orNull(t.PRNumber), orNull(text.Clip(t.Error, maxListed))}
}

// activeOf returns the result of a list of tasks. lack names the replicas without an answer.
func activeOf(tasks []record.Task, lack missing) toolResult {
	list := activeTasks{[]activeTask{}, lack}
	for _, t := range tasks {
		list.Result = append(list.Result, activeTask{t.ID, text.Clip(t.Description, maxListed), t.Status, orNull(t.PRURL)})
	}
	text, err := json.Marshal(list.Result)
	if err != nil {
		text = nil // strings and numbers can always be encoded
	}
	return toolResult{value: list, text: string(text)}
}

// delegation has the arguments of submit_task and of spawn_task.
type delegation struct {
	Description string `json:"description"`
	Context     string `json:"context"`
	Repo        string `json:"repo"`
	Base        string `json:"base"`
	Agent       string `json:"agent"`
	Key         string `json:"key"`
}

// engineerTools returns the tools that submit tasks and show them.
func (api *API) engineerTools(who route.Who) []usableTool {
	return []usableTool{
		{
			Tool: catalog.Tool{
				Name: catalog.ToolSubmit,
				Description: `Submit a software development task to the engineer agent. Returns immediately with task_id. Task runs asynchronously: on a branch of its own, to a pull request whose review the engineer answers.

Delegate bug fixes, features, refactors and UI improvements. Say what is broken or missing, what is expected instead, relevant file paths if known, and any constraints. Do not delegate tasks that require real-time data or live state, or that need your ongoing reasoning (analysis, recommendations).`,
				Schema: catalog.Object(catalog.DescriptionProperties+`,"repo":`+catalog.RepoProperty+`,"base":`+
					catalog.BaseProperty+`,"agent":`+catalog.AgentProperty+
					`,"key":{"type":"string","description":"Makes it idempotent: submitting again with the same key is the same task.","maxLength":200}`, "description"),
			},
			Output: schemaFor[submitted](), Access: route.AccessWrite, Hints: toolHints{Open: true},
			Call: func(ctx context.Context, c *toolCall) (toolResult, error) {
				var d delegation
				if err := c.read(&d); err != nil {
					return toolResult{}, err
				}
				t, err := api.Engineer.SubmitFor(ctx, who, engineer.Submission{Description: d.Description,
					Context: d.Context, Repo: d.Repo, Base: d.Base, Agent: d.Agent, Key: d.Key})
				return toolResult{value: submitted{t.ID, record.StateSubmitted}}, err
			},
		},
		{
			Tool: catalog.Tool{
				Name:        catalog.ToolStatus,
				Description: `Get current status of an engineer task: submitted, running, awaiting_review, addressing_comments, complete or failed; its pull request once there is one; what went wrong if it failed.`,
				Schema:      catalog.Object(`"task_id":`+catalog.TaskIDProperty, "task_id"),
			},
			Output: schemaFor[taskStatus](), Access: route.AccessRead, Hints: toolHints{ReadOnly: true, Idempotent: true},
			Call: func(ctx context.Context, c *toolCall) (toolResult, error) {
				id, err := c.taskID()
				if err != nil {
					return toolResult{}, err
				}
				t, err := api.Engineer.TaskFor(ctx, who, id)
				return toolResult{value: statusOf(t)}, err
			},
		},
		{
			Tool: catalog.Tool{
				Name:        catalog.ToolActive,
				Description: `List all non-completed engineer tasks.`,
				Schema:      catalog.NoArguments,
			},
			Output: schemaFor[activeTasks](), Access: route.AccessRead, Hints: toolHints{ReadOnly: true, Idempotent: true},
			Call: func(ctx context.Context, c *toolCall) (toolResult, error) {
				list, lack, err := askAll(ctx, api.lists.tasks, who, struct{}{}, func(t record.Task) time.Time { return t.CreatedAt })
				return activeOf(list, lack), err
			},
		},
	}
}

func (c *toolCall) taskID() (string, error) {
	var a struct {
		ID string `json:"task_id"`
	}
	err := c.read(&a)
	return a.ID, err
}

// runReport is the state and result of a run, for a model.
type runReport struct {
	Run     string        `json:"run"`
	Caller  string        `json:"caller"`
	Repo    string        `json:"repo"`
	Branch  string        `json:"branch"`
	State   record.State  `json:"state"`
	Reason  record.Reason `json:"reason,omitempty"`
	Error   string        `json:"error,omitempty"`
	Hint    string        `json:"hint,omitempty"`
	Waiting string        `json:"waiting,omitempty"` // the question to a person
	// Question is that question, for answer_question.
	Question *question `json:"question,omitempty"`
	// Verdict is the verdict of the checks of the branch.
	Verdict    record.Verdict `json:"verdict,omitempty"`
	Unverified []string       `json:"unverified,omitempty"`
	Changed    []string       `json:"changed,omitempty"` // the first 100 changed files
	Evidence   string         `json:"evidence,omitempty"`
	// OK and Result belong to a library task. OK reports whether it succeeded, and Result is its output.
	OK     *bool          `json:"ok,omitempty"`
	Result map[string]any `json:"result,omitempty"`
	// Reused is the check whose result this is. Nil means that the task ran.
	Reused *record.Reused `json:"reused,omitempty"`
}

// report returns the state and result of a run.
func (api *API) report(ctx context.Context, run record.Run) (toolResult, error) {
	r := runReport{Run: run.Name(), Caller: run.Caller.String(), Repo: run.Repo, Branch: run.Branch, State: run.State,
		Reason: run.Reason, Error: run.Error, Hint: run.Hint}
	if run.Gate != nil {
		r.Waiting, r.Question = run.Gate.Message, questionOf(run.Gate)
	}
	if api.Links != nil && api.Links.URL != "" {
		r.Evidence = api.Links.Run(run)
	}
	if run.Ended() {
		m, err := api.Executor.Manifest(ctx, run.Name())
		if err != nil && !errors.Is(err,
			record.ErrNotFound) { // if the manifest is still being written, the state of the run is reported without it
			return toolResult{}, err
		}
		r.Verdict, r.Unverified = m.Verdict, m.Unverified
		for _, change := range m.Changed[:min(len(m.Changed), 100)] {
			r.Changed = append(r.Changed, change.Path)
		}
	}
	if run.Kind == record.KindTask {
		for e, err := range api.Executor.Events(ctx, run.Name(), 0, false) {
			if err != nil {
				return toolResult{}, err
			}
			var done struct {
				Result struct {
					Output map[string]any `json:"output"`
				} `json:"result"`
			}
			if e.Type == record.EventStepFinished && json.Unmarshal(e.Data, &done) == nil {
				r.OK, r.Result, r.Reused = e.OK, done.Result.Output, e.Reused
			}
		}
	}
	result := toolResult{failed: run.State == record.StateFailed}
	if long, err := json.Marshal(r.Result); err == nil && len(long) > maxStructured/2 {
		// The structured result must fit its schema, so only the text has the long part.
		r.Result = nil
		short, err := json.Marshal(r)
		if err != nil {
			return toolResult{}, fmt.Errorf("cannot encode a run: %w", err)
		}
		result.text = string(short) + "\n" + string(long)
	}
	result.value = r
	return result, nil
}

// runTool returns the tool that shows a run.
func (api *API) runTool(who route.Who) usableTool {
	return usableTool{
		Tool: catalog.Tool{
			Name:        toolRun,
			Description: `Show the state of a run, whether its changes were checked, the changed files, and a link to its evidence.`,
			Schema:      catalog.Object(`"run":{"type":"string","description":"The run's name, as a tool returned it.","minLength":1,"maxLength":300}`, "run"),
		},
		Output: schemaFor[runReport](), Access: route.AccessRead, Hints: toolHints{ReadOnly: true, Idempotent: true},
		Call: func(ctx context.Context, c *toolCall) (toolResult, error) {
			var a struct {
				Run string `json:"run"`
			}
			if err := c.read(&a); err != nil {
				return toolResult{}, err
			}
			run, err := api.Find.Run(ctx, who, a.Run)
			if err != nil {
				return toolResult{}, err
			}
			result, err := api.report(ctx, run)
			result.failed = false // showing a failed run is not a failure
			return result, err
		},
	}
}

// await follows a run until it ends or waits for a person. It passes progress to tell.
func (api *API) await(ctx context.Context, run record.Run, tell func(string)) (record.Run, error) {
	for e, err := range api.Executor.Events(ctx, run.Name(), 0, true) {
		if err != nil {
			return run, err
		}
		text, _ := engineer.DescribeEvent(e)
		switch e.Type {
		case record.EventQueued, record.EventContainer:
			text = e.Message
		}
		tell(text)
	}
	if err := ctx.Err(); err != nil {
		return run, err
	}
	return api.Executor.Run(ctx, run.Name())
}

// waitProperty is the property of tools that begin a run.
const waitProperty = `"wait":{"type":"boolean","description":"Wait for the run to end. Cancelling the call then only stops ` +
	`the waiting: the run goes on, and get_run shows it.","default":true}`

// sessionTools returns the session tools that a bearer can use. A bearer that may write may also start runs by the
// API, so the tools are those of the container runner. There is no thread here. Therefore resume_code_session names
// the caller that start_code_session returned.
func (api *API) sessionTools(who route.Who) []usableTool {
	const wait = waitProperty
	type arguments struct {
		Prompt string `json:"prompt"`
		Repo   string `json:"repo"`
		Base   string `json:"base"`
		Agent  string `json:"agent"`
		Plan   bool   `json:"plan"`
		Caller string `json:"caller"`
		Wait   *bool  `json:"wait"`
	}
	finish := func(ctx context.Context, c *toolCall, a arguments, run record.Run) (toolResult, error) {
		if a.Wait == nil || *a.Wait {
			var err error
			if run, err = api.await(ctx, run, c.tell); err != nil {
				return toolResult{}, err
			}
		}
		return api.report(ctx, run)
	}
	return []usableTool{
		{
			Tool: catalog.Tool{
				Name:        catalog.ToolStart,
				Description: `Starts a run in a disposable container, on a new branch of a repository: a coding agent is given the prompt, what it changes is committed after every step, and the project's checks are run at its end. The answer names the caller, with which resume_code_session goes on. For work that ends in a reviewed pull request hand over a task instead.`,
				Schema: catalog.Object(`"prompt":`+
					catalog.PromptProperty("What is to be done, complete in itself.")+`,"repo":`+catalog.RepoProperty+
					`,"base":`+catalog.BaseProperty+`,"agent":`+catalog.AgentProperty+
					`,"plan":{"type":"boolean","description":"The agent makes a plan first, and begins once a person has approved it."},`+wait, "prompt"),
			},
			Output: schemaFor[runReport](), Access: route.AccessWrite, Hints: toolHints{},
			Call: func(ctx context.Context, c *toolCall) (toolResult, error) {
				var a arguments
				if err := c.read(&a); err != nil {
					return toolResult{}, err
				}
				r := record.Request{Repo: a.Repo, Base: a.Base, Agent: &record.AgentCall{Name: a.Agent, Prompt: a.Prompt, Plan: a.Plan}}
				if err := api.Find.Bind(ctx, who, &r); err != nil {
					return toolResult{}, err
				}
				run, err := api.Executor.Submit(ctx, r)
				if err != nil {
					return toolResult{}, err
				}
				return finish(ctx, c, a, run)
			},
		},
		{
			Tool: catalog.Tool{
				Name:        catalog.ToolResume,
				Description: `Says something more to a caller's run: the agent that is at work gets the prompt at its next turn; when none is at work, a new run goes on with the caller's branch and the agent's own memory.`,
				Schema: catalog.Object(`"prompt":`+catalog.PromptProperty("What to say to the agent.")+
					`,"caller":{"type":"string","description":"The caller that start_code_session returned.","minLength":1,"maxLength":100},`+wait, "prompt", "caller"),
			},
			Output: schemaFor[runReport](), Access: route.AccessWrite, Hints: toolHints{},
			Call: func(ctx context.Context, c *toolCall) (toolResult, error) {
				var a arguments
				if err := c.read(&a); err != nil {
					return toolResult{}, err
				}
				run, err := api.goOn(ctx, who, a.Caller, a.Prompt)
				if err != nil {
					return toolResult{}, err
				}
				return finish(ctx, c, a, run)
			},
		},
	}
}

// goOn sends a prompt to the current agent run of a caller. If there is none, it begins a new run with the last agent.
func (api *API) goOn(ctx context.Context, who route.Who, caller, prompt string) (record.Run, error) {
	st, err := api.Find.Caller(ctx, who, caller)
	if err == nil {
		err = who.CheckChangeCaller(st)
	}
	if err != nil {
		return record.Run{}, err
	}
	agent := ""
	for _, run := range slices.Backward(api.Executor.OfCaller(st.Caller)) {
		if run.Kind != record.KindAgent {
			continue
		}
		if agent == "" {
			agent = run.Agent.Name
		}
		if run.Ended() {
			continue
		}
		err := api.Prompts.Say(ctx, run.Name(), record.Prompt{Text: prompt, By: who.Person(gitd.Person{}), From: "mcp"})
		if err == nil {
			return run, nil
		}
		if !errors.Is(err, record.ErrConflict) {
			return record.Run{}, err
		}
	}
	r := record.Request{Caller: st.Caller, Repo: st.Repo, Agent: &record.AgentCall{Name: agent, Prompt: prompt}}
	if err := api.Find.Bind(ctx, who, &r); err != nil {
		return record.Run{}, err
	}
	return api.Executor.Submit(ctx, r)
}

// stopWithin limits the time to stop a run that no client waits for any more.
const stopWithin = 30 * time.Second

// libraryTool returns the tool of a library task. Each call is a run of its own, on the branch of a caller.
func (api *API) libraryTool(who route.Who, t executor.TaskInfo) usableTool {
	return usableTool{
		Tool: catalog.Tool{
			Name:        t.Name,
			Description: t.Doc + "\n\nIt is a run in a container, on a caller's branch. Leave caller out to begin a new branch; the answer names the caller to go on with. Cancelling the call stops the run.",
			Schema: withProperties(t.Schema, map[string]json.RawMessage{
				"caller": json.RawMessage(`{"type":"string","description":"The caller on whose branch to work, as a tool returned it.","maxLength":100}`),
				"repo":   json.RawMessage(`{"type":"string","description":"The repository of a new caller.","maxLength":100}`),
				"fresh":  json.RawMessage(`{"type":"boolean","description":"Run a check although the result on these files is known."}`),
			}),
		},
		Output: schemaFor[runReport](), Access: route.AccessWrite,
		Hints: toolHints{ReadOnly: t.ReadOnly, Destructive: !t.ReadOnly},
		Call: func(ctx context.Context, c *toolCall) (toolResult, error) {
			var where struct {
				Caller string `json:"caller"`
				Repo   string `json:"repo"`
				Fresh  bool   `json:"fresh"`
			}
			var params map[string]any
			if err := errors.Join(json.Unmarshal(c.args, &where), json.Unmarshal(c.args, &params)); err != nil {
				return toolResult{}, route.NewProblem(route.KindInvalid, "cannot read the arguments: %v", err)
			}
			delete(params, "caller")
			delete(params, "repo")
			delete(params, "fresh")
			r := record.Request{Repo: where.Repo, Fresh: where.Fresh, Task: &record.TaskCall{Name: t.Name, Params: params}}
			if where.Caller != "" {
				var err error
				if r.Caller, r.Repo, err = api.Find.CallerOrNew(who, where.Caller, where.Repo, false); err != nil {
					return toolResult{}, err
				}
			}
			if err := api.Find.Bind(ctx, who, &r); err != nil {
				return toolResult{}, err
			}
			run, err := api.Executor.Submit(ctx, r)
			if err != nil {
				return toolResult{}, err
			}
			ended, err := api.await(ctx, run, c.tell)
			if err != nil {
				if ctx.Err() != nil {
					err = errors.Join(err, api.giveUp(ctx, run, r.Asker))
				}
				return toolResult{}, err
			}
			return api.report(ctx, ended)
		},
	}
}

// giveUp stops a run that no client waits for any more. It returns nil if the run has ended.
func (api *API) giveUp(ctx context.Context, run record.Run, by gitd.Person) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopWithin)
	defer cancel()
	if err := api.Executor.Stop(ctx, run.Name(), by); err != nil && !errors.Is(err, record.ErrConflict) {
		return err
	}
	return nil
}

// withProperties returns the schema of an object with further properties. It panics if the schema has one of them
// already.
func withProperties(schema json.RawMessage, more map[string]json.RawMessage) json.RawMessage {
	var s map[string]json.RawMessage
	properties := map[string]json.RawMessage{}
	err := json.Unmarshal(schema, &s)
	if err == nil && s["properties"] != nil {
		err = json.Unmarshal(s["properties"], &properties)
	}
	if err == nil {
		for name := range more {
			if properties[name] != nil {
				err = errors.Join(err, fmt.Errorf("it has a property %q of its own", name))
			}
		}
	}
	if err == nil {
		maps.Copy(properties, more)
		if s["properties"], err = json.Marshal(properties); err == nil {
			var b []byte
			if b, err = json.Marshal(s); err == nil {
				return b
			}
		}
	}
	panic(fmt.Sprintf("the schema of a task: %v: %s", err,
		strings.TrimSpace(string(schema)))) // a fault of the program that every test finds
}
