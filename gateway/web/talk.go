package web

import (
	"cmp"
	"context"
	"fmt"
	"html/template"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/acp"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/conversation"
	"github.com/ramus-dev/ramus/gateway/evidence"
	"github.com/ramus-dev/ramus/gateway/live"
	"github.com/ramus-dev/ramus/gateway/markup"
	"github.com/ramus-dev/ramus/gateway/render"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gateway/workspace"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/text"
)

// Limits of the conversation.
const (
	maxTalkText = 32 << 10 // of one text that is not Markdown
	maxRawInput = 4 << 10
	talkBody    = conversation.MaxUpload + 3<<20
)

// talkPane shows the conversation of a workspace.
type talkPane struct {
	sources  *talkSources
	executor *executor.Executor
	talk     *conversation.Talk
	live     *live.API     // nil means that pages are not kept up to date
	budget   func() Budget // nil means that runs have no bounds
}

func (talkPane) Name() string  { return paneChat }
func (talkPane) Title() string { return "Conversation" }
func (talkPane) Icon() string  { return "chat" }

// talkData is the data of the conversation. All texts are clean.
type talkData struct {
	*Page
	Path           string
	MayChange      bool
	Rows           []talkRow
	Queue          []talkRow
	Earlier, Later string
	Grows          bool // the page of Earlier has all that this one shows
	Sessions       []sessionTab
	Session        string // the id of the one that is shown, or empty for all
	Entry          string // to which the page goes
	ReadKey        string // names the place of the reader, which the browser keeps
	Agent, Label   string // where the composer speaks
	Agents         []string
	Status         talkStatus
	Present        []string // other people who look at the workspace
	Again          *talkAgain
	Key            string // of the next prompt

	// Naming names the session that is shown. It is nil if the person cannot name one here.
	Naming *sessionNaming
}

// sessionNaming is the form that names the session that is shown.
type sessionNaming struct {
	Path, Name string
	Label      string // of the session, or its agent
	Back       string // the id of the session that the page shows afterwards, or empty for all
	Among      bool   // the list has other sessions too
	Wrong      string // the mistake of the form, or empty
}

// nameProblem is the mistake in a form that names a session, for its page.
type nameProblem struct{ session, name, wrong string }

// talkAgain is the offer to send the prompt of the last turn again.
type talkAgain struct{ Path, Run, Entry, Words string }

// talkStatus is the present work of the agent.
type talkStatus struct {
	Path, Run, Words, Cost string
	Spent, Budget          int64  // for the bar; Budget is 0 without a bound
	BudgetText             string // such as "0.21 $ of 2.00 $"
	Live, InTurn, Steers   bool
	MayChange, MayAnswer   bool
	Plan                   []acp.PlanItem
	PlanText               string
	Question               string // the id of the element of the open question
}

// sessionTabs is the list of sessions. A list of one session has the name of that in place of tabs.
type sessionTabs struct {
	Path string // of all sessions together
	All  bool   // they are shown
	List []sessionTab
	Only string
}

// sessionTab is a session in the list of sessions. Title has the whole name and the label of one with a name.
type sessionTab struct {
	Text, Title, Path, State string
	Name                     string // or empty
	Current                  bool
}

// Tabs returns the list of sessions, or nil if it would show nothing.
func (d talkData) Tabs() *sessionTabs {
	switch {
	case len(d.Sessions) > 1:
		return &sessionTabs{Path: d.Href(d.Path), All: d.Session == "", List: d.Sessions}
	case len(d.Sessions) == 1 && d.Sessions[0].Name != "":
		return &sessionTabs{Only: d.Sessions[0].Name}
	}
	return nil
}

// talkRow is one fragment of the conversation.
type talkRow struct {
	Key, Kind, ID, Class       string
	By, From, Text, Note, Mark string
	When, Until                time.Time
	HTML                       template.HTML
	Bodies                     []resultPart
	Link, Commit, Size         string // Size is the number of lines that the commit changes
	Path                       string // of the workspace
	Run, Step, PromptKey       string
	Options                    []record.GateOption
	Allowed, Command           string // of a question
	Files                      []talkFile
	Src                        string // the path of the part that the page leaves out
	Rest                       string // of a long prompt
	Open, MayChange, First     bool
	Retries                    bool // a run that failed, which can be begun again
	Verdict                    *Badge
}

type talkFile struct {
	Name, Href string
	Picture    bool
}

// questionID returns the id of the element of a question.
func questionID(entry string) string { return "question-" + strings.ReplaceAll(entry, "/", "-") }

