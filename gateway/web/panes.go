package web

import (
	"context"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/evidence"
	"github.com/ramus-dev/ramus/gateway/links"
	"github.com/ramus-dev/ramus/gateway/render"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gateway/workspace"
)

// Limits of the built-in panes.
const (
	maxTurns     = 30
	maxCommands  = 20
	maxTail      = 8 << 10
	maxActivity  = 200
	portsWithin  = time.Second
	maxShownPort = 32
)

// paneData is the data of the template of a pane.
type paneData struct {
	*Page
	Workspace workspace.Workspace
	Path      string
	MayChange bool
	Rows      any
	Agents    []string
	Note      string
}

// showPane returns the content of a pane made by a template.
func showPane(c *route.Call, p *Page, s workspace.Workspace, name string, agents []string, rows any, note string) (template.HTML, error) {
	d := paneData{Page: p, Workspace: s, Path: workspacePath(s.ID),
		MayChange: c.Who.CheckChange(s.Repository, s.Branch) == nil,
		Rows:      rows, Agents: agents, Note: note}
	var b strings.Builder
	if err := pages().ExecuteTemplate(&b, name, d); err != nil {
		return "", err
	}
	return template.HTML(b.String()), nil
}

// commandRow is a command with the end of its output. All texts are clean.
type commandRow struct {
	Key, Command, Output, End, Commit, Path string
	Live                                    bool
}

// commandRow returns a run of a command with the end of its output.
func (p shellPane) commandRow(ctx context.Context, r record.Run) (commandRow, error) {
	row := commandRow{Key: r.Name(), Command: render.ClipClean(r.Command, 2000), Path: runPath(r), Live: !r.Ended()}
	step := ""
	for e, err := range p.executor.Events(ctx, r.Name(), 0, false) {
		if err != nil {
			return row, err
		}
		switch e.Type {
		case record.EventStepStarted:
			step = e.Step
		case record.EventStepFinished:
			row.Commit = render.ShortHash(e.Commit)
			if e.Exit != nil {
				row.End = fmt.Sprintf("exit %d · ", *e.Exit)
			}
			row.End += render.Duration(time.Duration(e.DurationMS) * time.Millisecond)
			for _, s := range []*record.Stream{e.Stdout, e.Stderr} {
				if s != nil {
					row.Output += render.Clean(s.Tail)
				}
			}
			step = ""
		}
	}
	switch {
	case r.Ended() && r.State == record.StateFailed:
		row.Output += render.ClipClean(r.Error, 2000)
	case step != "":
		row.Output = tail(ctx, p.executor, r.Name(), step, "stdout") + tail(ctx, p.executor, r.Name(), step, "stderr")
		row.End = "at work"
	case !r.Ended() && r.Place > 0:
		row.End = "place " + strconv.Itoa(r.Place) + " in line"
	case !r.Ended():
		row.End = "waits for its turn"
	}
	return row, nil
}

// tail returns the end of the output of a command as clean text.
func tail(ctx context.Context, x *executor.Executor, run, step, stream string) string {
	return render.Clean(output(ctx, x, run, step, stream))
}

// output returns the end of the output of a command as it is.
func output(ctx context.Context, x *executor.Executor, run, step, stream string) string {
	out, err := x.Output(ctx, run, step, stream)
	if err != nil {
		return "" // the command has only just begun, or has ended meanwhile
	}
	defer out.Close()
	if f, ok := out.(io.Seeker); ok {
		_, _ = f.Seek(-maxTail, io.SeekEnd) // a shorter output is read from its beginning
	}
	b, _ := io.ReadAll(io.LimitReader(out, maxTail))
	return string(b)
}

// previewPane links to the ports of a workspace.
type previewPane struct {
	executor *executor.Executor
	evidence *evidence.API // nil means that there are no links
	address  string
	now      func() time.Time
}

func (previewPane) Name() string  { return panePreview }
func (previewPane) Title() string { return "Preview" }
func (previewPane) Icon() string  { return "eye" }

type portRow struct {
	Port int
	Href string
}

