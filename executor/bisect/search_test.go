package bisect

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ramus-dev/ramus/gitd"
)

// name returns the name of step i.
func name(i int) gitd.Hash { return gitd.Hash(fmt.Sprintf("%040x", i+1)) }

// line returns n steps in one line, each with a tree of its own.
func line(n int) []Step {
	list := []Step{{Commit: name(0), Tree: name(0), Parents: []gitd.Hash{name(1 << 30)}}}
	for i := 1; i < n; i++ {
		list = append(list, Step{Commit: name(i), Tree: name(i), Parents: []gitd.Hash{name(i - 1)}})
	}
	return list
}

// search runs a search with try as the command. It returns the number of tries.
func search(t testing.TB, s *Search, k int, try func(Step) Result) (tries int) {
	t.Helper()
	tried := map[gitd.Hash]bool{}
	for {
		round := s.Next(k)
		if len(round) == 0 {
			return tries
		}
		if len(round) > k {
			t.Fatalf("a round of %d steps, allowed are %d", len(round), k)
		}
		for _, st := range round {
			if tried[st.Tree] {
				t.Fatalf("the tree %s is tried twice", st.Tree)
			}
			tried[st.Tree] = true
			tries++
			if err := s.Mark(st.Commit, try(st)); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestRounds counts the rounds in lines of all lengths, with a fault at each place.
func TestRounds(t *testing.T) {
	for _, k := range []int{1, 2, 4, 7, 16} {
		for _, n := range []int{1, 2, 3, 5, 17, 64, 256} {
			most := 0
			for left := n; left > 1; left = (left + k) / (k + 1) {
				most++
			}
			for fault := range n {
				s, err := New(line(n), nil)
				if err != nil {
					t.Fatal(err)
				}
				search(t, s, k, func(st Step) Result {
					if st.Commit >= name(fault) {
						return Bad
					}
					return Good
				})
				first, ok := s.Found()
				if !ok || first.Commit != name(fault) || s.Rounds() > most {
					t.Fatalf("k %d, %d steps, fault at %d: found %v, %v in %d rounds, allowed are %d", k, n, fault,
						first.Commit, ok, s.Rounds(), most)
				}
				if k == 4 && n == 256 && s.Rounds() > 4 {
					t.Fatalf("%d rounds for 256 steps", s.Rounds())
				}
			}
		}
	}
}

// TestBranches counts the rounds among two long branches that were merged at the end, with faults at many places. A round that
// divides the one branch alone would leave the whole of the other.
func TestBranches(t *testing.T) {
	const n = 255
	steps := line(n)
	for i := range n {
		steps = append(steps, Step{Commit: name(n + i), Tree: name(n + i), Parents: []gitd.Hash{name(n + i - 1)}})
	}
	steps[n].Parents = []gitd.Hash{name(1 << 30)}
	steps = append(steps, Step{Commit: name(2 * n), Tree: name(2 * n), Parents: []gitd.Hash{name(n - 1), name(2*n - 1)}})
	for fault := 0; fault < len(steps); fault += 16 {
		s, err := New(steps, nil)
		if err != nil {
			t.Fatal(err)
		}
		search(t, s, 7, func(st Step) Result {
			if s.history[s.index[st.Commit]].has(fault) {
				return Bad
			}
			return Good
		})
		if first, ok := s.Found(); !ok || first.Commit != name(fault) || s.Rounds() > 3 {
			t.Errorf("fault at %d: found %v, %v in %d rounds", fault, first.Commit, ok, s.Rounds())
		}
	}
}

// graph is a random history below a last step that merges everything.
type graph struct {
	steps   []Step
	history []map[gitd.Hash]bool
}

// newGraph returns a history with merges. Some steps have the tree of an earlier step.
func newGraph(r *rand.Rand, n int, repeats bool) graph {
	g := graph{}
	heads := map[int]bool{}
	for i := range n {
		st := Step{Commit: name(i), Tree: name(i)}
		parents := map[int]bool{}
		for range 1 + r.IntN(2) {
			if i > 0 && r.IntN(12) > 0 {
				parents[i-1-r.IntN(min(i, 5))] = true
			}
		}
		if i == n-1 {
			for h := range heads {
				parents[h] = true
			}
		}
		history := map[gitd.Hash]bool{st.Commit: true}
		for p := range n {
			if !parents[p] {
				continue
			}
			delete(heads, p)
			st.Parents = append(st.Parents, name(p))
			for h := range g.history[p] {
				history[h] = true
			}
		}
		if len(st.Parents) == 0 {
			st.Parents = []gitd.Hash{name(1 << 30)} // a good commit
		}
		heads[i] = true
		g.steps, g.history = append(g.steps, st), append(g.history, history)
	}
	if repeats {
		for range n / 4 {
			g.steps[r.IntN(n)].Tree = g.steps[r.IntN(n)].Tree
		}
	}
	return g
}

// TestOracle compares searches in random histories with one fault with an oracle that tries each step. Without skips
// the answer is the fault. With skips it is a list with the fault, in which all others but the last were skipped.
func TestOracle(t *testing.T) {
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 1))
		g := newGraph(r, 1+r.IntN(70), false)
		fault := g.steps[r.IntN(len(g.steps))].Commit
		skip := map[gitd.Hash]bool{}
		if seed%2 == 1 {
			for range len(g.steps) / 4 {
				skip[g.steps[r.IntN(len(g.steps))].Commit] = true
			}
		}
		s, err := New(g.steps, nil)
		if err != nil {
			t.Fatal(err)
		}
		tries := search(t, s, 1+r.IntN(6), func(st Step) Result {
			at := s.index[st.Commit]
			switch {
			case skip[st.Commit]:
				return Skip
			case g.history[at][fault]:
				return Bad
			}
			return Good
		})
		left := s.Left()
		if !slices.ContainsFunc(left, func(st Step) bool { return st.Commit == fault }) {
			t.Fatalf("seed %d: the answer %v has no %s", seed, left, fault)
		}
		for _, st := range left[:len(left)-1] {
			if !skip[st.Commit] {
				t.Fatalf("seed %d: %s is left and was not skipped", seed, st.Commit)
			}
		}
		if len(skip) == 0 && len(left) != 1 {
			t.Fatalf("seed %d: %d steps are left", seed, len(left))
		}
		if tries >= len(g.steps) && len(g.steps) > 1 {
			t.Errorf("seed %d: %d tries for %d steps", seed, tries, len(g.steps))
		}
	}
}

