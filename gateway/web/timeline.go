package web

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"path"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/transfer"
	"github.com/ramus-dev/ramus/gateway/evidence"
	"github.com/ramus-dev/ramus/gateway/files"
	"github.com/ramus-dev/ramus/gateway/links"
	"github.com/ramus-dev/ramus/gateway/render"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gateway/timeline"
	"github.com/ramus-dev/ramus/gateway/workspace"
	"github.com/ramus-dev/ramus/gitd"
)

// Limits of the page of a timeline.
const (
	shownTicks    = 41
	maxTickDiff   = 1 << 20 // bytes
	tickDiffTime  = 5 * time.Second
	maxDiffedFile = 100
)

// timelineData is the data of the page of a timeline. All texts are clean.
type timelineData struct {
	Workspace workspace.Workspace
	Path      string // of the workspace
	Ticks     []tickRow
	// Before and After are links to the ticks next to the shown one, and Older and Newer to those next to the list. Empty means none.
	Before, After, Older, Newer string
	Now                         *tickShown
	MayChange                   bool
}

// tickRow is a tick in the list.
type tickRow struct {
	Path, Text, By, Mark, Class, State string
	When                               time.Time
	Current                            bool
}

// tickShown is the tick that is shown.
type tickShown struct {
	tickRow
	Kind, Prompt, Message, Took, Cost string
	RunPath, Run, Step                string
	Verdict                           *Badge
	Parent, Commit                    gitd.Hash
	Changed                           bool
	// Fork begins a workspace after the tick, and Again before it. Review shows its changes.
	Fork, Again, Review string
	Outputs             []tickOutput
	Pictures            []tickPicture
	Diff                []evidence.DiffPart
	DiffNote            string
	Crumbs              []fileRow
	Files               []fileRow
	FilesNote           string
}

type (
	tickOutput  struct{ Name, Note, Text string }
	tickPicture struct{ Href, Name string }
)

// timelinePage shows the commands of a workspace, and one of them with its files. The parameter at is the id of the tick.
func (api *API) timelinePage(c *route.Call) (*Page, error) {
	ctx, q := c.R.Context(), c.R.URL.Query()
	s, st, err := api.Workspaces.Named(ctx, c.Who, c.R.PathValue("workspace"))
	if err != nil {
		return nil, err
	}
	lines := timeline.Timelines{Journals: api.Executor}
	line, err := lines.Read(ctx, c.Who, s.Caller, timeline.Window{At: q.Get("at"), Ticks: shownTicks})
	if err != nil {
		return nil, err
	}
	d := &timelineData{Workspace: s, Path: workspacePath(s.ID), MayChange: c.Who.CheckChangeCaller(st) == nil}
	p := &Page{Title: "Timeline of " + s.Name, Nav: "workspaces", Template: "timeline", Data: d}
	if line.At < 0 {
		return p, nil
	}
	for i, t := range line.Ticks {
		row := api.tickRow(s, t)
		row.Current = i == line.At
		d.Ticks = append(d.Ticks, row)
	}
	if line.At > 0 {
		d.Before = d.Ticks[line.At-1].Path
	}
	if line.At+1 < len(d.Ticks) {
		d.After = d.Ticks[line.At+1].Path
	}
	if line.Older {
		d.Older = d.Ticks[0].Path
	}
	if line.Newer {
		d.Newer = d.Ticks[len(d.Ticks)-1].Path
	}
	t := line.Ticks[line.At]
	if !t.Over() {
		p.Refresh = 10
	}
	d.Now = &tickShown{tickRow: d.Ticks[line.At]}
	return p, api.showTick(c, d.Now, s, t, strings.Trim(q.Get("path"), "/"))
}

// tickPath returns the path of the page of a tick.
func tickPath(s workspace.Workspace, id string) string {
	return workspacePath(s.ID) + "/timeline?" + url.Values{"at": {id}}.Encode()
}

func (api *API) tickRow(s workspace.Workspace, t *timeline.Tick) tickRow {
	row := tickRow{Path: tickPath(s, t.ID), By: cmp.Or(render.OneLine(t.Agent, 80), personName(t.By)), When: t.Began,
		Text: render.OneLine(render.Clean(cmp.Or(t.Prompt, t.Command, t.Task, t.Step)), 200)}
	switch {
	case !t.Over():
		row.Mark, row.Class, row.State = "…", "calm", "at work"
	case t.Failed():
		row.Mark, row.Class, row.State = "✗", "bad-text", "failed"
	case t.Changed:
		row.Mark, row.Class, row.State = "✓", "good", "changed files"
	default:
		row.Mark, row.Class, row.State = "·", "soft", "changed nothing"
	}
	if t.Exit != nil && *t.Exit != 0 {
		row.State += fmt.Sprintf(", exit %d", *t.Exit)
	}
	return row
}

