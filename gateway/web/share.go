package web

import (
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/conversation"
	"github.com/ramus-dev/ramus/gateway/evidence"
	"github.com/ramus-dev/ramus/gateway/render"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gateway/share"
	"github.com/ramus-dev/ramus/gateway/timeline"
	"github.com/ramus-dev/ramus/gateway/workspace"
)

// linksPath is the page of the links that a person made.
const linksPath = "/settings/links"

// openedCookie marks a browser that has opened a link, for so many seconds, so that a reload is not counted. It says nothing about its reader.
const (
	openedCookie = "ramus_opened"
	openedFor    = 24 * 60 * 60
)

// shareData is the data of the form for a link. All texts are clean.
type shareData struct {
	Workspace       workspace.Workspace
	Path, What      string
	Run, At         string // the target of the link, empty for the conversation
	Days            string
	Private         bool
	Made            *share.Link // nil until the form was sent
	Rows            []linkRow
	Wrong, Back     string
	MayChange, Owns bool
}

// linkRow is a link in a list. All texts are clean.
type linkRow struct {
	share.Link
	What, By, Path, Revoke string // Path is the page of the thing, Revoke that of the form
	Badge                  Badge
}

// whatOf describes the thing that a link shows.
func whatOf(r share.Record) string {
	switch r.Kind {
	case share.KindRun:
		return "Run " + r.Run + " of " + r.Caller.String()
	case share.KindMoment:
		return "A moment of " + r.Caller.String()
	}
	return "The conversation of " + r.Caller.String()
}

func linkRowOf(l share.Link) linkRow {
	place := workspacePath(l.Caller.Slug())
	row := linkRow{Link: l, What: whatOf(l.Record), By: personName(l.By), Revoke: linksPath + "/" + url.PathEscape(l.ID) + "/revoke", Path: place}
	switch l.Kind {
	case share.KindRun:
		row.Path = place + "/runs/" + url.PathEscape(l.Run)
	case share.KindMoment:
		row.Path = place + "/timeline?" + url.Values{"at": {l.Moment}}.Encode()
	}
	switch l.State {
	case share.StateOpen:
		row.Badge = Badge{"Opens", "good"}
	case share.StateRevoked:
		row.Badge = Badge{"Revoked", "bad"}
	default:
		row.Badge = Badge{"Ended", ""}
	}
	return row
}

// linkPages serves the links that a person made for people who do not sign in.
type linkPages struct {
	shell      *shell
	workspaces *workspace.Workspaces
	shares     *share.API // nil means that there are no links
}

func (h *linkPages) register(t *table) {
	t.page(linksPath, "The links that a person made for people who do not sign in", h.linksPage)
	t.form(linksPath+"/{share}/revoke", "Revoke such a link, by the page of links", h.revokeLink)
	t.page("/workspaces/{workspace}/share", "The form for a link to a workspace, a run or a moment", h.sharePage)
	t.form("/workspaces/{workspace}/share", "Make a link for people who do not sign in, by its form", h.shareWorkspace)
}

// linkRows returns the links that a person may revoke. of limits them to a caller, and is empty for all.
func (h *linkPages) linkRows(c *route.Call, of string) (rows []linkRow, err error) {
	if h.shares == nil {
		return nil, route.NewProblem(route.KindNotFound, "this server makes no links")
	}
	list, err := h.shares.List(c.R.Context(), c.Who, of)
	for _, l := range list {
		rows = append(rows, linkRowOf(l))
	}
	return rows, err
}

// Shares reports whether people can make links for those who do not sign in.
func (p *Page) Shares() bool { return p.shell.shares }

// LinkRows returns the links that a page lists.
func (p *Page) LinkRows() []linkRow {
	switch d := p.Data.(type) {
	case []linkRow:
		return d
	case *shareData:
		return d.Rows
	}
	return nil
}

