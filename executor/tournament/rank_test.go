package tournament

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/executor/record"
)

// entry returns an ended entry that changed a line and was verified.
func entry(n int) Result {
	c, err := record.RunCaller(fmt.Sprintf("cup-%d", n))
	if err != nil {
		panic(err)
	}
	return Result{Entry: Entry{Caller: c, Agent: "a"}, Ended: true, Verdict: record.VerdictVerified, Passed: 1, Files: 1,
		Added: 10, Deleted: 5, CostMicros: 100, DurationMS: 120_000}
}

// TestRank compares two entries that differ in one thing, in both orders.
func TestRank(t *testing.T) {
	for _, x := range []struct {
		about string
		worse func(*Result)
		by    Criterion
	}{
		{"unverified", func(r *Result) { r.Verdict = record.VerdictUnverified }, ByVerdict},
		{"no verdict", func(r *Result) { r.Verdict = record.VerdictNone }, ByVerdict},
		{"failed", func(r *Result) { r.Verdict = record.VerdictFailed }, ByVerdict},
		{"refused", func(r *Result) { r.Refused = "no" }, ByVerdict},
		{"nothing changed", func(r *Result) { r.Files, r.Added, r.Deleted = 0, 0, 0 }, ByVerdict},
		{"a failed check", func(r *Result) { r.Failed, r.Passed = 1, 9 }, ByChecks},
		{"fewer checks", func(r *Result) { r.Passed, r.Added = 0, 1 }, ByChecks},
		{"more lines", func(r *Result) { r.Added, r.CostMicros = 11, 1 }, BySize},
		{"more lines taken out", func(r *Result) { r.Added, r.Deleted = 9, 7 }, BySize},
		{"a higher cost", func(r *Result) { r.CostMicros, r.DurationMS = 101, 0 }, ByCost},
		{"a minute longer", func(r *Result) { r.DurationMS = 180_000 }, ByTime},
		{"a second longer", func(r *Result) { r.DurationMS = 179_999 }, ByNothing},
		{"equal", func(*Result) {}, ByNothing},
	} {
		better, worse := entry(1), entry(2)
		x.worse(&worse)
		tie := x.by == ByNothing
		for _, list := range [][]Result{{better, worse}, {worse, better}} {
			places := Rank(list, nil)
			if places[0].Place != 1 || places[0].By != "" || places[1].By != x.by || (places[1].Place == 1) != tie ||
				!tie && (places[0].Caller != better.Caller || places[1].Place != 2) || tie && places[0].Caller != list[0].Caller {
				t.Errorf("%s: %+v", x.about, places)
			}
		}
	}
}

// TestRankClasses orders all verdicts, and puts entries that have not ended last, in their order.
func TestRankClasses(t *testing.T) {
	list := make([]Result, 7)
	for i := range list {
		list[i] = entry(i + 1)
	}
	list[0].Ended, list[4].Ended = false, false
	list[1].Verdict = record.VerdictFailed
	list[2].Files = 0
	list[3].Verdict = record.VerdictUnverified
	list[6].Verdict = record.VerdictUnverified
	var order []string
	for _, p := range Rank(list, nil) {
		order = append(order, fmt.Sprint(p.Caller.ID(), " ", p.Place, " ", p.By))
	}
	want := []string{"cup-6 1 ", "cup-4 2 verdict", "cup-7 2 tie", "cup-3 4 verdict", "cup-2 5 verdict", "cup-1 0 ", "cup-5 0 "}
	if !slices.Equal(order, want) {
		t.Errorf("%q, want %q", order, want)
	}
}

// TestRankCosts ignores costs unless that of each entry that ended is known.
func TestRankCosts(t *testing.T) {
	one, two, three := entry(1), entry(2), entry(3)
	one.CostMicros, three.CostMicros = 200, 0
	if p := Rank([]Result{one, two, three}, nil); p[0].Caller != one.Caller || p[2].Place != 1 {
		t.Errorf("%+v", p)
	}
	three.Ended = false
	if p := Rank([]Result{one, two, three}, nil); p[0].Caller != two.Caller || p[1].By != ByCost {
		t.Errorf("%+v", p)
	}
}

// TestOpinion orders entries that are equal, and no others.
func TestOpinion(t *testing.T) {
	one, two, three, four := entry(1), entry(2), entry(3), entry(4)
	one.Added = 99
	o := &Opinion{Order: []record.Caller{one.Caller, three.Caller, two.Caller}}
	var order []string
	for _, p := range Rank([]Result{one, two, three}, o) {
		order = append(order, fmt.Sprint(p.Caller.ID(), " ", p.Place, " ", p.By))
	}
	if want := []string{"cup-3 1 ", "cup-2 1 opinion", "cup-1 3 size"}; !slices.Equal(order, want) {
		t.Errorf("%q, want %q", order, want)
	}
	if p := Rank([]Result{two, four}, o); p[0].Caller != two.Caller || p[1].By != ByNothing {
		t.Errorf("%+v", p)
	}
}

// TestEntries makes the entries of a plan, within its bounds.
func TestEntries(t *testing.T) {
	p := Plan{Name: "cup", Task: "x"}
	if err := p.SetEntries([]string{"a", "b"}, 6); err != nil || len(p.Entries) != MaxEntries || p.Entries[11].Caller.ID() != "cup-12" ||
		p.Entries[0].Agent != "a" || p.Entries[1].Agent != "b" || p.Entries[2].Agent != "a" {
		t.Error(p, err)
	}
	long := Plan{Name: strings.Repeat("x", maxName), Task: "x"}
	if err := long.SetEntries([]string{"a"}, 2); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"3", "cup-3", "run:cup-3", "run-cup-3"} {
		if e, ok := p.Entry(name); !ok || e != p.Entries[2] {
			t.Errorf("%s: %+v", name, e)
		}
	}
	for _, name := range []string{"", "0", "13", "cup", "cup-13"} {
		if e, ok := p.Entry(name); ok {
			t.Errorf("%q: %+v", name, e)
		}
	}
	for about, x := range map[string]struct {
		plan   Plan
		agents []string
		n      int
	}{
		"one entry": {Plan{Name: "cup", Task: "x"}, []string{"a"}, 1},
		"none":      {Plan{Name: "cup", Task: "x"}, nil, 2},
		"too many":  {Plan{Name: "cup", Task: "x"}, []string{"a"}, 13},
		"no number": {Plan{Name: "cup", Task: "x"}, []string{"a", "b"}, 0},
		"no task":   {Plan{Name: "cup", Task: " \n"}, []string{"a", "b"}, 1},
		"long task": {Plan{Name: "cup", Task: strings.Repeat("x", maxTask+1)}, []string{"a", "b"}, 1},
		"long name": {Plan{Name: strings.Repeat("x", maxName+1), Task: "x"}, []string{"a", "b"}, 1},
		"no name":   {Plan{Name: "No Name", Task: "x"}, []string{"a", "b"}, 1},
		"checks":    {Plan{Name: "cup", Task: "x", Checks: make([]string, maxChecks+1)}, []string{"a", "b"}, 1},
	} {
		if err := x.plan.SetEntries(x.agents, x.n); err == nil {
			t.Errorf("%s: %+v", about, x.plan)
		}
	}
}
