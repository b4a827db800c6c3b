package web

import (
	"net/http"
	"net/url"
	"slices"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/gateway/live"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gateway/workspace"
	"github.com/ramus-dev/ramus/gitd"
)

// listData is the data of the list of workspaces.
type listData struct {
	Rows               []workspaceRow
	Repos              []string
	States             []workspace.State
	Repo, State, Query string
	Mine               bool
	// Filtered is set if a filter is on, and First is the path of the first page if this is a later one.
	Filtered    bool
	Next, First string
}

// pageRows is the number of rows of a page of a list.
const pageRows = 50

// workspaceForms serves the list of workspaces and the form for a new one.
type workspaceForms struct {
	shell      *shell
	servers    *servers
	rows       *rowMaker
	executor   *executor.Executor
	workspaces *workspace.Workspaces
}

func (h *workspaceForms) register(t *table) {
	t.page("/workspaces", "The workspaces that a person may see", h.workspaceList)
	t.page("/workspaces/new", "The form for a new workspace", h.workspaceForm)
	t.form("/workspaces/new", "Begin a workspace, by its form", h.createWorkspace)
}

func (h *workspaceForms) workspaceList(c *route.Call) (*Page, error) {
	ctx, q := c.R.Context(), c.R.URL.Query()
	d := &listData{Repo: q.Get("repo"), State: q.Get("state"), Query: q.Get("q"), Mine: q.Get("mine") == "1",
		States: workspace.States()}
	d.Filtered = d.Repo != "" || d.State != "" || d.Query != "" || d.Mine
	if d.State != "" && !slices.Contains(d.States, workspace.State(d.State)) {
		return nil, route.NewProblem(route.KindInvalid, "there is no state %q", d.State)
	}
	if d.Repo != "" && !c.Who.Sees(d.Repo) {
		return nil, route.NotFound("repository", d.Repo)
	}
	var err error
	if d.Repos, err = h.servers.listRepoNames(ctx, c.Who); err != nil {
		return nil, err
	}
	f := workspace.Filter{Repo: d.Repo, State: workspace.State(d.State), Text: d.Query, After: q.Get("after"), Max: pageRows}
	if d.Mine {
		f.Mine = c.Who.Person(gitd.Person{}).Email
	}
	list, next, err := h.servers.listWorkspaces(ctx, c.Who, f)
	if err != nil {
		return nil, err
	}
	for _, s := range list {
		d.Rows = append(d.Rows, h.rows.workspaceRow(c, s))
	}
	turn := func(after string) string {
		v := url.Values{}
		for name, value := range map[string]string{"repo": d.Repo, "state": d.State, "q": d.Query, "after": after} {
			if value != "" {
				v.Set(name, value)
			}
		}
		if d.Mine {
			v.Set("mine", "1")
		}
		return "/workspaces?" + v.Encode()
	}
	if next != "" {
		d.Next = turn(next)
	}
	if f.After != "" {
		d.First = turn("")
	}
	return &Page{Title: "Workspaces", Nav: "workspaces", Template: "workspaces", Data: d,
		Topics: []string{live.TopicMe}, Refresh: 30}, nil
}

// newData is the data of the form for a new workspace.
type newData struct {
	Wish   workspace.Wish
	Repos  []string
	Agents []string
	// Wrong has the mistakes by field. The mistake of the whole form is at "".
	Wrong map[string]string
}

func (h *workspaceForms) workspaceForm(c *route.Call) (*Page, error) {
	q := c.R.URL.Query()
	return h.formWith(c, workspace.Wish{Repository: q.Get("repo"), From: q.Get("from"),
		Commit: gitd.Hash(q.Get("commit")), Agent: q.Get("agent")}, nil)
}

func (h *workspaceForms) formWith(c *route.Call, n workspace.Wish, wrong map[string]string) (*Page, error) {
	repos, err := h.servers.listRepoNames(c.R.Context(), c.Who)
	if err != nil {
		return nil, err
	}
	p := &Page{Title: "New workspace", Nav: "new", Template: "workspace_new", Layout: "narrow",
		Data: &newData{Wish: n, Repos: repos, Agents: h.executor.AgentNames(), Wrong: wrong}}
	if len(wrong) > 0 {
		p.Status = http.StatusUnprocessableEntity
	}
	return p, nil
}

func (h *workspaceForms) createWorkspace(c *route.Call) error {
	if err := readForm(c); err != nil {
		return err
	}
	n := workspace.Wish{Key: formText(c, "key", 100), Repository: formText(c, "repository", 200),
		Base: formText(c, "base", 200),
		Name: formText(c, "name", 100), From: formText(c, "from", 100), Commit: gitd.Hash(formText(c, "commit", 100)),
		Agent: formText(c, "agent", 100), Prompt: formText(c, "prompt", 1<<20),
		Private: formText(c, "private", 1) != ""}
	if n.From != "" {
		n.Repository = "" // that of the other workspace
	}
	if n.Prompt == "" {
		n.Agent = ""
	}
	wrong := n.Check()
	if len(wrong) == 0 {
		r, err := h.workspaces.Create(c.R.Context(), c.Who, n)
		if err == nil {
			return see(c, workspacePath(r.Caller.Slug()))
		}
		text, ok := fieldProblem(err, c.Who)
		if !ok {
			return err
		}
		field := ""
		if route.AsProblem(err, c.Who).Kind == route.KindExists {
			field = "name"
		}
		wrong = map[string]string{field: text}
	}
	p, err := h.formWith(c, n, wrong)
	if err != nil {
		return err
	}
	return h.shell.write(c, p)
}
