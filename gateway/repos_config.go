package gateway

import (
	"errors"
	"net/http"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/settings"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gitd"
)

// RepoConfig has the values of a repository's environment, each with its origin.
type RepoConfig struct {
	Repo   string    `json:"repo"`
	Base   string    `json:"base"`             // branch whose .ramus/config.yaml is in effect
	Commit gitd.Hash `json:"commit,omitempty"` // its tip
	// From is the commit whose file is in effect. It differs from Commit if the file there has a mistake. It is empty if
	// there is no file.
	From gitd.Hash `json:"from,omitempty"`
	// Mistake has the mistakes of the file at Commit, with line and column.
	Mistake string `json:"mistake,omitempty"`
	// Warnings name the values that the server does not allow.
	Warnings []string         `json:"warnings,omitempty"`
	Values   []settings.Value `json:"values"`
}

type configQuery struct {
	Base string `json:"base,omitempty" jsonschema:"branch whose configuration is read; the repository's base if empty"`
}

func (api *reposAPI) config(c *route.Call) error {
	var q configQuery
	if err := c.ReadQuery(&q); err != nil {
		return err
	}
	r, err := api.find.PathRepo(c)
	if err != nil {
		return err
	}
	if err := api.find.CheckBase(c.R.Context(), c.Who, r.Name(), q.Base); err != nil {
		return err
	}
	s, err := api.Executor.SettingsOf(c.R.Context(), r.Name(), q.Base)
	if err != nil {
		return err
	}
	return c.Reply(RepoConfig{Repo: s.Repo, Base: s.Base, Commit: s.Commit, From: s.From, Mistake: s.Mistake,
		Warnings: s.Warnings, Values: s.Values})
}

// importConfig begins a new caller with the settings that another one proposes for its environment.
func (api *callersAPI) importConfig(c *route.Call) error {
	st, err := api.find.PathCaller(c)
	if err != nil {
		return err
	}
	ctx := c.R.Context()
	r, err := api.Executor.ProposeSettings(ctx, st.Caller)
	if errors.Is(err, settings.ErrNothing) {
		return route.NewProblem(route.KindConflict, "%v", err)
	}
	if err != nil {
		return err
	}
	var in ImportConfig
	if err := c.ReadJSON(&in); err != nil {
		return err
	}
	r.Asker = in.Asker
	if err := api.find.Bind(ctx, c.Who, &r); err != nil {
		return err
	}
	run, err := api.Executor.Submit(ctx, r)
	if err != nil {
		return err
	}
	return c.ReplyStatus(http.StatusCreated, run)
}

// ImportConfig is a request to propose the environment that a caller made for itself as a change of its repository's
// configuration.
type ImportConfig struct {
	Asker gitd.Person `json:"asker,omitzero"` // author of the commit
}

// importConfigRoute is the route of importConfig.
func (api *callersAPI) importConfigRoute() route.Route {
	return route.Route{Method: "POST", Pattern: "/api/callers/{caller}/config", Access: route.AccessWrite,
		Summary: "Propose what a caller found out as a change of .ramus/config.yaml, on the branch of a new caller",
		Request: ImportConfig{}, Response: record.Run{}, Handle: api.importConfig}
}
