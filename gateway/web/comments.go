package web

import (
	"cmp"
	"fmt"
	"html/template"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/anchor"
	"github.com/ramus-dev/ramus/executor/review"
	"github.com/ramus-dev/ramus/gateway/changes"
	"github.com/ramus-dev/ramus/gateway/comment"
	"github.com/ramus-dev/ramus/gateway/conversation"
	"github.com/ramus-dev/ramus/gateway/diff"
	"github.com/ramus-dev/ramus/gateway/forge"
	"github.com/ramus-dev/ramus/gateway/markup"
	"github.com/ramus-dev/ramus/gateway/render"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gateway/workspace"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/pattern"
)

// Bounds of the comments of a page of changes.
const (
	maxRemarkRows   = 20 // the last remarks of a thread
	threadElements  = 30 // elements of a thread without its remarks
	remarkElements  = 14
	maxInterdiff    = 40 // lines of a difference between an excerpt and the present lines
	maxListed       = 100
	maxThreadBudget = 1500 // elements of all threads
)

// commentsData are the comments of a page of changes. All texts are clean.
type commentsData struct {
	May  bool   // the person may comment
	Path string // of the forms
	// Query, In, Base and Commit are fields of all forms.
	Query, In, Base, Commit string
	Open                    int
	At                      *forge.LinesAt // the pull request with the same comments; nil if there is none
	// List are all threads and drafts that the page names. More is the number of the others.
	List []*threadRow
	More int
	// Elsewhere are the threads whose lines the page does not show.
	Elsewhere []*threadRow
	Drafts    []string // ids
	Keeps     bool     // drafts are kept
	colours   markup.Colours
	Sessions  []sessionChoice
	Unsaid    []unsaidBatch
}

type (
	sessionChoice struct {
		Value, Text string
	}
	unsaidBatch struct {
		ID, Text, Refused string
	}
	// threadRow is a thread, or the draft of a new one.
	threadRow struct {
		*commentsData
		ID, Anchor             string // id of the element
		Where, File            string
		Line                   int
		State, Class           string
		Note, Commit, CommitAt string // of a change
		Waits                  bool
		Untouched              bool
		Excerpt                []excerptLine
		Interdiff              template.HTML
		Remarks                []remarkRow
		Left                   int // remarks that are left out
		Draft                  *draftRow
		Answers                []draftRow
		Resolved, Finding      bool
		Link                   string // to the element
		Shown                  bool   // the page has the thread itself
	}
	excerptLine struct {
		Number int
		Text   string
		Meant  bool
	}
	remarkRow struct {
		ID, By, Kind string
		When         time.Time
		HTML         []template.HTML
		Run, Taken   string
		Suggestions  []int
		Fits         bool
	}
	draftRow struct {
		*commentsData
		ID, Text string
	}
	// lineForm is the form of a new comment.
	lineForm struct {
		*commentsData
		File, Side, Cancel string
		Line               int
		At                 string
	}
)

var lineName = pattern.New(`^(f[0-9a-f]{12})-([RL])([1-9][0-9]{0,8})$`)

// commentPages shows the comments on the lines of changes, and carries out their forms.
type commentPages struct {
	shell      *shell
	executor   *executor.Executor
	workspaces *workspace.Workspaces
	comments   *comment.Comments // nil means that there are none
	talk       *conversation.Talk
}

func (h *commentPages) register(t *table) {
	t.form("/workspaces/{workspace}/review/{action}", "Comment on lines, answer, resolve and send, by the page of changes", h.changeComments)
}

