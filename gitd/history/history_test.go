package history

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/gitd/gitcmd"
	"github.com/ramus-dev/ramus/gitd/gittest"
	"github.com/ramus-dev/ramus/gitd/object"
	"github.com/ramus-dev/ramus/gitd/pack"
)

// randomRepo returns a repository of stock git with random commits, which merge, add, change and remove files.
func randomRepo(t *testing.T, seed uint64, n int) (*pack.Reader, []object.Hash) {
	t.Helper()
	rnd := rand.New(rand.NewPCG(seed, 3))
	names := []string{"a", "b", "dir/a", "dir/sub/b", "other/a"}
	var in strings.Builder
	for i := 1; i <= n; i++ {
		fmt.Fprintf(&in, "commit refs/heads/b%d\nmark :%d\ncommitter C <c@example.com> %d +0000\ndata 1\nm", i, i,
			1700000000+rnd.IntN(5)*100+i)
		if i > 1 && rnd.IntN(20) > 0 {
			first := 1 + rnd.IntN(i-1)
			fmt.Fprintf(&in, "\nfrom :%d", first)
			if second := 1 + rnd.IntN(i-1); second != first && rnd.IntN(3) == 0 {
				fmt.Fprintf(&in, "\nmerge :%d", second)
			}
		}
		for range 1 + rnd.IntN(3) {
			name := names[rnd.IntN(len(names))]
			if rnd.IntN(5) == 0 {
				fmt.Fprintf(&in, "\nD %s", name)
			} else {
				fmt.Fprintf(&in, "\nM 100644 inline %s\ndata 1\n%d", name, rnd.IntN(4))
			}
		}
		in.WriteString("\n")
	}
	return importRepo(t, in.String(), n)
}

// importRepo returns a repository with the n commits of a stream for git fast-import, whose marks are 1 to n.
func importRepo(t *testing.T, stream string, n int) (*pack.Reader, []object.Hash) {
	t.Helper()
	dir := t.TempDir()
	gittest.Run(t, dir, "init", "-q", "--bare")
	cmd := exec.Command("git", "-C", dir, "fast-import", "--quiet", "--export-marks=marks")
	cmd.Stdin = strings.NewReader(stream)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	marks, err := os.ReadFile(filepath.Join(dir, "marks"))
	if err != nil {
		t.Fatal(err)
	}
	commits := make([]object.Hash, n)
	for line := range strings.Lines(string(marks)) {
		var i int
		var h string
		if _, err := fmt.Sscanf(line, ":%d %s", &i, &h); err != nil {
			t.Fatal(err)
		}
		commits[i-1] = object.Hash(h)
	}

	runner := &gitcmd.Runner{}
	objects := &pack.Reader{Dir: dir, Git: runner}
	objects.Packs.Dir = filepath.Join(dir, pack.Folder)
	t.Cleanup(func() {
		objects.Close()
		runner.Close()
	})
	return objects, commits
}

// revList returns the output of git rev-list as a set.
func revList(t *testing.T, dir string, args ...string) map[object.Hash]bool {
	t.Helper()
	set := map[object.Hash]bool{}
	for _, h := range strings.Fields(gittest.Run(t, dir, append([]string{"rev-list"}, args...)...)) {
		set[object.Hash(h)] = true
	}
	return set
}

// TestBetween compares ranges with those of git, over random histories.
func TestBetween(t *testing.T) {
	for seed := range uint64(2) {
		objects, commits := randomRepo(t, seed, 40)
		rnd := rand.New(rand.NewPCG(seed, 4))
		pick := func() object.Hash { return commits[rnd.IntN(len(commits))] }
		for range 15 {
			want, have := []object.Hash{pick(), pick()}, []object.Hash{pick()}
			r, err := Between(t.Context(), objects, want, have, 1000)
			if err != nil {
				t.Fatal(err)
			}
			git := revList(t, objects.Dir, string(want[0]), string(want[1]), "^"+string(have[0]))
			listed := map[object.Hash]bool{}
			for _, c := range r.Commits {
				for _, p := range c.Parents {
					if r.Trees[p] == "" {
						t.Errorf("the tree of the parent %s is missing", p)
					}
					if git[p] && !listed[p] {
						t.Errorf("%s comes before its parent %s", c.Hash, p)
					}
				}
				listed[c.Hash] = true
			}
			for h := range git {
				if !listed[h] {
					t.Errorf("%s is missing", h)
				}
			}
			reached := revList(t, objects.Dir, string(want[0]), string(want[1]))[have[0]]
			if r.Reached[have[0]] != reached {
				t.Errorf("%s is reached: %v, git says %v", have[0], r.Reached[have[0]], reached)
			}
		}
		if _, err := Between(t.Context(), objects, commits[30:], nil, 3); !errors.Is(err, ErrLarge) || !errors.Is(err, object.ErrTooLarge) {
			t.Error(err)
		}
		if _, err := Between(t.Context(), objects, []object.Hash{object.Hash(strings.Repeat("1", 40))}, nil,
			3); !errors.Is(err, object.ErrNotFound) {
			t.Error(err)
		}
	}
}

