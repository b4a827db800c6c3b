package workspace

import (
	"net/http"
	"slices"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/route"
)

// API serves the routes of workspaces.
type API struct{ *Workspaces }

// wishBody limits the body of a request for a workspace, in bytes. JSON may encode one byte as six.
const wishBody = 2 << 20

// Routes returns the routes of workspaces.
func (api *API) Routes() []route.Route {
	const one = "/api/workspaces/{workspace}"
	return []route.Route{
		{Method: "GET", Pattern: "/api/workspaces", Access: route.AccessRead,
			Summary: "List workspaces, the most recently active first",
			Query:   listQuery{}, Response: List{}, Handle: api.list},
		{Method: "POST", Pattern: "/api/workspaces", Access: route.AccessWrite, Body: wishBody,
			Summary: "Begin a workspace from a branch, from a commit of another one, or with a prompt for an agent",
			Request: Wish{}, Response: Workspace{}, Handle: api.create},
		{Method: "GET", Pattern: one, Access: route.AccessRead, Summary: "One workspace", Response: Workspace{},
			Handle: api.get},
		{Method: "PATCH", Pattern: one, Access: route.AccessWrite,
			Summary: "Make a workspace private, or show it; by its owner or an administrator",
			Request: NewPrivacy{}, Response: Workspace{}, Handle: api.setPrivate},
		{Method: "POST", Pattern: one + "/stop", Access: route.AccessWrite,
			Summary: "Commit the files of a workspace and remove its container", Response: Workspace{}, Handle: api.stop},
		{Method: "POST", Pattern: one + "/restart", Access: route.AccessWrite,
			Summary:  "Start a new container for a workspace that is stopped or failed",
			Response: Workspace{}, Handle: api.restart},
		{Method: "DELETE", Pattern: one, Access: route.AccessWrite,
			Summary:  "Delete a workspace that is stopped or failed, with its branch; its runs stay, and through them its commits",
			Response: executor.Removed{}, Handle: api.remove},
		{Method: "GET", Pattern: one + "/events", Access: route.AccessRead,
			Summary:  "The events of a workspace, newest first",
			Response: []record.Event{}, Handle: api.events},
		{Method: "GET", Pattern: one + "/boot-log", Access: route.AccessRead,
			Summary:  "How the container of a workspace last started",
			Response: []record.Event{}, Handle: api.bootLog},
	}
}

type listQuery struct {
	Repo  string `json:"repository,omitempty" jsonschema:"only of this repository"`
	State string `json:"status,omitempty" jsonschema:"only in this state"`
	Text  string `json:"q,omitempty" jsonschema:"only with this text in name, title, repository or owner"`
	After string `json:"after,omitempty" jsonschema:"the next of the page before"`
	Max   int    `json:"max,omitempty" jsonschema:"the size of a page; 50 if 0, 200 at most"`
}

// List is a page of workspaces.
type List struct {
	Workspaces []Workspace `json:"workspaces"`
	// Next is the parameter after of the next page. It is empty on the last one.
	Next string `json:"next,omitempty"`
}

func (api *API) list(c *route.Call) error {
	var q listQuery
	if err := c.ReadQuery(&q); err != nil {
		return err
	}
	if q.Repo != "" && !c.Who.Sees(q.Repo) {
		return route.NotFound("repository", q.Repo)
	}
	if q.State != "" && !slices.Contains(States(), State(q.State)) {
		return route.NewProblem(route.KindInvalid, "unknown state %q: want one of %v", q.State, States())
	}
	list, next, err := api.List(c.R.Context(), c.Who,
		Filter{Repo: q.Repo, State: State(q.State), Text: q.Text, After: q.After, Max: min(q.Max, 200)})
	if err != nil {
		return err
	}
	return c.Reply(List{list, next})
}

// named returns the workspace that the path names.
func (api *API) named(c *route.Call) (Workspace, error) {
	s, _, err := api.Named(c.R.Context(), c.Who, c.R.PathValue("workspace"))
	return s, err
}

func (api *API) get(c *route.Call) error {
	s, err := api.named(c)
	if err != nil {
		return err
	}
	return c.Reply(s)
}

func (api *API) create(c *route.Call) error {
	var n Wish
	if err := c.ReadJSON(&n); err != nil {
		return err
	}
	r, err := api.Create(c.R.Context(), c.Who, n)
	if err != nil {
		return err
	}
	return api.reply(c, http.StatusCreated, r.Caller)
}

// reply answers with a workspace as it is now.
func (api *API) reply(c *route.Call, status int, caller record.Caller) error {
	s, _, err := api.Named(c.R.Context(), c.Who, caller.Slug())
	if err != nil {
		return err
	}
	c.W.Header().Set("Location", "/api/workspaces/"+s.ID)
	return c.ReplyStatus(status, s)
}

func (api *API) stop(c *route.Call) error {
	s, err := api.Stop(c.R.Context(), c.Who, c.R.PathValue("workspace"))
	if err != nil {
		return err
	}
	return c.Reply(s)
}

func (api *API) restart(c *route.Call) error {
	r, err := api.Restart(c.R.Context(), c.Who, c.R.PathValue("workspace"))
	if err != nil {
		return err
	}
	return api.reply(c, http.StatusAccepted, r.Caller)
}

func (api *API) remove(c *route.Call) error {
	done, err := api.Delete(c.R.Context(), c.Who, c.R.PathValue("workspace"))
	if err != nil {
		return err
	}
	return c.Reply(done)
}

func (api *API) events(c *route.Call) error {
	s, err := api.named(c)
	if err != nil {
		return err
	}
	list, err := api.Events(c.R.Context(), s)
	if err != nil {
		return err
	}
	return c.Reply(list)
}

func (api *API) bootLog(c *route.Call) error {
	s, err := api.named(c)
	if err != nil {
		return err
	}
	list, err := api.BootLog(c.R.Context(), s)
	if err != nil {
		return err
	}
	return c.Reply(list)
}
