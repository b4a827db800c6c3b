package gitd

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/gitd/gittest"
	"github.com/ramus-dev/ramus/gitd/object"
)

// branches grows random commits on branches, like people do.
type branches struct {
	t    *testing.T
	r    *Repo
	rnd  *rand.Rand
	n    int
	when time.Time
}

var historyFiles = []string{"a.txt", "b.txt", "dir/c.txt", "dir/deep/d.txt", "union.log"}

// step adds one commit to a branch.
func (h *branches) step(branch string) {
	h.n++
	h.when = h.when.Add(time.Minute)
	ctx := h.t.Context()
	tip, err := h.r.Resolve(ctx, "refs/heads/"+branch)
	if err != nil {
		h.t.Fatal(err)
	}
	c := NewCommit{
		From: tip, Parents: []Hash{tip},
		Author: Person{Name: fmt.Sprintf("Author %d", h.rnd.IntN(3)), Email: "author@example.com"}, Committer: alice,
		When:    h.when,
		Message: fmt.Sprintf("%s: change %d\n\nBody of %d.\n\nRamus-Step: %d", branch, h.n, h.n, h.n),
	}
	file := historyFiles[h.rnd.IntN(len(historyFiles))]
	content, err := h.r.ReadFile(ctx, branch, file, 0)
	lines := strings.SplitAfter(string(content), "\n")
	what := h.rnd.IntN(13)
	switch {
	case err != nil: // the file does not exist, so make it, sometimes equal on both sides
		c.Put = []File{{Path: file, Content: []byte(strings.Repeat(fmt.Sprintf("line %d\n", h.rnd.IntN(2)), 5))}}
	case what == 0:
		c.Delete = []string{file}
	case what == 1: // rename
		c.Delete = []string{file}
		c.Put = []File{{Path: fmt.Sprintf("moved/%d.txt", h.rnd.IntN(3)), Content: content}}
	case what == 2:
		c.Put = []File{{Path: file, Content: content, Mode: object.ModeExecutable}}
	case what == 12:
		c.Put = []File{{Path: ".gitattributes", Content: fmt.Appendf(nil, "*.txt merge=union\n# %d\n", h.rnd.IntN(2))}}
	case what == 3: // a commit without a change
	case what == 4: // the same change as the other side may make
		lines[0] = "the same\n"
		c.Put = []File{{Path: file, Content: []byte(strings.Join(lines, ""))}}
	default:
		i := h.rnd.IntN(len(lines))
		lines[i] = fmt.Sprintf("%s %d\n", branch, h.rnd.IntN(4))
		c.Put = []File{{Path: file, Content: []byte(strings.Join(lines, ""))}}
	}
	h.add(branch, c)
}

func (h *branches) add(branch string, c NewCommit) {
	hash, err := h.r.WriteCommit(h.t.Context(), c)
	if err == nil {
		err = h.r.Update(h.t.Context(), RefUpdate{Name: "refs/heads/" + branch, New: hash})
	}
	if err != nil {
		h.t.Fatal(err)
	}
}

// pick repeats the change of another branch's tip, as git cherry-pick does.
func (h *branches) pick(from, onto string) {
	ctx := h.t.Context()
	changes, err := h.r.Changed(ctx, from+"^", from, false)
	if err == nil {
		h.t.Fatal("a revision expression was accepted", changes)
	}
	c, err := h.r.Commit(ctx, from)
	if err != nil {
		h.t.Fatal(err)
	}
	if len(c.Parents) != 1 {
		return
	}
	if changes, err = h.r.Changed(ctx, string(c.Parents[0]), string(c.Hash), false); err != nil {
		h.t.Fatal(err)
	}
	tip, err := h.r.Resolve(ctx, onto)
	if err != nil {
		h.t.Fatal(err)
	}
	h.when = h.when.Add(time.Minute)
	again := NewCommit{From: tip, Parents: []Hash{tip}, Author: alice, When: h.when, Message: "Picked: " + c.Subject}
	for _, change := range changes {
		if change.OldPath != "" {
			again.Delete = append(again.Delete, change.OldPath)
		}
		b, err := h.r.ReadFile(ctx, from, change.Path, 0)
		if errors.Is(err, ErrNotFound) {
			again.Delete = append(again.Delete, change.Path)
			continue
		} else if err != nil {
			h.t.Fatal(err)
		}
		again.Put = append(again.Put, File{Path: change.Path, Content: b})
	}
	h.add(onto, again)
}

