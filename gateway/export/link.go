package export

import (
	"errors"
	"time"

	"github.com/ramus-dev/ramus/executor/export"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/links"
	"github.com/ramus-dev/ramus/gateway/page"
	"github.com/ramus-dev/ramus/gateway/route"
)

// Link is a link to the export of a run. It opens the file and nothing else, and anybody with the link can read the branch
// with its history. Pages show a link only to the person who makes it.
type Link struct {
	URL     string    `json:"url"`
	Expires time.Time `json:"expires"`
}

// ActionLink is the action of people in the log who make a link to an export.
const ActionLink = "export.link"

// linkQuery is the query of such a link.
type linkQuery struct {
	Expires          string `json:"expires,omitempty" jsonschema:"of a signed link: when it ends, in seconds since 1970"`
	Signature        string `json:"signature,omitempty" jsonschema:"of a signed link"`
	WithoutArtifacts bool   `json:"without_artifacts,omitempty" jsonschema:"leave out the files of the artifact store"`
}

func (api *API) link(c *route.Call) error {
	r, err := api.Find.PathRun(c)
	if err != nil {
		return err
	}
	l, err := api.Link(c.Who, r, c.Address())
	if err != nil {
		return err
	}
	if err := c.Audit(ActionLink, r.Name()); err != nil {
		return err
	}
	return c.Reply(l)
}

// Link returns a link to the export of a run that who sees and may change, at the address of the server. An empty address is
// the configured one. Links to private work are refused.
func (api *API) Link(who route.Who, r record.Run, address string) (Link, error) {
	if api.Links == nil {
		return Link{}, route.NewProblem(route.KindConflict, "this server signs no links")
	}
	if err := who.CheckChangeRun(r); err != nil {
		return Link{}, err
	}
	if api.isPrivate(r) {
		return Link{}, route.NewProblem(route.KindDenied, "%s is private, and nobody else reads its export", r.Caller).
			WithHint("show it to everybody first, or share one run with `ramus share`")
	}
	address, err := api.Links.Address(address, api.Loopback)
	if err != nil {
		return Link{}, route.NewProblem(route.KindConflict, "%v", err).WithHint("set `url` in the configuration")
	}
	until := api.Links.Expiry()
	return Link{URL: address + api.Links.SignUntil(links.RunPath(r)+"/export.bundle", until),
		Expires: until.UTC().Truncate(time.Second)}, nil
}

// linked answers a link. The name of the run must be complete, because a link is signed for one run.
func (api *API) linked(c *route.Call) error {
	var q linkQuery
	if err := c.ReadQuery(&q); err != nil {
		return err
	}
	name := c.R.PathValue("caller") + "/" + c.R.PathValue("run")
	r, err := api.Executor.Run(c.R.Context(), name)
	if errors.Is(err, record.ErrNotFound) || errors.Is(err, record.ErrAmbiguous) ||
		err == nil && (r.Name() != name || c.Until.IsZero() && !c.Who.SeesRun(r) || !c.Until.IsZero() && api.isPrivate(r)) {
		return route.NotFound("run", name)
	}
	if err != nil {
		return err
	}
	return api.sendAs(c, Query{WithoutArtifacts: q.WithoutArtifacts}, export.Request{Runs: []record.Run{r}, One: true})
}

// isPrivate reports whether a run is private now.
func (api *API) isPrivate(r record.Run) bool {
	return api.Privacy != nil && api.Privacy.IsPrivate(r.Caller)
}

func (api *API) cast(c *route.Call) error {
	r, err := api.Find.PathRun(c)
	if err != nil {
		return err
	}
	return api.SendCast(c, r)
}

// SendCast answers with a run as a recording of a terminal. The caller has checked that its reader sees the run.
func (api *API) SendCast(c *route.Call, r record.Run) error {
	page.MarkPrivate(c.W.Header())
	c.MarkAttachment(r.ID + ".cast")
	c.W.Header().Set("Content-Type", MediaCast)
	if _, err := export.Cast(c.R.Context(), api.Executor, r, c.W); err != nil {
		return c.CutShort(err)
	}
	return nil
}
