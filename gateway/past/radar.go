package past

import (
	"context"
	"time"

	"github.com/ramus-dev/ramus/executor/radar"
	"github.com/ramus-dev/ramus/gateway/route"
)

// Radar asks for the conflicts between the live branches of a repository.
type Radar struct {
	Repo string `json:"repo,omitempty" jsonschema:"the repository; the caller's, or the only one, if empty"`
	Of   string `json:"of,omitempty" jsonschema:"a caller or a branch, to which the conflicts are limited"`

	// Within bounds the time for merges. Zero means no bound.
	Within time.Duration `json:"-"`
}

func (api *API) radarRoute() route.Route {
	return route.Route{Method: "GET", Pattern: "/api/radar", Access: route.AccessRead,
		Summary: "The live branches of a repository that do not merge with each other or with the base, with files and lines",
		Query:   Radar{}, Response: radar.Report{}, Handle: api.radar}
}

func (api *API) radar(c *route.Call) error {
	var q Radar
	if err := c.ReadQuery(&q); err != nil {
		return err
	}
	rep, err := api.Radar(c.R.Context(), c.Who, q)
	if err != nil {
		return err
	}
	return c.Reply(rep)
}

// Radar compares the branches that the caller of a request sees.
func (api *API) Radar(ctx context.Context, who route.Who, q Radar) (radar.Report, error) {
	name, branch := q.Repo, q.Of
	if q.Of != "" {
		st, err := api.caller(who, q.Of)
		if err == nil {
			branch = st.Branch
			if name == "" {
				name = st.Repo
			}
		} else if !isKind(err, who, route.KindNotFound) {
			return radar.Report{}, err
		}
	}
	repo, err := api.repo(ctx, who, name)
	if err != nil {
		return radar.Report{}, err
	}
	return api.Branches.Look(ctx, radar.Question{Repo: repo, Now: api.Now(), Of: branch, Within: q.Within,
		Sees: func(branch string) bool { return who.SeesBranch(repo.Name(), branch) }})
}