// TestTransition checks answers if the results depend on the tree alone and are not monotone. The answer is bad, and
// all its parents are good.
func TestTransition(t *testing.T) {
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 2))
		g := newGraph(r, 2+r.IntN(60), true)
		bad := map[gitd.Hash]bool{}
		for _, st := range g.steps {
			bad[st.Tree] = r.IntN(2) == 0
		}
		last := len(g.steps) - 1
		bad[g.steps[last].Tree] = true
		s, err := New(g.steps, nil)
		if err != nil {
			t.Fatal(err)
		}
		search(t, s, 1+r.IntN(5), func(st Step) Result {
			if bad[st.Tree] {
				return Bad
			}
			return Good
		})
		first, ok := s.Found()
		if !ok || !bad[first.Tree] {
			t.Fatalf("seed %d: found %v, %v", seed, first, ok)
		}
	}
}

// next is [Search.Next] without a bound.
func next(s *Search, k int) []Step {
	for {
		points, known := s.choose(k), false
		for _, i := range points {
			if r, have := s.trees[s.steps[i].Tree]; have {
				s.apply(i, r)
				known = true
			}
		}
		if known {
			continue
		}
		var round []Step
		for _, i := range points {
			if !slices.ContainsFunc(round, func(st Step) bool { return st.Tree == s.steps[i].Tree }) {
				round = append(round, s.steps[i])
			}
		}
		return round
	}
}

// TestFewTrees searches among steps of which most have a tree of others. The steps of each round are those of a search
// that is not bounded. If the bound is low, other steps may be tried. The last step that is left is bad then too, and
// all others were skipped.
func TestFewTrees(t *testing.T) {
	commits := func(list []Step) (all []gitd.Hash) {
		for _, st := range list {
			all = append(all, st.Commit)
		}
		return all
	}
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 3))
		g := newGraph(r, 2+r.IntN(60), false)
		for i := range g.steps {
			if r.IntN(3) > 0 {
				g.steps[i].Tree = name(r.IntN(6))
			}
		}
		results, known := map[gitd.Hash]Result{}, map[gitd.Hash]Result{}
		for _, st := range g.steps {
			results[st.Tree] = []Result{Good, Bad, Skip, Skip, Skip}[r.IntN(5)]
		}
		last := g.steps[len(g.steps)-1]
		results[last.Tree] = Bad
		for i := range 3 {
			if result, have := results[name(i)]; have && seed%2 == 0 {
				known[name(i)] = result
			}
		}
		k := 1 + r.IntN(6)
		s, err := New(g.steps, known)
		if err != nil {
			t.Fatal(err)
		}
		reference, err := New(g.steps, known)
		if err != nil {
			t.Fatal(err)
		}
		for {
			round, want := s.Next(k), next(reference, k)
			if !slices.Equal(commits(round), commits(want)) {
				t.Fatalf("seed %d: a round of %v, want %v", seed, commits(round), commits(want))
			}
			if len(round) == 0 {
				break
			}
			for _, st := range round {
				if s.Mark(st.Commit, results[st.Tree]) != nil || reference.Mark(st.Commit, results[st.Tree]) != nil {
					t.Fatalf("seed %d: cannot mark %s", seed, st.Commit)
				}
			}
		}
		if !slices.Equal(commits(s.Left()), commits(reference.Left())) {
			t.Fatalf("seed %d: %v is left, want %v", seed, s.Left(), reference.Left())
		}

		if s, err = New(g.steps, known); err != nil {
			t.Fatal(err)
		}
		s.again = r.Int64N(3)
		search(t, s, k, func(st Step) Result { return results[st.Tree] })
		if most := (s.rounds + 1) * (int(s.again) + 1); s.chosen > most {
			t.Fatalf("seed %d: %d choices in %d rounds, allowed are %d", seed, s.chosen, s.rounds, most)
		}
		left := s.Left()
		bad := left[len(left)-1]
		if results[bad.Tree] != Bad {
			t.Fatalf("seed %d: the answer %s is not bad", seed, bad.Commit)
		}
		for _, st := range left {
			if st.Commit != bad.Commit && results[st.Tree] != Skip {
				t.Fatalf("seed %d: %s is left and was not skipped", seed, st.Commit)
			}
		}
	}
}

