package timeline

import (
	"cmp"
	"encoding/json"
	"fmt"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/render"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/text"
)

// Bounds of one tick. The journal has everything.
const (
	maxText     = 2 << 10 // bytes of a command, a prompt or a message
	maxPictures = 24
)

// Tick is one command, one task or one turn of an agent.
type Tick struct {
	ID      string      `json:"id"`  // RUN/SEQ
	Run     string      `json:"run"` // CALLER/RUN
	Step    string      `json:"step"`
	Kind    string      `json:"kind,omitempty"` // of the step: "agent", "exec" …
	Command string      `json:"command,omitempty"`
	Task    string      `json:"task,omitempty"`
	Agent   string      `json:"agent,omitempty"`  // who worked, if it was an agent
	Prompt  string      `json:"prompt,omitempty"` // the words that the turn began with
	By      gitd.Person `json:"by"`               // the person who asked for the run
	Began   time.Time   `json:"began"`
	// DurationMS is how long it took, in milliseconds. It is 0 while it works.
	DurationMS int64 `json:"duration_ms,omitempty"`
	// Parent has the files before, and Head those after. They are equal if nothing changed. Head is empty while it works.
	Parent gitd.Hash `json:"parent,omitempty"`
	Head   gitd.Hash `json:"head,omitempty"`
	// Changed reports whether Head is a commit of this tick.
	Changed bool   `json:"changed,omitempty"`
	Exit    *int   `json:"exit,omitempty"`
	OK      *bool  `json:"ok,omitempty"` // nil while it is not known
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// Stdout and Stderr are the outputs, without their ends.
	Stdout *record.Stream `json:"stdout,omitempty"`
	Stderr *record.Stream `json:"stderr,omitempty"`
	// CostMicros is in millionths of the unit of the configured prices. It is 0 if no price is known.
	CostMicros int64 `json:"cost_micros,omitempty"`
	Tokens     int64 `json:"tokens,omitempty"`
	// Pictures are names of files of the run's evidence.
	Pictures []string `json:"pictures,omitempty"`
	// Before has, for each of Pictures, the picture of the same page on the base. It is empty for those without one.
	Before []string `json:"before,omitempty"`
	// Reused names the check whose result this one has. Nothing ran.
	Reused *record.Reused `json:"reused,omitempty"`

	prompt string // all of Prompt
	cut    bool   // Command is not whole
}

// Cut reports whether Command is only the begin of the command.
func (t *Tick) Cut() bool { return t.cut }

// WholePrompt returns the words that the turn began with, also if they are longer than Prompt.
func (t *Tick) WholePrompt() string { return t.prompt }

// Over reports whether the tick has ended.
func (t *Tick) Over() bool { return t.Head != "" || t.OK != nil }

// Commit returns the commit with the files of the tick. While it works, this is the one before it.
func (t *Tick) Commit() gitd.Hash { return cmp.Or(t.Head, t.Parent) }

// Failed reports whether the tick has ended without success.
func (t *Tick) Failed() bool { return t.OK != nil && !*t.OK }

// fold makes the ticks of a run from its journal.
type fold struct {
	run   record.Run
	queue record.Queue
	heard int // prompts that belong to earlier turns
	ticks []*Tick
	open  map[string]*Tick // that work, by step
	last  *Tick
}

// ticksOf returns the ticks of a run with these events.
func ticksOf(r record.Run, events func(yield func(record.Event, error) bool)) ([]*Tick, error) {
	f := &fold{run: r, open: map[string]*Tick{}}
	if r.Agent != nil {
		f.queue = r.Queue(nil)
	}
	for e, err := range events {
		if err != nil {
			return nil, err
		}
		f.apply(e)
	}
	return f.ticks, nil
}

func (f *fold) apply(e record.Event) {
	if f.run.Agent != nil {
		f.queue.Apply(e)
	}
	switch e.Type {
	case record.EventStepStarted:
		f.beginStep(e)
	case record.EventStepFinished:
		f.finish(e)
	case record.EventUsage:
		var call record.ModelCall
		if t := f.of(e); t != nil && json.Unmarshal(e.Data, &call) == nil {
			t.CostMicros += call.CostMicros
			t.Tokens += call.InputTokens + call.OutputTokens
		}
	case record.EventBrowser:
		if t := f.of(e); t != nil {
			after, before := pictures(e.Data)
			n := min(len(after), maxPictures-len(t.Pictures))
			t.Pictures, t.Before = append(t.Pictures, after[:n]...), append(t.Before, before[:n]...)
		}
	}
}

// of returns the tick that an event belongs to, and nil if none has begun.
func (f *fold) of(e record.Event) *Tick {
	if t := f.open[e.Step]; t != nil {
		return t
	}
	return f.last
}

func (f *fold) beginStep(e record.Event) {
	if f.open[e.Step] != nil {
		return // a server that was restarted goes on with it
	}
	t := &Tick{ID: fmt.Sprintf("%s/%d", f.run.ID, e.Seq), Run: f.run.Name(), Step: e.Step, Kind: e.Kind,
		Command: text.Clip(e.Command, maxText), cut: len(e.Command) > maxText, Task: e.Task, By: f.run.Asker, Began: e.Time, Parent: e.Parent}
	if f.run.Agent != nil && e.Kind == string(record.KindAgent) {
		t.Agent = f.run.Agent.Name
		if heard := min(max(f.queue.Heard, 1), len(f.queue.Prompts)); heard > f.heard {
			p := f.queue.Prompts[heard-1]
			t.prompt, t.Prompt, f.heard = p.Text, text.Clip(p.Text, maxText), heard
			if p.By != (gitd.Person{}) {
				t.By = p.By
			}
		}
	}
	f.open[e.Step], f.last = t, t
	f.ticks = append(f.ticks, t)
}

func (f *fold) finish(e record.Event) {
	t := f.open[e.Step]
	if t == nil {
		return // a step that never began
	}
	delete(f.open, e.Step)
	t.Parent = cmp.Or(e.Parent, t.Parent)
	t.Head, t.Changed = cmp.Or(e.Commit, t.Parent), e.Commit != ""
	t.DurationMS = e.DurationMS
	if t.DurationMS == 0 {
		t.DurationMS = e.Time.Sub(t.Began).Milliseconds()
	}
	t.Exit, t.OK, t.Reason, t.Message, t.Reused = e.Exit, e.OK, e.Reason, text.Clip(e.Message, maxText), e.Reused
	t.Stdout, t.Stderr = reference(e.Stdout), reference(e.Stderr)
}

// reference returns a stream without its end.
func reference(s *record.Stream) *record.Stream {
	if s == nil || s.Bytes == 0 {
		return nil
	}
	ref := *s
	ref.Tail = ""
	return &ref
}

// pictures returns the names of the pictures of a check of a page, and of those of the same pages on the base. An agent may have sent other data,
// which has none.
func pictures(data json.RawMessage) (after, before []string) {
	var check struct {
		Views []struct {
			Screenshot string `json:"screenshot"`
		} `json:"views"`
		Compare struct {
			Views []struct {
				Before string `json:"before"`
				After  string `json:"after"`
			} `json:"views"`
		} `json:"compare"`
	}
	_ = json.Unmarshal(data, &check)
	for _, v := range check.Views {
		if v.Screenshot == "" {
			continue
		}
		was := ""
		for _, d := range check.Compare.Views {
			if d.After == v.Screenshot && d.Before != "" {
				was = render.BrowserFiles + d.Before
			}
		}
		after, before = append(after, render.BrowserFiles+v.Screenshot), append(before, was)
	}
	return after, before
}
