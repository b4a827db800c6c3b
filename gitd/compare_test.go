package gitd

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/gitd/history/historytest"
	"github.com/ramus-dev/ramus/gitd/object"
)

// TestCompareLikeGit compares random commits as git diff-tree does.
func TestCompareLikeGit(t *testing.T) {
	ctx := t.Context()
	r := newRepo(t)
	rnd := rand.New(rand.NewPCG(51, 52))
	names := []string{"a", "b", "a.b", "a-b", "a0", "a/b", "a/b/c", "b/x", "a0/y", "\xff", "n\nl"}
	var commits []Hash
	for range 30 {
		c := NewCommit{Author: alice}
		if len(commits) > 0 {
			c.From = commits[rnd.IntN(len(commits))]
		}
		for range 1 + rnd.IntN(4) {
			p := names[rnd.IntN(len(names))]
			if !slices.ContainsFunc(c.Put, func(f File) bool {
				return f.Path == p || strings.HasPrefix(p, f.Path+"/") || strings.HasPrefix(f.Path, p+"/")
			}) {
				c.Put = append(c.Put, File{Path: p, Content: []byte{byte('0' + rnd.IntN(5))},
					Mode: []uint32{0, object.ModeExecutable, object.ModeSymlink}[rnd.IntN(3)]})
			}
		}
		h, err := r.WriteCommit(ctx, c)
		if err != nil {
			t.Fatal(err)
		}
		commits = append(commits, h)
	}
	for range 60 {
		a, b := commits[rnd.IntN(len(commits))], commits[rnd.IntN(len(commits))]
		list, err := r.Compare(ctx, a, b, 0)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := historytest.FormatChanges(list),
			git(t, r.Dir(), "diff-tree", "-r", "-z", "--no-renames", string(a), string(b)); got != want {
			t.Fatalf("%s..%s\n%q\ngit\n%q", a, b, got, want)
		}
		if n := len(list); n > 1 {
			if _, err := r.Compare(ctx, a, b, n-1); !errors.Is(err, ErrTooLarge) {
				t.Error(err)
			}
			if _, err := r.Compare(ctx, a, b, n); err != nil {
				t.Error(err)
			}
		}
	}
	all, err := r.Compare(ctx, "", commits[3], 0)
	if err != nil || len(all) == 0 || all[0].OldMode != 0 {
		t.Error(all, err)
	}
	if none, err := r.Compare(ctx, commits[3], "", 0); err != nil || len(none) != len(all) {
		t.Error(none, err)
	}
	if _, err := r.Compare(ctx, commits[0], "1234567890123456789012345678901234567890", 0); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
}
