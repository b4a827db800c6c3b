package past

import (
	"cmp"
	"context"
	"fmt"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/undo"
	"github.com/ramus-dev/ramus/executor/upstream"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gitd"
)

// Undo asks to take the work of a run out of a branch.
type Undo struct {
	Into string      `json:"into,omitempty"` // the branch; the run's base if empty
	Here bool        `json:"here,omitempty"` // in this server alone, see [record.Merge]
	Dry  bool        `json:"dry,omitempty"`  // answer with the work alone
	By   gitd.Person `json:"by,omitzero"`
}

// Pick asks to bring steps of a run to a branch.
type Pick struct {
	Undo
	Steps []string `json:"steps"` // of the run, or their commits
}

// Changed is the answer.
type Changed struct {
	Work undo.Work `json:"work"`
	// Landed is the result. It is nil for a dry request. With conflicts nothing was changed.
	Landed *record.Landed `json:"landed,omitempty"`
	// Blockers are the later commits that changed the files in conflict.
	Blockers []undo.Blocker `json:"blockers,omitempty"`
}

// undoRoutes returns the routes that change a branch.
func (api *API) undoRoutes() []route.Route {
	return []route.Route{
		{Method: "POST", Pattern: "/api/runs/{run}/undo", Access: route.AccessWrite,
			Summary: "Take a merged run out of its base, although later work builds on it; a conflict is an answer, " +
				"and changes nothing",
			Request: Undo{}, Response: Changed{}, Handle: api.undo},
		{Method: "POST", Pattern: "/api/runs/{run}/pick", Access: route.AccessWrite,
			Summary: "Bring steps of a run alone to its base; a conflict is an answer, and changes nothing",
			Request: Pick{}, Response: Changed{}, Handle: api.pick},
	}
}

func (api *API) undo(c *route.Call) error {
	var u Undo
	if err := c.ReadOptionalJSON(&u); err != nil {
		return err
	}
	return replyChanged(api, c, api.Undo, u)
}

func (api *API) pick(c *route.Call) error {
	var p Pick
	if err := c.ReadJSON(&p); err != nil {
		return err
	}
	return replyChanged(api, c, api.Pick, p)
}

// replyChanged makes a change for the run of the path, and replies with it.
func replyChanged[R Undo | Pick](api *API, c *route.Call,
	change func(context.Context, route.Who, record.Run, R) (Changed, error), request R) error {
	r, err := api.Find.PathRun(c)
	if err != nil {
		return err
	}
	done, err := change(c.R.Context(), c.Who, r, request)
	if err != nil {
		return err
	}
	return c.Reply(done)
}

// target returns the repository and the branch that a request changes, if its caller may change it.
func (api *API) target(ctx context.Context, who route.Who, r record.Run, u *Undo) (*gitd.Repo, error) {
	if !r.Ended() {
		return nil, route.NewProblem(route.KindConflict, "%s has not ended", r.Name())
	}
	for _, a := range r.With {
		if a.Changed() {
			return nil, route.NewProblem(route.KindInvalid,
				"%s changed %s too; only runs in one repository are undone and picked", r.Name(), a.Repo)
		}
	}
	repo, err := api.Find.Repo(who, r.Repo)
	if err != nil {
		return nil, err
	}
	if u.Into = cmp.Or(u.Into, r.Base); u.Into == "" {
		if u.Into, err = repo.Base(ctx); err != nil {
			return nil, err
		}
	}
	if !who.SeesBranch(repo.Name(), u.Into) {
		return nil, route.NotFound("branch", u.Into)
	}
	return repo, who.CheckChange(repo.Name(), u.Into)
}

// Undo takes the work of a run out of a branch.
func (api *API) Undo(ctx context.Context, who route.Who, r record.Run, u Undo) (Changed, error) {
	repo, err := api.target(ctx, who, r, &u)
	if err != nil {
		return Changed{}, err
	}
	work, err := undo.Merged(ctx, repo, r, api.Executor.OfCaller(r.Caller), u.Into)
	if err != nil || u.Dry {
		return Changed{Work: work}, err
	}
	pick := gitd.PickRequest{Commits: work.Commits, Reverse: true,
		Message: fmt.Sprintf("Undo %s\n\nIt takes %d commits out, which were %s.\n\n%s: %s", r.Name(),
			len(work.Commits), work.How, record.TrailerUndoes, r.Name())}
	return api.land(ctx, who, repo, r, u, work, pick)
}

// Pick brings steps of a run to a branch.
func (api *API) Pick(ctx context.Context, who route.Who, r record.Run, p Pick) (Changed, error) {
	repo, err := api.target(ctx, who, r, &p.Undo)
	if err != nil {
		return Changed{}, err
	}
	if len(p.Steps) == 0 || len(p.Steps) > 1000 {
		return Changed{}, route.NewProblem(route.KindInvalid, "%d steps: want 1 to 1000", len(p.Steps)).
			WithHint("`ramus log CALLER` lists the steps with their commits")
	}
	var events []record.Event
	for e, err := range api.Executor.Events(ctx, r.Name(), 0, false) {
		if err != nil {
			return Changed{}, err
		}
		if e.Type == record.EventStepFinished {
			events = append(events, e)
		}
	}
	work := undo.Work{Run: r.Name(), Into: p.Into}
	if work.Commits, err = undo.Steps(r, events, p.Steps); err != nil {
		return Changed{}, err
	}
	if work.Tip, err = repo.Resolve(ctx, "refs/heads/"+p.Into); err != nil || p.Dry {
		return Changed{Work: work}, err
	}
	return api.land(ctx, who, repo, r, p.Undo, work, gitd.PickRequest{Commits: work.Commits})
}

// land changes the branch as the policy of the repository says, and explains conflicts.
func (api *API) land(ctx context.Context, who route.Who, repo *gitd.Repo, r record.Run, u Undo, work undo.Work,
	pick gitd.PickRequest) (Changed, error) {
	out := Changed{Work: work}
	by := who.Person(u.By)
	if by == (gitd.Person{}) {
		by = api.Executor.Bot
	}
	landed, err := api.Executor.Bases.Land(ctx, upstream.Landing{Repo: repo, Caller: r.Caller,
		Committer: api.Executor.Bot, Merge: record.Merge{Into: u.Into, Here: u.Here, By: by}, Pick: &pick})
	if err != nil {
		return out, err
	}
	if !who.Admin() {
		landed.Upstream = "" // it may be a path of this machine
	}
	out.Landed = &landed
	if len(landed.Conflicts) > 0 {
		out.Blockers, err = undo.Blockers(ctx, repo, cmp.Or(landed.Old, work.Tip), cmp.Or(landed.At, r.Start),
			landed.Conflicts)
	}
	return out, err
}
