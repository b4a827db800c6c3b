package web

import (
	"net/http"

	"github.com/ramus-dev/ramus/gateway/route"
)

// warmWorkspace wakes the container of a workspace while a person types a prompt. It answers at once.
func (api *API) warmWorkspace(c *route.Call) error {
	s, err := api.Workspaces.Changeable(c.R.Context(), c.Who, c.R.PathValue("workspace"))
	if err != nil {
		return err
	}
	api.Executor.Warmer.WarmUp(s.Caller, by(c))
	c.W.WriteHeader(http.StatusNoContent)
	return nil
}

// warmRepo prepares for a new workspace of a repository while a person types its prompt.
func (api *API) warmRepo(c *route.Call) error {
	if err := readForm(c); err != nil {
		return err
	}
	r, err := api.Find.Repo(c.Who, formText(c, "repository", 200))
	if err != nil {
		return err
	}
	base, err := r.Base(c.R.Context())
	if err != nil {
		return err
	}
	if !c.Who.SeesBranch(r.Name(), base) || !c.Who.GrantIn(r.Name()).MayWrite(r.Name()) {
		return route.NewProblem(route.KindDenied, "you may not begin workspaces of %s", r.Name())
	}
	if err := api.Executor.Warmer.Expect(c.R.Context(), r.Name(), by(c)); err != nil {
		return err
	}
	c.W.WriteHeader(http.StatusNoContent)
	return nil
}