// newHistory makes the branches main and work, which have a common ancestor.
func newHistory(t *testing.T, r *Repo, seed uint64) {
	h := &branches{t: t, r: r, rnd: rand.New(rand.NewPCG(seed, 1)), when: time.Unix(1700000000, 0).UTC()}
	base := NewCommit{Author: alice, When: h.when, Message: "Base"}
	for _, f := range historyFiles[:3+h.rnd.IntN(3)] {
		base.Put = append(base.Put, File{Path: f, Content: []byte("1\n2\n3\n4\n5\n6\n7\n8\n9\n")})
	}
	if h.rnd.IntN(2) == 0 {
		base.Put = append(base.Put, File{Path: ".gitattributes", Content: []byte("*.log merge=union\n")})
	}
	h.add("main", base)
	tip, err := r.Resolve(t.Context(), "main")
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range []string{"work", "side"} {
		if err := r.Update(t.Context(), RefUpdate{Name: "refs/heads/" + b, New: tip}); err != nil {
			t.Fatal(err)
		}
	}
	merge := func(from, into string) {
		if _, err := r.Merge(t.Context(),
			MergeRequest{From: from, Into: into, Strategy: StrategyMerge, Committer: alice, When: h.when}); err != nil {
			t.Fatal(err)
		}
	}
	for range 1 + h.rnd.IntN(7) {
		switch h.rnd.IntN(14) {
		case 0:
			merge("main", "work")
		case 1:
			h.step("side")
			merge("side", "work")
		case 2:
			h.pick("work", "main")
		case 3, 4, 5:
			h.step("main")
		default:
			h.step("work")
		}
	}
}

var mergeRounds = flag.Int("merge-rounds", 15, "random histories that are merged")

// TestMergeLikeGit merges random histories and compares the results with git in
// a work tree. Both make the same trees and messages, or both report a conflict.
func TestMergeLikeGit(t *testing.T) {
	rounds := *mergeRounds
	conflicts, merged := 0, 0
	for seed := range uint64(rounds) {
		if t.Failed() {
			break
		}
		s := newServer(t)
		r, err := s.Create(t.Context(), "r")
		if err != nil {
			t.Fatal(err)
		}
		newHistory(t, r, seed)
		tips := map[string]Hash{}
		for _, b := range []string{"main", "work"} {
			if tips[b], err = r.Resolve(t.Context(), b); err != nil {
				t.Fatal(err)
			}
		}
		tree := t.TempDir()
		git(t, tree, "clone", "-q", "--shared", r.Dir(), ".")
		format := "--format=%T %an <%ae> %ad %B"
		for _, strategy := range []Strategy{StrategyMerge, StrategySquash, StrategyRebase} {
			var wantErr error
			var out string
			switch strategy {
			case StrategyMerge:
				git(t, tree, "checkout", "-q", "-B", "main", string(tips["main"]))
				out, wantErr = gittest.Try(tree, "merge", "--no-ff", "--no-edit", string(tips["work"]))
			case StrategySquash:
				git(t, tree, "checkout", "-q", "-B", "main", string(tips["main"]))
				if out, wantErr = gittest.Try(tree, "merge", "--squash", string(tips["work"])); wantErr == nil {
					git(t, tree, "commit", "-q", "--allow-empty", "-m", "Squash")
				}
			case StrategyRebase:
				git(t, tree, "checkout", "-q", "-B", "work", string(tips["work"]))
				out, wantErr = gittest.Try(tree, "rebase", string(tips["main"]))
			}
			if err := r.Update(t.Context(), RefUpdate{Name: "refs/heads/main", New: tips["main"]}); err != nil {
				t.Fatal(err)
			}
			res, err := r.Merge(t.Context(), MergeRequest{From: "work", Into: "main", Strategy: strategy, Committer: alice})
			if err != nil {
				t.Errorf("seed %d, %s: %v", seed, strategy, err)
				continue
			}
			if res.Merged != (wantErr == nil) {
				t.Errorf("seed %d, %s: %+v, but git: %v\n%s", seed, strategy, res, wantErr, out)
			}
			if !res.Merged {
				conflicts++
				unmerged := strings.Split(git(t, tree, "diff", "--name-only", "--diff-filter=U"), "\n")
				slices.Sort(res.Conflicts)
				if !slices.Equal(res.Conflicts, unmerged) {
					t.Errorf("seed %d, %s: conflicts %q, git's %q", seed, strategy, res.Conflicts, unmerged)
				}
				if strategy == StrategyRebase {
					if at := git(t, tree, "rev-parse", "REBASE_HEAD"); at != string(res.At) {
						t.Errorf("seed %d: stopped at %s, git at %s", seed, res.At, at)
					}
				}
				for _, undo := range []string{"merge", "rebase"} {
					gittest.Try(tree, undo, "--abort")
				}
				git(t, tree, "reset", "-q", "--hard")
				continue
			}
			merged++
			want, got := "%T", ""
			if strategy == StrategyRebase {
				want = git(t, tree, "log", format, string(tips["main"])+"..HEAD")
				got = git(t, tree, "log", format, string(tips["main"])+".."+string(res.Commit))
			} else {
				want = git(t, tree, "rev-parse", "HEAD^{tree}")
				got = git(t, tree, "rev-parse", string(res.Commit)+"^{tree}")
			}
			if want != got {
				t.Errorf("seed %d, %s: got\n%s\ngit has\n%s", seed, strategy, got, want)
			}
		}
	}
	t.Logf("%d merged, %d conflicts", merged, conflicts)
	if conflicts < rounds/12 || merged < rounds/2 {
		t.Error("the histories are too tame to show anything")
	}
}