// showComments adds the threads of the work to the page, and the form that the view asks for.
func (h *commentPages) showComments(c *route.Call, p *Page, d *changesData, v changesView, m *lineMaker, w comment.Work) error {
	if h.comments == nil {
		return nil
	}
	view, err := h.comments.Read(c.R.Context(), c.Who, w)
	if err != nil {
		return err
	}
	x := &commentsData{May: d.may, Path: d.Path + "/review/", Query: d.Query, In: v.In, Base: string(w.Base), Commit: string(w.Commit), Open: view.Open, At: view.At,
		Keeps: h.comments.Drafts != nil}
	d.Comments = x
	if x.May && x.Keeps {
		m.link = template.HTMLEscapeString(v.with(func(v *changesView) { v.Comment = "" }).commentHref(""))
	}
	files := map[string]*changes.File{}
	for _, f := range d.Set.Files {
		files["new "+f.Change.Path], files["old "+orPath(f)] = f, f
	}
	rows := h.threadRows(c, x, view, d, v, w)
	budget, full := maxThreadBudget, 0
	for _, r := range rows {
		cost := threadElements + remarkElements*len(r.Remarks)
		if budget < cost {
			break
		}
		budget -= cost
		full++
	}
	m.after = map[string][]string{}
	place := func(side, path string, line int, name string, data any) (bool, error) {
		f := files[side+" "+path]
		if f == nil || line < 1 {
			return false, nil
		}
		at := f.ID + "-R" + strconv.Itoa(line)
		if side == anchor.Old {
			at = f.ID + "-L" + strconv.Itoa(line)
		}
		var b strings.Builder
		if err := p.templates().ExecuteTemplate(&b, name, fragmentData{&Page{shell: h.shell, call: c}, data}); err != nil {
			return false, err
		}
		m.after[at] = append(m.after[at], b.String())
		return true, nil
	}
	for i, r := range rows {
		if len(x.List) < maxListed {
			x.List = append(x.List, r)
		} else {
			x.More++
		}
		if i >= full {
			continue
		}
		placed, err := place(r.side(), r.File, r.Line, "changes_thread", r)
		if err != nil {
			return err
		}
		if r.Shown = true; !placed {
			x.Elsewhere = append(x.Elsewhere, r)
		}
		m.pieces -= threadElements + remarkElements*len(r.Remarks)
	}
	m.rows = rows
	if err := h.listeners(c, x, view, d.Workspace); err != nil {
		return err
	}
	if at := lineName.FindStringSubmatch(v.Comment); at != nil && x.May && x.Keeps {
		return h.placeForm(d, v, x, at, place)
	}
	return nil
}

// placeForm puts the form of a new comment after its line.
func (h *commentPages) placeForm(d *changesData, v changesView, x *commentsData, at []string, place func(side, path string, line int, name string, data any) (bool, error)) error {
	i := slices.IndexFunc(d.Set.Files, func(f *changes.File) bool { return f.ID == at[1] })
	line, err := strconv.Atoi(at[3])
	if i < 0 || err != nil {
		return nil
	}
	form := lineForm{commentsData: x, File: d.Set.Files[i].Change.Path, Side: anchor.New, Line: line, At: at[0],
		Cancel: v.with(func(v *changesView) { v.Comment = "" }).href() + "#" + at[0]}
	if at[2] == "L" {
		form.File, form.Side = orPath(d.Set.Files[i]), anchor.Old
	}
	_, err = place(form.Side, form.File, line, "changes_form", form)
	return err
}

// commentHref returns the link to the page with the form of a comment on a line, without the name of the line.
func (v changesView) commentHref(at string) string {
	q := v.query()
	if q != "" {
		q += "&"
	}
	return "?" + q + "c=" + at
}

func (r *threadRow) side() string {
	if strings.HasPrefix(r.Anchor, "L") {
		return anchor.Old
	}
	return anchor.New
}

