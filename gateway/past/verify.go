package past

import (
	"context"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/seal"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gitd"
)

// Verify asks whether the sealed runs of a repository are as they were sealed.
type Verify struct {
	Repo  string    `json:"repo,omitempty" jsonschema:"the repository; the only one, if empty"`
	Run   string    `json:"run,omitempty" jsonschema:"a run, or a caller for its latest run; all runs of the repository if empty"`
	Since gitd.Hash `json:"since,omitempty" jsonschema:"the head of an earlier report, which the chain must still contain"`
}

func (api *API) verifyRoute() route.Route {
	return route.Route{Method: "GET", Pattern: "/api/verify", Access: route.AccessRead,
		Summary: "Compare the sealed runs of a repository, or one run, with the signed chain of seals, and their files with their manifests",
		Query:   Verify{}, Response: seal.Report{}, Handle: api.verify}
}

func (api *API) verify(c *route.Call) error {
	var q Verify
	if err := c.ReadQuery(&q); err != nil {
		return err
	}
	rep, err := api.Verify(c.R.Context(), c.Who, q)
	if err != nil {
		return err
	}
	return c.Reply(rep)
}

// Verify checks the runs that the caller of a request sees.
func (api *API) Verify(ctx context.Context, who route.Who, q Verify) (seal.Report, error) {
	v := executor.Verification{Since: q.Since}
	if q.Run != "" {
		r, err := api.Find.Run(ctx, who, q.Run)
		if err != nil {
			return seal.Report{}, err
		}
		v.Run, q.Repo = r, r.Repo
	}
	if q.Since != "" {
		if err := gitd.CheckHash(q.Since); err != nil {
			return seal.Report{}, err
		}
	}
	repo, err := api.repo(ctx, who, q.Repo)
	if err != nil {
		return seal.Report{}, err
	}
	v.Repo = repo
	v.Sees = func(slug string) bool { return who.SeesBranch(repo.Name(), "ramus/"+slug) }
	return api.Executor.Verify(ctx, v)
}
