package conversation

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/ramus-dev/ramus/executor/acp"
	"github.com/ramus-dev/ramus/executor/agent"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/internal/text"
)

// maxEntries bounds the entries of one turn. Later ones are only in the journal.
const maxEntries = 3000

// maxViews bounds the views of one check of a page.
const maxViews = 20

// Fold makes the turns of one run from its journal. It is not safe for concurrent use.
type Fold struct {
	Run   record.Run // as it was claimed, or later
	Turns []*Turn

	queue record.Queue // of an agent's run
	heard int          // prompts that are entries of turns
	times map[string]record.Event
	tools map[string]*Entry // of the turn that works, by the id of the call
	steps map[string]*Entry // that began, by step
	words *Entry            // of the agent, to which more may follow
	said  int64             // bytes of the agent's words that are entries
	plan  *Entry            // of the turn that works
	asked *Entry            // the last question of an agent, until it is answered
	seq   int64             // of the last event

	changed map[*Entry]bool
	touched map[*Turn]bool
}

// NewFold returns the fold of a run of which no event was read.
func NewFold(r record.Run) *Fold {
	r.State, r.Reason, r.Error = record.StateSubmitted, "", "" // the journal has them
	f := &Fold{Run: r, times: map[string]record.Event{}, steps: map[string]*Entry{}, changed: map[*Entry]bool{},
		touched: map[*Turn]bool{}}
	t := &Turn{ID: entryID(r, 1), Run: r.Name(), Kind: r.Kind, State: StateWaiting}
	if r.Kind == record.KindAgent && r.Agent != nil {
		f.queue = r.Queue(nil)
		t.Agent, t.Session = r.Agent.Name, r.Agent.Session
	}
	f.Turns = []*Turn{t}
	if r.Kind == record.KindAgent && r.Agent != nil {
		f.hear(1)
	}
	return f
}

// Seq returns the number of the last event.
func (f *Fold) Seq() int64 { return f.seq }

// Last returns the last turn.
func (f *Fold) Last() *Turn { return f.Turns[len(f.Turns)-1] }

// Waiting returns the prompts that the agent has not got, as entries.
func (f *Fold) Waiting() []*Entry {
	var list []*Entry
	if f.Run.Agent == nil {
		return nil
	}
	for i := max(f.queue.Heard, f.heard); i < len(f.queue.Prompts); i++ {
		list = append(list, f.prompt(f.queue.Prompts[i]))
	}
	return list
}

// Changes returns the entries and turns that changed since the last call.
func (f *Fold) Changes() (entries map[*Entry]bool, turns map[*Turn]bool) {
	entries, turns = f.changed, f.touched
	f.changed, f.touched = map[*Entry]bool{}, map[*Turn]bool{}
	return entries, turns
}

// Apply takes the next event of the journal, or live output. It ignores events that it has.
func (f *Fold) Apply(e record.Event) {
	if e.Type == record.EventOutput {
		f.output(e)
		return
	}
	if e.Seq <= f.seq {
		return
	}
	f.seq = e.Seq
	f.closeQuestion(e)
	if f.Run.Agent != nil {
		f.queue.Apply(e)
		f.speak(e)
	}
	switch e.Type {
	case record.EventPrompt:
		if p, ok := e.Prompt(); ok {
			f.times[p.Key] = e
		}
	case record.EventQueue:
		if e.Kind == record.QueueHeard {
			f.hear(f.queue.Heard)
		}
	case record.EventStepStarted:
		f.beginStep(e)
	case record.EventStepFinished:
		f.finish(e)
	case record.EventRunState:
		f.state(e)
	case record.EventAgent:
		f.agent(e)
	case record.EventGate:
		f.ask(e)
	case record.EventDecision:
		f.decide(e)
	case record.EventUsage:
		f.usage(e)
	default:
		f.note(e)
	}
}

