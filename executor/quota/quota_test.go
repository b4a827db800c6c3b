package quota

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
)

var noon = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

// run returns a run of ada or bob that works.
func run(t *testing.T, caller, id, email string, change func(*record.Run)) record.Run {
	t.Helper()
	c, err := record.RunCaller(caller)
	if err != nil {
		t.Fatal(err)
	}
	r := record.Run{Caller: c, ID: id, Repo: "app", Kind: record.KindExec, State: record.StateRunning,
		Asker: gitd.Person{Name: email, Email: email}}
	if change != nil {
		change(&r)
	}
	return r
}

func TestAdmit(t *testing.T) {
	const ada, bob = "ada@example.org", "bob@example.org"
	ended := func(cost int64, at time.Time) func(*record.Run) {
		return func(r *record.Run) {
			r.State, r.EndedAt, r.Usage = record.StateComplete, at, &record.Usage{CostMicros: cost}
		}
	}
	busy := []record.Run{
		run(t, "one", "1", ada, nil),
		run(t, "one", "2", ada, func(r *record.Run) { r.Place = 1 }),
		run(t, "two", "1", ada, func(r *record.Run) { r.State = record.StateAwaitingReview }),
		run(t, "three", "1", bob, nil),
		run(t, "four", "1", ada, ended(3_000_000, noon.Add(-time.Hour))),
		run(t, "four", "2", ada, ended(9_000_000, noon.Add(-25*time.Hour))),
		run(t, "four", "3", ada, ended(9_000_000, noon.Add(-Day))),
		run(t, "five", "1", ada, func(r *record.Run) { r.Sub = true }),
	}
	for name, c := range map[string]struct {
		rules  Rules
		caller string
		asker  string
		want   string // of the refusal; "" if it is admitted
		after  time.Duration
	}{
		"nothing is bounded": {Rules{}, "new", ada, "", 0},
		"callers": {Rules{Person: Rule{Callers: 2}}, "new", ada,
			ada + " has 2 callers at work, and 2 may be", soon},
		"one of the callers": {Rules{Person: Rule{Callers: 2}}, "one", ada, "", 0},
		"another person":     {Rules{Person: Rule{Callers: 2}}, "new", bob, "", 0},
		"runs": {Rules{Person: Rule{Runs: 2}}, "one", ada,
			ada + " has 2 runs at work, and 2 may be", soon},
		"one more run": {Rules{Person: Rule{Runs: 3}}, "one", ada, "", 0},
		"queue": {Rules{Repo: Rule{Queue: 1}}, "new", bob,
			"repository app has 1 runs that wait for a container, and 1 may", soon},
		"runs of the repository":    {Rules{Repo: Rule{Runs: 3}}, "new", bob, "repository app has 3 runs at work", soon},
		"an exception for a person": {Rules{Person: Rule{Runs: 1}, People: map[string]Rule{ada: {}}}, "new", ada, "", 0},
		"an exception for the others": {Rules{Person: Rule{Runs: 1}, People: map[string]Rule{ada: {}}}, "new", bob,
			bob + " has 1 runs", soon},
		"a rule for one person alone": {Rules{People: map[string]Rule{bob: {Runs: 1}}}, "new", bob, bob + " has 1 runs", soon},
		"a repository of its own rule": {Rules{Repos: map[string]Rule{"app": {Runs: 1}}}, "new", bob,
			"repository app has 3 runs", soon},
		"cost": {Rules{Person: Rule{CostMicros: 3_000_000}}, "new", ada,
			"used models for 3.00 in 24 hours, and 3.00 may be used: try again in 23h0m0s", 23 * time.Hour},
		"cost of the last day only": {Rules{Person: Rule{CostMicros: 3_000_001}}, "new", ada, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			var b Book
			release, err := b.Admit(c.rules, run(t, c.caller, "9", c.asker, nil), noon, func() []record.Run { return busy })
			var refused *Error
			switch {
			case c.want == "" && err != nil:
				t.Fatal(err)
			case c.want == "":
				release()
			case !errors.As(err, &refused) || !errors.Is(err, ErrLimited) || !strings.Contains(err.Error(), c.want) ||
				refused.After != c.after:
				t.Errorf("%v, after %v", err, refused)
			}
		})
	}
}

