package history

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/ramus-dev/ramus/gitd/gittest"
	"github.com/ramus-dev/ramus/gitd/object"
	"github.com/ramus-dev/ramus/gitd/pack"
)

// fourCommits is a line of commits. The second changes a file of a folder, copies another and adds a submodule. The
// third replaces the folder by a file, and the fourth the file by a folder.
const fourCommits = `commit refs/heads/a
mark :1
committer C <c@example.com> 1700000001 +0000
data 1
m
M 100644 inline a
data 2
a1
M 100644 inline dir/a
data 3
da1
M 100644 inline dir/sub/b
data 4
dsb1

commit refs/heads/a
mark :2
committer C <c@example.com> 1700000002 +0000
data 1
m
M 100644 inline dir/a
data 3
da2
M 100644 inline copy
data 2
a1
M 160000 1234567890123456789012345678901234567890 module

commit refs/heads/a
mark :3
committer C <c@example.com> 1700000003 +0000
data 1
m
D dir
M 100644 inline dir
data 4
dsb1

commit refs/heads/a
mark :4
committer C <c@example.com> 1700000004 +0000
data 1
m
D dir
M 100644 inline dir/x
data 1
x

`

// treesOf returns the trees of commits.
func treesOf(t *testing.T, objects *pack.Reader, commits []object.Hash) []object.Hash {
	t.Helper()
	var trees []object.Hash
	for _, h := range commits {
		tree, err := objects.TreeOf(t.Context(), h)
		if err != nil {
			t.Fatal(err)
		}
		trees = append(trees, tree)
	}
	return trees
}

// TestCollectCommit counts the objects of commits that their parents do not have.
func TestCollectCommit(t *testing.T) {
	objects, commits := importRepo(t, fourCommits, 4)
	trees := treesOf(t, objects, commits)
	for _, c := range []struct {
		name    string
		commit  int
		others  []object.Hash
		noBlobs bool
		want    int
	}{
		{"the first commit", 0, nil, false, 7},
		{"without blobs", 0, nil, true, 4},
		{"a changed and a copied file", 1, trees[:1], false, 5},
		{"the same without blobs", 1, trees[:1], true, 3},
		{"without a parent", 1, nil, false, 7},
		{"a tree that the parent has", 1, trees[1:2], false, 1},
		{"two parents", 1, []object.Hash{trees[2], trees[0]}, false, 4},
		{"a file in place of a folder", 2, trees[1:2], false, 3},
		{"a folder in place of a file", 3, trees[2:3], false, 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := Collector{Objects: objects, NoBlobs: c.noBlobs}
			if err := got.CollectCommit(t.Context(), commits[c.commit], trees[c.commit], c.others); err != nil {
				t.Fatal(err)
			}
			if got.Section.Len() != c.want {
				t.Errorf("%d objects, want %d", got.Section.Len(), c.want)
			}
			if !got.Collected(plumbing.NewHash(string(commits[c.commit]))) || got.Collected(plumbing.ZeroHash) {
				t.Error("the collector does not know its objects")
			}
		})
	}
}

