package radar

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/gitd/repotest"
)

// site is a repository in which branches move.
type site struct {
	t     *testing.T
	repo  *gitd.Repo
	clock time.Time
}

func newSite(t *testing.T) *site {
	t.Helper()
	return &site{t: t, repo: repotest.NewRepo(t), clock: time.Unix(1_700_000_000, 0).UTC()}
}

// write makes a commit on a branch, which begins at main if it is new.
func (s *site) write(branch, path, content string) gitd.Hash {
	s.t.Helper()
	s.clock = s.clock.Add(time.Minute)
	c := gitd.NewCommit{Author: gitd.Person{Name: "A", Email: "a@example.org"}, When: s.clock, Message: path,
		Put: []gitd.File{{Path: path, Content: []byte(content)}}}
	old, err := s.repo.Resolve(s.t.Context(), "refs/heads/"+branch)
	from := old
	if errors.Is(err, gitd.ErrNotFound) {
		from, _ = s.repo.Resolve(s.t.Context(), "refs/heads/main")
	}
	if from != "" {
		c.From, c.Parents = from, []gitd.Hash{from}
	}
	h, err := s.repo.WriteCommit(s.t.Context(), c)
	if err == nil {
		err = s.repo.Update(s.t.Context(), gitd.RefUpdate{Name: "refs/heads/" + branch, New: h, Old: &old})
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return h
}

// look returns a report and its conflicts as text.
func (s *site) look(r *Radar, q Question) (Report, string) {
	s.t.Helper()
	q.Repo = s.repo
	if q.Now.IsZero() {
		q.Now = s.clock
	}
	rep, err := r.Look(s.t.Context(), q)
	if err != nil {
		s.t.Fatal(err)
	}
	var text []string
	for _, c := range rep.Conflicts {
		var files []string
		for _, f := range c.Files {
			files = append(files, f.Path)
		}
		text = append(text, c.One+"/"+c.Other+":"+strings.Join(files, ","))
	}
	return rep, strings.Join(text, " ")
}

func TestLook(t *testing.T) {
	s := newSite(t)
	s.write("main", "f", "1\n2\n3\n4\n5\n6\n7\n8\n9\n")
	s.write("b", "f", "1\n2\nB\n4\n5\n6\n7\n8\n9\n")
	s.write("a", "f", "1\n2\nA\n4\n5\n6\n7\n8\n9\n")
	s.write("c", "g", "new\n")
	s.write("d", "f", "1\n2\n3\n4\n5\n6\n7\nD\n9\n")
	r := &Radar{}
	rep, got := s.look(r, Question{})
	if want := "a/b:f"; got != want {
		t.Errorf("conflicts %q, want %q", got, want)
	}
	if rep.Base != "main" || len(rep.Branches) != 4 || rep.Branches[0].Branch != "d" ||
		rep.Pairs != 10 || rep.Merged != 10 {
		t.Errorf("report %+v", rep)
	}

	// Nothing moved.
	if rep, _ = s.look(r, Question{}); rep.Merged != 0 || len(rep.Conflicts) != 1 {
		t.Errorf("%d pairs were merged again, %d conflicts", rep.Merged, len(rep.Conflicts))
	}
	// The base moved, and collides with d.
	s.write("main", "f", "1\n2\n3\n4\n5\n6\n7\nMAIN\n9\n")
	rep, got = s.look(r, Question{})
	if want := "main/d:f a/b:f"; got != want || rep.Merged != 4 {
		t.Errorf("after the base moved: conflicts %q, want %q; %d pairs merged", got, want, rep.Merged)
	}
	// One branch moved away from its conflict.
	s.write("a", "f", "1\n2\n3\n4\n5\n6\n7\n8\n9\n")
	rep, got = s.look(r, Question{})
	if want := "main/d:f"; got != want || rep.Merged != 4 {
		t.Errorf("after a moved: conflicts %q, want %q; %d pairs merged", got, want, rep.Merged)
	}
	if n := len(r.repos["app"].results); n != 10 {
		t.Errorf("%d results are kept, want those of the 10 pairs", n)
	}

	// One branch alone, and the part of a reader who does not see it.
	if _, got = s.look(r, Question{Of: "b"}); got != "" {
		t.Errorf("conflicts of b: %q", got)
	}
	rep, got = s.look(r, Question{Of: "d"})
	if got != "main/d:f" || rep.Pairs != 4 {
		t.Errorf("conflicts of d: %q of %d pairs", got, rep.Pairs)
	}
	sees := func(branch string) bool { return branch != "d" }
	rep, got = s.look(r, Question{Sees: sees})
	if got != "" || slices.ContainsFunc(rep.Branches, func(b gitd.Tip) bool { return b.Branch == "d" }) {
		t.Errorf("a reader who does not see d gets %q and %v", got, rep.Branches)
	}
	for _, of := range []string{"d", "none"} {
		_, err := r.Look(t.Context(), Question{Repo: s.repo, Now: s.clock, Sees: sees, Of: of})
		if !errors.Is(err, gitd.ErrNotFound) {
			t.Errorf("branch %s, which the reader does not see: %v", of, err)
		}
	}
	_, err := r.Look(t.Context(), Question{Repo: s.repo, Sees: func(b string) bool { return b != "main" }})
	if !errors.Is(err, gitd.ErrNotFound) {
		t.Errorf("a base that the reader does not see: %v", err)
	}

	// Branches that rest are not live, and those without a common commit neither.
	if rep, _ = s.look(r, Question{Now: s.clock.Add(Age + time.Hour)}); len(rep.Branches) != 0 {
		t.Errorf("live after %v: %v", Age+time.Hour, rep.Branches)
	}
	h, err := s.repo.WriteCommit(t.Context(), gitd.NewCommit{Author: gitd.Person{Name: "A", Email: "a@example.org"},
		When: s.clock, Message: "pages", Put: []gitd.File{{Path: "f", Content: []byte("other\n")}}})
	if err == nil {
		err = s.repo.Update(t.Context(), gitd.RefUpdate{Name: "refs/heads/pages", New: h})
	}
	if err != nil {
		t.Fatal(err)
	}
	if rep, _ = s.look(r, Question{}); len(rep.Branches) != 4 {
		t.Errorf("live: %v", rep.Branches)
	}
}

// TestRules has a file of the base decide how files merge.
func TestRules(t *testing.T) {
	s := newSite(t)
	s.write("main", "log", "1\n")
	s.write("a", "log", "1\nA\n")
	s.write("b", "log", "1\nB\n")
	r := &Radar{}
	if _, got := s.look(r, Question{}); got != "a/b:log" {
		t.Errorf("conflicts %q", got)
	}
	s.write("main", ".gitattributes", "log merge=union\n")
	if rep, got := s.look(r, Question{}); got != "" || rep.Merged != 3 {
		t.Errorf("conflicts %q, %d pairs merged", got, rep.Merged)
	}
}

// TestAmong compares the pairs in which a branch of the reader is, and asks once about each branch.
func TestAmong(t *testing.T) {
	s := newSite(t)
	s.write("main", "f", "0\n")
	for _, branch := range []string{"a", "b", "c"} {
		s.write(branch, "f", branch+"\n")
	}
	for among, want := range map[string]string{"a": "a/b:f a/c:f", "b": "a/b:f b/c:f", "c": "a/c:f b/c:f", "none": "", "main": ""} {
		asked := map[string]int{}
		rep, got := s.look(&Radar{}, Question{Among: func(branch string) bool {
			asked[branch]++
			return branch == among
		}})
		pairs := map[string]int{"none": 0}
		if n, ok := pairs[among]; got != want || !ok && rep.Pairs != 3 || ok && rep.Pairs != n || len(asked) != 4 || asked["a"] != 1 {
			t.Errorf("among %s: %q of %d pairs, asked %v", among, got, rep.Pairs, asked)
		}
	}
}

// TestBranchAtBase has branches that are no pair: two at one commit, and one at the base.
func TestBranchAtBase(t *testing.T) {
	s := newSite(t)
	base := s.write("main", "f", "0\n")
	tip := s.write("a", "f", "1\n")
	for branch, at := range map[string]gitd.Hash{"same": tip, "merged": base} {
		if err := s.repo.Update(t.Context(), gitd.RefUpdate{Name: "refs/heads/" + branch, New: at}); err != nil {
			t.Fatal(err)
		}
	}
	// A branch that the reader does not see does not end the list.
	s.write("hidden", "h", "1\n")
	rep, _ := s.look(&Radar{}, Question{Sees: func(branch string) bool { return branch != "hidden" }})
	if len(rep.Branches) != 2 || rep.Pairs != 2 || rep.Merged != 1 {
		t.Errorf("%+v", rep)
	}
	// A branch is live until it is older than Age.
	for after, want := range map[time.Duration]int{Age - 2*time.Minute: 3, Age - time.Minute: 3, Age: 1, Age + time.Second: 0} {
		if rep, _ := s.look(&Radar{}, Question{Now: s.clock.Add(after)}); len(rep.Branches) != want {
			t.Errorf("after %v there are %d live branches, want %d", after, len(rep.Branches), want)
		}
	}
}

// TestReportBounds lists as many conflicts as are possible, and counts the others.
func TestReportBounds(t *testing.T) {
	m := new(Radar).memory("app")
	var pairs []pair
	for i := range MaxConflicts + 3 {
		p := pair{"a", fmt.Sprint("b", i), [2]gitd.Hash{"a", gitd.Hash(fmt.Sprint("b", i))}}
		m.results[p.commits] = result{make([]gitd.CollidingFile, MaxFiles), i}
		if i == 1 {
			m.results[p.commits] = result{}
		}
		pairs = append(pairs, p)
	}
	var rep Report
	rep.addConflicts(pairs, m)
	if len(rep.Conflicts) != MaxConflicts || rep.MoreConflicts != 2 {
		t.Errorf("%d conflicts and %d more", len(rep.Conflicts), rep.MoreConflicts)
	}
	if a, b := rep.Conflicts[0], rep.Conflicts[1]; len(a.Files) != MaxFiles || a.More != 0 || len(b.Files) != MaxFiles || b.More != 2 || b.Other != "b2" {
		t.Errorf("%d files and %d more, %d and %d more of %s", len(a.Files), a.More, len(b.Files), b.More, b.Other)
	}
}

// TestManyFiles keeps and lists as many files of a conflict as are possible, the first by path, and counts the others.
func TestManyFiles(t *testing.T) {
	s := newSite(t)
	base := s.write("main", "f", "0\n")
	writeAll := func(branch string, files int) {
		t.Helper()
		c := gitd.NewCommit{Author: gitd.Person{Name: "A", Email: "a@example.org"}, When: s.clock, Message: branch,
			From: base, Parents: []gitd.Hash{base}}
		for i := range files {
			c.Put = append(c.Put, gitd.File{Path: fmt.Sprintf("d/%03d", i), Content: []byte(branch)})
		}
		h, err := s.repo.WriteCommit(t.Context(), c)
		if err == nil {
			err = s.repo.Update(t.Context(), gitd.RefUpdate{Name: "refs/heads/" + branch, New: h})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	writeAll("few", MaxFiles)
	writeAll("many", MaxFiles+7)
	writeAll("most", MaxFiles+70)
	r := &Radar{}
	for range 2 { // the second report is of what is kept
		rep, _ := s.look(r, Question{})
		got := map[string]int{}
		for _, c := range rep.Conflicts {
			got[c.One+" "+c.Other] = c.More
			if len(c.Files) != MaxFiles || c.Files[0].Path != "d/000" || c.Files[MaxFiles-1].Path != fmt.Sprintf("d/%03d", MaxFiles-1) ||
				len(c.Files[MaxFiles-1].Regions) != 1 {
				t.Errorf("%s and %s: %d files, %+v", c.One, c.Other, len(c.Files), c.Files)
			}
		}
		if want := map[string]int{"few many": 0, "few most": 0, "many most": 7}; !maps.Equal(got, want) {
			t.Errorf("further files %v, want %v", got, want)
		}
	}
	for commits, res := range r.repos["app"].results {
		if cap(res.files) > 2*MaxFiles {
			t.Errorf("%v: space for %d files is kept", commits, cap(res.files))
		}
	}
}

// TestForget keeps the results of tips, up to a bound.
func TestForget(t *testing.T) {
	fill := func(results, apart int) (*memory, []gitd.Tip) {
		m, tips := new(Radar).memory("app"), []gitd.Tip{}
		for i := range results {
			h := gitd.Hash(fmt.Sprint(i))
			tips = append(tips, gitd.Tip{Commit: h})
			m.results[[2]gitd.Hash{"base", h}] = result{}
		}
		for i := range apart {
			m.apart[gitd.Hash(fmt.Sprint(i))] = true
		}
		return m, tips
	}
	m, tips := fill(4, 0)
	if m.forget("base", tips[:3]); len(m.results) != 3 {
		t.Errorf("%d results are kept, want those of three tips", len(m.results))
	}
	if m.forget("other", tips); len(m.results) != 0 {
		t.Errorf("%d results are kept of a base that has moved", len(m.results))
	}
	for _, more := range []int{0, 1} {
		m, tips := fill(maxKnown+more, 2*maxTips+more)
		if m.forget("base", tips); (len(m.results) == 0) != (more == 1) || (len(m.apart) == 0) != (more == 1) {
			t.Errorf("with %d more: %d results, %d tips", more, len(m.results), len(m.apart))
		}
		m, tips = fill(1, 0)
		m.results[[2]gitd.Hash{"base", "0"}] = result{files: make([]gitd.CollidingFile, maxKept+more)}
		if m.forget("base", tips); (len(m.results) == 0) != (more == 1) {
			t.Errorf("with %d files more than are kept: %d results", more, len(m.results))
		}
	}
}

func TestBounds(t *testing.T) {
	s := newSite(t)
	s.write("main", "f", "0\n")
	for i := range MaxBranches + 2 {
		s.write(fmt.Sprintf("b%03d", i), fmt.Sprintf("f%d", i), "1\n")
	}
	rep, _ := s.look(&Radar{}, Question{Of: "main"})
	if len(rep.Branches) != MaxBranches || rep.MoreBranches != 2 || rep.Pairs != MaxBranches {
		t.Errorf("%d branches, %d more, %d pairs", len(rep.Branches), rep.MoreBranches, rep.Pairs)
	}
	if rep.Branches[0].Branch != fmt.Sprintf("b%03d", MaxBranches+1) {
		t.Errorf("the newest branch is not the first: %v", rep.Branches[0])
	}
}

// TestWithin looks for conflicts with a bound that is over at once. Each look goes on where the last one ended.
func TestWithin(t *testing.T) {
	s := newSite(t)
	s.write("main", "f", "0\n")
	const branches = 14 // 105 pairs
	for i := range branches {
		s.write(fmt.Sprintf("b%d", i), "f", fmt.Sprintf("%d\n", i+1))
	}
	r, pairs := &Radar{}, branches*(branches+1)/2
	for looks, known := 1, 0; ; looks++ {
		rep, _ := s.look(r, Question{Within: 1})
		if rep.Pairs < known || rep.Pairs+rep.Left != pairs || rep.Merged > atOnce {
			t.Fatalf("look %d: %d pairs, %d left, %d merged; %d were known", looks, rep.Pairs, rep.Left, rep.Merged, known)
		}
		if known = rep.Pairs; rep.Left == 0 {
			if want := pairs - branches; looks < 2 || len(rep.Conflicts) != want {
				t.Errorf("%d looks, %d conflicts, want %d", looks, len(rep.Conflicts), want)
			}
			return
		}
	}
}