// TestAdmitTogether admits runs that begin at the same time.
func TestAdmitTogether(t *testing.T) {
	var (
		b    Book
		wait sync.WaitGroup
		mu   sync.Mutex // guards in
		in   []func()
	)
	rules := Rules{Person: Rule{Runs: 5}}
	runs := make([]record.Run, 40)
	for i := range runs {
		runs[i] = run(t, fmt.Sprint("caller-", i), "1", "ada@example.org", nil)
	}
	for _, r := range runs {
		wait.Go(func() {
			if release, err := b.Admit(rules, r, noon, func() []record.Run { return nil }); err == nil {
				mu.Lock()
				in = append(in, release)
				mu.Unlock()
			}
		})
	}
	wait.Wait()
	if len(in) != 5 {
		t.Fatalf("%d runs were admitted", len(in))
	}
	for _, release := range in {
		release()
	}
	if len(b.admitted) != 0 {
		t.Error("the book is not empty")
	}
}

// TestAdmitKnown admits a run next to one that is admitted and known elsewhere already. That one counts once.
func TestAdmitKnown(t *testing.T) {
	var b Book
	rules := Rules{Person: Rule{Runs: 2}}
	first := run(t, "one", "1", "ada@example.org", nil)
	release, err := b.Admit(rules, first, noon, func() []record.Run { return nil })
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	known := func() []record.Run { return []record.Run{first} }
	second, err := b.Admit(rules, run(t, "two", "1", "ada@example.org", nil), noon, known)
	if err != nil {
		t.Fatal(err)
	}
	defer second()
	if _, err := b.Admit(rules, run(t, "three", "1", "ada@example.org", nil), noon, known); !errors.Is(err, ErrLimited) {
		t.Errorf("a third run: %v", err)
	}
}

func TestUses(t *testing.T) {
	runs := []record.Run{run(t, "one", "1", "ada@example.org", nil),
		run(t, "two", "1", "bob@example.org", func(r *record.Run) { r.State = record.StateComplete })}
	list := Uses(Rules{Repo: Rule{Runs: 7}}, runs, noon)
	if len(list) != 2 || list[0].Name != "ada@example.org" || list[0].Runs != 1 || list[1].Name != "app" ||
		list[1].Rule.Runs != 7 || list[1].Callers != 1 {
		t.Errorf("%+v", list)
	}
}

// TestKinds counts turns of agents and terminals apart.
func TestKinds(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	of := func(id string, kind record.Kind) record.Run {
		c, err := record.RunCaller("one")
		if err != nil {
			t.Fatal(err)
		}
		return record.Run{Caller: c, ID: id, Repo: "app", Kind: kind, State: record.StateRunning,
			Asker: gitd.Person{Email: "ada@example.org"}}
	}
	have := []record.Run{of("1", record.KindAgent), of("2", record.KindTerminal), of("3", record.KindExec), of("4", record.KindExec)}
	for name, x := range map[string]struct {
		rule Rule
		kind record.Kind
		in   bool
	}{
		"an agent":            {Rule{Agents: 1}, record.KindAgent, false},
		"a second agent":      {Rule{Agents: 2}, record.KindAgent, true},
		"a command":           {Rule{Agents: 1, Terminals: 1}, record.KindExec, true},
		"a terminal":          {Rule{Terminals: 1}, record.KindTerminal, false},
		"a second terminal":   {Rule{Terminals: 2, Runs: 1}, record.KindTerminal, true},
		"no run of terminals": {Rule{Runs: 4}, record.KindExec, true},
	} {
		var b Book
		release, err := b.Admit(Rules{Person: x.rule}, of("new", x.kind), now, func() []record.Run { return have })
		if (err == nil) != x.in {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil {
			release()
		}
	}
}
