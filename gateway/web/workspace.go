package web

import (
	"html/template"
	"net/url"
	"slices"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/live"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gateway/workspace"
)

// Pane is a part of the page of a workspace.
type Pane interface {
	// Name is the value of the parameter pane, and Title and Icon are those of its tab.
	Name() string
	Title() string
	Icon() string
	// Show returns the content. p is the page, for its fragments.
	Show(c *route.Call, p *Page, s workspace.Workspace) (template.HTML, error)
}

// The names of the built-in panes.
const (
	paneChat     = "chat"
	paneShell    = "shell"
	panePreview  = "preview"
	paneActivity = "activity"
	paneFiles    = "files"
)

// workData is the data of the page of a workspace.
type workData struct {
	workspaceRow
	// Panes are the tabs. Left is always shown on wide screens, and Right next to it. Only says which of the two a phone shows.
	Panes       []paneTab
	Left, Right paneShown
	Only        string
	MayChange   bool
	// Owns is set if the person may say who sees the workspace.
	Owns    bool
	Present []string
	Boot    []bootLine
	Run     *runRow
	// Conflict is a branch with which that of the workspace does not merge. Nil means that none is known.
	Conflict *conflictNote
	// Visit is set if the workspace is removed when its terminals have ended and nothing was changed.
	Visit bool
	// Tournaments were forked from the workspace, the newest first.
	Tournaments []*entryTable
}

type paneTab struct {
	Name, Title, Icon, Path string
	Current, Shown, Left    bool
}

type paneShown struct {
	Name, Title string
	HTML        template.HTML
}

// bootLine is a line of a boot log.
type bootLine struct {
	When time.Time
	Text string
	Bad  bool
}

// panes returns all panes, the conversation first.
func (api *API) panes() []Pane {
	list := []Pane{talkPane{api}, shellPane{api}, previewPane{api}, activityPane{api}}
	if api.Files != nil {
		list = slices.Insert(list, 2, Pane(filesPane{api}))
	}
	for _, p := range api.Panes {
		found := false
		for i := range list {
			if list[i].Name() == p.Name() {
				list[i], found = p, true
			}
		}
		if !found {
			list = append(list, p)
		}
	}
	return list
}

func (api *API) workspacePage(c *route.Call) (*Page, error) { return api.workspacePageWith(c, nil) }

// workspacePageWith returns the page of a workspace. set sets the mistakes of its forms, and is nil usually.
func (api *API) workspacePageWith(c *route.Call, set func(*Page)) (*Page, error) {
	ctx := c.R.Context()
	s, st, err := api.Workspaces.Named(ctx, c.Who, c.R.PathValue("workspace"))
	if err != nil {
		return nil, err
	}
	d := &workData{workspaceRow: api.workspaceRow(c, s), MayChange: c.Who.CheckChangeCaller(st) == nil}
	d.Owns = api.Workspaces.Privacy != nil && d.MayChange && s.Owner.ID != "" && (c.Who.Admin() || s.Owner.ID == c.Who.Subject)
	d.Present = api.present(c.Who, s)
	d.Conflict = api.notes.of(c, api, s)
	d.Visit = isVisit(api.Executor.OfCaller(s.Caller))
	if !s.Status.Serves() {
		events, err := api.Workspaces.BootLog(ctx, s)
		if err != nil {
			return nil, err
		}
		for _, e := range events {
			d.Boot = append(d.Boot, bootLineOf(e))
		}
	}
	row := api.runRow(ctx, c.Who, s.LastRun)
	d.Run = &row
	p := &Page{Title: s.Name, Nav: "workspaces", Template: "workspace", Data: d, Layout: "full",
		Topics: []string{live.CallerTopic(s.Caller)}, Refresh: 10}
	if d.Tournaments, err = api.tournamentsFrom(ctx, c.Who, s); err != nil {
		return nil, err
	}
	for _, t := range d.Tournaments {
		p.Topics = append(p.Topics, t.topics...)
	}
	if row.Kind == "ask" {
		p.Needs = 1 // in the title of the tab, which may be behind others
	}
	if p.api, p.call = api, c; set != nil {
		set(p)
	}
	if s.Status == workspace.Stopping || s.Status == workspace.Creating || s.Status == workspace.Pending {
		p.Beat = time.Second // containers have no events of their own
	}
	return p, api.showPanes(c, p, d, s)
}

