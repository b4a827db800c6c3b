package web

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"html/template"
	"io"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/transfer"
	"github.com/ramus-dev/ramus/gateway/evidence"
	"github.com/ramus-dev/ramus/gateway/files"
	"github.com/ramus-dev/ramus/gateway/links"
	"github.com/ramus-dev/ramus/gateway/live"
	"github.com/ramus-dev/ramus/gateway/markup"
	"github.com/ramus-dev/ramus/gateway/render"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gateway/timeline"
	"github.com/ramus-dev/ramus/gateway/workspace"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/bytesize"
)

// Limits of the page of a timeline.
const (
	shownTicks    = 30
	shownPictures = 11      // of the film strip
	maxTickDiff   = 1 << 20 // bytes
	maxTickLines  = 400     // of the diff
	maxTickFiles  = 200     // of a folder
	tickDiffTime  = 5 * time.Second
	maxDiffedFile = 100
)

// The commits that the files of a tick are compared with.
const (
	versusBefore = ""
	versusBase   = "base"
	versusPin    = "pin"
)

// timelineData is the data of the page of a timeline. All texts are clean.
type timelineData struct {
	Workspace workspace.Workspace
	Path      string // of the workspace
	// Place is the place of the shown tick among all, from 1. States has a letter for each tick, and Starts the places of the first ticks of
	// lanes, from 0.
	Place, Total   int
	States, Starts string
	// The links lead to other ticks. Empty means none.
	First, LaneBefore, Before, After, LaneAfter, Last string
	Older, Newer                                      string
	Film                                              []filmRow
	Lanes                                             []laneRows
	Now                                               *tickShown
	Pin                                               *pinned // nil means none
	Versus                                            string
	MayChange                                         bool
	Agents                                            []string

	query url.Values // of the links to other ticks
}

// filmRow is a picture of the film strip.
type filmRow struct {
	Path, Picture, Name string
	Current             bool
}

// laneRows are the ticks of one prompt, or of commands between prompts.
type laneRows struct {
	Text string // the prompt; empty if there is none
	Rows []tickRow
}

// pinned is the tick that others are compared with.
type pinned struct {
	ID     string
	Place  int
	Path   string // of the tick itself
	Unpin  string
	commit gitd.Hash
}

// tickRow is a tick in the list.
type tickRow struct {
	Path, Text, By, Shape, Class, State string
	When                                time.Time
	Current                             bool
}

// tickShown is the tick that is shown.
type tickShown struct {
	tickRow
	ID, Prompt, Message, Took, Cost, Spent string
	RunPath                                string
	Verdict                                *Badge
	Parent, Commit                         gitd.Hash
	Changed                                bool
	// Fork begins a workspace after the tick, and Again before it. Review shows its changes.
	Fork, Again, Review string
	// Restart describes the effect of the button of that name. Empty means that the tick cannot be run again.
	Restart string
	// Picked is the branch that may take the tick alone. Empty means that none can.
	Picked    string
	Clone     string // a line for a terminal
	Outputs   []tickOutput
	Pictures  []tickPicture
	Versus    []versusLink
	PinPath   string // pins the tick
	From      gitd.Hash
	Diff      []evidence.DiffPart
	DiffNote  string
	Crumbs    []fileRow
	Files     []fileRow
	FilesNote string
}

type (
	tickOutput struct {
		Name, Note, Path string
		HTML             template.HTML
	}
	tickPicture struct {
		Href, Name string
		Before     string // the picture of the same page on the base; empty means none
	}
	versusLink struct {
		Path, Text string
		Current    bool
	}
)

// timelinePages serves the timelines of workspaces.
type timelinePages struct {
	executor   *executor.Executor
	git        *gitd.Server
	workspaces *workspace.Workspaces
	timelines  *timeline.Timelines
	moments    *momentMaker
	visits     *visits
}

func (h *timelinePages) register(t *table) {
	t.page("/workspaces/{workspace}/timeline", "The commands of a workspace, and the files that each left", h.timelinePage)
}

