package radar

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/gitd"
)

// Bounds of a report.
const (
	// Age is the time since the last commit after which a branch is not live any more.
	Age = 30 * 24 * time.Hour
	// MaxBranches is the number of branches that are compared, the newest of the live ones.
	MaxBranches = 100
	// MaxConflicts and MaxFiles bound the conflicts of a report and the files of one conflict.
	MaxConflicts = 500
	MaxFiles     = 50

	atOnce   = 64     // pairs that are merged between two looks at the time
	maxTips  = 1000   // branches looked at
	maxKnown = 40_000 // results of a repository
	// maxKept is the number of files of all results of a repository. It is twice that of the largest report, so the
	// results of one report are always kept.
	maxKept = MaxBranches * (MaxBranches + 1) * MaxFiles
)

// Conflict is a pair of branches that do not merge.
type Conflict struct {
	One   string               `json:"one"` // the base, or the branch whose name is first
	Other string               `json:"other"`
	Files []gitd.CollidingFile `json:"files"` // Ours are the lines of One
	// More is the number of further files.
	More int `json:"more,omitempty"`
}

// Report is the state of a repository.
type Report struct {
	Repo     string     `json:"repo"`
	Base     string     `json:"base"`
	Commit   gitd.Hash  `json:"commit"` // of the base
	Branches []gitd.Tip `json:"branches"`
	// Conflicts are sorted. Those with the base are first.
	Conflicts []Conflict `json:"conflicts"`
	// Pairs were compared, and Merged of them now. The others were known.
	Pairs  int `json:"pairs"`
	Merged int `json:"merged"`
	// Left is the number of pairs that were not compared, because [Question.Within] was over.
	Left int `json:"left,omitempty"`
	// MoreBranches are live and were not compared. MoreConflicts are not listed.
	MoreBranches  int `json:"more_branches,omitempty"`
	MoreConflicts int `json:"more_conflicts,omitempty"`
}

// Radar remembers the results of merges. The zero value is ready. Methods are safe for concurrent use.
type Radar struct {
	mu    sync.Mutex
	repos map[string]*memory
}

// memory has the results of one repository.
type memory struct {
	turn    chan struct{} // has one element if nobody looks
	rules   gitd.Hash     // of the .gitattributes by which the results were found
	results map[[2]gitd.Hash]result
	apart   map[gitd.Hash]bool // by tip, whether it shares no commit with the base
}

// result is the result of a merge. It has no files if the merge is clean.
type result struct {
	files []gitd.CollidingFile // at most MaxFiles
	more  int                  // further files
}

// memory returns the results of a repository.
func (r *Radar) memory(repo string) *memory {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.repos[repo]
	if m == nil {
		m = &memory{turn: make(chan struct{}, 1), results: map[[2]gitd.Hash]result{}, apart: map[gitd.Hash]bool{}}
		m.turn <- struct{}{}
		if r.repos == nil {
			r.repos = map[string]*memory{}
		}
		r.repos[repo] = m
	}
	return m
}

// Question asks for a report.
type Question struct {
	Repo *gitd.Repo
	Now  time.Time
	// Sees reports whether the reader may know of a branch. Nil means of all.
	Sees func(branch string) bool
	// Of names a branch to which the conflicts are limited. Empty means all.
	Of string
	// Among limits the pairs to those with at least one branch for which it returns true. Nil means all.
	Among func(branch string) bool
	// Within bounds the time for merges. Some pairs are merged in any case, and the next look goes on with those that are left. Zero
	// means no bound.
	Within time.Duration
}

// Look returns the live branches of a repository and their conflicts. Returns [gitd.ErrNotFound] if the repository has
// no base yet, or no branch q.Of that the reader may see.
func (r *Radar) Look(ctx context.Context, q Question) (Report, error) {
	rep, err := r.look(ctx, q)
	if err != nil {
		return Report{}, fmt.Errorf("cannot compare the branches of %s: %w", q.Repo.Name(), err)
	}
	return rep, nil
}

func (r *Radar) look(ctx context.Context, q Question) (Report, error) {
	rep := Report{Repo: q.Repo.Name(), Branches: []gitd.Tip{}, Conflicts: []Conflict{}}
	sees := q.Sees
	if sees == nil {
		sees = func(string) bool { return true }
	}
	var err error
	if rep.Base, err = q.Repo.Base(ctx); err != nil {
		return rep, err
	}
	if !sees(rep.Base) {
		return rep, fmt.Errorf("its base: %w", gitd.ErrNotFound)
	}
	if rep.Commit, err = q.Repo.Resolve(ctx, "refs/heads/"+rep.Base); err != nil {
		return rep, err
	}
	m := r.memory(rep.Repo)
	select {
	case <-m.turn:
	case <-ctx.Done():
		return rep, context.Cause(ctx)
	}
	defer func() { m.turn <- struct{}{} }()

	all, err := m.live(ctx, q, rep)
	if err != nil {
		return rep, err
	}
	for _, t := range all {
		if !sees(t.Branch) {
			continue
		}
		if len(rep.Branches) == MaxBranches {
			rep.MoreBranches++
			continue
		}
		rep.Branches = append(rep.Branches, t)
	}
	pairs, err := rep.pairs(q.Of)
	if err != nil {
		return rep, err
	}
	if q.Among != nil {
		pairs = among(pairs, q.Among)
	}
	if rep.Merged, rep.Left, err = m.merge(ctx, q, rep.Commit, pairs); err != nil {
		return rep, err
	}
	rep.Pairs = len(pairs) - rep.Left
	rep.addConflicts(pairs, m)
	m.forget(rep.Commit, all)
	return rep, nil
}