// note adds an entry for an event that has one of its own.
func (f *Fold) note(e record.Event) {
	switch e.Type {
	case record.EventInterrupt:
		by := decode[record.Interrupt](e.Data).By
		f.add(e, Entry{Kind: KindInterrupt, Text: e.Message, Reason: e.Kind, By: &by})
	case record.EventSecret:
		f.add(e, Entry{Kind: KindSecret, Text: e.Message, Reason: e.Kind})
	case record.EventCheck:
		f.Last().Capsule.Skipped++
		f.add(e, Entry{Kind: KindCheck, Text: e.Message, Reason: e.Reason, Command: e.Task, Step: e.Step})
	case record.EventBrowser:
		ok := e.Reason == string(record.BrowserPass)
		page := decode[CheckedPage](e.Data)
		page.Views = page.Views[:min(len(page.Views), maxViews)]
		f.add(e, Entry{Kind: KindBrowser, Text: e.Message, Reason: e.Reason, OK: &ok, Commit: e.Commit, Page: &page})
	case record.EventEgress:
		if e.Reason == record.EgressRefused {
			f.add(e, Entry{Kind: KindRefused, Text: e.Message})
		}
	case record.EventTool:
		tool := acp.Tool{Title: e.Message, Kind: "other", Status: "completed"}
		if e.OK != nil && !*e.OK {
			tool.Status = "failed"
		}
		f.Last().Capsule.Tools++
		f.add(e, Entry{Kind: KindTool, Tool: &tool, OK: e.OK})
	case record.EventNote, record.EventRecovered, record.EventContainer, record.EventQueued:
		f.add(e, Entry{Kind: KindNote, Text: e.Message, Reason: e.Reason, Step: e.Step})
	}
}

// add adds an entry to the last turn.
func (f *Fold) add(e record.Event, entry Entry) *Entry {
	t := f.Last()
	entry.ID, entry.Time = entryID(f.Run, e.Seq), e.Time
	if len(t.Entries) >= maxEntries {
		return &entry
	}
	t.Entries = append(t.Entries, &entry)
	f.changed[&entry] = true
	f.touched[t] = true
	return &entry
}

// speak ends the agent's words before an event that has an entry of its own. An interruption ends none, because an agent
// may say the rest of a sentence before it stops.
func (f *Fold) speak(e record.Event) {
	t := f.Last()
	if t.seq == 0 {
		return
	}
	switch e.Type {
	case record.EventAgent, record.EventGate, record.EventTool, record.EventStepFinished, record.EventSecret,
		record.EventNote, record.EventContainer, record.EventRecovered, record.EventEgress, record.EventQueue:
	default:
		return
	}
	if e.Type == record.EventStepFinished && e.Step != t.Step || e.Type == record.EventAgent &&
		e.Kind == acp.UpdateToolMore ||
		e.Type == record.EventEgress && e.Reason != record.EgressRefused || e.Type == record.EventQueue &&
		e.Kind != record.QueueHeard {
		return
	}
	upto := max(e.Words, f.said)
	if e.Words == 0 && e.Type == record.EventStepFinished && e.Stdout != nil { // a journal of an earlier version
		upto = max(upto, e.Stdout.Bytes)
	}
	f.extend(upto, "")
	if f.words != nil {
		f.words.Open = false
		f.changed[f.words] = true
		f.words = nil
	}
}

// extend has the agent's words go on to a byte of the turn's output. more are the bytes that are new, if they are known.
func (f *Fold) extend(to int64, more string) {
	if to <= f.said {
		return
	}
	t := f.Last()
	if f.words == nil {
		w := &Entry{ID: wordsID(f.Run, t.seq, f.said), Kind: KindWords, Time: t.Began, Open: true,
			Span: &record.Span{Seq: t.seq, From: f.said, To: f.said}}
		if len(t.Entries) >= maxEntries {
			f.said = to
			return
		}
		t.Entries = append(t.Entries, w)
		f.words = w
	}
	if int64(len(more)) == to-f.words.Span.To && int64(len(f.words.Text)) == f.words.Span.To-f.words.Span.From {
		f.words.Text += more
	}
	span := *f.words.Span // those who read a clone have the old one
	span.To = to
	f.words.Span, f.said = &span, to
	f.changed[f.words] = true
}