// timelinePage shows the commands of a workspace, and one of them with its files. The parameter at is the id of the tick or a commit, and n
// its place from 1. The parameter pin is the id of a tick to compare with, and vs names the other side of the comparison.
func (h *timelinePages) timelinePage(c *route.Call) (*Page, error) {
	ctx, q := c.R.Context(), c.R.URL.Query()
	s, st, err := h.workspaces.Named(ctx, c.Who, c.R.PathValue("workspace"))
	if err != nil {
		return nil, err
	}
	all, err := h.timelines.Overview(ctx, c.Who, s.Caller)
	if err != nil {
		return nil, err
	}
	h.visits.beginWatch(record.Caller{}) // those of the server before
	d := &timelineData{Workspace: s, Path: workspacePath(s.ID), MayChange: c.Who.CheckChangeCaller(st) == nil,
		Total: len(all), Agents: h.executor.AgentNames(), query: url.Values{}}
	p := &Page{Title: "Timeline of " + s.Name, Nav: "workspaces", Template: "timeline", Data: d,
		Topics: []string{live.CallerTopic(s.Caller)}}
	if len(all) == 0 {
		return p, nil
	}
	place, err := h.placeOf(ctx, s.Repository, all, q.Get("at"), q.Get("n"))
	if err != nil {
		return nil, err
	}
	// The list has the same ticks at all of them, so that it stays as it is while a person moves among them.
	middle := min(place/shownTicks*shownTicks+shownTicks/2, len(all)-1)
	line, err := h.timelines.Read(ctx, c.Who, s.Caller, timeline.Window{At: all[middle].ID, Ticks: shownTicks})
	if err != nil {
		return nil, err
	}
	line.At = slices.IndexFunc(line.Ticks, func(t *timeline.Tick) bool { return t.ID == all[place].ID })
	if line.At < 0 {
		return nil, route.NotFound("tick", all[place].ID) // its run was removed meanwhile
	}
	t := line.Ticks[line.At]
	if err := h.setPin(ctx, c.Who, d, all, q.Get("pin")); err != nil {
		return nil, err
	}
	d.setVersus(q.Get("vs"))
	p.Follow = d.tickPath(t.ID)
	d.setPlaces(all, place)
	d.setLanes(line)
	h.setFilm(d, all, place)
	if !t.Over() {
		p.Refresh = 10
	}
	d.Now = &tickShown{tickRow: d.rowOf(t), ID: t.ID}
	if spent := all.Spent(place); spent > 0 {
		d.Now.Spent = cost(spent)
	}
	return p, h.moments.showTick(c, d, t, strings.Trim(q.Get("path"), "/"))
}

// placeOf returns the place of the tick with an id or a number, or of the first one that has a commit. Without them it is the last one.
func (h *timelinePages) placeOf(ctx context.Context, repo string, all timeline.Overview, id, number string) (int, error) {
	place := len(all) - 1
	switch {
	case gitd.CheckHash(gitd.Hash(id)) == nil:
		r, err := h.git.Repo(repo)
		if err != nil {
			return 0, err
		}
		if place, err = all.FindCommit(ctx, r, gitd.Hash(id)); err != nil && !errors.Is(err, gitd.ErrNotFound) {
			return 0, err
		}
	case id != "":
		place = all.Find(id)
	case number != "":
		n, err := strconv.Atoi(number)
		if err != nil {
			n = 0
		}
		id, place = number, min(n-1, place)
	}
	if place < 0 {
		return 0, route.NotFound("tick", id)
	}
	return place, nil
}

// setPin sets the tick to compare with.
func (h *timelinePages) setPin(ctx context.Context, who route.Who, d *timelineData, all timeline.Overview, id string) error {
	if id == "" {
		return nil
	}
	line, err := h.timelines.Read(ctx, who, d.Workspace.Caller, timeline.Window{At: id, Ticks: 1})
	if err != nil {
		return err
	}
	d.Pin = &pinned{ID: id, Place: all.Find(id) + 1, Path: tickPath(d.Workspace, id), commit: line.Ticks[line.At].Commit()}
	d.query.Set("pin", id)
	return nil
}

// setVersus sets the commit with which the files of ticks are compared. With a pinned tick that is the usual choice.
func (d *timelineData) setVersus(chosen string) {
	switch {
	case chosen == versusBase:
		d.Versus = versusBase
		d.query.Set("vs", versusBase)
	case chosen == "before" || d.Pin == nil:
		d.Versus = versusBefore
		if d.Pin != nil {
			d.query.Set("vs", "before")
		}
	default:
		d.Versus = versusPin
	}
}

// setPlaces sets the place of the shown tick, and the links to others.
func (d *timelineData) setPlaces(all timeline.Overview, place int) {
	d.Place, d.States = place+1, all.States()
	var starts []string
	for _, n := range all.Lanes() {
		starts = append(starts, strconv.Itoa(n))
	}
	d.Starts = strings.Join(starts, " ")
	to := func(n int) string { return d.tickPath(all[n].ID) }
	if place > 0 {
		d.First, d.Before, d.LaneBefore = to(0), to(place-1), to(all.Lane(place, -1))
	}
	if place+1 < len(all) {
		d.Last, d.After, d.LaneAfter = to(len(all)-1), to(place+1), to(all.Lane(place, 1))
	}
}

