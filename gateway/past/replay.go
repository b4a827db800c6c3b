package past

import (
	"context"
	"errors"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/replay"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gitd"
)

// Replay asks to run the commands of a run again.
type Replay struct {
	Steps []string    `json:"steps,omitempty"` // all if empty
	Times int         `json:"times,omitempty"` // how often each is run; 1 if 0, 10 at most
	Width int         `json:"width,omitempty"` // commands at once; 4 if 0, 16 at most
	Dry   bool        `json:"dry,omitempty"`   // answer with the plan alone
	Asker gitd.Person `json:"asker,omitzero"`
}

// ReplayLine is one line of the answer. The first has the plan, and the last has the verdict or a problem.
type ReplayLine struct {
	Plan    []replay.Command `json:"plan,omitempty"`
	Done    *replay.Checked  `json:"done,omitempty"` // a command
	Verdict *replay.Verdict  `json:"verdict,omitempty"`
	Problem *route.Problem   `json:"problem,omitempty"`
}

// replayRoutes returns the routes of replays.
func (api *API) replayRoutes() []route.Route {
	return []route.Route{
		{Method: "POST", Pattern: "/api/runs/{run}/replay", Access: route.AccessWrite,
			Summary: "Run the commands of a run again, each from the commit from which it began, and compare files, exit status and outputs; the answer streams the commands, and hanging up stops it",
			Request: Replay{}, Response: ReplayLine{}, Media: route.MediaLines, Handle: api.replay},
		{Method: "GET", Pattern: "/api/runs/{run}/replay", Access: route.AccessRead,
			Summary:  "The verdict of the last replay of a run",
			Response: replay.Verdict{}, Handle: api.replayed},
	}
}

func (api *API) replay(c *route.Call) error {
	var q Replay
	if err := c.ReadOptionalJSON(&q); err != nil {
		return err
	}
	r, err := api.Find.PathRun(c)
	if err != nil {
		return err
	}
	p, commands, err := api.prepareReplay(c.R.Context(), c.Who, r, q)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(c.R.Context())
	defer cancel(nil)
	w := c.BeginStream(route.MediaLines)
	if err := w.WriteLine(ReplayLine{Plan: commands}); err != nil || q.Dry {
		return err
	}
	p.Tell = func(done replay.Checked) {
		if err := w.WriteLine(ReplayLine{Done: &done}); err != nil {
			cancel(err) // the client has gone
		}
	}
	v, err := p.Replay(ctx, r, commands)
	if err != nil {
		return w.WriteLine(ReplayLine{Problem: route.AsProblem(err, c.Who)})
	}
	return w.WriteLine(ReplayLine{Verdict: &v})
}

// Replay runs the commands of a run again. tell is called with each that is done. The answer to a dry request has the
// commands without results.
func (api *API) Replay(ctx context.Context, who route.Who, r record.Run, q Replay, tell func(replay.Checked)) (replay.Verdict, error) {
	p, commands, err := api.prepareReplay(ctx, who, r, q)
	if err != nil {
		return replay.Verdict{}, err
	}
	if q.Dry {
		return replay.Planned(r, commands), nil
	}
	p.Tell = tell
	return p.Replay(ctx, r, commands)
}

// prepareReplay returns the replay that a request means, with the rights of its caller. Nothing runs.
func (api *API) prepareReplay(ctx context.Context, who route.Who, r record.Run, q Replay) (*replay.Replayer, []replay.Command, error) {
	if !r.Ended() {
		return nil, nil, route.NewProblem(route.KindConflict, "%s has not ended", r.Name())
	}
	repo, err := api.Find.Repo(who, r.Repo)
	if err != nil {
		return nil, nil, err
	}
	p := &replay.Replayer{Repo: repo, Runs: api.runsFor(r.Caller), Times: q.Times, Width: q.Width, Bot: api.Executor.Bot,
		Now: api.Now, Request: record.Request{Repo: r.Repo, Base: r.Base, Asker: q.Asker, Apart: true}}
	p.Remove = api.remover(&p.Request)
	if err := api.Find.Bind(ctx, who, &p.Request); err != nil {
		return nil, nil, err
	}
	if err := checkTries(who, repo); err != nil {
		return nil, nil, err
	}
	var events []record.Event
	for e, err := range api.Executor.Events(ctx, r.Name(), 0, false) {
		if err != nil {
			return nil, nil, err
		}
		events = append(events, e)
	}
	commands, err := replay.Commands(r, events)
	if err == nil {
		commands, err = replay.Choose(commands, q.Steps)
	}
	if err != nil {
		return nil, nil, err
	}
	replay.LeaveOut(commands, func(c record.Command) string {
		if err := api.Executor.CheckUnasked(ctx, repo, r.Base, c); err != nil {
			return err.Error()
		}
		return ""
	})
	return p, commands, p.Check()
}

// checkTries returns why the caller of a request may not begin tries. Each is a new caller. Its branch has a name of
// the executor's, which begins like this one.
func checkTries(who route.Who, repo *gitd.Repo) error {
	return who.CheckChange(repo.Name(), record.BranchPrefix+"run-try")
}

// remover returns a function that removes the callers that were made for the runs of a request.
func (api *API) remover(of *record.Request) func(context.Context, record.Caller) error {
	return func(ctx context.Context, c record.Caller) error {
		_, err := api.Executor.Remove(ctx, c.String(), of.Asker)
		return err
	}
}

func (api *API) replayed(c *route.Call) error {
	r, err := api.Find.PathRun(c)
	if err != nil {
		return err
	}
	repo, err := api.Find.Repo(c.Who, r.Repo)
	if err != nil {
		return err
	}
	v, err := replay.Read(c.R.Context(), repo, r)
	if errors.Is(err, gitd.ErrNotFound) {
		return route.NewProblem(route.KindNotFound, "%s was not replayed", r.Name()).WithHint("`ramus replay` does it")
	}
	if err != nil {
		return err
	}
	return c.Reply(v)
}