// output takes live output of the turn that works. It ignores bytes that it has. [Read] fills a gap.
func (f *Fold) output(e record.Event) {
	t := f.Last()
	if e.Span == nil || e.Kind != "stdout" || e.Span.Seq != t.seq || t.Kind != record.KindAgent || e.Span.To <= f.said {
		return
	}
	more := e.Message
	if skip := f.said - e.Span.From; skip > 0 && skip <= int64(len(more)) {
		more = more[skip:]
	}
	if e.Span.From > f.said {
		more = "" // the reader fills the gap from the file
	}
	f.extend(e.Span.To, more)
}

// prompt returns the entry of a prompt.
func (f *Fold) prompt(p record.Prompt) *Entry {
	by := p.By
	entry := &Entry{ID: entryID(f.Run, 1), Kind: KindPrompt, Time: f.Run.CreatedAt, Text: p.Text, By: &by, Key: p.Key,
		From: p.From, Now: p.Now, Files: p.Files}
	if e, ok := f.times[p.Key]; ok {
		entry.ID, entry.Time = entryID(f.Run, e.Seq), e.Time
	} else if f.Run.Origin != nil {
		entry.From = f.Run.Origin.Source
	}
	return entry
}

// hear adds the prompts that the agent has got to the last turn.
func (f *Fold) hear(upto int) {
	t := f.Last()
	for ; f.heard < min(upto, len(f.queue.Prompts)); f.heard++ {
		entry := f.prompt(f.queue.Prompts[f.heard])
		t.Entries = append(t.Entries, entry)
		f.changed[entry] = true
		f.touched[t] = true
	}
}

// beginStep takes the beginning of a step.
func (f *Fold) beginStep(e record.Event) {
	if f.Run.Agent != nil && e.Kind == string(record.KindAgent) {
		t := f.Last()
		if t.Step != "" && t.Step != e.Step {
			t = &Turn{ID: entryID(f.Run, e.Seq), Run: f.Run.Name(), Kind: f.Run.Kind, Agent: f.Run.Agent.Name,
				Session: f.Run.Agent.Session}
			f.Turns = append(f.Turns, t)
		}
		t.Step, t.State, t.seq = e.Step, StateWorking, e.Seq
		if t.Began.IsZero() {
			t.Began = e.Time
		}
		f.tools, f.plan, f.words, f.said = map[string]*Entry{}, nil, nil, 0
		f.hear(f.queue.Heard)
		f.touched[t] = true
		return
	}
	kind := KindCommand
	if record.CheckOf(e.Task) != "" && f.Run.Kind == record.KindAgent {
		kind = KindCheck
	}
	t := f.Last()
	if f.Run.Agent == nil {
		t.State = StateWorking
		if t.Began.IsZero() {
			t.Began = e.Time
		}
	}
	f.steps[e.Step] = f.add(e, Entry{Kind: kind, Command: e.Command, Text: e.Task, Step: e.Step, Parent: e.Parent})
}

// finish takes the end of a step.
func (f *Fold) finish(e record.Event) {
	t := f.Last()
	if e.Commit != "" {
		t.Capsule.Commits++
	}
	if f.Run.Agent != nil && e.Kind == string(record.KindAgent) {
		t.Ended, t.Capsule.DurationMS = e.Time, e.Time.Sub(t.Began).Milliseconds()
		t.State = StateDone
		switch {
		case e.Reason == "stopped":
			t.State = StateStopped
		case e.OK != nil && !*e.OK:
			t.State = StateFailed
			f.add(e, Entry{Kind: KindFailure, Text: e.Message, Reason: e.Reason, Exit: e.Exit, OK: e.OK, Step: e.Step})
		}
		if e.Commit != "" {
			f.add(e, Entry{Kind: KindCommit, Commit: e.Commit, Parent: e.Parent, Text: text.OneLine(e.Command, 200),
				Step: e.Step})
		}
		f.fold(t)
		return
	}
	entry := f.steps[e.Step]
	if entry == nil {
		entry = f.add(e, Entry{Kind: KindCommand, Command: e.Command, Text: e.Task, Step: e.Step})
	}
	entry.Exit, entry.OK, entry.Reason, entry.DurationMS, entry.Commit, entry.Parent = e.Exit, e.OK, e.Reason,
		e.DurationMS, e.Commit, e.Parent
	for _, stream := range []*record.Stream{e.Stdout, e.Stderr} {
		if stream != nil {
			entry.Tail += stream.Tail
		}
	}
	f.changed[entry] = true
	f.touched[t] = true
}