// setLanes sets the list of the ticks around the shown one.
func (d *timelineData) setLanes(line timeline.Line) {
	for i, t := range line.Ticks {
		row := d.rowOf(t)
		row.Current = i == line.At
		if text := render.OneLine(render.Clean(t.Prompt), 300); len(d.Lanes) == 0 || text != "" ||
			t.Run != line.Ticks[i-1].Run && d.Lanes[len(d.Lanes)-1].Text != "" {
			d.Lanes = append(d.Lanes, laneRows{Text: text})
		}
		last := &d.Lanes[len(d.Lanes)-1]
		last.Rows = append(last.Rows, row)
	}
	if line.Older {
		d.Older = d.tickPath(line.Ticks[0].ID)
	}
	if line.Newer {
		d.Newer = d.tickPath(line.Ticks[len(line.Ticks)-1].ID)
	}
}

// setFilm sets the pictures around the shown tick.
func (h *timelinePages) setFilm(d *timelineData, all timeline.Overview, place int) {
	var with []int
	for i, m := range all {
		if m.Picture != "" {
			with = append(with, i)
		}
	}
	at, _ := slices.BinarySearch(with, place)
	from := max(0, min(at-shownPictures/2, len(with)-shownPictures))
	for _, i := range with[from:min(len(with), from+shownPictures)] {
		id, _, _ := strings.Cut(all[i].ID, "/")
		r, ok := h.executor.Find(d.Workspace.Caller, id)
		if !ok || !r.Ended() {
			continue // its files are not kept yet
		}
		d.Film = append(d.Film, filmRow{Path: d.tickPath(all[i].ID), Picture: h.moments.pictureHref(r, all[i].Picture),
			Name: fmt.Sprintf("Command %d", i+1), Current: i == place})
	}
}

// momentMaker describes moments, which are the ticks of workspaces with their files.
type momentMaker struct {
	executor  *executor.Executor
	git       *gitd.Server
	timelines *timeline.Timelines
	rows      *rowMaker
	evidence  *evidence.API
	address   string
	now       func() time.Time
}

// pictureHref returns the link to a picture of a run.
func (m *momentMaker) pictureHref(r record.Run, name string) string {
	return m.address + m.evidence.Links.SignUntil(links.FilePath(r, name), linksUntil(m.now()))
}

// tickPath returns the path of the page of a tick.
func tickPath(s workspace.Workspace, id string) string {
	return workspacePath(s.ID) + "/timeline?" + url.Values{"at": {id}}.Encode()
}

// tickPath returns the path of the page of a tick, with the comparison of this page.
func (d *timelineData) tickPath(id string) string {
	path := tickPath(d.Workspace, id)
	if len(d.query) > 0 {
		path += "&" + d.query.Encode()
	}
	return path
}

// Hidden returns the parameters that the form of the slider keeps.
func (d *timelineData) Hidden() map[string]string {
	kept := map[string]string{}
	for name := range d.query {
		kept[name] = d.query.Get(name)
	}
	return kept
}

// shapes are the marks of ticks, which differ in form as well as in colour.
var shapes = map[timeline.State]tickRow{
	timeline.Works:   {Shape: "works", Class: "calm", State: "at work"},
	timeline.Failed:  {Shape: "failed", Class: "bad-text", State: "failed"},
	timeline.Changed: {Shape: "changed", Class: "good", State: "changed files"},
	timeline.Same:    {Shape: "same", Class: "soft", State: "changed nothing"},
}

func (d *timelineData) rowOf(t *timeline.Tick) tickRow {
	row := shapes[t.State()]
	row.Path, row.By, row.When = d.tickPath(t.ID), cmp.Or(render.OneLine(t.Agent, 80), personName(t.By)), t.Began
	row.Text = render.OneLine(render.Clean(cmp.Or(t.Prompt, t.Command, t.Task, t.Step)), 200)
	if t.State() == timeline.Failed && t.Changed {
		row.State += ", changed files"
	}
	if t.Exit != nil && *t.Exit != 0 {
		row.State += fmt.Sprintf(", exit %d", *t.Exit)
	}
	return row
}

