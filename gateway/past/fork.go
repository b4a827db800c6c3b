package past

import (
	"cmp"
	"context"
	"strings"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gateway/workspace"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/text"
)

// Fork asks for a new caller that begins at a step or a commit of another one.
type Fork struct {
	// Of is CALLER, CALLER@STEP, RUN@STEP or CALLER@COMMIT. Without @ the new caller begins at the newest commit.
	Of   string `json:"of"`
	Name string `json:"name,omitempty"` // of the new caller; drawn if empty
	// Prompt is for the agent that works first. Without it the new caller only opens.
	Prompt string `json:"prompt,omitempty"`
	Agent  string `json:"agent,omitempty"` // that works first; the usual one if empty
	// Command is run first. It goes without Prompt.
	Command *record.Command `json:"command,omitempty"`
	Dry     bool            `json:"dry,omitempty"` // answer with the plan alone
	Asker   gitd.Person     `json:"asker,omitzero"`
}

// Forked is the answer. The fields of the new caller are empty in a plan without a name.
type Forked struct {
	Of      string    `json:"of"`      // the other caller
	Commit  gitd.Hash `json:"commit"`  // where the new caller begins
	Subject string    `json:"subject"` // of that commit
	// Memory is the memory that the agents had then. It is empty if they had none.
	Memory gitd.Hash `json:"memory,omitempty"`
	Repo   string    `json:"repo"`
	Base   string    `json:"base"`
	Caller string    `json:"caller,omitempty"`
	Branch string    `json:"branch,omitempty"`
	Run    string    `json:"run,omitempty"` // the first run; empty in a plan
}

// forkRoute returns the route of forks.
func (api *API) forkRoute() route.Route {
	return route.Route{Method: "POST", Pattern: "/api/forks", Access: route.AccessWrite,
		Summary: "Begin a new caller at a step or a commit of another one, with the memory that the agents had then",
		Request: Fork{}, Response: Forked{}, Handle: api.fork}
}

func (api *API) fork(c *route.Call) error {
	var q Fork
	if err := c.ReadJSON(&q); err != nil {
		return err
	}
	f, err := api.Fork(c.R.Context(), c.Who, q)
	if err != nil {
		return err
	}
	return c.Reply(f)
}

// Fork begins a new caller at a step or a commit of another one. A fork of a private caller is private. Fork returns when
// the new caller is durable.
func (api *API) Fork(ctx context.Context, who route.Who, q Fork) (Forked, error) {
	of, at, named := strings.Cut(q.Of, "@")
	if of == "" || named && at == "" {
		return Forked{}, route.NewProblem(route.KindInvalid,
			"cannot fork %.100q: want CALLER, CALLER@STEP, RUN@STEP or CALLER@COMMIT", q.Of)
	}
	r := record.Request{Fork: &record.Fork{Of: of, Commit: gitd.Hash(at)}, Asker: q.Asker}
	var f Forked
	if q.Name != "" {
		caller, err := record.RunCaller(q.Name)
		if err != nil {
			return f, err
		}
		if len(api.Executor.OfCaller(caller)) > 0 {
			return f, route.NewProblem(route.KindExists, "the name %q is in use", q.Name).WithHint("choose another name")
		}
		r.Caller, f.Caller, f.Branch = caller, caller.String(), caller.Branch()
	}
	switch prompt := strings.TrimSpace(q.Prompt); {
	case prompt != "" && q.Command != nil:
		return f, route.NewProblem(route.KindInvalid, "a prompt or a command comes first, and not both")
	case prompt != "":
		r.Agent = &record.AgentCall{Name: q.Agent, Prompt: prompt}
	case q.Command != nil && q.Agent == "":
		r.Command = q.Command
	case q.Agent != "":
		return f, route.NewProblem(route.KindInvalid, "the prompt for %.100s is missing", q.Agent)
	default:
		r.Command = &record.Command{Shell: workspace.BootCommand}
	}
	if err := api.Find.Bind(ctx, who, &r); err != nil {
		return f, err
	}
	start, err := api.Executor.ForkStart(ctx, *r.Fork)
	if err != nil {
		return f, err
	}
	f.Of, f.Commit, f.Memory, f.Repo, f.Base = start.Of, start.Commit, start.Memory, start.Repo, start.Base
	planned := record.Run{Repo: f.Repo, Base: f.Base, Branch: cmp.Or(f.Branch, record.BranchPrefix+"run-fork")}
	if err := who.CheckRun(planned, ""); err != nil {
		return f, err
	}
	repo, err := api.Find.Repo(who, f.Repo)
	if err != nil {
		return f, err
	}
	commit, err := repo.Commit(ctx, string(f.Commit))
	if err != nil {
		return f, err
	}
	f.Subject = text.Clip(commit.Subject, maxSubject)
	if q.Dry {
		return f, nil
	}
	other, err := record.ParseCaller(f.Of)
	if err != nil {
		return f, err
	}
	if !named {
		r.Fork.Commit = f.Commit // the newest may be another one by now
	}
	run, err := api.runsFor(other).Submit(ctx, r)
	if err != nil {
		return f, err
	}
	f.Caller, f.Branch, f.Run = run.Caller.String(), run.Branch, run.Name()
	return f, nil
}

// Restart has a workflow begin again at a node or a step of a run of it.
type Restart struct {
	From string `json:"from"` // the node or the step
	// Input replaces the inputs of the run. Nil keeps them.
	Input map[string]any `json:"input,omitempty"`
	Asker gitd.Person    `json:"asker,omitzero"`
}

// Restart begins the workflow of a run again, for a new caller, with the results of the steps before. A restart of a
// private caller is private.
func (api *API) Restart(ctx context.Context, who route.Who, of record.Run, q Restart) (record.Run, error) {
	r := record.Request{Repo: of.Repo, Base: of.Base, Of: of.Name(), From: q.From, Input: q.Input, Asker: q.Asker}
	if err := api.Find.Bind(ctx, who, &r); err != nil {
		return record.Run{}, err
	}
	return api.runsFor(of.Caller).Submit(ctx, r)
}

// maxSubject bounds the subject of a commit in an answer, in bytes.
const maxSubject = 500