// TestOneTree counts the choices of a round if nearly all steps have one tree, whose result is known.
func TestOneTree(t *testing.T) {
	const n = 400
	root := line(n)
	var all []gitd.Hash
	for i := range root[:n-1] {
		root[i].Parents = []gitd.Hash{name(1 << 30)}
		all = append(all, root[i].Commit)
	}
	root[n-1].Parents = all
	for shape, steps := range map[string][]Step{"a line": line(n), "branches": root} {
		for i := range steps[:n-1] {
			steps[i].Tree = name(n)
		}
		for _, r := range []Result{Skip, Good, Bad} {
			s, err := New(steps, map[gitd.Hash]Result{name(n): r})
			if err != nil {
				t.Fatal(err)
			}
			s.again = 3
			if round := s.Next(4); len(round) > 0 || s.chosen > 4 {
				t.Errorf("%s of steps that are %s: %d choices for a round of %d steps", shape, r, s.chosen, len(round))
			}
			if got, want := len(s.Left()), map[Result]int{Skip: n, Good: 1, Bad: 1}[r]; got != want {
				t.Errorf("%s of steps that are %s: %d are left, want %d", shape, r, got, want)
			}
		}
	}
	for n, want := range map[int]int64{1: 1, 100: 100, 1290: 1290, MaxSteps: 21} {
		s, err := New(line(n), nil)
		if err != nil {
			t.Fatal(err)
		}
		if s.again < want || n == MaxSteps && s.again > want {
			t.Errorf("%d choices for %d steps, want %d", s.again, n, want)
		}
	}
}

// TestKnown takes results of earlier searches over, and tries nothing if they suffice.
func TestKnown(t *testing.T) {
	known := map[gitd.Hash]Result{}
	for i := range 64 {
		known[name(i)] = Good
		if i >= 40 {
			known[name(i)] = Bad
		}
	}
	s, err := New(line(64), known)
	if err != nil {
		t.Fatal(err)
	}
	if tries := search(t, s, 3, func(Step) Result { t.Fatal("a step is tried"); return Skip }); tries != 0 {
		t.Error(tries)
	}
	if first, ok := s.Found(); !ok || first.Commit != name(40) {
		t.Error(first, ok)
	}
}

// TestResults keeps the first result of a tree, unless it could not be tried then.
func TestResults(t *testing.T) {
	for _, x := range []struct{ first, second, want Result }{{Skip, Good, Good}, {Skip, Bad, Bad}, {Good, Skip, Good}, {Good, Bad, Good}} {
		s, err := New(line(9), nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range []Result{x.first, x.second} {
			if err := s.Mark(name(4), r); err != nil {
				t.Fatal(err)
			}
		}
		if got := s.trees; len(got) != 1 || got[name(4)] != x.want {
			t.Errorf("%s and then %s: %v", x.first, x.second, got)
		}
	}
}

// TestRefusals gives searches steps and results that they refuse.
func TestRefusals(t *testing.T) {
	if _, err := New(nil, nil); !errors.Is(err, gitd.ErrInvalid) {
		t.Error(err)
	}
	if _, err := New(line(MaxSteps+1), nil); !errors.Is(err, gitd.ErrTooLarge) {
		t.Error(err)
	}
	if _, err := New(line(MaxSteps), nil); err != nil {
		t.Error(err)
	}
	two := append(line(2), Step{Commit: name(9), Tree: name(9)})
	if _, err := New(two, nil); !errors.Is(err, gitd.ErrInvalid) {
		t.Error(err)
	}
	s, err := New(line(3), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Mark(name(2), Good); !errors.Is(err, ErrContradiction) {
		t.Error(err)
	}
	if err := s.Mark(name(77), Good); !errors.Is(err, gitd.ErrNotFound) {
		t.Error(err)
	}
	for exit, want := range map[int]Result{0: Good, 1: Bad, 124: Bad, 125: Skip, 126: Bad, 127: Bad, 128: "", 255: "",
		-1: ""} {
		if got, err := Status(exit); got != want || (err == nil) != (want != "") {
			t.Errorf("%d: %q, %v", exit, got, err)
		}
	}
}
