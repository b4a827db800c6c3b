package web

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"strings"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/past"
	"github.com/ramus-dev/ramus/gateway/render"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gateway/timeline"
	"github.com/ramus-dev/ramus/gateway/workspace"
	"github.com/ramus-dev/ramus/gitd"
)

// timelineActions carries out the buttons of timelines.
type timelineActions struct {
	shell      *shell
	executor   *executor.Executor
	workspaces *workspace.Workspaces
	past       Past
	moments    *momentMaker
	bisect     *bisectPages
	visits     *visits
}

func (h *timelineActions) register(t *table) {
	t.form("/workspaces/{workspace}/timeline/{action}", "Go back, go on, run again, take or search from a command, by the timeline", h.timelineAction)
}

// timelineAction carries out a button of a timeline, for the tick that the form names.
func (h *timelineActions) timelineAction(c *route.Call) error {
	s, err := readWorkspaceForm(c, h.workspaces)
	if err != nil {
		return err
	}
	do := map[string]func(*route.Call, workspace.Workspace, *timeline.Tick, record.Run) error{"rollback": h.rollBack, "continue": h.goOn,
		"restart": h.restartTick, "pick": h.pickTick, "visit": h.visit, "bisect": h.bisect.beginBisect}[c.R.PathValue("action")]
	if do == nil {
		return route.NotFound("action", c.R.PathValue("action"))
	}
	t, r, err := h.moments.namedTick(c.R.Context(), c.Who, s, formText(c, "at", 300))
	if err != nil {
		return err
	}
	return do(c, s, t, r)
}

// namedTick returns a tick of a workspace and its run.
func (m *momentMaker) namedTick(ctx context.Context, who route.Who, s workspace.Workspace, at string) (*timeline.Tick, record.Run, error) {
	if at == "" {
		return nil, record.Run{}, route.NewProblem(route.KindInvalid, "the command is missing")
	}
	line, err := m.timelines.Read(ctx, who, s.Caller, timeline.Window{At: at, Ticks: 1})
	if err != nil {
		return nil, record.Run{}, err
	}
	id, _, _ := strings.Cut(at, "/")
	r, ok := m.executor.Find(s.Caller, id)
	if !ok {
		return nil, r, route.NotFound("tick", at)
	}
	return line.Ticks[line.At], r, nil
}

// commitOf returns the commit with the files of a tick, or a problem if there is none yet.
func commitOf(t *timeline.Tick) (gitd.Hash, error) {
	if t.Commit() == "" {
		return "", route.NewProblem(route.KindConflict, "the command has not ended, so it has no files yet")
	}
	return t.Commit(), nil
}

// rollBack takes a workspace back to the files of a tick.
func (h *timelineActions) rollBack(c *route.Call, s workspace.Workspace, t *timeline.Tick, _ record.Run) error {
	to, err := commitOf(t)
	if err != nil {
		return err
	}
	if _, err := h.executor.Rollback(c.R.Context(), s.Caller.String(), string(to), by(c)); err != nil {
		return err
	}
	return see(c, workspacePath(s.ID))
}

// goOn begins a workspace with the files of a tick, where an agent gets other words.
func (h *timelineActions) goOn(c *route.Call, s workspace.Workspace, t *timeline.Tick, _ record.Run) error {
	at, err := commitOf(t)
	if err != nil {
		return err
	}
	w := workspace.Wish{From: s.ID, Commit: at, Agent: formText(c, "agent", 100), Prompt: formText(c, "prompt", 1<<20)}
	if w.Prompt == "" {
		return route.NewProblem(route.KindInvalid, "the words are missing").WithHint("go back and say what the agent shall do from there")
	}
	r, err := h.workspaces.Create(c.R.Context(), c.Who, w)
	if err != nil {
		return err
	}
	return see(c, workspacePath(r.Caller.Slug()))
}

// restartText describes a restart from a tick. Returns "" if the tick cannot be restarted.
func restartText(t *timeline.Tick, r record.Run) string {
	switch {
	case t.Parent == "":
	case r.Kind == record.KindWorkflow:
		return "The workflow begins again at this step, in another workspace."
	case t.WholePrompt() != "":
		return "The agent gets the same words again, with the files from before, in another workspace."
	case commandOf(t, r) != nil:
		return "The command is run again with the files from before, in another workspace."
	}
	return ""
}