// showTick fills in the tick that is shown.
func (api *API) showTick(c *route.Call, d *tickShown, s workspace.Workspace, t *timeline.Tick, folder string) error {
	ctx := c.R.Context()
	_, id, _ := strings.Cut(t.Run, "/")
	d.Run, d.Step, d.RunPath = t.Run, t.Step, workspacePath(s.ID)+"/runs/"+url.PathEscape(id)
	d.Kind, d.Prompt = render.OneLine(t.Kind, 80), render.ClipClean(t.Prompt, 4000)
	d.Message, d.Took = render.ClipClean(t.Message, 2000), render.Duration(time.Duration(t.DurationMS)*time.Millisecond)
	if t.CostMicros > 0 {
		d.Cost = cost(t.CostMicros)
	}
	d.Parent, d.Commit, d.Changed = t.Parent, t.Commit(), t.Changed
	from := func(commit gitd.Hash) string {
		return "/workspaces/new?" + url.Values{"from": {s.ID}, "commit": {string(commit)}}.Encode()
	}
	if d.Commit != "" {
		d.Fork = from(d.Commit)
	}
	if t.Changed && t.Parent != "" && d.Commit != "" {
		d.Review = changesPath(s, t.Parent, d.Commit)
	}
	if t.Parent != "" {
		d.Again = from(t.Parent)
	}
	if r, ok := api.Executor.Find(s.Caller, id); ok {
		if r.Ended() {
			if v := api.verdictOf(ctx, r); v != "" && v != record.VerdictNone {
				b := verdictBadge(v)
				d.Verdict = &b
			}
		}
		for _, name := range t.Pictures {
			d.Pictures = append(d.Pictures, tickPicture{
				Href: api.Address + api.Evidence.Links.SignUntil(links.FilePath(r, name), api.linksUntil()),
				Name: render.OneLine(path.Base(name), 200)})
		}
	}
	for _, o := range []struct {
		name   string
		stream *record.Stream
	}{{"stdout", t.Stdout}, {"stderr", t.Stderr}} {
		if o.stream == nil && t.Over() {
			continue
		}
		text := api.tail(ctx, t.Run, t.Step, o.name)
		out := tickOutput{Name: o.name, Text: text}
		if o.stream != nil && o.stream.Bytes > maxTail {
			out.Note = "its end"
		}
		if text != "" {
			d.Outputs = append(d.Outputs, out)
		}
	}
	repo, err := api.Git.Repo(s.Repository)
	if err != nil {
		return err
	}
	if err := showTickDiff(ctx, d, repo); err != nil {
		return err
	}
	return showTickFiles(ctx, d, repo, folder)
}

// limited keeps the beginning of a text.
type limited struct {
	bytes.Buffer
	cut bool
}

func (w *limited) Write(b []byte) (int, error) {
	kept := b[:min(len(b), maxTickDiff-w.Len())]
	w.cut = w.cut || len(kept) < len(b)
	w.Buffer.Write(kept)
	return len(b), nil
}

// showTickDiff fills in the lines that a tick changed.
func showTickDiff(ctx context.Context, d *tickShown, repo *gitd.Repo) error {
	if !d.Changed || d.Parent == "" {
		return nil
	}
	within, cancel := context.WithTimeout(ctx, tickDiffTime)
	defer cancel()
	var out limited
	err := repo.Diff(within, string(d.Parent), string(d.Commit), gitd.DiffOptions{}, &out)
	switch {
	case errors.Is(err, gitd.ErrNotFound):
		d.DiffNote = "The commits are gone."
		return nil
	case within.Err() != nil && ctx.Err() == nil:
		d.DiffNote = "The changes are too large for a page."
		return nil
	case err != nil:
		return err
	}
	parts, whole, err := evidence.ReadDiff(&out)
	if err != nil {
		return err
	}
	d.Diff = parts[:min(len(parts), maxDiffedFile)]
	if !whole || out.cut || len(parts) > maxDiffedFile {
		d.DiffNote = "There are more changes than a page can have."
	}
	return nil
}

// showTickFiles fills in the files that a tick left in a folder.
func showTickFiles(ctx context.Context, d *tickShown, repo *gitd.Repo, folder string) error {
	if d.Commit == "" {
		d.FilesNote = "It has no files yet."
		return nil
	}
	at := func(folder string) string { return d.Path + "&path=" + url.QueryEscape(folder) }
	if folder != "" {
		d.Crumbs = []fileRow{{Name: "Top", Href: at("")}}
		above := ""
		for part := range strings.SplitSeq(folder, "/") {
			above = path.Join(above, part)
			d.Crumbs = append(d.Crumbs, fileRow{Name: render.OneLine(part, 200), Href: at(above)})
		}
		d.Crumbs[len(d.Crumbs)-1].Href = ""
	}
	f, err := files.List(ctx, transfer.Committed{Repo: repo, Commit: d.Commit}, folder)
	switch {
	case errors.Is(err, gitd.ErrNotFound), errors.Is(err, gitd.ErrInvalid):
		d.FilesNote = "There is no such folder here."
		return nil
	case err != nil:
		return err
	}
	if f.More || len(f.Entries) > maxFileRows {
		d.FilesNote = "There are more. Fork from here to see all of them."
	}
	for _, e := range f.Entries[:min(len(f.Entries), maxFileRows)] {
		row := fileRowOf("", e)
		if row.Href, row.Save = "", false; e.Kind == transfer.KindFolder {
			row.Href = at(e.Path)
		}
		d.Files = append(d.Files, row)
	}
	return nil
}

// rollBack takes a workspace back to a commit of a tick.
func (api *API) rollBack(c *route.Call) error {
	if err := readForm(c); err != nil {
		return err
	}
	s, err := api.Workspaces.Changeable(c.R.Context(), c.Who, c.R.PathValue("workspace"))
	if err != nil {
		return err
	}
	to := formText(c, "to", 100)
	if to == "" {
		return route.NewProblem(route.KindInvalid, "the commit is missing")
	}
	if _, err := api.Executor.Rollback(c.R.Context(), s.Caller.String(), to, by(c)); err != nil {
		return err
	}
	return api.see(c, workspacePath(s.ID))
}