func (p previewPane) Show(c *route.Call, page *Page, s workspace.Workspace) (template.HTML, error) {
	note := ""
	var rows []portRow
	if s.Status.Serves() && p.evidence != nil && p.evidence.Links != nil {
		page.Beat = 5 * time.Second // a port that opens has no event
		ctx, cancel := context.WithTimeout(c.R.Context(), portsWithin)
		defer cancel()
		ports, err := p.executor.Programs.Ports(ctx, s.Caller)
		if err != nil {
			note = "The container does not say which ports are open."
		}
		for _, port := range ports[:min(len(ports), maxShownPort)] {
			rows = append(rows, portRow{port,
				p.address + p.evidence.Links.SignUntil(links.PreviewPath(s.Caller, port), linksUntil(p.now()))})
		}
	}
	return showPane(c, page, s, "pane_preview", p.executor.AgentNames(), rows, note)
}

// linksUntil returns the end of the links on a page. Pages that are made in the same hour have the same links.
func linksUntil(now time.Time) time.Time { return now.Truncate(time.Hour).Add(3 * time.Hour) }

// activityPane lists the events of a workspace.
type activityPane struct {
	executor   *executor.Executor
	workspaces *workspace.Workspaces
}

func (activityPane) Name() string  { return paneActivity }
func (activityPane) Title() string { return "Activity" }
func (activityPane) Icon() string  { return "pulse" }

type eventRow struct {
	Key, Text, Path string
	When            time.Time
	Bad             bool
}

func (p activityPane) Show(c *route.Call, page *Page, s workspace.Workspace) (template.HTML, error) {
	events, err := p.workspaces.Events(c.R.Context(), s)
	if err != nil {
		return "", err
	}
	var rows []eventRow
	for _, e := range events[:min(len(events), maxActivity)] {
		if text, bad := eventText(e); text != "" {
			_, id, _ := strings.Cut(e.Run, "/")
			rows = append(rows, eventRow{Key: fmt.Sprintf("%s %d", e.Run, e.Seq), Text: text, When: e.Time, Bad: bad,
				Path: workspacePath(s.ID) + "/runs/" + id})
		}
	}
	return showPane(c, page, s, "pane_activity", p.executor.AgentNames(), rows, "")
}

func bootLineOf(e record.Event) bootLine {
	text, bad := eventText(e)
	return bootLine{e.Time, text, bad}
}

// eventText returns an event in words. Returns "" for one that says nothing to people. bad is set for a failure.
func eventText(e record.Event) (text string, bad bool) {
	message := render.ClipClean(e.Message, 2000)
	switch e.Type {
	case record.EventRunCreated:
		return "claimed", false
	case record.EventRunState:
		switch e.State {
		case record.StateRunning:
			return "began to work", false
		case record.StateComplete:
			return "complete", false
		case record.StateFailed:
			return strings.TrimSuffix("failed: "+message, ": "), true
		case record.StateAwaitingReview:
			return "waits for an answer", false
		}
		return "", false
	case record.EventQueued:
		return "waits in line: " + message, false
	case record.EventContainer:
		return "container: " + message, strings.HasPrefix(message, "lost")
	case record.EventSetup:
		if e.OK == nil {
			return "prepares: " + render.ClipClean(e.Command, 500), false
		}
		if *e.OK {
			return "prepared: " + render.ClipClean(e.Command, 500), false
		}
		return "setup failed: " + render.ClipClean(e.Command, 500) + "\n" + message, true
	case record.EventStepStarted:
		return "runs " + render.ClipClean(orStep(e), 300), false
	case record.EventStepFinished:
		text = "ended " + render.ClipClean(orStep(e), 300)
		if e.Exit != nil {
			text += fmt.Sprintf(", exit %d", *e.Exit)
		}
		if e.Commit != "" {
			text += ", commit " + render.ShortHash(e.Commit)
		}
		return text, e.OK != nil && !*e.OK
	case record.EventDecision:
		var d record.Decision
		_ = json.Unmarshal(e.Data, &d) // an old journal may have none
		if d.Approved {
			return "approved by " + decider(d), false
		}
		return "rejected by " + decider(d), false
	case record.EventGate:
		return "asks: " + message, false
	case record.EventSecret:
		return "a secret was removed: " + message, true
	}
	return message, e.Reason == record.NoteRecovery || e.OK != nil && !*e.OK
}

func orStep(e record.Event) string {
	if e.Command != "" {
		return e.Command
	}
	return e.Step
}