// Anchor returns the id of the element of the row.
func (row talkRow) Anchor() string { return questionID(row.ID) }

func (p talkPane) Show(c *route.Call, page *Page, s workspace.Workspace) (template.HTML, error) {
	ctx, q := c.R.Context(), c.R.URL.Query()
	d := talkData{Page: page, Path: workspacePath(s.ID), MayChange: c.Who.CheckChange(s.Repository, s.Branch) == nil,
		Agents:  p.executor.AgentNames(),
		Session: q.Get("session"), Key: record.NewToken() + record.NewToken(), Entry: q.Get("entry")}
	d.ReadKey = d.Path + " " + d.Session
	sessions, err := p.talk.Sessions(ctx, s.Caller)
	if err != nil {
		return "", err
	}
	w := conversation.Window{Around: d.Entry, Before: q.Get("before"), After: q.Get("after")}
	if w.Turns = partsOf(q) * conversation.DefaultTurns; w.Around != "" {
		w.Turns = aroundTurns
	}
	for i, one := range sessions {
		tab := sessionTab{Text: sessionName(one), Path: page.Href(d.Path) + "?session=" + url.QueryEscape(one.ID),
			State: string(one.State), Name: render.OneLine(one.Name, 500), Current: one.ID == d.Session}
		label := cmp.Or(render.OneLine(one.Label, 200), one.Agent)
		if tab.Name != "" {
			tab.Title = tab.Name + ", label " + label
		}
		d.Sessions = append(d.Sessions, tab)
		if tab.Current {
			w.Agent, w.Session = one.Agent, one.Label
		}
		if d.MayChange && p.talk.Names != nil && (tab.Current || len(sessions) == 1) {
			d.Naming = &sessionNaming{Path: page.Href(d.Path) + "/sessions/" + url.PathEscape(one.ID) + "/name",
				Name: one.Name, Label: label, Back: d.Session, Among: len(sessions) > 1}
			if wrong := page.misnamed; wrong != nil && wrong.session == one.ID {
				d.Naming.Name, d.Naming.Wrong = wrong.name, wrong.wrong
			}
		}
		if tab.Current || i == 0 {
			d.Agent, d.Label = one.Agent, one.Label
		}
	}
	if d.Agent == "" && len(d.Agents) > 0 {
		d.Agent = d.Agents[0]
	}
	t, err := p.sources.memory.Open(ctx, p.executor, s.Caller, w)
	if err != nil {
		return "", err
	}
	p.talkRows(ctx, &d, s, t)
	var b strings.Builder
	if err := pages().ExecuteTemplate(&b, "pane_talk", d); err != nil {
		return "", err
	}
	return template.HTML(b.String()), nil
}

// sessionName returns the name of a session for people, or its label.
func sessionName(s conversation.Session) string {
	name := cmp.Or(render.OneLine(s.Name, 40), render.OneLine(s.Label, 40))
	if name == "" {
		return s.Agent
	}
	return name + " (" + s.Agent + ")"
}

// talkRows makes the rows of a transcript.
func (p talkPane) talkRows(ctx context.Context, d *talkData, s workspace.Workspace, t conversation.Transcript) {
	base := p.sources.address + d.Path
	q := d.Page.call.R.URL.Query()
	m := talkMaker{ctx: ctx, sources: p.sources, path: base, may: d.MayChange, subject: d.Page.call.Who.Subject,
		runs: map[string]record.Run{}}
	for _, r := range p.executor.OfCaller(s.Caller) {
		m.runs[r.Name()] = r
	}
	full := false
	d.Rows, full = m.window(&t, q.Has("after"))
	link := func(name, id string) string {
		to := url.Values{name: {id}}
		for _, kept := range []string{"session", "pane"} {
			if q.Get(kept) != "" {
				to.Set(kept, q.Get(kept))
			}
		}
		return base + "?" + to.Encode()
	}
	parts := partsOf(q)
	d.Grows = parts < maxParts && !full && !q.Has("before") && !q.Has("after") && d.Entry == ""
	switch {
	case t.Before != "" && d.Grows:
		d.Earlier = link("more", strconv.Itoa(parts+1))
	case t.Before != "":
		d.Earlier = link("before", t.Before)
	}
	if t.After != "" {
		d.Later = link("after", t.After)
	}
	d.Status = talkStatus{Path: base, MayChange: d.MayChange}
	d.Present = present(p.live, d.Page.Who(), s)
	live := t.Live
	if live == nil {
		d.Again = m.again(t)
		return
	}
	r := m.runs[live.Run]
	d.Status.Live, d.Status.Run = true, live.Run
	d.Status.InTurn, d.Status.Steers = p.executor.Prompts.InTurn(r), p.executor.Prompts.CanSteer(r)
	d.Status.Words = m.doing(t)
	d.Status.spent(live.Usage, estimated(t, live.Run), p.bounds())
	for _, turn := range t.Turns {
		for _, e := range turn.Entries {
			switch {
			case e.Kind == conversation.KindPlan && turn.Run == live.Run && !turn.Over():
				d.Status.Plan, d.Status.PlanText = cleanPlan(e.Plan), render.OneLine(e.Text, 200)
			case e.Kind == conversation.KindQuestion && e.Decision == nil && turn.Run == live.Run:
				d.Status.Question, d.Status.MayAnswer = questionID(e.ID), m.mayAnswer(e.Gate)
			}
		}
	}
	for i, e := range t.Waiting {
		row := m.prompt(live.Run, e)
		row.Key, row.Kind, row.First = "q "+e.Key, "queued", i == 0
		if e.Key != record.FirstPrompt {
			d.Queue = append(d.Queue, row)
		}
	}
}

