package timeline

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/route"
)

// Bounds of a part of a timeline.
const (
	MaxTicks     = 500
	defaultTicks = 100
)

// Journals is the part of the executor that timelines are read from.
type Journals interface {
	// OfCaller returns the runs of a caller, the oldest first.
	OfCaller(caller record.Caller) []record.Run
	Events(ctx context.Context, run string, after int64, follow bool) iter.Seq2[record.Event, error]
}

// Window chooses a part of a timeline. The zero value is its end. At most one of its ids is set.
type Window struct {
	At     string `json:"at,omitempty" jsonschema:"the id of a tick that is in the middle"`
	Before string `json:"before,omitempty" jsonschema:"the id of a tick; the part ends before it"`
	After  string `json:"after,omitempty" jsonschema:"the id of a tick; the part begins after it"`
	Ticks  int    `json:"ticks,omitempty" jsonschema:"how many; 100 if 0, 500 at most"`
}

// Line is a part of a timeline.
type Line struct {
	Ticks []*Tick `json:"ticks"`
	// Older and Newer report whether there are ticks before the first one and after the last one.
	Older bool `json:"older,omitempty"`
	Newer bool `json:"newer,omitempty"`
	// At is the place of the tick that the window asked for, or of the last one. It is -1 if there are no ticks.
	At int `json:"at"`
}

// Timelines reads timelines. It is safe for concurrent use.
type Timelines struct {
	Journals Journals
	// Memory makes overviews fast. Nil means none.
	Memory *Memory
}

// runs returns the runs of a caller that have ticks which who sees.
func (l *Timelines) runs(who route.Who, caller record.Caller) (runs []record.Run) {
	for _, r := range l.Journals.OfCaller(caller) {
		if !r.Passive() && who.SeesRun(r) {
			runs = append(runs, r)
		}
	}
	return runs
}

// Read returns a part of the timeline of a caller. It leaves out the runs that who does not see. Returns a problem if the window names a
// tick that does not exist.
func (l *Timelines) Read(ctx context.Context, who route.Who, caller record.Caller, w Window) (Line, error) {
	runs := l.runs(who, caller)
	most := w.Ticks
	if most == 0 {
		most = defaultTicks
	}
	if most < 0 || most > MaxTicks || more(w.At, w.Before, w.After) {
		return Line{}, route.NewProblem(route.KindInvalid, "the window is wrong: it has one of at, before and after, and at most %d ticks",
			MaxTicks)
	}
	r := reader{ctx: ctx, journals: l.Journals, runs: runs}
	switch {
	case w.At != "":
		return r.around(w.At, most)
	case w.After != "":
		at, t, err := r.find(w.After)
		if err != nil {
			return Line{}, err
		}
		list, err := r.newer(at, t, most+1)
		if err != nil {
			return Line{}, err
		}
		kept := list[:min(len(list), most)]
		return Line{Ticks: kept, Older: true, Newer: len(list) > most, At: len(kept) - 1}, nil
	}
	at, t, newer := len(runs), 0, false
	if w.Before != "" {
		var err error
		if at, t, err = r.find(w.Before); err != nil {
			return Line{}, err
		}
		newer = true
	}
	list, err := r.older(at, t, most+1)
	if err != nil {
		return Line{}, err
	}
	kept := list[max(0, len(list)-most):]
	return Line{Ticks: kept, Older: len(list) > most, Newer: newer, At: len(kept) - 1}, nil
}

// more reports whether more than one of the values is set.
func more(values ...string) bool {
	return len(slices.DeleteFunc(values, func(v string) bool { return v == "" })) > 1
}

// reader reads the ticks of one call.
type reader struct {
	ctx      context.Context
	journals Journals
	runs     []record.Run
}

func (r *reader) ticks(at int) ([]*Tick, error) {
	run := r.runs[at]
	list, err := ticksOf(run, r.journals.Events(r.ctx, run.Name(), 0, false))
	if err != nil {
		return nil, fmt.Errorf("cannot read the timeline of %s: %w", run.Name(), err)
	}
	return list, nil
}

// find returns the place of a run, and the place of a tick in it.
func (r *reader) find(id string) (at, tick int, err error) {
	run, seq, _ := strings.Cut(id, "/")
	at = slices.IndexFunc(r.runs, func(x record.Run) bool { return x.ID == run })
	if _, err := strconv.ParseInt(seq, 10, 64); err != nil || at < 0 {
		return 0, 0, route.NotFound("tick", id)
	}
	list, err := r.ticks(at)
	if err != nil {
		return 0, 0, err
	}
	if tick = slices.IndexFunc(list, func(t *Tick) bool { return t.ID == id }); tick < 0 {
		return 0, 0, route.NotFound("tick", id)
	}
	return at, tick, nil
}

// older returns the last ticks before one, at most most of them. at may be the number of runs.
func (r *reader) older(at, tick, most int) (list []*Tick, err error) {
	for n := min(at, len(r.runs)-1); n >= 0 && len(list) < most; n-- {
		ticks, err := r.ticks(n)
		if err != nil {
			return nil, err
		}
		if n == at {
			ticks = ticks[:tick]
		}
		list = slices.Concat(ticks[max(0, len(ticks)-most+len(list)):], list)
	}
	return list, nil
}

// newer returns the first ticks after one, at most most of them.
func (r *reader) newer(at, tick, most int) (list []*Tick, err error) {
	for n := at; n < len(r.runs) && len(list) < most; n++ {
		ticks, err := r.ticks(n)
		if err != nil {
			return nil, err
		}
		if n == at {
			ticks = ticks[tick+1:]
		}
		list = append(list, ticks[:min(len(ticks), most-len(list))]...)
	}
	return list, nil
}

// around returns the ticks around one.
func (r *reader) around(id string, most int) (Line, error) {
	at, tick, err := r.find(id)
	if err != nil {
		return Line{}, err
	}
	before, err := r.older(at, tick, most+1)
	if err != nil {
		return Line{}, err
	}
	after, err := r.newer(at, tick-1, most+1) // the tick itself is the first
	if err != nil {
		return Line{}, err
	}
	// The middle moves if one side has too few ticks.
	right := min(len(after), max(most-most/2, most-len(before)))
	left := min(len(before), most-right)
	return Line{Ticks: slices.Concat(before[len(before)-left:], after[:right]), Older: len(before) > left,
		Newer: len(after) > right, At: left}, nil
}
