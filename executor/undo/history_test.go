package undo

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/gitd/gittest"
)

// site is a random history of a branch main, to which runs were merged in all ways.
type site struct {
	t      *testing.T
	repo   *gitd.Repo
	rand   *rand.Rand
	clock  time.Time
	merged []merge
	open   []record.Run // not merged
	runs   map[string][]record.Run
}

// merge is a run that was merged.
type merge struct {
	run record.Run
	how gitd.Strategy
}

// lines returns a file of twelve lines.
func lines() []string {
	var all []string
	for i := range 12 {
		all = append(all, fmt.Sprint(i))
	}
	return all
}

// newSite returns the history of a seed.
func newSite(t *testing.T, seed uint64) *site {
	repo, _ := newRepo(t)
	s := &site{t: t, repo: repo, rand: rand.New(rand.NewPCG(seed, 1)), clock: time.Unix(1700000000, 0).UTC(),
		runs: map[string][]record.Run{}}
	for _, f := range []string{"a", "b", "c"} {
		s.write("main", "begin "+f, f, strings.Join(lines(), "\n")+"\n")
	}
	starts := []gitd.Hash{s.tip("main")}
	for i := range 5 {
		id := fmt.Sprintf("r%d", i)
		// The branch begins at the base, or at an older commit of it.
		r := branch(t, repo, id, starts[s.rand.IntN(len(starts))])
		for j := range 1 + s.rand.IntN(3) {
			r.Head = s.edit(r.Branch, fmt.Sprintf("%s step %d", id, j))
		}
		s.runs[id] = []record.Run{r}
		for j := range s.rand.IntN(2) {
			s.edit("main", fmt.Sprintf("others %d %d", i, j))
		}
		s.merge(r)
		starts = append(starts, s.tip("main"))
	}
	s.edit("main", "the last others")
	return s
}

func (s *site) tip(branch string) gitd.Hash {
	s.t.Helper()
	h, err := s.repo.Resolve(s.t.Context(), "refs/heads/"+branch)
	if err != nil {
		s.t.Fatal(err)
	}
	return h
}

// write makes a commit on a branch. If the branch moves meanwhile, write tries again.
func (s *site) write(branch, message, path, content string) gitd.Hash {
	s.t.Helper()
	for {
		s.clock = s.clock.Add(time.Minute)
		c := gitd.NewCommit{Author: ada, When: s.clock, Message: message,
			Put: []gitd.File{{Path: path, Content: []byte(content)}}}
		old, err := s.repo.Resolve(s.t.Context(), "refs/heads/"+branch)
		if err == nil {
			c.From, c.Parents = old, []gitd.Hash{old}
		} else if !errors.Is(err, gitd.ErrNotFound) {
			s.t.Error(err)
			return ""
		}
		h, err := s.repo.WriteCommit(s.t.Context(), c)
		if err == nil {
			err = s.repo.Update(s.t.Context(), gitd.RefUpdate{Name: "refs/heads/" + branch, New: h, Old: &old})
		}
		if err == nil {
			return h
		}
		if !errors.Is(err, gitd.ErrConflict) {
			s.t.Error(err)
			return ""
		}
	}
}

// edit changes, adds or removes some lines of a file.
func (s *site) edit(branch, message string) gitd.Hash {
	s.t.Helper()
	path := string(rune('a' + s.rand.IntN(3)))
	if s.rand.IntN(5) == 0 {
		return s.write(branch, message, "new "+message, message+"\n")
	}
	text, err := s.repo.ReadFile(s.t.Context(), "refs/heads/"+branch, path, 10_000)
	if err != nil {
		s.t.Fatal(err)
	}
	all := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	for range 1 + s.rand.IntN(2) {
		at := s.rand.IntN(len(all))
		switch {
		case s.rand.IntN(4) == 0:
			all = slices.Insert(all, at, message)
		case s.rand.IntN(5) == 0 && len(all) > 6:
			all = slices.Delete(all, at, at+1)
		default:
			all[at] = message + " at " + fmt.Sprint(at)
		}
	}
	return s.write(branch, message, path, strings.Join(all, "\n")+"\n")
}