// linksPage shows the links that a person made, and administrators all.
func (h *linkPages) linksPage(c *route.Call) (*Page, error) {
	rows, err := h.linkRows(c, "")
	if err != nil {
		return nil, err
	}
	return &Page{Title: "Links", Nav: "settings", Template: "links", Data: rows}, nil
}

// revokeLink revokes a link, by the page of links.
func (h *linkPages) revokeLink(c *route.Call) error {
	if h.shares == nil {
		return route.NewProblem(route.KindNotFound, "this server makes no links")
	}
	l, err := h.shares.Revoke(c.R.Context(), c.Who, c.R.PathValue("share"))
	if err != nil {
		return err
	}
	if err := c.Audit(share.ActionRevoke, l.Of()); err != nil {
		return err
	}
	return see(c, linksPath)
}

// sharePage is the form for a link to a run, a moment or the conversation of a workspace.
func (h *linkPages) sharePage(c *route.Call) (*Page, error) {
	q := c.R.URL.Query()
	return h.shareWith(c, &shareData{Run: q.Get("run"), At: q.Get("at"), Days: strconv.Itoa(share.DefaultDays)})
}

func (h *linkPages) shareWith(c *route.Call, d *shareData) (*Page, error) {
	if h.shares == nil {
		return nil, route.NewProblem(route.KindNotFound, "this server makes no links")
	}
	s, st, err := h.workspaces.Named(c.R.Context(), c.Who, c.R.PathValue("workspace"))
	if err != nil {
		return nil, err
	}
	d.Workspace, d.Path, d.Private = s, workspacePath(s.ID), s.Private
	d.MayChange, d.Owns = c.Who.CheckChangeCaller(st) == nil, s.Owner.ID == c.Who.Subject
	r := share.Record{Kind: share.KindConversation, Caller: s.Caller}
	switch {
	case d.Run != "":
		r.Kind, r.Run = share.KindRun, d.Run
	case d.At != "":
		r.Kind, r.Moment = share.KindMoment, d.At
	}
	row := linkRowOf(share.Link{Record: r})
	d.What, d.Back = render.OneLine(row.What, 300), row.Path
	if d.Rows, err = h.linkRows(c, s.Caller.String()); err != nil {
		return nil, err
	}
	p := &Page{Title: "Share", Nav: "workspaces", Template: "share", Data: d}
	if d.Wrong != "" {
		p.Status = status(true)
	}
	return p, nil
}

// shareWorkspace makes a link, by its form.
func (h *linkPages) shareWorkspace(c *route.Call) error {
	if err := readForm(c); err != nil {
		return err
	}
	d := &shareData{Run: formText(c, "run", 200), At: formText(c, "at", 300), Days: formText(c, "days", 4)}
	s, err := h.workspaces.Changeable(c.R.Context(), c.Who, c.R.PathValue("workspace"))
	if err != nil {
		return err
	}
	w := share.Wish{Of: s.Caller.String(), At: d.At}
	if d.Run != "" {
		w.Of += "/" + d.Run
	}
	if w.Days, err = strconv.Atoi(d.Days); err != nil || w.Days < 1 || w.Days > share.MaxDays {
		d.Wrong = "A link opens for one day to " + strconv.Itoa(share.MaxDays) + "."
	} else if h.shares != nil {
		l, err := h.shares.Make(c.R.Context(), c.Who, w, c.Address())
		if err != nil {
			return err
		}
		if err := c.Audit(share.ActionMake, l.Of()); err != nil {
			return err
		}
		d.Made = &l
	}
	p, err := h.shareWith(c, d)
	if err != nil {
		return err
	}
	c.W.Header().Set("Cache-Control", "no-store")
	return h.shell.write(c, p)
}

// sharedData is the data of the page that a link shows. All texts are clean.
type sharedData struct {
	What, By     string
	Title        string
	Private      bool
	Expires      time.Time
	Run          *evidence.RunPage
	RunState     Badge
	Moment       *tickShown
	Conversation []talkRow
	Earlier      string
}