// threadRows returns the rows of all threads and of the drafts of new ones. Threads that are resolved come last.
func (h *commentPages) threadRows(c *route.Call, x *commentsData, view comment.View, d *changesData, v changesView, w comment.Work) []*threadRow {
	var rows, closed []*threadRow
	for i := range view.Threads {
		r := h.threadRow(c, x, &view.Threads[i], d, w)
		for _, one := range view.Drafts {
			if one.Thread == view.Threads[i].ID {
				r.Answers = append(r.Answers, draftRow{x, one.ID, one.Text})
			}
		}
		if r.Resolved {
			closed = append(closed, r)
		} else {
			rows = append(rows, r)
		}
	}
	for _, one := range view.Drafts {
		x.Drafts = append(x.Drafts, one.ID)
		if one.Anchor == nil {
			continue
		}
		a := *one.Anchor
		r := &threadRow{commentsData: x, ID: one.ID, State: "draft", Class: "info", File: a.Path, Line: a.To, Anchor: sideLetter(a), Draft: &draftRow{x, one.ID, one.Text}}
		r.Where, r.Link = whereOf(a.Path, a.From, a.To), "#t-"+one.ID
		if p, err := h.comments.PlaceOf(c.R.Context(), w, a); err == nil && p.From > 0 {
			r.File, r.Line = p.Path, p.To
		} else {
			r.Line = 0
		}
		rows = append(rows, r)
	}
	return append(rows, closed...)
}

func sideLetter(a anchor.Anchor) string {
	if a.Side == anchor.Old {
		return "L"
	}
	return "R"
}

func whereOf(path string, from, to int) string {
	where := render.OneLine(render.Clean(path), 200) + ", line " + strconv.Itoa(from)
	if to > from {
		where = render.OneLine(render.Clean(path), 200) + ", lines " + strconv.Itoa(from) + " to " + strconv.Itoa(to)
	}
	return where
}

// classes are the classes of the badges of states.
var classes = map[review.State]string{review.Sent: "info", review.Touched: "warn", review.Answered: "good", review.Outdated: "bad", review.Resolved: ""}

// threadRow returns the row of a thread.
func (h *commentPages) threadRow(c *route.Call, x *commentsData, t *comment.Thread, d *changesData, w comment.Work) *threadRow {
	a, p := t.Anchor, t.Place
	r := &threadRow{commentsData: x, ID: t.ID, State: string(t.State), Class: classes[t.State], Link: "#t-" + t.ID, File: p.Path, Line: p.To, Anchor: sideLetter(a),
		Waits: t.Waits, Untouched: t.Untouched, Resolved: t.Resolved != nil, Finding: t.Finding != ""}
	r.Where = whereOf(a.Path, a.From, a.To)
	switch p.State {
	case anchor.Moved:
		r.Note = "now " + whereOf(p.Path, p.From, p.To)
	case anchor.Changed:
		if r.Note = "the lines were changed"; p.Exact {
			r.Note = "lines next to it were changed"
		}
		r.Interdiff = h.interdiff(c, t, w)
	case anchor.Gone:
		r.Note = "the lines are gone, or cannot be told from others"
	}
	if p.In != "" {
		r.Commit = p.In[:min(len(p.In), 10)]
		r.CommitAt = changesView{at: d.Path + "/changes", Window: changes.Window{In: x.In, From: string(a.At()), To: p.In}}.href()
	}
	if !p.Fits() {
		for i, l := range t.Excerpt {
			n := t.First + i
			r.Excerpt = append(r.Excerpt, excerptLine{n, shown(l), n >= a.From && n <= a.To})
		}
	}
	remarks := t.Remarks
	if len(remarks) > maxRemarkRows {
		r.Left = len(remarks) - maxRemarkRows
		remarks = remarks[r.Left:]
	}
	for _, m := range remarks {
		r.Remarks = append(r.Remarks, remarkOf(m, a, p, d, &x.colours))
	}
	return r
}