// merge merges a run in a random way, if it merges.
func (s *site) merge(r record.Run) {
	s.t.Helper()
	ways := []gitd.Strategy{gitd.StrategyMerge, gitd.StrategyRebase, gitd.StrategySquash, forge}
	how := ways[s.rand.IntN(len(ways))]
	before := s.tip("main")
	strategy := how
	if how == forge {
		strategy = gitd.StrategySquash
	}
	res, err := s.repo.MergeOnto(s.t.Context(), gitd.MergeRequest{From: r.Branch, Strategy: strategy, Committer: ada}, before)
	if err != nil {
		s.t.Fatal(err)
	}
	if !res.Merged || res.Commit == before {
		s.open = append(s.open, r)
		return
	}
	if how == forge {
		squashAsForge(s.t, s.repo, r.Branch)
	} else if err := s.repo.Update(s.t.Context(), gitd.RefUpdate{Name: "refs/heads/main", New: res.Commit, Old: &before}); err != nil {
		s.t.Fatal(err)
	}
	s.merged = append(s.merged, merge{r, how})
}

// TestHistories undoes merged runs and picks steps of others in random histories, while others push. Files and conflicts
// are those of git revert and git cherry-pick at the commit on which the change was made. A conflict changes nothing,
// and no push is lost.
func TestHistories(t *testing.T) {
	ways, conflicts := map[string]int{}, 0
	for seed := range uint64(5) {
		s := newSite(t, seed)
		dir := t.TempDir()
		gittest.Run(t, dir, "clone", "-q", "--shared", s.repo.Dir(), ".")
		for _, m := range s.merged {
			w, err := Merged(t.Context(), s.repo, m.run, s.runs[m.run.Caller.ID()], "main")
			if m.how == forge && errors.Is(err, record.ErrConflict) {
				continue // the same files have other contents in the squash, and nothing else names the run
			}
			if err != nil {
				t.Errorf("seed %d: %s, merged by %s: %v", seed, m.run.Name(), m.how, err)
				continue
			}
			// stock git finds the commits by their subjects, which are different.
			var want []string
			for _, h := range s.own(dir, m.run) {
				if m.how == gitd.StrategyRebase {
					subject := gittest.Run(t, dir, "log", "-1", "--format=%s", h)
					if h = s.named(dir, subject); h == "" {
						continue // it became empty
					}
				}
				want = append(want, h)
			}
			if got := texts(w.Commits); !slices.Equal(got, want) {
				t.Errorf("seed %d: the commits of %s, merged by %s, are %v, want %v", seed, m.run.Name(), m.how, got, want)
				continue
			}
			if s.change(dir, fmt.Sprintf("seed %d: undo of %s by %s", seed, m.run.Name(), m.how),
				gitd.PickRequest{Into: "main", Commits: w.Commits, Reverse: true, Committer: ada,
					Message: fmt.Sprintf("Undo\n\n%s: %s", record.TrailerUndoes, m.run.Name())}) {
				ways["undo "+string(m.how)]++
			} else {
				conflicts++
			}
		}
		for _, r := range s.open {
			var commits []gitd.Hash
			for _, h := range s.own(dir, r) {
				if s.rand.IntN(3) > 0 {
					commits = append(commits, gitd.Hash(h))
				}
			}
			if len(commits) == 0 {
				continue
			}
			if s.change(dir, fmt.Sprintf("seed %d: pick of %s", seed, r.Name()),
				gitd.PickRequest{Into: "main", Commits: commits, Committer: ada}) {
				ways["pick"]++
			} else {
				conflicts++
			}
		}
	}
	t.Logf("%v, %d conflicts", ways, conflicts)
	if len(ways) < 5 || conflicts == 0 {
		t.Errorf("the histories show too little: %v, %d conflicts", ways, conflicts)
	}
}