// TestMergeKeepsEmpty merges commits that become empty. They are dropped, unless
// they are to be kept.
func TestMergeKeepsEmpty(t *testing.T) {
	for _, keep := range []bool{false, true} {
		r := newRepo(t)
		base := commit(t, r, "main", "Base", "a", "1\n", "b", "1\n")
		if err := r.Update(t.Context(), RefUpdate{Name: "refs/heads/work", New: base}); err != nil {
			t.Fatal(err)
		}
		commit(t, r, "work", "Both do this", "a", "2\n")
		commit(t, r, "work", "Meant empty")
		commit(t, r, "work", "Other", "b", "2\n")
		// The commit has a further change, so that no patch is equal to another.
		commit(t, r, "main", "All at once", "a", "2\n", "c", "3\n")
		res, err := r.Merge(t.Context(),
			MergeRequest{From: "work", Into: "main", Strategy: StrategyRebase, Committer: alice, Keep: keep})
		if err != nil || !res.Merged {
			t.Fatal(res, err)
		}
		log, err := r.Log(t.Context(), "main", LogOptions{Not: string(res.Old)})
		if err != nil {
			t.Fatal(err)
		}
		want := 2
		if keep {
			want = 3
		}
		if len(log) != want || log[1].Subject != "Meant empty" {
			t.Errorf("keep %v: %+v", keep, log)
		}
	}
}

// TestMergeBurst merges twenty branches concurrently, by both kinds of writer.
func TestMergeBurst(t *testing.T) {
	r := newRepo(t)
	base := commit(t, r, "main", "Base", "a", "1\n")
	const n = 20
	for i := range n {
		b := fmt.Sprintf("work-%d", i)
		if err := r.Update(t.Context(), RefUpdate{Name: "refs/heads/" + b, New: base}); err != nil {
			t.Fatal(err)
		}
		commit(t, r, b, b, b, b)
	}
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			strategy := []Strategy{StrategyMerge, StrategyRebase, StrategySquash}[i%3]
			res, err := r.Merge(context.Background(),
				MergeRequest{From: fmt.Sprintf("work-%d", i), Into: "main", Strategy: strategy, Committer: alice})
			if err != nil || !res.Merged {
				t.Error(res, err)
			}
		})
	}
	wg.Wait()
	tree, err := r.Tree(t.Context(), "main", "", true)
	if err != nil || len(tree) != n+1 {
		t.Error(len(tree), err)
	}
}

func TestMergeRefusals(t *testing.T) {
	r := newRepo(t)
	commit(t, r, "main", "Base", "a", "1\n")
	orphan, err := r.WriteCommit(t.Context(), NewCommit{Author: alice, Message: "Alone"})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Update(t.Context(), RefUpdate{Name: "refs/heads/alone", New: orphan}); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		m    MergeRequest
		kind error
	}{
		{MergeRequest{From: "none", Into: "main", Strategy: StrategyMerge, Committer: alice}, ErrNotFound},
		{MergeRequest{From: "main", Into: "none", Strategy: StrategyMerge, Committer: alice}, ErrNotFound},
		{MergeRequest{From: "alone", Into: "main", Strategy: StrategyMerge, Committer: alice}, ErrInvalid},
		{MergeRequest{From: "alone", Into: "main", Strategy: StrategyRebase, Committer: alice}, ErrInvalid},
		{MergeRequest{From: "alone", Into: "main", Strategy: "octopus", Committer: alice}, ErrInvalid},
		{MergeRequest{From: "alone", Into: "main", Strategy: StrategyMerge}, ErrInvalid},
		{MergeRequest{From: "-x", Into: "main", Strategy: StrategyMerge, Committer: alice}, ErrInvalid},
		{MergeRequest{From: "main^", Into: "main", Strategy: StrategyMerge, Committer: alice}, ErrInvalid},
		{MergeRequest{From: "refs/tags/x", Into: "main", Strategy: StrategyMerge, Committer: alice}, ErrNotFound},
	} {
		if res, err := r.Merge(t.Context(), test.m); !errors.Is(err, test.kind) {
			t.Errorf("%+v: %+v, %v", test.m, res, err)
		}
	}
	if left, err := os.ReadDir(filepath.Join(r.Dir(), "objects")); err != nil || slices.ContainsFunc(left, func(e os.DirEntry) bool {
		return strings.HasPrefix(e.Name(), scratchPrefix)
	}) {
		t.Error(left, err)
	}
}