// remarkOf returns the row of a remark, whose code colours are for.
func remarkOf(m review.Remark, a anchor.Anchor, p anchor.Place, d *changesData, colours *markup.Colours) remarkRow {
	row := remarkRow{ID: m.ID, By: render.OneLine(render.Clean(cmp.Or(m.By.Name, "somebody")), 80), When: m.Time, Fits: p.Fits() && a.Side == anchor.New}
	switch m.Kind {
	case review.ByAgent:
		row.Kind = "agent"
	case review.ByForge:
		row.Kind = "at the forge"
	}
	if caller, id, ok := strings.Cut(m.Run, "/"); ok && caller != "" {
		row.Run = d.Path + "/runs/" + url.PathEscape(id)
	}
	s := &markup.Stream{Colours: colours}
	row.HTML = s.Write(m.Text)
	rest, _ := s.Close()
	row.HTML = append(row.HTML, rest...)
	if row.Taken = string(m.Taken[:min(len(m.Taken), 10)]); row.Taken == "" && d.In == "" {
		for i := range review.Suggestions(m.Text) {
			row.Suggestions = append(row.Suggestions, i)
		}
	}
	return row
}

// interdiff returns the difference between the excerpt of a thread and the lines that are there now.
func (h *commentPages) interdiff(c *route.Call, t *comment.Thread, w comment.Work) template.HTML {
	at := w.Commit
	if t.Anchor.Side == anchor.Old {
		at = w.Base
	}
	content, err := w.Repo.ReadFile(c.R.Context(), string(at), t.Place.Path, anchor.MaxFile)
	if err != nil {
		return ""
	}
	before, after := t.Anchor.From-t.First, t.First+len(t.Excerpt)-1-t.Anchor.To
	lines := anchor.SplitLines(string(content))
	from, to := max(1, t.Place.From-before), min(len(lines), t.Place.To+max(after, 0))
	if from > to {
		return ""
	}
	var b strings.Builder
	b.WriteString(`<div class="patch">`)
	list := diff.Compare(strings.Join(t.Excerpt, "\n"), strings.ToValidUTF8(strings.Join(lines[from-1:to], "\n"), "\uFFFD"))
	for _, l := range list[:min(len(list), maxInterdiff)] {
		class := "l"
		switch l.Sign {
		case diff.Added:
			class += " add"
		case diff.Deleted:
			class += " del"
		}
		fmt.Fprintf(&b, `<span class="%s"><b aria-hidden="true">%s</b>%s</span>`, class, template.HTMLEscapeString(l.Sign), template.HTMLEscapeString(shown(l.Text[:min(len(l.Text), 500)])))
	}
	b.WriteString("</div>")
	return template.HTML(b.String())
}

// listeners adds the sessions that can get comments, and the batches that none got.
func (h *commentPages) listeners(c *route.Call, x *commentsData, view comment.View, s workspace.Workspace) error {
	if !x.May {
		return nil
	}
	for _, b := range view.Batches {
		if b.Waits() || b.Refused != "" {
			x.Unsaid = append(x.Unsaid, unsaidBatch{b.ID, render.Plural(len(b.Remarks), "comment"), render.OneLine(render.Clean(b.Refused), 300)})
		}
	}
	names := h.executor.AgentNames()
	sessions, err := h.talk.Sessions(c.R.Context(), s.Caller)
	if err != nil {
		return err
	}
	for _, one := range sessions[:min(len(sessions), 20)] {
		if slices.Contains(names, one.Agent) {
			x.Sessions = append(x.Sessions, sessionChoice{one.Agent + " " + one.Label, sessionName(one)})
		}
	}
	if len(x.Sessions) == 0 {
		for _, name := range names {
			x.Sessions = append(x.Sessions, sessionChoice{name + " ", name})
		}
	}
	return nil
}

