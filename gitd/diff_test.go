package gitd

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/gitd/object"
)

// TestPatchSplitter splits git's output at the same places, however it is
// chunked.
func TestPatchSplitter(t *testing.T) {
	list := ":100644 100644 a b M\x00:odd\x00:100644 100644 a b R100\x00old\t\x00\x01new\x00:100644 100644 a b M\x00x\t\x00" +
		"1\t2\t:odd\x000\t0\t\x00old\t\x00\x01new\x003\t4\tx\t\x00"
	patch := "diff --git a/:odd b/:odd\n\x00binary\x00\n"
	for _, c := range []struct{ all, list, patch string }{
		{list + "\x00" + patch, list, patch}, {list, list, ""}, {"", "", ""},
	} {
		for _, size := range []int{1, 2, 3, 7, 1000} {
			var out strings.Builder
			s := &patchSplitter{patch: &out}
			for part := range slices.Chunk([]byte(c.all), size) {
				if n, err := s.Write(part); n != len(part) || err != nil {
					t.Fatal(n, err)
				}
			}
			if s.list.String() != c.list || out.String() != c.patch {
				t.Errorf("by %d: %q and %q", size, s.list.String(), out.String())
			}
		}
	}
	if changes, err := parseChanges(list); err != nil || len(changes) != 3 || changes[1].OldPath != "old\t" {
		t.Errorf("%+v, %v", changes, err)
	}
}

// TestDiffLikeGit compares random commits. Lists have the modes and blobs of `git diff --raw`, and patches are those of git with the same
// options.
func TestDiffLikeGit(t *testing.T) {
	ctx := t.Context()
	r := newRepo(t)
	rnd := rand.New(rand.NewPCG(61, 62))
	names := []string{"a", "b", "c d", "x/a", "x/b\t", "ü"}
	var commits []Hash
	for range 12 {
		c := NewCommit{Author: alice}
		for _, name := range names {
			if rnd.IntN(4) == 0 {
				continue
			}
			var text strings.Builder
			for range 5 + rnd.IntN(20) {
				text.WriteString(strings.Repeat(" ", rnd.IntN(3)) + []string{"one", "two", "three  3"}[rnd.IntN(3)] + strings.Repeat(" ", rnd.IntN(2)) + "\n")
			}
			if rnd.IntN(6) == 0 {
				text.WriteString("\x00")
			}
			c.Put = append(c.Put, File{Path: name, Content: []byte(text.String()), Mode: []uint32{0, 0, object.ModeExecutable, object.ModeSymlink}[rnd.IntN(4)]})
		}
		h, err := r.WriteCommit(ctx, c)
		if err != nil {
			t.Fatal(err)
		}
		commits = append(commits, h)
	}
	zero := func(s string, n int) string { return cmp.Or(s, strings.Repeat("0", n)) }
	for range 40 {
		a, b := commits[rnd.IntN(len(commits))], commits[rnd.IntN(len(commits))]
		list, err := r.Changed(ctx, string(a), string(b), false)
		if err != nil {
			t.Fatal(err)
		}
		var raw strings.Builder
		for _, c := range list {
			fmt.Fprintf(&raw, ":%s %s %s %s %s", zero(c.OldMode, 6), zero(c.Mode, 6), zero(string(c.OldBlob), 40), zero(string(c.Blob), 40), c.Status)
			if c.OldPath != "" {
				raw.WriteString(" " + c.OldPath)
			}
			raw.WriteString(" " + c.Path + "\n")
		}
		want := git(t, r.Dir(), "diff", "--raw", "-M", "--no-abbrev", "-z", string(a), string(b))
		if got := rawWords(raw.String()); got != rawWords(want) {
			t.Fatalf("%s..%s\n%s\ngit\n%s", a, b, got, rawWords(want))
		}
		for _, o := range []struct {
			o    DiffOptions
			args []string
		}{{DiffOptions{Text: true}, []string{"--full-index"}}, {DiffOptions{}, []string{"--binary"}},
			{DiffOptions{NoRenames: true}, []string{"--binary", "--no-renames"}},
			{DiffOptions{Text: true, IgnoreSpace: true, Context: -1}, []string{"--full-index", "-w", "-U0"}},
			{DiffOptions{Context: 7, IgnoreSpace: true}, []string{"--binary", "-w", "-U7"}}} {
			var out strings.Builder
			if err := r.Diff(ctx, string(a), string(b), o.o, &out); err != nil {
				t.Fatal(err)
			}
			want := git(t, r.Dir(), append(append([]string{"diff", "-M"}, o.args...), string(a), string(b))...)
			if strings.TrimSpace(out.String()) != strings.TrimSpace(want) {
				t.Fatalf("%+v: %s\ngit\n%s", o.o, out.String(), want)
			}
		}
	}
}

// rawWords returns a list of changes with the same separators, and without the similarity of renames.
func rawWords(s string) string {
	s = regexp.MustCompile(`[\x00\n]`).ReplaceAllString(s, " ")
	return regexp.MustCompile(` ([RC])\d+ `).ReplaceAllString(strings.TrimSpace(s), " $1 ")
}
