package tournament

import (
	"cmp"
	"slices"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
)

// Result is the evidence of an entry.
type Result struct {
	Entry
	// Run is the last run of the caller. It is empty if there is none.
	Run   string       `json:"run,omitempty"`
	State record.State `json:"state,omitempty"`
	Ended bool         `json:"ended"` // it can be ranked
	Error string       `json:"error,omitempty"`
	// Verdict and the checks are those of the last run.
	Verdict record.Verdict `json:"verdict,omitempty"`
	Passed  int            `json:"passed"` // checks of the files at the end
	Failed  int            `json:"failed"`
	Checks  []Check        `json:"checks,omitempty"`
	Head    gitd.Hash      `json:"head,omitempty"`
	Files   int            `json:"files"` // that differ from the beginning
	Added   int            `json:"added"` // lines
	Deleted int            `json:"deleted"`
	// CostMicros is the cost of models, in millionths of the prices' unit. Zero means that it is not known.
	CostMicros int64 `json:"cost_micros,omitempty"`
	Tokens     int64 `json:"tokens,omitempty"`
	DurationMS int64 `json:"duration_ms"` // of all runs of the caller
	Dropped    bool  `json:"dropped,omitempty"`
}

// Check is a check of an entry.
type Check struct {
	Check  string             `json:"check"`
	Result record.CheckResult `json:"result"`
	Why    string             `json:"why,omitempty"`
}

// Criterion is a reason for the place of an entry.
type Criterion string

// The criteria, in the order in which they count.
const (
	ByVerdict Criterion = "verdict"
	ByChecks  Criterion = "checks"
	BySize    Criterion = "size" // of the diff, in lines
	ByCost    Criterion = "cost" // if it is known of all entries that ended
	ByTime    Criterion = "time" // in whole minutes, because less is chance
	ByOpinion Criterion = "opinion"
	// ByNothing means that an entry is equal to the one before it.
	ByNothing Criterion = "tie"
)

// Place is a result with its place.
type Place struct {
	Result
	// Place is from 1. Entries that are equal by evidence have the same place. Zero means that the entry has not ended.
	Place int `json:"place,omitempty"`
	// By is the criterion that puts the entry after the one before it in the list. It is empty for the first one.
	By Criterion `json:"by,omitempty"`
}

// Rank orders results by evidence, the best first. Entries that have not ended come last, in their order. An opinion
// orders entries that are equal, and they keep the same place. Nil is no opinion.
func Rank(results []Result, o *Opinion) []Place {
	places := make([]Place, len(results))
	for i, r := range results {
		places[i].Result = r
	}
	costs := knowsCosts(results)
	slices.SortStableFunc(places, func(a, b Place) int {
		if a.Ended != b.Ended {
			return sign(!a.Ended, !b.Ended)
		}
		if !a.Ended {
			return 0
		}
		if c, _ := compare(a.Result, b.Result, costs); c != 0 {
			return c
		}
		return o.compare(a.Caller, b.Caller)
	})
	for i := range places {
		p := &places[i]
		switch {
		case !p.Ended:
		case i == 0:
			p.Place = 1
		default:
			before := places[i-1]
			c, by := compare(before.Result, p.Result, costs)
			if p.Place, p.By = i+1, by; c == 0 {
				p.Place, p.By = before.Place, ByNothing
				if o.compare(before.Caller, p.Caller) != 0 {
					p.By = ByOpinion
				}
			}
		}
	}
	return places
}

// knowsCosts reports whether the cost of each entry that ended is known.
func knowsCosts(results []Result) bool {
	return !slices.ContainsFunc(results, func(r Result) bool { return r.Ended && r.CostMicros == 0 })
}

// compare returns a negative number if a is better than b, with the criterion that decides.
func compare(a, b Result, costs bool) (int, Criterion) {
	for _, c := range []struct {
		by      Criterion
		compare int
	}{
		{ByVerdict, cmp.Compare(a.class(), b.class())},
		{ByChecks, cmp.Or(cmp.Compare(a.Failed, b.Failed), cmp.Compare(b.Passed, a.Passed))},
		{BySize, cmp.Compare(a.Added+a.Deleted, b.Added+b.Deleted)},
		{ByCost, cmp.Compare(a.CostMicros, b.CostMicros)},
		{ByTime, cmp.Compare(a.minutes(), b.minutes())},
	} {
		if c.compare != 0 && (c.by != ByCost || costs) {
			return c.compare, c.by
		}
	}
	return 0, ByNothing
}

// class returns the rank of the verdict. An entry without a change has nothing to take, also if its checks passed.
func (r Result) class() int {
	switch {
	case r.Verdict == record.VerdictFailed || r.Refused != "":
		return 3
	case r.Files == 0:
		return 2
	case r.Verdict == record.VerdictVerified:
		return 0
	}
	return 1
}

// minutes returns the duration in whole minutes.
func (r Result) minutes() int64 { return r.DurationMS / 60_000 }

// compare returns a negative number if the opinion has a before b, and 0 if it does not say.
func (o *Opinion) compare(a, b record.Caller) int {
	if o == nil {
		return 0
	}
	i, j := slices.Index(o.Order, a), slices.Index(o.Order, b)
	if i < 0 || j < 0 {
		return 0
	}
	return cmp.Compare(i, j)
}

// sign orders false before true.
func sign(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}
