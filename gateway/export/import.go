package export

import (
	"context"

	"github.com/ramus-dev/ramus/executor/export"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gitd"
)

// Import says where an export goes.
type Import struct {
	Repo   string `json:"repo" jsonschema:"the repository; it has commits in common with the file"`
	New    bool   `json:"new,omitempty" jsonschema:"make the repository"`
	Caller string `json:"caller,omitempty" jsonschema:"the caller's id here; that of the file, with a number if it is taken, if empty"`
	// Public shows everybody the callers that were private on the other server.
	Public bool `json:"public,omitempty" jsonschema:"show everybody a caller that was private on its server"`
}

func (api *API) importRoute() route.Route {
	return route.Route{Method: "POST", Pattern: "/api/import", Access: route.AccessAdmin, Body: -1,
		Summary: "Take in the export of another server, which is the body; its runs are marked as imported and verify nothing",
		Query:   Import{}, Response: export.Imported{}, Handle: api.take}
}

func (api *API) take(c *route.Call) error {
	var q Import
	if err := c.ReadQuery(&q); err != nil {
		return err
	}
	if q.Repo == "" {
		return route.NewProblem(route.KindInvalid, "the repository is missing: which one does the file go to?")
	}
	w := export.Wish{Repo: q.Repo, New: q.New, Caller: q.Caller, By: c.Who.Person(gitd.Person{})}
	if !q.Public {
		w.Hide = api.hide(w.By)
	}
	done, err := api.Executor.Importer().Import(c.R.Context(), c.R.Body, w)
	if err != nil {
		return err
	}
	return c.Reply(done)
}

// hide returns the function that makes an imported caller private.
func (api *API) hide(owner gitd.Person) func(context.Context, record.Caller, string) error {
	return func(ctx context.Context, caller record.Caller, repo string) error {
		const hint = "`--public` shows it to everybody who sees the repository"
		if api.Privacy == nil {
			return route.NewProblem(route.KindConflict, "the caller was private on its server, and nothing is private here").
				WithHint(hint)
		}
		if owner.ID == "" {
			return route.NewProblem(route.KindConflict, "the caller was private on its server, and has no owner here").WithHint(hint)
		}
		return api.Privacy.SetPrivate(ctx, caller, repo, true, owner)
	}
}
