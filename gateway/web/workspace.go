package web

import (
	"html/template"
	"net/url"
	"slices"
	"time"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/gateway/live"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gateway/workspace"
)

// Pane is a region of the page of a workspace.
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

// workspacePages serves the pages of workspaces.
type workspacePages struct {
	shell       *shell
	rows        *rowMaker
	executor    *executor.Executor
	workspaces  *workspace.Workspaces
	tournaments *tournamentTables
	live        *live.API
	panes       []Pane
	notes       conflictNotes
}

func (h *workspacePages) register(t *table) {
	t.page("/workspaces/{workspace}", "A workspace: conversation, shell, files, preview and activity", h.workspacePage)
}

func (h *workspacePages) workspacePage(c *route.Call) (*Page, error) {
	return h.workspacePageWith(c, nil)
}

// workspacePageWith returns the page of a workspace. set sets the mistakes of its forms, and is nil usually.
func (h *workspacePages) workspacePageWith(c *route.Call, set func(*Page)) (*Page, error) {
	ctx := c.R.Context()
	s, st, err := h.workspaces.Named(ctx, c.Who, c.R.PathValue("workspace"))
	if err != nil {
		return nil, err
	}
	d := &workData{workspaceRow: h.rows.workspaceRow(c, s), MayChange: c.Who.CheckChangeCaller(st) == nil}
	d.Owns = h.workspaces.Privacy != nil && d.MayChange && s.Owner.ID != "" && (c.Who.Admin() || s.Owner.ID == c.Who.Subject)
	d.Present = present(h.live, c.Who, s)
	d.Conflict = h.notes.of(c, s)
	d.Visit = isVisit(h.executor.OfCaller(s.Caller))
	if !s.Status.Serves() {
		events, err := h.workspaces.BootLog(ctx, s)
		if err != nil {
			return nil, err
		}
		for _, e := range events {
			d.Boot = append(d.Boot, bootLineOf(e))
		}
	}
	row := h.rows.runRow(ctx, c.Who, s.LastRun)
	d.Run = &row
	p := &Page{Title: s.Name, Nav: "workspaces", Template: "workspace", Data: d, Layout: "full",
		Topics: []string{live.CallerTopic(s.Caller)}, Refresh: 10}
	if d.Tournaments, err = h.tournaments.tournamentsFrom(ctx, c.Who, s); err != nil {
		return nil, err
	}
	for _, t := range d.Tournaments {
		p.Topics = append(p.Topics, t.topics...)
	}
	if row.Kind == "ask" {
		p.Needs = 1 // in the title of the tab, which may be behind others
	}
	if p.shell, p.call = h.shell, c; set != nil {
		set(p)
	}
	if s.Status == workspace.Stopping || s.Status == workspace.Creating || s.Status == workspace.Pending {
		p.Beat = time.Second // containers have no events of their own
	}
	return p, h.showPanes(c, p, d, s)
}

// present returns the other people with an open page of a workspace.
func present(tabs *live.API, who route.Who, s workspace.Workspace) []string {
	if tabs == nil {
		return nil
	}
	return slices.DeleteFunc(tabs.Hub.Present(live.CallerTopic(s.Caller)),
		func(name string) bool { return name == who.Name || name == who.Subject })
}

// showPanes makes the conversation, and the pane that the parameter pane names.
func (h *workspacePages) showPanes(c *route.Call, p *Page, d *workData, s workspace.Workspace) error {
	wanted := c.R.URL.Query().Get("pane")
	right := paneShell
	all := h.panes
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