// estimated reports whether a part of the cost of a run is an estimate.
func estimated(t conversation.Transcript, run string) bool {
	return slices.ContainsFunc(t.Turns, func(turn *conversation.Turn) bool { return turn.Run == run && turn.Capsule.Estimated })
}

// bounds returns the bounds of one run.
func (p talkPane) bounds() Budget {
	if p.budget == nil {
		return Budget{}
	}
	return p.budget()
}

// spent sets the cost of the run, and how much of its budget that is. Without a bound of the cost, the tokens count if they have one.
func (s *talkStatus) spent(u *record.Usage, estimated bool, b Budget) {
	if u == nil {
		return
	}
	about := ""
	if estimated {
		about = "~"
	}
	if u.CostMicros > 0 {
		s.Cost = about + cost(u.CostMicros) + " $"
	}
	switch {
	case b.CostMicros > 0:
		s.Spent, s.Budget = min(u.CostMicros, b.CostMicros), b.CostMicros
		s.BudgetText = about + cost(u.CostMicros) + " $ of " + cost(b.CostMicros) + " $"
	case b.Tokens > 0:
		s.Spent, s.Budget = min(u.Tokens(), b.Tokens), b.Tokens
		s.BudgetText = fmt.Sprintf("%s%d of %d tokens", about, u.Tokens(), b.Tokens)
	}
}

func cleanPlan(plan []acp.PlanItem) []acp.PlanItem {
	list := slices.Clone(plan[:min(len(plan), 100)])
	for i := range list {
		list[i].Content = render.OneLine(list[i].Content, 300)
	}
	return list
}

// talkSources has all that the rows of conversations are made from.
type talkSources struct {
	address  string
	git      *gitd.Server
	evidence *evidence.API
	rows     *rowMaker
	now      func() time.Time
	memory   conversation.Memory
	sizes    commitSizes
}

// talkMaker makes rows of entries.
type talkMaker struct {
	ctx     context.Context // of the request that the rows are made for
	sources *talkSources
	path    string
	may     bool   // the person may change the workspace
	subject string // of the person
	runs    map[string]record.Run

	whole   bool // show the results of tools, the output of commands and long texts
	counted int  // commits whose lines this page counted
}

// again returns the offer to send the prompt of the last turn again. Returns nil unless a person ended that turn. A run that failed has
// an offer of its own.
func (m *talkMaker) again(t conversation.Transcript) *talkAgain {
	if !m.may || len(t.Turns) == 0 || t.After != "" {
		return nil
	}
	last := t.Turns[len(t.Turns)-1]
	if last.State != conversation.StateStopped || last.Agent == "" || m.runs[last.Run].State == record.StateFailed {
		return nil
	}
	for _, e := range slices.Backward(last.Entries) {
		if e.Kind == conversation.KindPrompt && len(e.Files) == 0 {
			return &talkAgain{Path: m.path, Run: last.Run, Entry: e.ID, Words: render.OneLine(e.Text, 120)}
		}
	}
	return nil
}

// mayAnswer reports whether the person may answer a question.
func (m *talkMaker) mayAnswer(g *record.Gate) bool {
	return m.may && g.Admits(m.subject)
}