// state takes a state of the run.
func (f *Fold) state(e record.Event) {
	f.Run.State, f.Run.Reason, f.Run.Error = e.State, record.Reason(e.Reason), e.Message
	t := f.Last()
	switch e.State {
	case record.StateFailed:
		if !t.Over() || f.Run.Agent == nil {
			t.State = StateFailed
		}
		if f.Run.Reason == record.ReasonCancelled {
			t.State = StateStopped
		}
		f.add(e, Entry{Kind: KindFailure, Text: e.Message, Reason: e.Reason})
	case record.StateComplete:
		if !t.Over() {
			t.State = StateDone
		}
		f.add(e, Entry{Kind: KindEnd, Commit: e.Commit})
	case record.StateAwaitingReview:
		t.State = StateAsking
	default:
		return
	}
	if e.State != record.StateAwaitingReview {
		f.closeQuestions(e)
	}
	if t.Ended.IsZero() && e.State != record.StateAwaitingReview {
		t.Ended = e.Time
		if !t.Began.IsZero() {
			t.Capsule.DurationMS = e.Time.Sub(t.Began).Milliseconds()
		}
	}
	f.touched[t] = true
	if t.Over() {
		f.fold(t)
	}
}

// agent takes an update of an agent.
func (f *Fold) agent(e record.Event) {
	switch e.Kind {
	case acp.UpdateTool, acp.UpdateToolMore:
		f.tool(e)
	case acp.UpdatePlan:
		plan := decode[struct {
			Entries []acp.PlanItem `json:"entries"`
		}](e.Data).Entries
		if len(plan) == 0 {
			return
		}
		if f.plan == nil {
			f.plan = f.add(e, Entry{Kind: KindPlan})
		}
		f.plan.Plan, f.plan.Text = plan, e.Message
		f.changed[f.plan] = true
	case agent.KindThought:
		f.add(e, Entry{Kind: KindThought, Text: e.Message})
	case agent.KindPermission:
		tool := decode[acp.Tool](e.Data)
		verdict, _, _ := strings.Cut(e.Message, ":")
		ok := verdict == agent.PermissionAllow
		f.add(e, Entry{Kind: KindPermitted, Text: e.Message, Tool: &tool, OK: &ok})
	case agent.KindLimit:
		f.add(e, Entry{Kind: KindNote, Text: e.Message, Reason: e.Kind})
	}
}

// tool takes the beginning of a call of a tool, or news of it.
func (f *Fold) tool(e record.Event) {
	var now acp.Tool
	if json.Unmarshal(e.Data, &now) != nil {
		return
	}
	entry := f.tools[now.ID]
	if entry == nil || now.ID == "" {
		f.Last().Capsule.Tools++
		entry = f.add(e, Entry{Kind: KindTool})
		if f.tools != nil {
			f.tools[now.ID] = entry
		}
	}
	if now.RawInput == nil && entry.Tool != nil {
		now.RawInput = entry.Tool.RawInput
	}
	if now.Content == nil && entry.Tool != nil {
		now.Content = entry.Tool.Content
	}
	entry.Tool = &now
	switch now.Status {
	case "completed", "failed":
		ok := now.Status == "completed"
		entry.OK, entry.DurationMS = &ok, e.Time.Sub(entry.Time).Milliseconds()
	}
	f.changed[entry] = true
	f.touched[f.Last()] = true
}

// ask takes a question. An agent has one open question at a time.
func (f *Fold) ask(e record.Event) {
	gate := decode[record.Gate](e.Data)
	if gate.Step == "" {
		gate.Step, gate.Message = e.Step, e.Message
	}
	entry := f.add(e, Entry{Kind: KindQuestion, Text: e.Message, Gate: &gate, Step: gate.Step})
	if e.Kind == agent.KindPermission {
		f.asked = entry
	}
	f.Last().State = StateAsking
}