// sharedPages serves the pages of links to people who do not sign in.
type sharedPages struct {
	shell      *shell
	executor   *executor.Executor
	workspaces *workspace.Workspaces
	shares     *share.API // nil means that there are no links
	evidence   *evidence.API
	timelines  *timeline.Timelines
	moments    *momentMaker
	talk       *talkSources
}

func (h *sharedPages) register(t *table) {
	const at = share.Path + "{share}/{token}"
	t.route(route.Route{Method: "GET", Pattern: at, Access: route.AccessPublic, SecretPath: true, Media: route.MediaHTML,
		Summary: "The run, the moment or the conversation that a link shares", Handle: h.shared})
	t.route(route.Route{Method: "GET", Pattern: at + "/files/{name...}", Access: route.AccessPublic, SecretPath: true, Media: route.MediaBytes,
		Summary: "A picture of the work that a link shares", Handle: h.sharedFile})
}

// shared shows the thing of a link. It takes no session, and its page leads nowhere else.
func (h *sharedPages) shared(c *route.Call) error {
	if h.shares == nil {
		return route.NotFound("page", c.R.URL.Path)
	}
	id, token := c.R.PathValue("share"), c.R.PathValue("token")
	_, err := c.R.Cookie(openedCookie)
	isNew := err != nil && c.R.Method == http.MethodGet
	r, err := h.shares.Read(id, token, isNew)
	if err != nil {
		return err
	}
	if isNew {
		http.SetCookie(c.W, &http.Cookie{Name: openedCookie, Value: "1", Path: c.Prefix() + share.Path + url.PathEscape(id) + "/",
			MaxAge: openedFor, HttpOnly: true, Secure: c.Secure(), SameSite: http.SameSiteLaxMode})
	}
	own := h.shell.address + share.Path + url.PathEscape(id) + "/" + url.PathEscape(token)
	call := *c
	call.Who, call.Until = r.Guest(), time.Time{}
	call.Relink = func(to string) string {
		_, name, _ := strings.Cut(to, "/files/")
		return own + "/files/" + (&url.URL{Path: name}).EscapedPath() + "?by=link"
	}
	s, _, err := h.workspaces.Named(c.R.Context(), call.Who, r.Caller.Slug())
	if err != nil {
		return endedLink(err, call.Who)
	}
	d := &sharedData{What: whatOf(r), By: personName(r.By), Private: s.Private || r.Private, Expires: r.Expires}
	p := &Page{Title: "Shared", Template: "shared", Data: d, Bare: true, Layout: layoutWide}
	switch r.Kind {
	case share.KindRun:
		err = h.showSharedRun(&call, p, d, r)
	case share.KindMoment:
		err = h.showSharedMoment(&call, p, d, r, s)
	default:
		err = h.showSharedTalk(&call, p, d, r, own)
	}
	if err != nil {
		return endedLink(err, call.Who)
	}
	c.W.Header().Set("Cache-Control", "no-store")
	return h.shell.write(&call, p)
}

// endedLink hides from guests the reason why a link shows nothing.
func endedLink(err error, who route.Who) error {
	if route.AsProblem(err, who).Kind == route.KindNotFound {
		return route.NewProblem(route.KindNotFound, "the work of this link is gone")
	}
	return err
}

// sharedRun returns the run whose files a link has.
func (h *sharedPages) sharedRun(r share.Record) (record.Run, error) {
	id := r.Run
	if r.Kind == share.KindMoment {
		id = runOfMoment(r.Moment)
	}
	run, ok := h.executor.Find(r.Caller, id)
	if !ok {
		return run, route.NotFound("run", id)
	}
	return run, nil
}

// runOfMoment returns the id of the run of a tick.
func runOfMoment(tick string) string {
	id, _, _ := strings.Cut(tick, "/")
	return id
}

