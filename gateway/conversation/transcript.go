package conversation

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
)

// Bounds of a window, in turns.
const (
	DefaultTurns = 40
	MaxTurns     = 200
)

// Window is a part of a conversation. At most one of Around, Before and After is set. The zero value is the end.
type Window struct {
	Around string // the id of an entry or a turn, which is in the middle
	Before string // the id of a turn; the window ends before it
	After  string // the id of a turn; the window begins after it
	Turns  int    // how many; 0 means DefaultTurns, and more than MaxTurns means MaxTurns
	// Agent and Session select the session of one agent, if Agent is set. Otherwise all runs of the caller are there.
	Agent, Session string
}

// Transcript is a window of the conversation of a caller.
type Transcript struct {
	Caller record.Caller `json:"caller"`
	Turns  []*Turn       `json:"turns"` // the oldest first
	// Before and After are the windows before and after this one, as ids of turns. They are empty if there are none.
	Before string `json:"before,omitempty"`
	After  string `json:"after,omitempty"`
	// Waiting are the prompts that the agent at work has not got.
	Waiting []*Entry `json:"waiting,omitempty"`
	Live    *Live    `json:"live,omitempty"` // nil if no run is at work
}

// Live is the run at work, and the place in it that a transcript has.
type Live struct {
	Run   string       `json:"run"`
	State record.State `json:"state"`
	Place int          `json:"place,omitempty"` // in the queue for a container
	Gate  *record.Gate `json:"gate,omitempty"`
	// Seq is the number of the last event of the transcript, and Words the bytes of the agent's turn that it has.
	Seq   int64         `json:"seq"`
	Words record.Span   `json:"words"`
	Usage *record.Usage `json:"usage,omitempty"`
}

// runsOf returns the runs of a caller that a window shows, the oldest first.
func runsOf(x Journals, caller record.Caller, w Window) []record.Run {
	return slices.DeleteFunc(slices.Clone(x.OfCaller(caller)), func(r record.Run) bool {
		return r.Aside() || w.Agent != "" && (r.Agent == nil || r.Agent.Name != w.Agent || r.Agent.Session != w.Session)
	})
}

// walk folds the runs of a caller when they are needed.
type walk struct {
	x      Journals
	runs   []record.Run
	folds  map[int]*Fold
	memory *Memory // nil for none
}

func (w *walk) fold(ctx context.Context, i int) (*Fold, error) {
	if f := w.folds[i]; f != nil {
		return f, nil
	}
	var f *Fold
	if w.memory != nil {
		var err error
		if f, err = w.memory.read(ctx, w.x, w.runs[i]); err != nil {
			return nil, err
		}
	} else {
		f = NewFold(w.runs[i])
		if err := Read(ctx, w.x, f); err != nil {
			return nil, err
		}
	}
	w.folds[i] = f
	return f, nil
}

// at is the place of a turn.
type at struct{ run, turn int }

// step returns the next place in a direction. ok is false at the end.
func (w *walk) step(ctx context.Context, p at, by int) (at, bool, error) {
	f, err := w.fold(ctx, p.run)
	if err != nil {
		return p, false, err
	}
	if p.turn += by; p.turn >= 0 && p.turn < len(f.Turns) {
		return p, true, nil
	}
	if p.run += by; p.run < 0 || p.run >= len(w.runs) {
		return p, false, nil
	}
	p.turn = 0
	if by < 0 {
		if f, err = w.fold(ctx, p.run); err != nil {
			return p, false, err
		}
		p.turn = len(f.Turns) - 1
	}
	return p, true, nil
}

// find returns the place of the turn with an id, or of the turn that has the entry with the id.
func (w *walk) find(ctx context.Context, id string) (at, error) {
	run, _, ok := cutID(id)
	i := slices.IndexFunc(w.runs, func(r record.Run) bool { return r.ID == run })
	if !ok || i < 0 {
		return at{}, fmt.Errorf("entry %.200q: %w", id, record.ErrNotFound)
	}
	f, err := w.fold(ctx, i)
	if err != nil {
		return at{}, err
	}
	for n, t := range f.Turns {
		if t.ID == id || slices.ContainsFunc(t.Entries, func(e *Entry) bool { return e.ID == id }) {
			return at{i, n}, nil
		}
	}
	return at{}, fmt.Errorf("entry %.200q: %w", id, record.ErrNotFound)
}

// cutID returns the run's id and the number in the id of an entry.
func cutID(id string) (run, number string, ok bool) {
	i := strings.LastIndexByte(id, '/')
	if i <= 0 || i == len(id)-1 {
		return "", "", false
	}
	return id[:i], id[i+1:], true
}

// Open reads a window of the conversation of a caller.
func Open(ctx context.Context, x Journals, caller record.Caller, win Window) (Transcript, error) {
	return open(ctx, x, caller, win, nil)
}

// Open reads a window of the conversation of a caller, as far as it is not remembered.
func (m *Memory) Open(ctx context.Context, x Journals, caller record.Caller, win Window) (Transcript, error) {
	return open(ctx, x, caller, win, m)
}

