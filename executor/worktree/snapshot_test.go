package worktree

import (
	"testing"

	"github.com/ramus-dev/ramus/containers/layer"
	"github.com/ramus-dev/ramus/gitd"
)

// TestGitState checks which changes of .git leave a commit to git.
func TestGitState(t *testing.T) {
	file := func(path string) layer.Change { return layer.Change{Path: path, Kind: layer.KindFile, Size: 1} }
	base := []layer.Change{{Path: ".git", Kind: layer.KindFolder}, file(".git/HEAD"), file(".git/index")}
	state := gitState(base)
	for _, test := range []struct {
		name string
		c    layer.Change
		same bool
	}{
		{"a file of the tree", file("main.go"), true},
		{"a file that looks like .git", file(".gitignore"), true},
		{"a log", file(".git/logs/HEAD"), true},
		{"a hook", file(".git/hooks/pre-commit"), true},
		{"the last message", file(".git/COMMIT_EDITMSG"), true},
		{"a new object", file(".git/objects/ab/cdef"), true},
		{"an object that is gone", layer.Change{Path: ".git/objects/ab/cdef", Kind: layer.KindWhiteout}, false},
		{"objects that hide others", layer.Change{Path: ".git/objects/ab", Kind: layer.KindFolder, Opaque: true}, false},
		{"objects elsewhere", file(".git/objects/info/alternates"), false},
		{"a setting", file(".git/config"), false},
		{"a merge", file(".git/MERGE_HEAD"), false},
		{"a branch", file(".git/refs/heads/other"), false},
	} {
		if same := gitState(append(base[:len(base):len(base)], test.c)) == state; same != test.same {
			t.Errorf("%s: the state is the same: %t, want %t", test.name, same, test.same)
		}
	}
}

// TestAdvance keeps the paths in which a branch differs from its layer.
func TestAdvance(t *testing.T) {
	const file = 0o100644
	b := &binding{differ: make(map[string]gitd.TreeChange)}
	change := func(path, old, now string) gitd.TreeChange {
		c := gitd.TreeChange{Path: path, Old: gitd.Hash(old), New: gitd.Hash(now)}
		if old != "" {
			c.OldMode = file
		}
		if now != "" {
			c.NewMode = file
		}
		return c
	}
	for _, step := range []struct {
		c    gitd.TreeChange
		want int
	}{
		{change("a", "1", "2"), 1},
		{change("new", "", "1"), 2},
		{change("a", "2", "3"), 2},
		{change("new", "1", ""), 1}, // as if it had never existed
		{change("a", "3", "1"), 0},  // equal to the layer
		{change("a", "1", ""), 1},
	} {
		if got := b.advance([]gitd.TreeChange{step.c}); got != step.want {
			t.Errorf("after %+v it differs in %d paths, want %d", step.c, got, step.want)
		}
	}
}
