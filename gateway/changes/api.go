package changes

import (
	"github.com/ramus-dev/ramus/gateway/lookup"
	"github.com/ramus-dev/ramus/gateway/route"
)

// API serves changes to programs. Its fields are its options. It is safe for concurrent use.
type API struct {
	Changes *Changes
	Find    *lookup.Lookup
}

// Routes returns the routes of changes.
func (api *API) Routes() []route.Route {
	return []route.Route{
		{Method: "GET", Pattern: "/api/workspaces/{caller}/changes", Access: route.AccessRead,
			Summary: "A part of the files that a workspace changed, with their lines; by default the first part, since its base", Query: Window{},
			Response: Set{}, Handle: api.set},
	}
}

func (api *API) set(c *route.Call) error {
	var w Window
	if err := c.ReadQuery(&w); err != nil {
		return err
	}
	st, err := api.Find.PathCaller(c)
	if err != nil {
		return err
	}
	ctx := c.R.Context()
	repo, from, to, err := Ends(ctx, api.Find, c.Who, st, w)
	if err != nil {
		return err
	}
	s, err := api.Changes.Read(ctx, repo, from, to, w, nil)
	if err != nil {
		return err
	}
	return c.Reply(s)
}
