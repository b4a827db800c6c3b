package web

import (
	"slices"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/export"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gateway/workspace"
)

// Exports sends work as files.
type Exports interface {
	// SendCaller answers with the branch of a caller and its runs, as a file that git clone opens.
	SendCaller(c *route.Call, st executor.CallerStatus) error
	// SendCast answers with a run as a recording of a terminal.
	SendCast(c *route.Call, r record.Run) error
	// Link makes a link to the export of a run, at an address of the server.
	Link(who route.Who, r record.Run, address string) (export.Link, error)
}

// exportedRuns is how many runs the page of an export lists, the newest first.
const exportedRuns = 50

// exportData is the data of the page of an export. All texts are clean.
type exportData struct {
	Workspace workspace.Workspace
	Path      string // of the workspace
	Runs      []exportedRun
	More      int // runs that are not listed
	// Made is a link that was just made, to the run Of. It is nil if none was.
	Made *export.Link
	Of   string
}

type exportedRun struct {
	runRow
	ID   string
	Cast string
}

// exportPages serves the pages and files of exports.
type exportPages struct {
	shell      *shell
	finder     *finder
	rows       *rowMaker
	executor   *executor.Executor
	workspaces *workspace.Workspaces
	exports    Exports // nil means that there are none
}

func (h *exportPages) register(t *table) {
	t.page("/workspaces/{workspace}/export", "A workspace as one file, and its runs as recordings and links", h.exportPage)
	t.form("/workspaces/{workspace}/export", "Make a link to the export of a run, by the page of the workspace", h.linkExport)
	if h.exports == nil {
		return
	}
	t.file("/workspaces/{workspace}/export.bundle", "A workspace with its branch and the records of its runs, as a file that git clone opens, for people",
		export.MediaBundle, h.sendExport)
	t.file("/workspaces/{workspace}/runs/{run}/cast", "The commands of a run and their outputs as a recording of a terminal, for people",
		export.MediaCast, h.sendCast)
}

// exportPage offers the work of a workspace as a file, and its runs as recordings and links.
func (h *exportPages) exportPage(c *route.Call) (*Page, error) {
	d, err := h.exportData(c)
	if err != nil {
		return nil, err
	}
	return exportPageOf(d), nil
}

func exportPageOf(d *exportData) *Page {
	return &Page{Title: "Export of " + d.Workspace.Name, Nav: "workspaces", Template: "export", Data: d}
}

func (h *exportPages) exportData(c *route.Call) (*exportData, error) {
	if h.exports == nil {
		return nil, route.NewProblem(route.KindNotFound, "this server has no exports")
	}
	s, _, err := h.workspaces.Named(c.R.Context(), c.Who, c.R.PathValue("workspace"))
	if err != nil {
		return nil, err
	}
	d := &exportData{Workspace: s, Path: workspacePath(s.ID)}
	for _, r := range slices.Backward(h.executor.OfCaller(s.Caller)) {
		switch {
		case r.Repo != s.Repository || !c.Who.SeesRun(r):
		case len(d.Runs) == exportedRuns:
			d.More++
		default:
			d.Runs = append(d.Runs, exportedRun{runRow: h.rows.runRow(c.R.Context(), c.Who, r), ID: r.ID, Cast: runPath(r) + "/cast"})
		}
	}
	return d, nil
}

// linkExport makes a link to the export of a run, and shows it.
func (h *exportPages) linkExport(c *route.Call) error {
	if err := readForm(c); err != nil {
		return err
	}
	d, err := h.exportData(c)
	if err != nil {
		return err
	}
	id := formText(c, "run", 100)
	r, ok := h.executor.Find(d.Workspace.Caller, id)
	if !ok || !c.Who.SeesRun(r) {
		return route.NotFound("run", id)
	}
	made, err := h.exports.Link(c.Who, r, c.Address())
	if err != nil {
		return err
	}
	if err := c.Audit(export.ActionLink, r.Name()); err != nil {
		return err
	}
	d.Made, d.Of = &made, runTitle(r)
	c.W.Header().Set("Cache-Control", "no-store")
	return h.shell.write(c, exportPageOf(d))
}

func (h *exportPages) sendExport(c *route.Call) error {
	_, st, err := h.workspaces.Named(c.R.Context(), c.Who, c.R.PathValue("workspace"))
	if err != nil {
		return err
	}
	return h.exports.SendCaller(c, st)
}

func (h *exportPages) sendCast(c *route.Call) error {
	_, r, err := h.finder.namedRun(c)
	if err != nil {
		return err
	}
	return h.exports.SendCast(c, r)
}

// Exports reports whether there are pages of exports.
func (p *Page) Exports() bool { return p.shell.exports }