// live returns the tips of the live branches, the newest first.
func (m *memory) live(ctx context.Context, q Question, rep Report) ([]gitd.Tip, error) {
	tips, err := q.Repo.Unmerged(ctx, rep.Commit, maxTips)
	if err != nil {
		return nil, err
	}
	oldest := q.Now.Add(-Age)
	live := tips[:0]
	for _, t := range tips {
		if t.Branch == rep.Base || t.When.Before(oldest) {
			continue
		}
		apart, known := m.apart[t.Commit]
		if !known {
			_, err := q.Repo.MergeBase(ctx, string(rep.Commit), string(t.Commit))
			if apart = errors.Is(err, gitd.ErrNotFound); err != nil && !apart {
				return nil, err
			}
			m.apart[t.Commit] = apart
		}
		if !apart {
			live = append(live, t)
		}
	}
	return live, nil
}

// pair is two branches that are compared.
type pair struct {
	one, other string
	commits    [2]gitd.Hash
}

// pairs returns the pairs to compare, those with the base first. If of is not empty, they are the ones of that branch.
func (rep *Report) pairs(of string) ([]pair, error) {
	branches := slices.SortedFunc(slices.Values(rep.Branches), func(a, b gitd.Tip) int {
		return cmp.Compare(a.Branch, b.Branch)
	})
	if of != "" && of != rep.Base && !slices.ContainsFunc(branches, func(b gitd.Tip) bool { return b.Branch == of }) {
		return nil, fmt.Errorf("the branch %.200q is not live: %w", of, gitd.ErrNotFound)
	}
	var list []pair
	add := func(one, other string, a, b gitd.Hash) {
		if a != b && (of == "" || of == one || of == other) {
			list = append(list, pair{one, other, [2]gitd.Hash{a, b}})
		}
	}
	for _, b := range branches {
		add(rep.Base, b.Branch, rep.Commit, b.Commit)
	}
	for i, a := range branches {
		for _, b := range branches[i+1:] {
			add(a.Branch, b.Branch, a.Commit, b.Commit)
		}
	}
	return list, nil
}

// among returns the pairs with at least one branch for which has returns true.
func among(pairs []pair, has func(branch string) bool) []pair {
	known := map[string]bool{}
	of := func(branch string) bool {
		if _, asked := known[branch]; !asked {
			known[branch] = has(branch)
		}
		return known[branch]
	}
	return slices.DeleteFunc(pairs, func(p pair) bool { return !of(p.one) && !of(p.other) })
}

// merge merges the pairs whose result is not known, and returns their number and that of the pairs that are left.
func (m *memory) merge(ctx context.Context, q Question, base gitd.Hash, pairs []pair) (merged, left int, err error) {
	rules, err := q.Repo.Entry(ctx, string(base), ".gitattributes")
	if err != nil && !errors.Is(err, gitd.ErrNotFound) {
		return 0, 0, err
	}
	if rules.Hash != m.rules {
		clear(m.results)
		m.rules = rules.Hash
	}
	unknown := map[[2]gitd.Hash]int{} // the number of pairs with these commits
	for _, p := range pairs {
		if _, known := m.results[p.commits]; !known {
			unknown[p.commits]++
			left++
		}
	}
	// Results are stored in parts, so a look that was cut short does not begin again.
	began := time.Now()
	for some := range slices.Chunk(slices.Collect(maps.Keys(unknown)), atOnce) {
		if merged > 0 && q.Within > 0 && time.Since(began) > q.Within {
			break
		}
		done, err := q.Repo.Collisions(ctx, base, some, MaxFiles)
		if err != nil {
			return 0, 0, err
		}
		for _, c := range done {
			commits := [2]gitd.Hash{c.Ours, c.Theirs}
			m.results[commits] = result{c.Files, c.More}
			left -= unknown[commits]
			merged++
		}
	}
	return merged, left, nil
}

// addConflicts adds the pairs with conflicts to the report.
func (rep *Report) addConflicts(pairs []pair, m *memory) {
	for _, p := range pairs {
		res := m.results[p.commits]
		switch {
		case len(res.files) == 0:
		case len(rep.Conflicts) == MaxConflicts:
			rep.MoreConflicts++
		default:
			rep.Conflicts = append(rep.Conflicts, Conflict{One: p.one, Other: p.other, Files: res.files, More: res.more})
		}
	}
}

// forget removes the results for commits that are no tips any more.
func (m *memory) forget(base gitd.Hash, tips []gitd.Tip) {
	keep := map[gitd.Hash]bool{base: true}
	for _, t := range tips {
		keep[t.Commit] = true
	}
	maps.DeleteFunc(m.results, func(p [2]gitd.Hash, _ result) bool { return !keep[p[0]] || !keep[p[1]] })
	files := 0
	for _, res := range m.results {
		files += len(res.files)
	}
	if len(m.results) > maxKnown || files > maxKept {
		clear(m.results)
	}
	if len(m.apart) > 2*maxTips {
		clear(m.apart)
	}
}