// doing describes the work of the run at work.
func (m *talkMaker) doing(t conversation.Transcript) string {
	last := t.Turns[len(t.Turns)-1]
	for _, turn := range slices.Backward(t.Turns) {
		if turn.Run == t.Live.Run { // a terminal that was opened later is no work
			last = turn
			break
		}
	}
	name := last.Agent
	if name == "" {
		name = "A command"
	}
	switch {
	case t.Live.Gate != nil:
		return name + " asks"
	case t.Live.Place > 0:
		return fmt.Sprintf("%s waits for a container, place %d in line", name, t.Live.Place)
	case last.State == conversation.StateWaiting:
		return name + " begins"
	case last.Over():
		return "Checks run"
	}
	return name + " works"
}

// prompt returns the row of a prompt.
func (m *talkMaker) prompt(run string, e *conversation.Entry) talkRow {
	row := talkRow{Key: "p " + e.ID, Kind: "prompt", ID: e.ID, When: e.Time,
		Text: render.ClipClean(e.Text, maxTalkText), From: fromWords(e.From), Run: run, PromptKey: e.Key,
		Path: m.path, MayChange: m.may}
	if e.By != nil {
		row.By = personName(*e.By)
	}
	_, id, _ := strings.Cut(run, "/")
	for _, f := range e.Files {
		row.Files = append(row.Files, talkFile{Name: render.OneLine(f.Name, 120), Picture: pictureName(f.Name),
			Href: m.path + "/runs/" + url.PathEscape(id) + "/prompts/" + url.PathEscape(e.Key) + "/" +
				url.PathEscape(f.Name)})
	}
	return row
}

func fromWords(from string) string {
	switch from {
	case "slack":
		return "in Slack"
	case "mcp":
		return "by an assistant"
	case "cli":
		return "on the command line"
	case "api", "acp":
		return "by a program"
	}
	return ""
}

func pictureName(name string) bool {
	return slices.Contains([]string{".png", ".jpg", ".jpeg", ".gif", ".webp"}, strings.ToLower(path.Ext(name)))
}

// entry returns the rows of an entry.
func (m *talkMaker) entry(t *conversation.Turn, e *conversation.Entry) []talkRow {
	row := talkRow{Key: "e " + e.ID, Kind: string(e.Kind), ID: e.ID, When: e.Time,
		Text: render.ClipClean(e.Text, maxTalkText), Path: m.path, Run: t.Run, Step: e.Step, MayChange: m.may}
	r, known := m.runs[t.Run]
	if known {
		row.Link = m.sources.address + runPath(r)
	}
	if e.Commit != "" {
		row.Commit = render.ShortHash(e.Commit)
		if known {
			parent := e.Parent
			if t.Kind == record.KindTerminal {
				parent = "" // an agent may have committed since the command began
			}
			row.Size = m.changeSize(r.Repo, parent, e.Commit)
		}
	}
	switch e.Kind {
	case conversation.KindPrompt:
		row = m.prompt(t.Run, e)
		if !m.whole {
			row.Text, row.Rest = cutLong(row.Text)
		}
		return []talkRow{row}
	case conversation.KindWords:
		return m.words(t, e)
	case conversation.KindTool, conversation.KindPermitted:
		row.Src = m.src("entry", e.ID)
		row.tool(e, m.whole)
	case conversation.KindQuestion:
		row.question(e)
		row.MayChange = m.mayAnswer(e.Gate)
	case conversation.KindCommand, conversation.KindCheck:
		row.Src = m.src("entry", e.ID)
		row.command(e, m.whole)
	case conversation.KindEnd:
		if v := m.sources.rows.verdictOf(m.ctx, m.runs[t.Run]); v != "" && v != record.VerdictNone {
			b := verdictBadge(v)
			row.Verdict = &b
		}
	case conversation.KindInterrupt:
		row.By = row.Text
		row.Text = "interrupted the turn"
		if e.Reason == record.InterruptStop {
			row.Text = "stopped the turn; its changes are committed"
		}
	case conversation.KindFailure:
		row.Class = "bad"
		row.Note = sentence(render.Hint(record.Reason(e.Reason)))
		if e.Reason == string(record.ReasonCancelled) {
			row.Text, row.Note, row.Class = "The run was stopped. Its changes are committed.", "", ""
		}
		if row.Retries = m.may && t.Kind != record.KindTerminal; t.Kind == record.KindTerminal && row.Class == "" {
			row.Text = "The terminal was stopped. Its changes are committed."
		}
		row.Text = sentence(row.Text)
	case conversation.KindSecret:
		row.Class, row.Text = "warn", "The value of a secret was removed: "+row.Text
	case conversation.KindRefused:
		row.Class, row.Text = "warn", "The network refused "+row.Text
	case conversation.KindBrowser:
		row.Mark, row.Class = mark(e.OK)
		row.Text = "Page " + row.Text + ": " + e.Reason
		if known && r.Ended() { // only then its files are kept
			row.Files = m.pictures(r, e)
		}
	case conversation.KindPlan:
		return nil // it is in the status while it matters
	}
	return []talkRow{row}
}