// closeQuestion closes the open question of an agent if e shows that nobody can answer it any more, because the server
// was killed while the agent asked.
func (f *Fold) closeQuestion(e record.Event) {
	q := f.asked
	if q == nil {
		return
	}
	switch {
	case e.Type == record.EventGate && e.Kind == agent.KindPermission:
	case e.Type == record.EventStepStarted && strings.HasPrefix(q.Step, e.Step+"/"):
	case e.Type == record.EventAgent && e.Kind == agent.KindSession && strings.HasPrefix(q.Step, e.Step+"/"):
		// Another process of the agent goes on in the same step.
		if t := f.Last(); t.State == StateAsking {
			t.State = StateWorking
			f.touched[t] = true
		}
	default:
		return
	}
	f.answer(q, record.Decision{Step: q.Step, By: closedBy, Comment: record.NotAwaited}, e)
}

// closeQuestions closes all open questions of a run that has ended.
func (f *Fold) closeQuestions(e record.Event) {
	for _, t := range f.Turns {
		for _, entry := range t.Entries {
			if entry.Kind == KindQuestion && entry.Decision == nil {
				f.answer(entry, record.Decision{Step: entry.Step, By: closedBy, Comment: "the run has ended"}, e)
				f.touched[t] = true
			}
		}
	}
}

// closedBy decides on questions that nobody can answer.
const closedBy = "ramus"

// answer sets the answer of a question.
func (f *Fold) answer(q *Entry, d record.Decision, e record.Event) {
	q.Decision, q.Decided, q.OK = &d, e.Time, &d.Approved
	if q == f.asked {
		f.asked = nil
	}
	f.changed[q] = true
}

// decide takes the answer to a question.
func (f *Fold) decide(e record.Event) {
	d := decode[record.Decision](e.Data)
	t := f.Last()
	if t.State == StateAsking {
		t.State = StateWorking
	}
	f.touched[t] = true
	if q := f.asked; q != nil && q.Step == e.Step {
		f.answer(q, d, e)
		return
	}
	for _, t := range slices.Backward(f.Turns) {
		for _, entry := range slices.Backward(t.Entries) {
			if entry.Kind == KindQuestion && entry.Gate != nil && entry.Gate.Step == e.Step && entry.Decision == nil {
				f.answer(entry, d, e)
				return
			}
		}
	}
}

// usage counts a call of a model.
func (f *Fold) usage(e record.Event) {
	c := decode[record.ModelCall](e.Data)
	t := f.Last()
	if !c.Refused {
		t.Capsule.CostMicros += max(c.CostMicros, 0)
		t.Capsule.Tokens += max(c.InputTokens, 0) + max(c.OutputTokens, 0)
		t.Capsule.Estimated = t.Capsule.Estimated || c.Estimated
	}
	f.touched[t] = true
}

// fold folds the entries of a turn that has ended.
func (f *Fold) fold(t *Turn) {
	last := -1 // the agent's final words
	for i, entry := range t.Entries {
		if entry.Kind == KindWords {
			last = i
		}
	}
	t.Capsule.Folded = 0
	for i, entry := range t.Entries {
		folded := i != last && folds(entry)
		if folded {
			t.Capsule.Folded++
		}
		if folded != entry.Folded {
			entry.Folded = folded
			f.changed[entry] = true
		}
	}
	f.touched[t] = true
}

// folds reports whether an entry may be folded away.
func folds(e *Entry) bool {
	switch e.Kind {
	case KindWords, KindThought, KindPlan, KindPermitted, KindCommit:
		return e.OK == nil || *e.OK
	case KindTool, KindBrowser:
		return e.OK == nil || *e.OK
	case KindCheck:
		return e.OK != nil && *e.OK && e.Reason == ""
	case KindNote:
		return e.Reason != record.NoteLeftOut && e.Reason != record.NoteRecovery
	}
	return false
}
