package nodes

import (
	"net/http"

	"github.com/ramus-dev/ramus/executor/nodes/programs"
	"github.com/ramus-dev/ramus/gateway/route"
)

// Agent describes the programs of a server.
type Agent struct {
	Version  string             `json:"version"`
	Programs []programs.Program `json:"programs"`
	// Signer is the line of a file of allowed signers, by which SHA256SUMS.sig is checked.
	Signer string `json:"signer"`
}

// agentRoutes returns the routes of programs. Without programs nothing is found there.
func (api *API) agentRoutes() []route.Route {
	list := []route.Route{
		{Pattern: "/api/agent", Summary: "The programs that machines install, with their sums, and the version of the server",
			Response: Agent{}, Handle: api.agent},
		{Pattern: "/api/agent/install.sh", Media: route.MediaText,
			Summary: "The script that installs programs, and checks them", Handle: api.installer},
		{Pattern: "/api/agent/SHA256SUMS", Media: route.MediaText, Summary: "The sums of all programs",
			Handle: api.sums(false)},
		{Pattern: "/api/agent/SHA256SUMS.sig", Media: route.MediaText,
			Summary: "The signature of the sums, for ssh-keygen -Y verify", Handle: api.sums(true)},
		{Pattern: "/api/agent/{arch}/{program}", Media: route.MediaBytes, Summary: "A program", Handle: api.program},
	}
	for i := range list {
		list[i].Method, list[i].Access = http.MethodGet, route.AccessPublic
		if api.Programs == nil {
			list[i].Handle = func(c *route.Call) error { return route.NotFound("path", c.R.URL.Path) }
		}
	}
	return list
}

func (api *API) agent(c *route.Call) error {
	all, err := api.Programs.List(c.R.Context())
	if err != nil {
		return err
	}
	if all == nil {
		all = []programs.Program{}
	}
	return c.Reply(Agent{api.Programs.Version, all, api.Programs.AllowedSigner()})
}

func (api *API) installer(c *route.Call) error {
	c.W.Header().Set("Content-Type", route.MediaText)
	_, err := c.W.Write([]byte(api.Programs.Installer()))
	return err
}

// sums serves the sums, or their signature.
func (api *API) sums(signature bool) func(*route.Call) error {
	return func(c *route.Call) error {
		text, sig, err := api.Programs.Sums(c.R.Context())
		if err != nil {
			return err
		}
		if signature {
			text = sig
		}
		c.W.Header().Set("Content-Type", route.MediaText)
		_, err = c.W.Write(text)
		return err
	}
}

func (api *API) program(c *route.Call) error {
	f, p, err := api.Programs.Open(c.R.Context(), c.R.PathValue("arch"), c.R.PathValue("program"))
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	h := c.W.Header()
	h.Set("Content-Type", route.MediaBytes)
	h.Set("Content-Disposition", "attachment; filename="+p.Name)
	h.Set("ETag", `"`+p.SHA+`"`)
	http.ServeContent(c.W, c.R, "", info.ModTime(), f)
	return nil
}