// words returns the rows of words of an agent, one for each block.
func (m *talkMaker) words(t *conversation.Turn, e *conversation.Entry) (rows []talkRow) {
	closed, open := m.sources.memory.Blocks(m.runs[t.Run], e)
	cut := 0
	if !m.whole && len(closed) > maxBlocks {
		cut = (len(closed) - maxBlocks/2) / (maxBlocks / 4) * (maxBlocks / 4)
		rows = append(rows, talkRow{Key: "w " + e.ID + " cut", Kind: "cut", Text: "The beginning of this message", Link: m.src("entry", e.ID)})
	}
	for i, block := range closed {
		if i < cut {
			continue
		}
		rows = append(rows, talkRow{Key: fmt.Sprintf("w %s %d", e.ID, i), Kind: "words", ID: e.ID, HTML: block})
	}
	if open != "" {
		rows = append(rows, talkRow{Key: fmt.Sprintf("w %s %d", e.ID, len(closed)), Kind: "words", ID: e.ID, HTML: open,
			Open: true})
	}
	if e.Span != nil && e.Span.To-e.Span.From > int64(len(e.Text)) && !e.Open {
		rows = append(rows, talkRow{Key: "w " + e.ID + " more", Kind: "note",
			Text: "There is more in the output of the turn."})
	}
	return rows
}

// mark returns the sign of a result, with its class.
func mark(ok *bool) (sign, class string) {
	switch {
	case ok == nil:
		return "…", "live"
	case *ok:
		return "✓", "good"
	}
	return "✗", "bad"
}

// question sets the row of a question.
func (row *talkRow) question(e *conversation.Entry) {
	g := e.Gate
	if g == nil {
		return
	}
	row.Step = g.Step
	if words, ok := strings.CutSuffix(e.Text, "\n"+g.Command); ok && g.Command != "" {
		row.Text, row.Command = render.ClipClean(words, maxTalkText), render.ClipClean(g.Command, maxTalkText)
	}
	for _, o := range g.Options {
		o.Name = render.OneLine(o.Name, 80)
		if o.Name == "" {
			o.Name = render.OneLine(o.ID, 80)
		}
		row.Options = append(row.Options, o)
	}
	if len(g.Allowed) > 0 {
		row.Allowed = render.OneLine(strings.Join(g.Allowed, ", "), 300)
	}
	row.Open = e.Decision == nil
	if row.Open {
		return
	}
	row.Note = "Rejected"
	if e.Decision.Approved {
		row.Note = "Approved"
	}
	if o, ok := g.Option(e.Decision.Option); ok && o.Name != "" {
		row.Note += ", “" + render.OneLine(o.Name, 80) + "”,"
	}
	row.Note += " by " + decider(*e.Decision)
	if e.Decision.Comment != "" {
		row.Note += ": " + render.OneLine(e.Decision.Comment, 500)
	}
	row.Until = e.Decided
}

// command sets the row of a command or a check, with its output if the whole of it is wanted.
func (row *talkRow) command(e *conversation.Entry, whole bool) {
	row.Mark, row.Class = mark(e.OK)
	row.Note = row.Text
	row.Text = render.ClipClean(e.Command, 2000)
	if row.Text == "" {
		row.Text = row.Note
	}
	if e.Tail == "" {
		row.Src = ""
	} else if whole {
		row.Src, row.Bodies = "", []resultPart{{Class: "wrap printed", HTML: markup.Terminal(text.ClipEnd(e.Tail, maxTail))}}
	}
	switch {
	case e.Reason == record.ReasonKilled:
		row.Note, row.Class, row.Mark = "stopped", "", "–"
		return
	case e.Reason != "":
		row.Note, row.Class, row.Mark = strings.TrimSuffix(render.OneLine(e.Reason, 80)+": "+row.Note, ": "),
			"warn", "!"
		return
	}
	row.Note = ""
	if e.Exit != nil && *e.Exit != 0 {
		row.Note = fmt.Sprintf("exit %d", *e.Exit)
	}
	if e.DurationMS >= 1000 {
		row.Note = strings.TrimPrefix(row.Note+" · "+render.Duration(time.Duration(e.DurationMS)*time.Millisecond), " · ")
	}
}

// Back returns the prompts that came back when a turn was stopped, for the composer.
func (d talkData) Back() string { return text.Clip(d.call.R.URL.Query().Get("back"), 8<<10) }
