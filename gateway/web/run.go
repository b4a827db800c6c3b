package web

import (
	"fmt"
	"net/http"
	"time"

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

// namedRun returns the run that the path names, if the person may see it.
func (api *API) namedRun(c *route.Call) (workspace.Workspace, record.Run, error) {
	s, _, err := api.Workspaces.Named(c.R.Context(), c.Who, c.R.PathValue("workspace"))
	if err != nil {
		return s, record.Run{}, err
	}
	r, ok := api.Executor.Find(s.Caller, c.R.PathValue("run"))
	if !ok || !c.Who.SeesRun(r) {
		return s, r, route.NotFound("run", c.R.PathValue("run"))
	}
	return s, r, nil
}

func (api *API) runPage(c *route.Call) (*Page, error) {
	s, r, err := api.namedRun(c)
	if err != nil {
		return nil, err
	}
	shown, err := api.Evidence.Describe(c, r, api.linksUntil())
	if err != nil {
		return nil, err
	}
	d := &runData{RunPage: shown, Row: api.runRow(c.R.Context(), c.Who, r), Workspace: s,
		WorkspacePath: workspacePath(s.ID), Path: runPath(r),
		MayChange: c.Who.CheckChangeRun(r) == nil, MayAnswer: mayAnswer(c.Who, r)}
	if d.Tournament, err = api.tournamentOf(c.R.Context(), c.Who, r); err != nil {
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
func (api *API) runAction(c *route.Call) error {
	if err := readForm(c); err != nil {
		return err
	}
	_, r, err := api.namedRun(c)
	if err != nil {
		return err
	}
	if err := c.Who.CheckChangeRun(r); err != nil {
		return err
	}
	ctx, path := c.R.Context(), runPath(r)
	switch action := c.R.PathValue("action"); action {
	case "stop":
		err = api.Executor.Stop(ctx, r.Name(), by(c))
	case "retry":
		var again record.Run
		if again, err = api.Executor.Retry(ctx, r.Name(), by(c)); err == nil {
			path = runPath(again)
		}
	case "approve", "reject":
		_, err = api.Executor.Decide(ctx, r.Name(),
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
	return api.see(c, path)
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