// commandOf returns the command of a tick, and nil if the tick is no command that can be run again.
func commandOf(t *timeline.Tick, r record.Run) *record.Command {
	switch {
	case t.Task != "" || t.Command == "" || t.Cut():
		return nil
	case r.Exec == nil:
		return &record.Command{Shell: t.Command}
	case r.Exec.Background || len(r.Exec.Env) > 0:
		return nil // its variables are not kept
	}
	return &record.Command{Args: r.Exec.Args, Shell: r.Exec.Shell, Dir: r.Exec.Dir, Timeout: r.Exec.Timeout}
}

// restartTick does a tick again in a new workspace.
func (h *timelineActions) restartTick(c *route.Call, s workspace.Workspace, t *timeline.Tick, r record.Run) error {
	ctx := c.R.Context()
	if restartText(t, r) == "" {
		return route.NewProblem(route.KindConflict, "this command cannot be run again").WithHint("fork the workspace before it")
	}
	if r.Kind == record.KindWorkflow {
		again, err := h.past.Restart(ctx, c.Who, r, past.Restart{From: t.Step})
		if err != nil {
			return err
		}
		return see(c, runPath(again))
	}
	q := past.Fork{Of: r.Name() + "@" + t.Step}
	if q.Prompt = t.WholePrompt(); q.Prompt != "" {
		q.Agent = r.Agent.Name
	} else {
		q.Command = commandOf(t, r)
	}
	f, err := h.past.Fork(ctx, c.Who, q)
	if err != nil {
		return err
	}
	caller, err := record.ParseCaller(f.Caller)
	if err != nil {
		return err
	}
	return see(c, workspacePath(caller.Slug()))
}

// doneData is the data of the page with the result of a button of a timeline. All texts are clean.
type doneData struct {
	Workspace       workspace.Workspace
	Path, Back      string // of the timeline, and of the tick
	Title           string
	Good            bool
	Lines           []string
	Conflicts       []string
	Blockers        []blockerRow
	Link, LinkTitle string
}

type blockerRow struct {
	Path, Subject string
	Commit        gitd.Hash
}

// pickTick brings the change of a tick alone to the base of its run.
func (h *timelineActions) pickTick(c *route.Call, s workspace.Workspace, t *timeline.Tick, r record.Run) error {
	if !t.Changed {
		return route.NewProblem(route.KindConflict, "this command changed nothing")
	}
	done, err := h.past.Pick(c.R.Context(), c.Who, r, past.Pick{Steps: []string{string(t.Head)}})
	if err != nil {
		return err
	}
	d := &doneData{Workspace: s, Path: workspacePath(s.ID), Back: tickPath(s, t.ID)}
	p := &Page{Title: "Take one step of " + s.Name, Nav: "workspaces", Template: "timeline_done", Data: d, Layout: "narrow"}
	landed := done.Landed
	into := done.Work.Into
	switch {
	case landed == nil:
		d.Title = "Nothing was changed"
	case len(landed.Conflicts) > 0:
		p.Status = 409
		d.Title = "It does not fit on " + into
		d.Lines = append(d.Lines, "Nothing was changed. The step changes lines that are different there.")
		for _, path := range landed.Conflicts[:min(len(landed.Conflicts), 50)] {
			d.Conflicts = append(d.Conflicts, render.OneLine(path, 300))
		}
		for _, b := range done.Blockers {
			d.Blockers = append(d.Blockers, blockerRow{render.OneLine(b.Path, 300), render.OneLine(render.Clean(b.Subject), 200), b.Commit})
		}
	default:
		d.Title, d.Good = into+" has the step", true
		if landed.Pull != nil {
			d.Title = fmt.Sprintf("Pull request %d has the step", landed.Pull.Number)
			d.Link, d.LinkTitle = landed.Pull.URL, "Look at it"
		} else {
			d.Lines = append(d.Lines, fmt.Sprintf("%s is at %s now.", into, render.ShortHash(cmp.Or(landed.Commit, landed.At))))
		}
		if landed.Note != "" {
			d.Lines = append(d.Lines, render.ClipClean(landed.Note, 500))
		}
	}
	return h.shell.write(c, p)
}

// bisectPath returns the path of the page of a search.
func bisectPath(s workspace.Workspace, id string) string {
	return workspacePath(s.ID) + "/timeline/searches/" + url.PathEscape(id)
}
