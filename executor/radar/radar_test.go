package radar

import (
	"errors"
	"fmt"
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
	if n := len(r.repos["app"].files); n != 10 {
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