// TestCollectorErrors checks that errors and bounds end a collection.
func TestCollectorErrors(t *testing.T) {
	objects, commits := importRepo(t, fourCommits, 4)
	trees := treesOf(t, objects, commits)
	broken := errors.New("broken")
	name := func(h object.Hash) pack.ObjectName { return plumbing.NewHash(string(h)) }
	none := object.Hash(strings.Repeat("1", 40))
	for _, c := range []struct {
		name    string
		collect func(c *Collector) error
		want    error
	}{
		{"an error of Has", func(c *Collector) error {
			c.Has = func(pack.ObjectName) (bool, error) { return false, broken }
			return c.Collect(t.Context(), commits[0], "commit")
		}, broken},
		{"no such object", func(c *Collector) error { return c.Collect(t.Context(), none, "blob") }, object.ErrNotFound},
		{"no such tree", func(c *Collector) error { return c.CollectCommit(t.Context(), commits[0], none, nil) }, object.ErrNotFound},
		{"no such tree of a parent", func(c *Collector) error {
			return c.CollectCommit(t.Context(), commits[0], trees[0], []object.Hash{none})
		}, object.ErrNotFound},
		{"a commit for a tree", func(c *Collector) error {
			return c.CollectCommit(t.Context(), commits[0], commits[1], nil)
		}, object.ErrInvalid},
		{"a tree for a commit", func(c *Collector) error {
			return c.CollectCommit(t.Context(), trees[0], trees[0], nil)
		}, object.ErrInvalid},
		{"a tree at the deepest place", func(c *Collector) error {
			c.NoBlobs = true
			return c.collectTree(t.Context(), name(trees[2]), nil, collectedDepth)
		}, nil},
		{"a folder below it", func(c *Collector) error {
			return c.collectTree(t.Context(), name(trees[3]), nil, collectedDepth)
		}, ErrLarge},
		{"a tree below the deepest place", func(c *Collector) error {
			return c.collectTree(t.Context(), name(trees[2]), nil, collectedDepth+1)
		}, ErrLarge},
	} {
		if err := c.collect(&Collector{Objects: objects}); !errors.Is(err, c.want) || c.want == nil && err != nil {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}

	var first Collector
	first.Objects = objects
	data, err := first.readTree(t.Context(), name(trees[0]))
	if err != nil || first.held != len(data) {
		t.Fatalf("%d bytes are held of %d, %v", first.held, len(data), err)
	}
	if _, err := first.readTree(t.Context(), name(trees[0])); err != nil || first.held != len(data) {
		t.Errorf("read again: %d bytes are held, %v", first.held, err)
	}
	full := Collector{Objects: objects, held: collectedTrees - len(data)}
	if _, err := full.readTree(t.Context(), name(trees[0])); err != nil {
		t.Error(err)
	}
	if _, err := full.readTree(t.Context(), name(trees[3])); !errors.Is(err, ErrLarge) {
		t.Errorf("more folders than the bound are held: %v", err)
	}
}

// TestBetweenBounds reads as many commits as a walk may, and one more.
func TestBetweenBounds(t *testing.T) {
	objects, commits := importRepo(t, fourCommits, 4)
	for max, want := range map[int]error{4: nil, 3: ErrLarge} {
		r, err := Between(t.Context(), objects, commits[3:], nil, max)
		if !errors.Is(err, want) || want == nil && (err != nil || len(r.Commits) != 4 || r.Commits[0].Hash != commits[0]) {
			t.Errorf("at most %d commits: %+v, %v", max, r, err)
		}
	}
	r, err := Between(t.Context(), objects, commits[2:3], commits[2:3], 4)
	if err != nil || len(r.Commits) != 0 || !r.Reached[commits[2]] {
		t.Errorf("%+v, %v", r, err)
	}
	r, err = Between(t.Context(), objects, commits[2:3], commits[3:], 4)
	if err != nil || len(r.Commits) != 0 || r.Reached[commits[3]] {
		t.Errorf("an older commit: %+v, %v", r, err)
	}
}

// writeObject writes an object, and returns its name.
func writeObject(t *testing.T, objects *pack.Reader, kind string, content []byte) object.Hash {
	t.Helper()
	file := filepath.Join(t.TempDir(), "object")
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return object.Hash(strings.TrimSpace(gittest.Run(t, objects.Dir, "hash-object", "-w", "-t", kind, file)))
}

// TestRepeatedParents collects a commit that has the same parent thousands of times, and one that has too many.
func TestRepeatedParents(t *testing.T) {
	objects, commits := importRepo(t, fourCommits, 4)
	trees := treesOf(t, objects, commits)
	const who = "C <c@example.com> 1700000005 +0000"
	commit := func(parents ...object.Hash) object.Hash {
		t.Helper()
		return writeObject(t, objects, "commit",
			object.RawCommit{Tree: trees[3], Parents: parents, Author: who, Committer: who, Message: []byte("m\n")}.Encode())
	}
	tip := commit(slices.Repeat(commits[2:3], 5000)...)
	r, err := Between(t.Context(), objects, []object.Hash{tip}, commits[2:3], MaxCommits)
	if err != nil || len(r.Commits) != 1 || len(r.Commits[0].Parents) != 5000 || !r.Reached[commits[2]] {
		t.Fatalf("%v, %d commits", err, len(r.Commits))
	}
	var once, often Collector
	once.Objects, often.Objects = objects, objects
	if err := once.CollectCommit(t.Context(), tip, trees[3], trees[2:3]); err != nil {
		t.Fatal(err)
	}
	if err := often.CollectRange(t.Context(), r); err != nil || often.Section.Len() != once.Section.Len() {
		t.Errorf("%d objects, want %d, %v", often.Section.Len(), once.Section.Len(), err)
	}

	var others []object.Hash
	for i := range collectedOthers + 1 {
		others = append(others, object.Hash(fmt.Sprintf("%040x", i)))
	}
	var many Collector
	many.Objects = objects
	if err := many.CollectCommit(t.Context(), tip, trees[3], others); !errors.Is(err, ErrLarge) {
		t.Errorf("a commit with %d parents: %v", len(others), err)
	}
}

// TestLargeCommits walks over few commits with too many bytes, and over a small one after too much work.
func TestLargeCommits(t *testing.T) {
	objects, commits := importRepo(t, fourCommits, 4)
	trees := treesOf(t, objects, commits)
	const who = "C <c@example.com> 1700000005 +0000"
	message := bytes.Repeat([]byte("m\n"), 3<<20)
	tip := commits[3]
	for range maxCommitBytes/len(message) + 1 {
		tip = writeObject(t, objects, "commit",
			object.RawCommit{Tree: trees[3], Parents: []object.Hash{tip}, Author: who, Committer: who, Message: message}.Encode())
	}
	if _, err := Between(t.Context(), objects, []object.Hash{tip}, nil, MaxCommits); !errors.Is(err, ErrLarge) {
		t.Errorf("large commits: %v", err)
	}

	gittest.Run(t, objects.Dir, "repack", "-a", "-d", "-q")
	w := &rangeWalk{objects: objects, max: MaxCommits, read: map[object.Hash]*markedCommit{}, until: objects.Packs.Rebuilt()}
	if err := w.mark(t.Context(), commits[3], markWanted); !errors.Is(err, ErrLarge) {
		t.Errorf("a commit that took too much work: %v", err)
	}
	c := Collector{Objects: objects, until: objects.Packs.Rebuilt() - 1}
	if err := c.CollectCommit(t.Context(), commits[3], trees[3], nil); !errors.Is(err, ErrLarge) {
		t.Errorf("a tree after too much work: %v", err)
	}
}
