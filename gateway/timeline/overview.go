package timeline

import (
	"context"
	"errors"
	"slices"
	"sort"
	"sync"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gitd"
)

// State is the end of a tick, as overviews show it. It is one letter.
type State byte

// The states of ticks.
const (
	Works   State = 'w' // it has not ended
	Failed  State = 'f'
	Changed State = 'c' // it changed files
	Same    State = 's' // it changed nothing
)

// State returns the end of the tick. A command that failed is Failed also if it changed files.
func (t *Tick) State() State {
	switch {
	case !t.Over():
		return Works
	case t.Failed():
		return Failed
	case t.Changed:
		return Changed
	}
	return Same
}

// Mark is a tick in an overview.
type Mark struct {
	ID    string // RUN/SEQ
	State State
	// Commit is the commit that the tick made. It is empty if it changed nothing.
	Commit gitd.Hash
	// Lane reports whether a lane begins here. A lane has the ticks of one prompt, or the commands that one person ran between prompts.
	Lane bool
	// Picture is the first one of the tick. It is empty if there is none.
	Picture string
	// CostMicros is that of the tick.
	CostMicros int64
}

// Overview has all ticks of a timeline, the oldest first.
type Overview []Mark

// Find returns the place of a tick, and -1 if it is not there.
func (o Overview) Find(id string) int {
	return slices.IndexFunc(o, func(m Mark) bool { return m.ID == id })
}

// States returns one letter for each tick.
func (o Overview) States() string {
	b := make([]byte, len(o))
	for i, m := range o {
		b[i] = byte(m.State)
	}
	return string(b)
}

// Spent returns the cost of the ticks up to a place, in millionths of the unit of the configured prices.
func (o Overview) Spent(at int) (micros int64) {
	for _, m := range o[:at+1] {
		micros += m.CostMicros
	}
	return micros
}

// FindCommit returns the place of the first tick whose files have a commit in their history, and -1 if there is none.
func (o Overview) FindCommit(ctx context.Context, repo *gitd.Repo, commit gitd.Hash) (int, error) {
	if at := slices.IndexFunc(o, func(m Mark) bool { return m.Commit == commit }); at >= 0 {
		return at, nil
	}
	var changed []int
	for i, m := range o {
		if m.Commit != "" {
			changed = append(changed, i)
		}
	}
	var failed error
	at := sort.Search(len(changed), func(i int) bool {
		has, err := repo.Descends(ctx, o[changed[i]].Commit, commit)
		failed = errors.Join(failed, err)
		return has
	})
	if failed != nil || at == len(changed) {
		return -1, failed
	}
	return changed[at], nil
}

// Lanes returns the places at which lanes begin.
func (o Overview) Lanes() (list []int) {
	for i, m := range o {
		if m.Lane {
			list = append(list, i)
		}
	}
	return list
}

// Lane returns the first place after the last tick of the lane of a place if step is 1, and the begin of its lane if step is -1. At the begin
// of a lane that is the begin of the lane before. The result is in the overview, which is not empty.
func (o Overview) Lane(at, step int) int {
	for i := at + step; i > 0 && i < len(o); i += step {
		if o[i].Lane {
			return i
		}
	}
	if step < 0 {
		return 0
	}
	return len(o) - 1
}

// Memory remembers the marks of runs that have ended, which never change. The zero value is ready for use. It is safe for concurrent use.
type Memory struct {
	mu    sync.Mutex // guards all below
	marks map[string][]runMark
	count int
}

// runMark is a mark before it is known whether a lane begins there.
type runMark struct {
	Mark
	prompt bool
	by     gitd.Person
}

// maxRemembered bounds the marks in memory, which have about 250 bytes each.
const maxRemembered = 200_000

// Overview returns all ticks of a caller, without those of runs that who does not see. Without a Memory it reads all journals each time.
func (l *Timelines) Overview(ctx context.Context, who route.Who, caller record.Caller) (o Overview, err error) {
	r := reader{ctx: ctx, journals: l.Journals, runs: l.runs(who, caller)}
	asked := true // the ticks so far end with those of a prompt, or there are none
	var by gitd.Person
	for at, run := range r.runs {
		marks, err := l.marks(&r, at)
		if err != nil {
			return nil, err
		}
		for i, m := range marks {
			begins := m.prompt || i == 0 && (asked || run.Agent != nil || m.by != by)
			if begins {
				asked, by = run.Agent != nil, m.by
			}
			m.Lane = begins
			o = append(o, m.Mark)
		}
	}
	return o, nil
}

// marks returns the marks of a run.
func (l *Timelines) marks(r *reader, at int) ([]runMark, error) {
	run := r.runs[at]
	key := run.Repo + " " + run.Name()
	if l.Memory != nil && run.Ended() {
		l.Memory.mu.Lock()
		list, ok := l.Memory.marks[key]
		l.Memory.mu.Unlock()
		if ok {
			return list, nil
		}
	}
	ticks, err := r.ticks(at)
	if err != nil {
		return nil, err
	}
	list := make([]runMark, 0, len(ticks))
	for _, t := range ticks {
		m := runMark{Mark: Mark{ID: t.ID, State: t.State(), CostMicros: t.CostMicros}, prompt: t.Prompt != "", by: t.By}
		if t.Changed {
			m.Commit = t.Head
		}
		if len(t.Pictures) > 0 {
			m.Picture = t.Pictures[0]
		}
		list = append(list, m)
	}
	if l.Memory != nil && run.Ended() {
		l.Memory.keep(key, list)
	}
	return list, nil
}

func (m *Memory) keep(key string, list []runMark) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.marks == nil || m.count+len(list) > maxRemembered {
		m.marks, m.count = map[string][]runMark{}, 0
	}
	m.marks[key] = list
	m.count += len(list)
}