// present returns the other people with an open page of a workspace.
func (api *API) present(who route.Who, s workspace.Workspace) []string {
	if api.Live == nil {
		return nil
	}
	return slices.DeleteFunc(api.Live.Hub.Present(live.CallerTopic(s.Caller)),
		func(name string) bool { return name == who.Name || name == who.Subject })
}

// showPanes makes the conversation, and the pane that the parameter pane names.
func (api *API) showPanes(c *route.Call, p *Page, d *workData, s workspace.Workspace) error {
	wanted := c.R.URL.Query().Get("pane")
	right := paneShell
	all := api.panes()
	for _, pane := range all {
		if pane.Name() == wanted && wanted != paneChat {
			right = wanted
		}
	}
	d.Only = right
	if wanted == "" || wanted == paneChat {
		d.Only = paneChat
	}
	for _, pane := range all {
		name := pane.Name()
		d.Panes = append(d.Panes, paneTab{Name: name, Title: pane.Title(), Icon: pane.Icon(),
			Path:    workspacePath(s.ID) + "?pane=" + url.QueryEscape(name),
			Current: name == d.Only, Shown: name == right, Left: name == paneChat})
		if name != paneChat && name != right {
			continue
		}
		html, err := pane.Show(c, p, s)
		if err != nil {
			return err
		}
		shown := paneShown{Name: name, Title: pane.Title(), HTML: html}
		if name == paneChat {
			d.Left = shown
		} else {
			d.Right = shown
		}
	}
	return nil
}

func (api *API) stopWorkspace(c *route.Call) error {
	id := c.R.PathValue("workspace")
	if _, err := api.Workspaces.Stop(c.R.Context(), c.Who, id); err != nil {
		return err
	}
	return api.see(c, workspacePath(id))
}

func (api *API) restartWorkspace(c *route.Call) error {
	r, err := api.Workspaces.Restart(c.R.Context(), c.Who, c.R.PathValue("workspace"))
	if err != nil {
		return err
	}
	return api.see(c, workspacePath(r.Caller.Slug()))
}

func (api *API) deleteWorkspace(c *route.Call) error {
	if _, err := api.Workspaces.Delete(c.R.Context(), c.Who, c.R.PathValue("workspace")); err != nil {
		return err
	}
	return api.see(c, "/workspaces")
}

// setPrivacy makes a workspace private, or shows it.
func (api *API) setPrivacy(c *route.Call) error {
	if err := readForm(c); err != nil {
		return err
	}
	s, err := api.Workspaces.SetPrivate(c, c.R.PathValue("workspace"), formText(c, "private", 1) != "")
	if err != nil {
		return err
	}
	return api.see(c, workspacePath(s.ID))
}

// command runs a command as a run of its own.
func (api *API) command(c *route.Call) error {
	if err := readForm(c); err != nil {
		return err
	}
	s, err := api.Workspaces.Changeable(c.R.Context(), c.Who, c.R.PathValue("workspace"))
	if err != nil {
		return err
	}
	text := formText(c, "command", 64<<10)
	if text == "" {
		return route.NewProblem(route.KindInvalid, "the command is empty")
	}
	r := record.Request{Caller: s.Caller, Repo: s.Repository, Command: &record.Command{Shell: text}}
	if err := api.Find.Bind(c.R.Context(), c.Who, &r); err != nil {
		return err
	}
	_, err = api.Executor.Submit(c.R.Context(), r)
	if err != nil {
		return err
	}
	return api.see(c, workspacePath(s.ID)+"?pane="+paneShell)
}

// orSee returns err, or shows the workspace.
func (api *API) orSee(c *route.Call, err error, s workspace.Workspace) error {
	if err != nil {
		return err
	}
	return api.see(c, workspacePath(s.ID)+"?pane="+paneChat)
}