func open(ctx context.Context, x Journals, caller record.Caller, win Window, m *Memory) (Transcript, error) {
	w := &walk{x: x, runs: runsOf(x, caller, win), folds: map[int]*Fold{}, memory: m}
	t := Transcript{Caller: caller, Turns: []*Turn{}}
	if len(w.runs) == 0 {
		if win.Around+win.Before+win.After != "" {
			return t, fmt.Errorf("entry %.200q: %w", win.Around+win.Before+win.After, record.ErrNotFound)
		}
		return t, nil
	}
	first, last, err := w.bounds(ctx, win)
	if err != nil {
		return t, err
	}
	for p, ok := first, true; ok; {
		f, err := w.fold(ctx, p.run)
		if err != nil {
			return t, err
		}
		t.Turns = append(t.Turns, f.Turns[p.turn])
		if p == last {
			break
		}
		if p, ok, err = w.step(ctx, p, 1); err != nil {
			return t, err
		}
	}
	if _, more, err := w.step(ctx, first, -1); err != nil {
		return t, err
	} else if more {
		t.Before = t.Turns[0].ID
	}
	_, more, err := w.step(ctx, last, 1)
	if err != nil {
		return t, err
	}
	if more {
		t.After = t.Turns[len(t.Turns)-1].ID
		return t, nil
	}
	return t, w.live(ctx, &t)
}

// bounds returns the first and the last turn of a window.
func (w *walk) bounds(ctx context.Context, win Window) (first, last at, err error) {
	n := win.Turns
	if n <= 0 {
		n = DefaultTurns
	}
	n = min(n, MaxTurns)
	end := len(w.runs) - 1
	f, err := w.fold(ctx, end)
	if err != nil {
		return first, last, err
	}
	last = at{end, len(f.Turns) - 1}
	ok := true
	switch {
	case win.Before != "":
		if last, err = w.find(ctx, win.Before); err == nil {
			last, ok, err = w.step(ctx, last, -1)
		}
	case win.After != "":
		if first, err = w.find(ctx, win.After); err == nil {
			first, ok, err = w.step(ctx, first, 1)
		}
	case win.Around != "":
		first, err = w.find(ctx, win.Around)
		for i := 0; i < n/2 && err == nil && ok; i++ {
			var p at
			if p, ok, err = w.step(ctx, first, -1); ok {
				first = p
			}
		}
		ok = true
	}
	if err == nil && !ok {
		err = fmt.Errorf("turn %.200q: %w: it has no other there", win.Before+win.After, record.ErrNotFound)
	}
	if err != nil {
		return first, last, err
	}
	if win.After != "" || win.Around != "" {
		last, err = w.far(ctx, first, n-1, 1)
		return first, last, err
	}
	first, err = w.far(ctx, last, n-1, -1)
	return first, last, err
}

// far returns the place n turns away, or the last one in that direction.
func (w *walk) far(ctx context.Context, p at, n, by int) (at, error) {
	for range n {
		next, ok, err := w.step(ctx, p, by)
		if err != nil || !ok {
			return p, err
		}
		p = next
	}
	return p, nil
}

// live adds the run at work, the last one that has not ended. An open terminal is not at work.
func (w *walk) live(ctx context.Context, t *Transcript) error {
	for i := len(w.runs) - 1; i >= 0; i-- {
		if w.runs[i].Ended() || w.runs[i].Kind == record.KindTerminal {
			continue
		}
		f, err := w.fold(ctx, i)
		if err != nil {
			return err
		}
		r, err := w.x.Run(ctx, f.Run.Name())
		if err != nil {
			return err
		}
		if r.Ended() {
			continue
		}
		t.Waiting = f.Waiting()
		t.Live = &Live{Run: r.Name(), State: r.State, Place: r.Place, Gate: r.Gate, Seq: f.Seq(), Words: f.Have(),
			Usage: r.Usage}
		return nil
	}
	return nil
}

// Worked returns a capsule in words, such as "Worked 3 min 48 s · 14 tools · 5 commits · 0.21 $".
func (c Capsule) Worked() string {
	parts := []string{"Worked " + spell(time.Duration(c.DurationMS)*time.Millisecond)}
	for _, n := range []struct {
		count    int
		one, all string
	}{{c.Tools, "tool", "tools"}, {c.Commits, "commit", "commits"}, {c.Skipped, "check skipped", "checks skipped"}} {
		switch n.count {
		case 0:
		case 1:
			parts = append(parts, "1 "+n.one)
		default:
			parts = append(parts, fmt.Sprintf("%d %s", n.count, n.all))
		}
	}
	if cost := c.Cost(); cost != "" {
		parts = append(parts, cost)
	}
	return strings.Join(parts, " · ")
}

// Cost returns the cost in words, with "~" before an estimate, or "" if it is not known.
func (c Capsule) Cost() string {
	if c.CostMicros <= 0 {
		return ""
	}
	about := ""
	if c.Estimated {
		about = "~"
	}
	return fmt.Sprintf("%s%.2f $", about, float64(c.CostMicros)/1e6)
}

func spell(d time.Duration) string {
	switch {
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d min %d s", int(d.Minutes()), int(d.Seconds())%60)
	}
	return fmt.Sprintf("%d h %d min", int(d.Hours()), int(d.Minutes())%60)
}