// own returns the commits of a run as stock git lists them.
func (s *site) own(dir string, r record.Run) []string {
	s.t.Helper()
	gittest.Run(s.t, dir, "fetch", "-q", "origin")
	return strings.Fields(gittest.Run(s.t, dir, "rev-list", "--reverse", string(r.Start)+".."+string(r.Head)))
}

// named returns the commit of main with a subject, or "".
func (s *site) named(dir, subject string) string {
	s.t.Helper()
	return strings.TrimSpace(gittest.Run(s.t, dir, "log", "-1", "--format=%H", "--fixed-strings", "--grep", subject, "origin/main"))
}

func texts(list []gitd.Hash) (all []string) {
	for _, h := range list {
		all = append(all, string(h))
	}
	return all
}

// change makes a change while others push, and compares it with stock git. It returns false after a conflict.
func (s *site) change(dir, what string, p gitd.PickRequest) bool {
	t := s.t
	t.Helper()
	before := s.tip("main")
	var pushing sync.WaitGroup
	var pushed []gitd.Hash
	pushing.Go(func() {
		for i := range 3 {
			pushed = append(pushed, s.write("main", fmt.Sprint("a push ", i), "pushed", fmt.Sprint(what, i)))
		}
	})
	res, err := s.repo.Pick(t.Context(), p)
	pushing.Wait()
	if err != nil {
		t.Errorf("%s: %v", what, err)
		return false
	}
	after := s.tip("main")
	for _, h := range pushed {
		if in, err := s.repo.Descends(t.Context(), after, h); err != nil || !in {
			t.Errorf("%s: a push was lost, %v", what, err)
		}
	}

	gittest.Run(t, dir, "fetch", "-q", "origin")
	gittest.Run(t, dir, "reset", "-q", "--hard")
	gittest.Run(t, dir, "checkout", "-q", "--detach", string(res.Old))
	commits := texts(p.Commits)
	args := []string{"cherry-pick", "-n"}
	if p.Reverse {
		args = []string{"revert", "-n"}
		slices.Reverse(commits)
	}
	unmerged := ""
	for _, h := range commits { // one by one, because an interrupted sequence keeps a state
		out, err := gittest.Try(dir, append(args, h)...)
		if unmerged = strings.TrimSpace(gittest.Run(t, dir, "diff", "--name-only", "--diff-filter=U")); unmerged != "" {
			break
		}
		if err != nil {
			t.Fatalf("%s: git: %v\n%s", what, err, out)
		}
	}
	made := strings.Fields(gittest.Run(t, dir, "rev-list", "^"+string(before), string(after)))
	if unmerged != "" {
		slices.Sort(res.Conflicts)
		if got := strings.Join(res.Conflicts, "\n"); res.Merged || got != unmerged || len(made) != len(pushed) {
			t.Errorf("%s: conflicts %q and %d commits, git has conflicts in %q", what, got, len(made)-len(pushed), unmerged)
		}
		return false
	}
	want := strings.TrimSpace(gittest.Run(t, dir, "write-tree"))
	if !res.Merged {
		t.Errorf("%s: conflicts in %v, and git has none", what, res.Conflicts)
		return false
	}
	tree, err := s.repo.TreeOf(t.Context(), res.Commit)
	if err != nil || string(tree) != want {
		t.Errorf("%s: the tree is %s, want %s, %v", what, tree, want, err)
	}
	if in, err := s.repo.Descends(t.Context(), after, res.Commit); err != nil || !in {
		t.Errorf("%s: the change is lost, %v", what, err)
	}
	if res.Merged && p.Reverse && !res.UpToDate && len(made) != len(pushed)+1 {
		t.Errorf("%s: it made %d commits", what, len(made)-len(pushed))
	}
	return true
}