// TestCollector checks that a section has all objects that git lists, and none that is not reached.
func TestCollector(t *testing.T) {
	for seed := range uint64(2) {
		objects, commits := randomRepo(t, seed, 30)
		rnd := rand.New(rand.NewPCG(seed, 5))
		for round := range 12 {
			want, have := commits[rnd.IntN(len(commits))], commits[rnd.IntN(len(commits))]
			r, err := Between(t.Context(), objects, []object.Hash{want}, []object.Hash{have}, 1000)
			if err != nil {
				t.Fatal(err)
			}
			c := Collector{Objects: objects, NoBlobs: round%3 == 0}
			if err := c.CollectRange(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			args := []string{"--objects", "--no-object-names", string(want)}
			if c.NoBlobs {
				args = append(args, "--filter=blob:none")
			}
			all := revList(t, objects.Dir, args...)
			missing := revList(t, objects.Dir, append(args, "^"+string(have))...)
			for name := range c.seen {
				if !all[object.Hash(name.String())] {
					t.Errorf("%s is not reached", name)
				}
				delete(missing, object.Hash(name.String()))
			}
			known := revList(t, objects.Dir, "--objects", "--no-object-names", string(have))
			for h := range missing {
				if !known[h] {
					t.Errorf("%s is missing", h)
				}
			}
			if c.Section.Len() != len(c.seen) || (c.Section.Len() == 0) != (len(c.Section.Bytes()) == 0) {
				t.Errorf("%d objects, %d were seen", c.Section.Len(), len(c.seen))
			}
		}
	}
}

// TestCollectorKnown leaves out objects that the receiver has, and stops at the bound of the section.
func TestCollectorKnown(t *testing.T) {
	objects, commits := randomRepo(t, 9, 5)
	tree, err := objects.TreeOf(t.Context(), commits[4])
	if err != nil {
		t.Fatal(err)
	}
	c := Collector{Objects: objects,
		Has: func(name pack.ObjectName) (bool, error) { return object.Hash(name.String()) == tree, nil }}
	if err := c.CollectCommit(t.Context(), commits[4], tree, nil); err != nil || c.Section.Len() != 1 {
		t.Errorf("%d objects, %v", c.Section.Len(), err)
	}
	if err := c.Collect(t.Context(), commits[4], "commit"); err != nil || c.Section.Len() != 1 {
		t.Errorf("collected twice: %d, %v", c.Section.Len(), err)
	}
	if err := c.Collect(t.Context(), commits[3], "tag"); !errors.Is(err, object.ErrInvalid) {
		t.Error(err)
	}
	small := Collector{Objects: objects, Section: Section{MaxBytes: 10}}
	if err := small.Collect(t.Context(), commits[4], "commit"); !errors.Is(err, ErrLarge) {
		t.Error(err)
	}
}

// TestWritePack has git check the pack of a section.
func TestWritePack(t *testing.T) {
	objects, commits := randomRepo(t, 11, 20)
	r, err := Between(t.Context(), objects, commits, nil, 1000)
	if err != nil {
		t.Fatal(err)
	}
	c := Collector{Objects: objects}
	if err := c.CollectRange(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	p, err := c.Section.WritePack(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	dir := t.TempDir()
	for ext, f := range map[string]*os.File{"pack": p.Pack, "idx": p.Index} {
		info, err := f.Stat()
		if err != nil {
			t.Fatal(err)
		}
		b := make([]byte, info.Size())
		if _, err := f.ReadAt(b, 0); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "pack-"+p.Name+"."+ext), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	list := gittest.Run(t, dir, "verify-pack", "-v", "pack-"+p.Name+".idx")
	n := 0
	for line := range strings.Lines(list) {
		if fields := strings.Fields(line); len(fields) >= 3 && len(fields[0]) == 40 {
			n++
		}
	}
	if n != p.Objects || n != c.Section.Len() {
		t.Errorf("git finds %d objects, the pack has %d, the section %d", n, p.Objects, c.Section.Len())
	}
}

// TestIsComplete checks the signs of an incomplete history.
func TestIsComplete(t *testing.T) {
	dir, h := t.TempDir(), object.Hash(strings.Repeat("1", 40))
	if !IsComplete(dir, h) || IsComplete(dir, h+h[:24]) {
		t.Error("an empty folder")
	}
	for _, file := range []string{"shallow", "info/grafts"} {
		path := filepath.Join(dir, file)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if IsComplete(dir, h) {
			t.Error(file)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

// TestCompareTrees compares the changes between random trees with those of git.
func TestCompareTrees(t *testing.T) {
	objects, commits := randomRepo(t, 5, 30)
	rnd := rand.New(rand.NewPCG(5, 6))
	for range 40 {
		a, b := commits[rnd.IntN(len(commits))], commits[rnd.IntN(len(commits))]
		var trees [2]object.Hash
		for i, h := range []object.Hash{a, b} {
			var err error
			if trees[i], err = objects.TreeOf(t.Context(), h); err != nil {
				t.Fatal(err)
			}
		}
		list, err := CompareTrees(t.Context(), objects.ReadTree, trees[0], trees[1], 100)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, c := range list {
			got = append(got, c.Path)
		}
		want := strings.Fields(gittest.Run(t, objects.Dir, "diff-tree", "-r", "--no-renames", "--name-only",
			string(a), string(b)))
		if !slices.Equal(got, want) {
			t.Errorf("%q, git has %q", got, want)
		}
		if len(list) > 0 {
			if _, err := CompareTrees(t.Context(), objects.ReadTree, trees[0], trees[1], len(list)-1); !errors.Is(err, object.ErrTooLarge) {
				t.Error(err)
			}
		}
	}
}
