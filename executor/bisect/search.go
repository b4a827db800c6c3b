package bisect

import (
	"fmt"
	"slices"

	"github.com/ramus-dev/ramus/gitd"
)

const (
	// MaxSteps bounds the steps of a search. Their histories are sets of bits, which take 12 MB then.
	MaxSteps = 10_000
	// MaxWidth bounds the cut points of a round.
	MaxWidth = 16
	// maxPairs bounds the work of a round in which trees have results already, as pairs of steps that are compared to
	// choose cut points again. That is 21 choices for [MaxSteps], and all that 1,290 steps can need.
	maxPairs int64 = 1 << 31
)

// Result is the result of a try of a step.
type Result string

// The results.
const (
	Good Result = "good"
	Bad  Result = "bad"
	Skip Result = "skip" // it cannot be tried
)

// Status returns the result that the exit status of a command means, as `git bisect run` has it: 0 is good, 125 is
// skip, 1 to 127 are bad. Returns an error for others, which mean that the command itself failed.
func Status(exit int) (Result, error) {
	switch {
	case exit == 0:
		return Good, nil
	case exit == 125:
		return Skip, nil
	case exit > 0 && exit < 128:
		return Bad, nil
	}
	return "", fmt.Errorf("the exit status %d is neither good nor bad: want 0 to 127", exit)
}

// ErrContradiction means that a step cannot have its result, because other results exclude it.
var ErrContradiction = fmt.Errorf("the results contradict each other: %w", gitd.ErrInvalid)

// Step is a commit.
type Step struct {
	Commit  gitd.Hash   `json:"commit"`
	Tree    gitd.Hash   `json:"tree"`
	Parents []gitd.Hash `json:"parents,omitempty"`
}

// Search looks for the first bad step. It is not safe for concurrent use.
type Search struct {
	steps   []Step
	index   map[gitd.Hash]int
	history []set // of each step the steps in its history, with itself
	left    set
	bad     int // the last of the steps that are left
	skipped set
	trees   map[gitd.Hash]Result
	rounds  int
	again   int64 // how often Next chooses before it applies the results of trees to all steps
	chosen  int   // how often Next chose, for tests
}

// New returns the search for the first bad step. steps are the history of the last one, which is bad, without the
// history of commits that are good. Parents come before children. Parents that are no steps are good. known has the
// results of trees that are known, and may be nil.
func New(steps []Step, known map[gitd.Hash]Result) (*Search, error) {
	if len(steps) == 0 {
		return nil, fmt.Errorf("there is nothing to search: the bad commit is in the history of the good one: %w",
			gitd.ErrInvalid)
	}
	if len(steps) > MaxSteps {
		return nil, fmt.Errorf("%d steps are too many, at most %d: %w", len(steps), MaxSteps, gitd.ErrTooLarge)
	}
	s := &Search{steps: slices.Clone(steps), index: make(map[gitd.Hash]int, len(steps)),
		history: make([]set, len(steps)), left: newSet(len(steps)), skipped: newSet(len(steps)), bad: len(steps) - 1,
		trees: map[gitd.Hash]Result{}, again: maxPairs / int64(len(steps)*len(steps))}
	for tree, r := range known {
		s.trees[tree] = r
	}
	for i, st := range s.steps {
		if _, twice := s.index[st.Commit]; twice {
			return nil, fmt.Errorf("the step %s is there twice: %w", st.Commit, gitd.ErrInvalid)
		}
		s.history[i] = newSet(len(steps))
		for _, p := range st.Parents {
			if at, inside := s.index[p]; inside {
				s.history[i].add(s.history[at])
			}
		}
		s.history[i].put(i)
		s.index[st.Commit] = i
	}
	s.left.add(s.history[s.bad])
	if s.left.count() != len(steps) {
		return nil, fmt.Errorf("the steps are not the history of the last one: %w", gitd.ErrInvalid)
	}
	return s, nil
}

// Next begins a round and returns its steps, at most k of different trees. It returns none if the search has ended.
// Steps whose trees have results are not returned. Such a result is applied when its step is chosen, and to all steps
// if too many are chosen.
func (s *Search) Next(k int) []Step {
	k = min(max(k, 1), MaxWidth)
	for again := s.again; ; again-- {
		if again == 0 {
			s.applyAll() // then no point has a result
		}
		points := s.choose(k)
		s.chosen++
		known := false
		for _, i := range points {
			if r, have := s.trees[s.steps[i].Tree]; have {
				s.apply(i, r)
				known = true
			}
		}
		if known {
			continue // other points are better now
		}
		var round []Step
		for _, i := range points {
			if !slices.ContainsFunc(round, func(st Step) bool { return st.Tree == s.steps[i].Tree }) {
				round = append(round, s.steps[i])
			}
		}
		if len(round) > 0 {
			s.rounds++
		}
		return round
	}
}

// Mark records the result of a step. Returns [ErrContradiction] if the step is the last one, which is bad, and r is
// good.
func (s *Search) Mark(commit gitd.Hash, r Result) error {
	i, known := s.index[commit]
	if !known {
		return fmt.Errorf("cannot mark %s: it is no step: %w", commit, gitd.ErrNotFound)
	}
	if r != Good && r != Bad && r != Skip {
		return fmt.Errorf("cannot mark %s: unknown result %q: %w", commit, r, gitd.ErrInvalid)
	}
	if i == s.bad && r == Good {
		return fmt.Errorf("cannot mark %s: it is good, and was said to be bad: %w", commit, ErrContradiction)
	}
	if before, have := s.trees[s.steps[i].Tree]; !have || before == Skip {
		s.trees[s.steps[i].Tree] = r
	}
	s.apply(i, r)
	return nil
}

// apply excludes the steps that a result excludes. A step that is excluded already has no say.
func (s *Search) apply(i int, r Result) {
	if !s.left.has(i) {
		return
	}
	switch r {
	case Skip:
		s.skipped.put(i)
	case Bad:
		s.left.keep(s.history[i])
		s.bad = i
	case Good:
		if i != s.bad {
			s.left.drop(s.history[i])
		} else {
			s.skipped.put(i) // its tree is also that of a good step; it was said to be bad
		}
	}
}

// applyAll applies the results of trees to all steps that are left, the oldest first. A bad one excludes those after it.
func (s *Search) applyAll() {
	for i, st := range s.steps {
		if r, have := s.trees[st.Tree]; have {
			s.apply(i, r)
		}
	}
}

// Left returns the steps that may be the first bad one, the oldest first.
func (s *Search) Left() []Step {
	var list []Step
	for i := range s.steps {
		if s.left.has(i) {
			list = append(list, s.steps[i])
		}
	}
	return list
}

// Found returns the first bad step. ok is false if several are left.
func (s *Search) Found() (first Step, ok bool) {
	if s.left.count() != 1 {
		return Step{}, false
	}
	return s.steps[s.bad], true
}

// Rounds returns the number of rounds that Next began.
func (s *Search) Rounds() int { return s.rounds }
