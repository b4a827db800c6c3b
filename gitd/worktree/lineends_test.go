package worktree

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/ramus-dev/ramus/gitd/gitcmd"
	"github.com/ramus-dev/ramus/gitd/gittest"
	"github.com/ramus-dev/ramus/gitd/object"
	"github.com/ramus-dev/ramus/gitd/pack"
	"github.com/ramus-dev/ramus/gitd/pathspec"
	"github.com/ramus-dev/ramus/gitd/pathspec/pathspectest"
)

// TestLineEndsLikeGit converts random content in both directions with every combination of
// attributes, over an index with other content.
func TestLineEndsLikeGit(t *testing.T) {
	ctx := t.Context()
	repo := t.TempDir()
	gittest.Run(t, repo, "init", "-q", "--bare")
	runner := &gitcmd.Runner{}
	defer runner.Close()
	objects := &pack.Reader{Dir: repo, Git: runner}
	objects.Packs.Dir = filepath.Join(repo, pack.Folder)
	defer objects.Close()
	dir := t.TempDir()
	gittest.Run(t, dir, "init", "-q")
	m := pathspectest.Random{Rand: rand.New(rand.NewPCG(41, 42))}
	lines := []string{"", "text", "-text", "text=auto", "text eol=crlf", "text=auto eol=crlf", "text=auto eol=lf",
		"eol=crlf", "eol=lf", "crlf", "-crlf", "crlf=input", "crlf=auto", "binary", "text=input", "text=other",
		"-text eol=crlf", "!text crlf", "text=auto -crlf"}
	var config strings.Builder
	for i, l := range lines {
		fmt.Fprintf(&config, "[0-9]*.%d %s\n", i, l)
	}
	rules, err := pathspec.ParseAttributes([]byte(config.String()), true)
	if err != nil {
		t.Fatal(err)
	}
	// First everything is added without attributes, so that the index has CRLF, too.
	const each = 25
	name := func(i, n int) string { return fmt.Sprintf("%d.%d", n, i) }
	was := map[string][]byte{}
	for i := range lines {
		for n := range each {
			was[name(i, n)] = m.Content()
			if n%5 == 0 {
				continue // is not in the index
			}
			if err := os.WriteFile(filepath.Join(dir, name(i, n)), was[name(i, n)], 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	gittest.Run(t, dir, "add", "-A")
	index := gittest.Run(t, dir, "write-tree")
	now := map[string][]byte{}
	for _, f := range slices.Sorted(maps.Keys(was)) { // in an order, so that it is the same content each time
		now[f] = append(m.Content(), "longer than before, for git's stat"...)
		if err := os.WriteFile(filepath.Join(dir, f), now[f], 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, ".gitattributes"), []byte(config.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	gittest.Run(t, dir, "add", "-A")
	tree := gittest.Run(t, dir, "write-tree")
	gittest.Run(t, dir, "checkout-index", "-q", "-a", "-f", "--prefix=out/")
	gittest.Run(t, repo, "fetch", "-q", dir, gittest.Run(t, dir, "commit-tree", "-m", "x", index),
		gittest.Run(t, dir, "commit-tree", "-m", "x", tree))
	w := &walk{ctx: ctx, repo: Repo{Objects: objects, MaxBytes: 1 << 30}, trees: map[object.Hash]*treeEntries{}}
	known, err := w.namedEntries(object.Hash(index))
	if err != nil {
		t.Fatal(err)
	}
	want, err := w.namedEntries(object.Hash(tree))
	if err != nil {
		t.Fatal(err)
	}
	converted, out := 0, 0
	for f, data := range now {
		var ma pathspec.Tally
		c := pathspec.ConversionOf(pathspec.Resolve(f, []pathspec.Source{{Attributes: &rules, Path: f}}, &ma))
		got, err := w.convert(data, c, known.named[f])
		if err != nil {
			t.Fatal(err)
		}
		if h := plumbing.ComputeHash(plumbing.BlobObject, got).String(); h != string(want.named[f].Hash) {
			t.Errorf("%s: %q became %q, not what git makes of it (index: %q)", f, data, got, was[f])
		}
		if len(got) != len(data) {
			converted++
		}
		if c.CRLF {
			got = pathspec.ToCRLF(got, c.Lines)
		}
		checkout, err := os.ReadFile(filepath.Join(dir, "out", f))
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != string(checkout) {
			t.Errorf("%s: checked out %q, by git %q", f, got, checkout)
		}
		if len(got) > len(data) {
			out++
		}
	}
	if converted < 20 || out < 20 {
		t.Errorf("%d were converted, %d back", converted, out)
	}
}
