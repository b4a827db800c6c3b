package gitd

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/gitd/gittest"
)

// TestPickAgrees compares picks and their reversal in random histories with git cherry-pick and git revert: results,
// files in conflict, and the commit that conflicts.
func TestPickAgrees(t *testing.T) {
	done, conflicts := 0, 0
	for seed := range uint64(*mergeRounds) {
		r, err := newServer(t).Create(t.Context(), "r")
		if err != nil {
			t.Fatal(err)
		}
		newHistory(t, r, seed)
		main, err := r.Resolve(t.Context(), "main")
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		git(t, dir, "clone", "-q", "--shared", r.Dir(), ".")
		for _, reverse := range []bool{false, true} {
			from := []string{"rev-list", "--reverse", "--no-merges", "--first-parent", "main..origin/work"}
			if reverse {
				from = []string{"rev-list", "--reverse", "--no-merges", "--first-parent", "--max-count=3", string(main)}
			}
			commits := hashes(git(t, dir, from...))
			if len(commits) == 0 {
				continue
			}
			if reverse {
				commits = commits[:max(len(commits)-1, 1)] // the last one builds on them
			}
			git(t, dir, "checkout", "-q", "-B", "main", string(main))
			var args []string
			if reverse {
				args = append(args, "revert", "--no-edit")
				for _, h := range slices.Backward(commits) {
					args = append(args, string(h))
				}
			} else {
				args = append(args, "cherry-pick", "--keep-redundant-commits")
				for _, h := range commits {
					args = append(args, string(h))
				}
			}
			out, wantErr := gittest.Try(dir, args...)
			res, err := r.PickOnto(t.Context(), PickRequest{Commits: commits, Reverse: reverse, Committer: alice,
				Message: "undo"}, main)
			if err != nil {
				t.Errorf("seed %d, reverse %v: %v", seed, reverse, err)
				continue
			}
			unmerged := strings.Fields(git(t, dir, "diff", "--name-only", "--diff-filter=U"))
			switch {
			case len(unmerged) > 0:
				conflicts++
				slices.Sort(res.Conflicts)
				head := map[bool]string{false: "CHERRY_PICK_HEAD", true: "REVERT_HEAD"}[reverse]
				if at := git(t, dir, "rev-parse", head); res.Merged || !slices.Equal(res.Conflicts, unmerged) ||
					at != string(res.At) {
					t.Errorf("seed %d, reverse %v: %+v, git stopped at %s with %v", seed, reverse, res, at, unmerged)
				}
			case wantErr != nil:
				t.Logf("seed %d, reverse %v: git ended for another reason: %s", seed, reverse, out) // an empty commit
			default:
				done++
				want := git(t, dir, "rev-parse", "HEAD^{tree}")
				if tree, err := r.TreeOf(t.Context(), res.Commit); err != nil || string(tree) != want {
					t.Errorf("seed %d, reverse %v: the tree is %s, git has %s, %v", seed, reverse, tree, want, err)
				}
			}
			for _, verb := range []string{"cherry-pick", "revert"} {
				gittest.Try(dir, verb, "--abort")
			}
			git(t, dir, "reset", "-q", "--hard")
		}
		if tip, err := r.Resolve(t.Context(), "main"); err != nil || tip != main {
			t.Errorf("seed %d: main moved to %s, %v", seed, tip, err)
		}
	}
	t.Logf("%d done, %d conflicts", done, conflicts)
	if done == 0 {
		t.Error("the histories show nothing")
	}
}

func hashes(list string) (all []Hash) {
	for h := range strings.FieldsSeq(list) {
		all = append(all, Hash(h))
	}
	return all
}

// TestPickUndo takes commits out although later work builds on them, and brings them back.
func TestPickUndo(t *testing.T) {
	r := newRepo(t)
	commit(t, r, "main", "first", "f", "1\n2\n3\n4\n5\n6\n7\n8\n9\n")
	a := commit(t, r, "main", "a", "f", "one\n2\n3\n4\n5\n6\n7\n8\n9\n", "g", "x\n")
	b := commit(t, r, "main", "b", "f", "one\n2\n3\n4\nfive\n6\n7\n8\n9\n")
	last := commit(t, r, "main", "later", "f", "one\n2\n3\n4\nfive\n6\n7\n8\nnine\n", "h", "y\n")
	undo := PickRequest{Into: "main", Commits: []Hash{a, b}, Reverse: true, Committer: alice, Message: "Undo a and b"}
	res, err := r.Pick(t.Context(), undo)
	if err != nil || !res.Merged || res.Old != last {
		t.Fatalf("%+v, %v", res, err)
	}
	if got, err := r.ReadFile(t.Context(), "main", "f", 1000); err != nil ||
		string(got) != "1\n2\n3\n4\n5\n6\n7\n8\nnine\n" {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := r.Entry(t.Context(), "main", "g"); !errors.Is(err, ErrNotFound) {
		t.Error("g is there", err)
	}
	if again, err := r.Pick(t.Context(), undo); err != nil || !again.UpToDate || again.Commit != res.Commit {
		t.Errorf("again: %+v, %v", again, err)
	}

	back, err := r.Pick(t.Context(), PickRequest{Into: "main", Commits: []Hash{b}, Committer: alice})
	if err != nil || !back.Merged {
		t.Fatalf("%+v, %v", back, err)
	}
	if same, err := r.IsCopy(t.Context(), back.Commit, b); err != nil || !same {
		t.Error("the pick is no copy", err)
	}

	commit(t, r, "main", "other", "f", "1\n2\n3\n4\nfünf\n6\n7\n8\nnine\n")
	tip, _ := r.Resolve(t.Context(), "main")
	res, err = r.Pick(t.Context(), PickRequest{Into: "main", Commits: []Hash{b}, Reverse: true, Committer: alice,
		Message: "Undo b"})
	if err != nil || res.Merged || !slices.Equal(res.Conflicts, []string{"f"}) || res.At != b {
		t.Errorf("%+v, %v", res, err)
	}
	if now, _ := r.Resolve(t.Context(), "main"); now != tip {
		t.Error("a conflict moved the branch")
	}
}

// TestPickRefuses gives requests that cannot be followed.
func TestPickRefuses(t *testing.T) {
	r := newRepo(t)
	a := commit(t, r, "main", "a", "f", "1")
	for _, x := range []struct {
		p    PickRequest
		want error
	}{
		{PickRequest{Into: "main", Committer: alice}, ErrInvalid},
		{PickRequest{Into: "main", Commits: []Hash{a}}, ErrInvalid},
		{PickRequest{Into: "main", Commits: []Hash{a}, Reverse: true, Committer: alice}, ErrInvalid},
		{PickRequest{Into: "none", Commits: []Hash{a}, Committer: alice}, ErrNotFound},
		{PickRequest{Into: "main", Commits: []Hash{"--all"}, Committer: alice}, ErrInvalid},
		{PickRequest{Into: "main", Commits: []Hash{Hash(strings.Repeat("1", 40))}, Committer: alice}, ErrNotFound},
	} {
		if _, err := r.Pick(t.Context(), x.p); !errors.Is(err, x.want) {
			t.Errorf("%+v: %v", x.p, err)
		}
	}
}