// showTick fills in the tick that is shown.
func (m *momentMaker) showTick(c *route.Call, page *timelineData, t *timeline.Tick, folder string) error {
	ctx, s, d := c.R.Context(), page.Workspace, page.Now
	_, id, _ := strings.Cut(t.Run, "/")
	d.RunPath, d.Prompt = workspacePath(s.ID)+"/runs/"+url.PathEscape(id), render.ClipClean(t.Prompt, 4000)
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
		if address := c.CloneURL(s.Repository); address != "" {
			d.Clone = fmt.Sprintf("git clone %s %s && git -C %[2]s checkout %s", address, s.Name, d.Commit)
		}
	}
	if t.Parent != "" {
		d.Again = from(t.Parent)
	}
	if page.Pin == nil || page.Pin.ID != t.ID {
		d.PinPath = tickPath(s, t.ID) + "&pin=" + url.QueryEscape(t.ID)
	}
	r, known := m.executor.Find(s.Caller, id)
	if known {
		m.showRun(ctx, page, t, r)
	}
	for _, o := range []struct {
		name   string
		stream *record.Stream
	}{{"stdout", t.Stdout}, {"stderr", t.Stderr}} {
		if o.stream == nil && t.Over() {
			continue
		}
		text := output(ctx, m.executor, t.Run, t.Step, o.name)
		out := tickOutput{Name: o.name, HTML: markup.Terminal(text), Path: outputPath(r, t.Step, o.name, 0)}
		if o.stream != nil && o.stream.Bytes > maxTail {
			out.Note = "its end, of " + bytesize.Text(o.stream.Bytes)
		}
		if text != "" {
			d.Outputs = append(d.Outputs, out)
		}
	}
	repo, err := m.git.Repo(s.Repository)
	if err != nil {
		return err
	}
	page.compare(t, r)
	if err := showTickDiff(ctx, d, repo); err != nil {
		return err
	}
	return showTickFiles(ctx, d, repo, folder)
}

// showRun fills in the verdict, the cost so far, the pictures and the possible actions of the run of the shown tick.
func (m *momentMaker) showRun(ctx context.Context, page *timelineData, t *timeline.Tick, r record.Run) {
	d := page.Now
	if r.Ended() {
		d.Verdict = m.rows.verdictAt(ctx, r, "")
		for i, name := range t.Pictures {
			shown := tickPicture{Href: m.pictureHref(r, name), Name: render.OneLine(path.Base(path.Dir(name)), 200)}
			if before := t.Before[i]; before != "" {
				shown.Before = m.pictureHref(r, before)
			}
			d.Pictures = append(d.Pictures, shown)
		}
		if t.Changed && len(r.With) == 0 {
			d.Picked = r.Base
		}
	}
	d.Restart = restartText(t, r)
}

// compare sets the commits that the diff of the shown tick is about, and the links to other comparisons.
func (d *timelineData) compare(t *timeline.Tick, r record.Run) {
	now := d.Now
	link := func(versus, text string) {
		v := url.Values{"at": {t.ID}, "vs": {cmp.Or(versus, "before")}}
		if d.Pin != nil {
			v.Set("pin", d.Pin.ID)
		}
		now.Versus = append(now.Versus, versusLink{workspacePath(d.Workspace.ID) + "/timeline?" + v.Encode(), text, versus == d.Versus})
	}
	link(versusBefore, "the command before")
	link(versusBase, "the base")
	now.From = t.Parent
	if d.Versus == versusBase {
		now.From = r.BaseCommit
	}
	if d.Pin != nil {
		link(versusPin, fmt.Sprintf("command %d, pinned", d.Pin.Place))
		d.Pin.Unpin = tickPath(d.Workspace, t.ID)
		if d.Versus == versusPin {
			now.From = d.Pin.commit
		}
	}
	if now.From == now.Commit {
		now.From = ""
	}
	if now.From != "" && now.Commit != "" {
		now.Review = changesPath(d.Workspace, now.From, now.Commit)
	}
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
	if d.From == "" || d.Commit == "" {
		return nil
	}
	within, cancel := context.WithTimeout(ctx, tickDiffTime)
	defer cancel()
	var out limited
	err := repo.Diff(within, string(d.From), string(d.Commit), gitd.DiffOptions{}, &out)
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
	if d.Diff, d.DiffNote, err = shortDiff(&out); err == nil && out.cut && d.DiffNote == "" {
		d.DiffNote = diffIsCut
	}
	return err
}

// diffIsCut is the note of a diff that is longer than a page can be.
const diffIsCut = "There are more changes than this page has."

// shortDiff reads the begin of a diff of git. The note is not empty if there is more.
func shortDiff(r io.Reader) (list []evidence.DiffPart, note string, err error) {
	parts, whole, err := evidence.ReadDiff(r)
	list = parts[:min(len(parts), maxDiffedFile)]
	cut, left := !whole || len(parts) > maxDiffedFile, maxTickLines
	for i := range list {
		lines := &list[i].Lines
		cut = cut || len(*lines) > left
		*lines = (*lines)[:min(len(*lines), left)]
		left -= len(*lines)
	}
	if cut {
		note = diffIsCut
	}
	return list, note, err
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
	if f.More || len(f.Entries) > maxTickFiles {
		d.FilesNote = "There are more. Fork from here to see all of them."
	}
	for _, e := range f.Entries[:min(len(f.Entries), maxTickFiles)] {
		row := fileRowOf("", e)
		if row.Href, row.Save = "", false; e.Kind == transfer.KindFolder {
			row.Href = at(e.Path)
		}
		d.Files = append(d.Files, row)
	}
	return nil
}
