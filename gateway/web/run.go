package web

import (
	"fmt"
	"net/http"
	"time"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/evidence"
	"github.com/ramus-dev/ramus/gateway/live"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gateway/workspace"
)

// runData is the data of the page of a run.
type runData struct {
	*evidence.RunPage
	Row           runRow
	Workspace     workspace.Workspace
	WorkspacePath string
	Path          string
	ChangesPath   string // of the page of the changes, empty if there are none
	MayChange     bool
	MayAnswer     bool
	Tournament    *entryTable // nil means none
}

// runPages serves the pages of runs.
type runPages struct {
	finder      *finder
	rows        *rowMaker
	executor    *executor.Executor
	evidence    *evidence.API
	tournaments *tournamentTables
	now         func() time.Time
}

func (h *runPages) register(t *table) {
	t.page("/workspaces/{workspace}/runs/{run}", "A run: steps, output, checks, changes and files", h.runPage)
	t.form("/workspaces/{workspace}/runs/{run}/{action}", "Stop, retry or answer a run, by its page", h.runAction)
}

func (h *runPages) runPage(c *route.Call) (*Page, error) {
	s, r, err := h.finder.namedRun(c)
	if err != nil {
		return nil, err
	}
	shown, err := h.evidence.Describe(c, r, linksUntil(h.now()))
	if err != nil {
		return nil, err
	}
	d := &runData{RunPage: shown, Row: h.rows.runRow(c.R.Context(), c.Who, r), Workspace: s,
		WorkspacePath: workspacePath(s.ID), Path: runPath(r),
		MayChange: c.Who.CheckChangeRun(r) == nil, MayAnswer: mayAnswer(c.Who, r)}
	if d.Tournament, err = h.tournaments.tournamentOf(c.R.Context(), c.Who, r); err != nil {
		return nil, err
	}
	if r.Start != "" && r.Head != "" && r.Start != r.Head {
		d.ChangesPath = changesPath(s, r.Start, r.Head)
	}
	p := &Page{Title: shown.Title, Nav: "workspaces", Template: "run", Data: d, Topics: []string{live.RunTopic(r)},
		Refresh: shown.Reload}
	if d.Tournament != nil {
		p.Topics = append(p.Topics, d.Tournament.topics...)
	}
	if shown.Reload > 0 {
		p.Beat = 5 * time.Second // the open ports have no events
	}
	return p, nil
}

// runAction stops, retries or answers a run.
func (h *runPages) runAction(c *route.Call) error {
	if err := readForm(c); err != nil {
		return err
	}
	_, r, err := h.finder.namedRun(c)
	if err != nil {
		return err
	}
	if err := c.Who.CheckChangeRun(r); err != nil {
		return err
	}
	ctx, path := c.R.Context(), runPath(r)
	switch action := c.R.PathValue("action"); action {
	case "stop":
		err = h.executor.Stop(ctx, r.Name(), by(c))
	case "retry":
		var again record.Run
		if again, err = h.executor.Retry(ctx, r.Name(), by(c)); err == nil {
			path = runPath(again)
		}
	case "approve", "reject":
		_, err = h.executor.Decide(ctx, r.Name(),
			record.Decision{Step: formText(c, "step", 300), Approved: action == "approve",
				By: c.Who.Subject, Name: by(c).Name, Comment: formText(c, "comment", 4000)})
	default:
		return route.NotFound("action", action)
	}
	if err != nil {
		return err
	}
	if formText(c, "from", 20) == "dashboard" {
		path = "/dashboard"
	}
	return see(c, path)
}

// cost returns a price in millionths as text.
func cost(micros int64) string { return fmt.Sprintf("%.2f", float64(micros)/1e6) }

// status returns the status of an answer to a form.
func status(wrong bool) int {
	if wrong {
		return http.StatusUnprocessableEntity
	}
	return http.StatusOK
}