// changeComments is the answer to the forms of comments.
func (h *commentPages) changeComments(c *route.Call) error {
	if err := readForm(c); err != nil {
		return err
	}
	if h.comments == nil {
		return route.NotFound("page", c.R.URL.Path)
	}
	ctx := c.R.Context()
	s, err := h.workspaces.Changeable(ctx, c.Who, c.R.PathValue("workspace"))
	if err != nil {
		return err
	}
	_, st, err := h.workspaces.Named(ctx, c.Who, s.ID)
	if err != nil {
		return err
	}
	action := c.R.PathValue("action")
	window := changes.Window{In: formText(c, "in", 200)}
	if action == "draft" {
		window.From, window.To = formText(c, "base", 100), formText(c, "commit", 100) // the lines that the person saw
	}
	w, err := h.comments.Of(ctx, c.Who, st, window)
	if err != nil {
		return err
	}
	to, err := h.changeComment(c, w, action)
	if err != nil {
		return err
	}
	back := workspacePath(s.ID) + "/changes"
	if q, err := url.ParseQuery(formText(c, "query", 4000)); err == nil {
		if q.Del("c"); len(q) > 0 {
			back += "?" + q.Encode()
		}
	}
	if to != "" {
		back += "#" + url.QueryEscape(to)
	}
	return see(c, back)
}

// changeComment does the action of a form, and returns the element that shows its result.
func (h *commentPages) changeComment(c *route.Call, w comment.Work, action string) (to string, err error) {
	ctx, thread := c.R.Context(), formText(c, "thread", 100)
	words := strings.ToValidUTF8(c.R.PostFormValue("text"), "\uFFFD")
	switch action {
	case "draft":
		n := comment.New{Thread: thread, Path: c.R.PostFormValue("path"), Side: formText(c, "side", 10), Text: words}
		n.Line, _ = strconv.Atoi(formText(c, "line", 10)) // a mistake is line 0, which no file has
		if n.To, _ = strconv.Atoi(formText(c, "to", 10)); n.To != 0 && n.To < n.Line {
			n.Line, n.To = n.To, n.Line
		}
		d, err := h.comments.PutDraft(ctx, c.Who, w, n, "")
		return "t-" + cmp.Or(thread, d.ID), err
	case "redraft":
		d, err := h.comments.PutDraft(ctx, c.Who, w, comment.New{Text: words}, formText(c, "draft", 100))
		return "t-" + cmp.Or(d.Thread, d.ID), err
	case "drop":
		return "", h.comments.DropDraft(c.Who, w, formText(c, "draft", 100))
	case "send":
		s := comment.Sending{Drafts: c.R.PostForm["draft"], Note: words, Quiet: formText(c, "agent", 300) == "none"}
		if len(s.Drafts) > comment.MaxDrafts {
			return "", route.NewProblem(route.KindTooLarge, "there are too many drafts")
		}
		if !s.Quiet {
			s.Agent, s.Session, _ = strings.Cut(strings.ToValidUTF8(c.R.PostFormValue("agent"), ""), " ")
		}
		_, err := h.comments.Send(ctx, c.Who, w, s)
		return "comments", err
	case "say":
		_, err := h.comments.Again(ctx, c.Who, w, formText(c, "batch", 100))
		return "comments", err
	case "resolve", "reopen", "unworthy":
		_, err := h.comments.Resolve(ctx, w, thread, by(c), action != "reopen", action == "unworthy")
		return "t-" + thread, err
	case "take":
		n, err := strconv.Atoi(formText(c, "suggestion", 10))
		if err != nil {
			return "", route.NotFound("suggestion", formText(c, "suggestion", 10))
		}
		_, err = h.comments.Take(ctx, w, thread, formText(c, "remark", 100), n, by(c))
		return "t-" + thread, err
	}
	return "", route.NotFound("action", action)
}

// reviewVersion returns a text that changes with the comments of a work.
func (h *commentPages) reviewVersion(c *route.Call, repo *gitd.Repo, s workspace.Workspace) string {
	if h.comments == nil {
		return ""
	}
	at, err := repo.Resolve(c.R.Context(), review.Ref(s.Caller))
	if err != nil {
		return ""
	}
	return string(at[:min(len(at), 12)])
}