// showSharedRun fills in a run.
func (h *sharedPages) showSharedRun(c *route.Call, p *Page, d *sharedData, r share.Record) error {
	run, err := h.sharedRun(r)
	if err != nil {
		return err
	}
	if d.Run, err = h.evidence.Describe(c, run, time.Time{}); err != nil {
		return err
	}
	d.Title, d.RunState = d.Run.Title, runBadge(run)
	p.Refresh = d.Run.Reload * 2
	return nil
}

// sharedTick returns the tick that a link shares.
func (h *sharedPages) sharedTick(c *route.Call, r share.Record) (*timeline.Tick, error) {
	line, err := h.timelines.Read(c.R.Context(), c.Who, r.Caller, timeline.Window{At: r.Moment, Ticks: 1})
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(line.Ticks, func(t *timeline.Tick) bool { return t.ID == r.Moment })
	if at < 0 {
		return nil, route.NotFound("moment", r.Moment)
	}
	return line.Ticks[at], nil
}

// showSharedMoment fills in a tick of a timeline.
func (h *sharedPages) showSharedMoment(c *route.Call, p *Page, d *sharedData, r share.Record, s workspace.Workspace) error {
	t, err := h.sharedTick(c, r)
	if err != nil {
		return err
	}
	shown := &timelineData{Workspace: s, Path: workspacePath(s.ID), query: url.Values{}}
	shown.setVersus("")
	shown.Now = &tickShown{tickRow: shown.rowOf(t), ID: t.ID}
	if err := h.moments.showTick(c, shown, t, ""); err != nil {
		return err
	}
	d.Moment, d.Title = shown.Now, shown.Now.Text
	d.Moment.Pictures = nil
	for _, name := range t.Pictures {
		d.Moment.Pictures = append(d.Moment.Pictures, tickPicture{Href: c.Link("/files/" + name), Name: render.OneLine(path.Base(name), 200)})
	}
	if !t.Over() {
		p.Refresh = 10
	}
	return nil
}

// showSharedTalk fills in the end of a conversation, or the part that the parameter before names. own is the path of the link.
func (h *sharedPages) showSharedTalk(c *route.Call, p *Page, d *sharedData, r share.Record, own string) error {
	ctx := c.R.Context()
	t, err := h.talk.memory.Open(ctx, h.executor, r.Caller, conversation.Window{Before: c.R.URL.Query().Get("before")})
	if err != nil {
		return err
	}
	m := talkMaker{ctx: ctx, sources: h.talk, runs: map[string]record.Run{}}
	for _, run := range h.executor.OfCaller(r.Caller) {
		m.runs[run.Name()] = run
	}
	d.Title = "Conversation of " + r.Caller.ID()
	if d.Conversation, _ = m.window(&t, false); t.Before != "" {
		d.Earlier = own + "?" + url.Values{"before": {t.Before}}.Encode()
	}
	if t.Live != nil {
		p.Refresh = 10
	}
	return nil
}

// sharedFile sends a picture of the run that a link shows.
func (h *sharedPages) sharedFile(c *route.Call) error {
	if h.shares == nil {
		return route.NotFound("page", c.R.URL.Path)
	}
	r, err := h.shares.Read(c.R.PathValue("share"), c.R.PathValue("token"), false)
	if err != nil {
		return err
	}
	if r.Kind == share.KindConversation {
		return route.NotFound("file", c.R.PathValue("name"))
	}
	run, err := h.sharedRun(r)
	if err != nil {
		return endedLink(err, r.Guest())
	}
	call := *c
	call.Who = r.Guest()
	if r.Kind == share.KindMoment { // the run may have pictures of other moments
		t, err := h.sharedTick(&call, r)
		if err != nil {
			return endedLink(err, r.Guest())
		}
		if !slices.Contains(t.Pictures, c.R.PathValue("name")) {
			return route.NotFound("file", c.R.PathValue("name"))
		}
	}
	return h.evidence.SendPicture(&call, run, c.R.PathValue("name"))
}
