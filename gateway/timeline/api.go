package timeline

import (
	"context"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/gateway/lookup"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gitd"
)

// maxFiles bounds the files of one tick that are listed.
const maxFiles = 5000

// API serves timelines to programs. Its fields are its options. It is safe for concurrent use.
type API struct {
	Timelines Timelines
	Find      *lookup.Lookup
	Git       *gitd.Server
}

// Routes returns the routes of timelines.
func (api *API) Routes() []route.Route {
	const one = "/api/workspaces/{caller}/timeline"
	return []route.Route{
		{Method: "GET", Pattern: one, Access: route.AccessRead,
			Summary: "A part of a workspace's timeline, one tick for each command; by default its end", Query: Window{}, Response: Line{},
			Handle: api.line},
		{Method: "GET", Pattern: one + "/files", Access: route.AccessRead,
			Summary: "The files of a workspace after a command", Query: filesQuery{}, Response: Files{}, Handle: api.files},
	}
}

func (api *API) line(c *route.Call) error {
	var w Window
	if err := c.ReadQuery(&w); err != nil {
		return err
	}
	st, err := api.Find.PathCaller(c)
	if err != nil {
		return err
	}
	line, err := api.Timelines.Read(c.R.Context(), c.Who, st.Caller, w)
	if err != nil {
		return err
	}
	if line.Ticks == nil {
		line.Ticks = []*Tick{}
	}
	return c.Reply(line)
}

type filesQuery struct {
	At   string `json:"at,omitempty" jsonschema:"the id of a tick; the last one if empty"`
	Path string `json:"path,omitempty" jsonschema:"a folder; all files if empty"`
}

// Files are the files after a tick. All fields are empty if there is no tick.
type Files struct {
	At      string           `json:"at"`
	Commit  gitd.Hash        `json:"commit"`
	Entries []gitd.TreeEntry `json:"entries"`
	// More is set if there are more files than the list has.
	More bool `json:"more,omitempty"`
}

func (api *API) files(c *route.Call) error {
	var q filesQuery
	if err := c.ReadQuery(&q); err != nil {
		return err
	}
	st, err := api.Find.PathCaller(c)
	if err != nil {
		return err
	}
	line, err := api.Timelines.Read(c.R.Context(), c.Who, st.Caller, Window{At: q.At, Ticks: 1})
	if err != nil {
		return err
	}
	if len(line.Ticks) == 0 {
		return c.Reply(Files{Entries: []gitd.TreeEntry{}})
	}
	f, err := api.filesAt(c.R.Context(), st, line.Ticks[line.At], q.Path)
	if err != nil {
		return err
	}
	return c.Reply(f)
}

// filesAt returns the files of a folder after a tick, or before it while it works.
func (api *API) filesAt(ctx context.Context, st executor.CallerStatus, t *Tick, folder string) (Files, error) {
	f := Files{At: t.ID, Commit: t.Commit(), Entries: []gitd.TreeEntry{}}
	if f.Commit == "" {
		return f, route.NewProblem(route.KindNotFound, "the tick %s has no files yet", t.ID)
	}
	repo, err := api.Git.Repo(st.Repo)
	if err != nil {
		return f, err
	}
	list, err := repo.Tree(ctx, string(f.Commit), folder, true)
	if err != nil {
		return f, err
	}
	f.More = len(list) > maxFiles
	f.Entries = append(f.Entries, list[:min(len(list), maxFiles)]...)
	return f, nil
}
