package gitd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/ramus-dev/ramus/gitd/object"
	"github.com/ramus-dev/ramus/internal/growth"
)

// TestCollisions looks at one conflict of each kind.
func TestCollisions(t *testing.T) {
	r, write := collidingRepo(t)
	numbers := func(changes map[int]string) string {
		var b strings.Builder
		for i := 1; i <= 30; i++ {
			if c, ok := changes[i]; ok {
				b.WriteString(c)
				continue
			}
			fmt.Fprintf(&b, "line %d\n", i)
		}
		return b.String()
	}
	base := write("", map[string]string{"f": numbers(nil), "gone": "here\n", "bin": "a\x00b", "one two\té": numbers(nil)})
	ours := write(base, map[string]string{"f": numbers(map[int]string{1: "zero\nline 1\n", 5: "five\n", 20: "", 21: ""}),
		"gone": "", "bin": "ours\x00", "one two\té": numbers(map[int]string{3: "three\n"}), "new": "ours\n"})
	theirs := write(base, map[string]string{
		"f":    numbers(map[int]string{5: "FIVE\n=======\n", 6: "SIX\n", 12: "=======\n", 21: "XXI\n"}),
		"gone": "here and there\n", "bin": "theirs\x00", "one two\té": numbers(map[int]string{3: "THREE\n"}),
		"new": "theirs\n"})
	apart := write(base, map[string]string{"other": "1\n"})

	got, err := r.Collisions(t.Context(), base, [][2]Hash{{ours, theirs}, {ours, apart}, {theirs, theirs}}, 100)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 3 || got[1].Files != nil || got[2].Files != nil || got[1].Ours != ours || got[1].Theirs != apart {
		t.Fatalf("%d results, clean ones have conflicts: %+v", len(got), got[1:])
	}
	want := []CollidingFile{
		{Path: "bin", Kind: "binary"},
		{Path: "f", Kind: "contents", Regions: []CollidingRegion{
			{Ours: LineRange{6, 7}, Theirs: LineRange{5, 7}},
			{Ours: LineRange{21, 20}, Theirs: LineRange{21, 22}},
		}},
		{Path: "gone", Kind: "modify/delete"},
		{Path: "new", Kind: "contents", Regions: []CollidingRegion{{Ours: LineRange{1, 1}, Theirs: LineRange{1, 1}}}},
		{Path: "one two\té", Kind: "contents", Regions: []CollidingRegion{{Ours: LineRange{3, 3}, Theirs: LineRange{3, 3}}}},
	}
	if a, b := fmt.Sprintf("%+v", got[0].Files), fmt.Sprintf("%+v", want); a != b {
		t.Errorf("conflicts\n%s\nwant\n%s", a, b)
	}

	none := Hash(strings.Repeat("1", 40))
	if _, err := r.Collisions(t.Context(), base, [][2]Hash{{ours, none}}, 100); !errors.Is(err, ErrNotFound) {
		t.Errorf("a commit that does not exist: %v", err)
	}
	left, err := filepath.Glob(filepath.Join(r.dir, "objects", scratchPrefix+"*"))
	if err != nil || len(left) > 0 {
		t.Errorf("objects are left in %q, %v", left, err)
	}
}

// TestCollisionsBound keeps the first files of a conflict, with their lines, and counts the others.
func TestCollisionsBound(t *testing.T) {
	r, write := collidingRepo(t)
	var sides [3]Hash // the base and both branches
	for i, content := range []string{"base\n", "ours\n", "theirs\n"} {
		files := map[string]string{}
		for n := range 9 {
			files[fmt.Sprintf("d/f%d", n)] = content
		}
		sides[i] = write(sides[0], files)
	}
	for limit, want := range map[int]int{0: 1, 1: 1, 3: 3, 8: 8, 9: 9, 10: 9} {
		got, err := r.Collisions(t.Context(), sides[0], [][2]Hash{{sides[1], sides[2]}}, limit)
		if err != nil {
			t.Fatal(err)
		}
		c := got[0]
		if len(c.Files) != want || c.More != 9-want {
			t.Errorf("at most %d files: %d and %d more, want %d and %d", limit, len(c.Files), c.More, want, 9-want)
		}
		for n, f := range c.Files {
			if f.Path != fmt.Sprintf("d/f%d", n) || f.Kind != "contents" || len(f.Regions) != 1 {
				t.Errorf("at most %d files: file %d is %+v", limit, n, f)
			}
		}
	}
}

// TestMergeNames keeps no long paths, and counts the files that have them.
func TestMergeNames(t *testing.T) {
	long := strings.Repeat("€", object.MaxPath/3)
	var out strings.Builder
	out.WriteString("0\x00" + strings.Repeat("a", 40) + "\x00\x00")
	for n := range 20 {
		fmt.Fprintf(&out, "1\x00%02d%s\x00CONFLICT (contents)\x00text\x00", n, long)
	}
	out.WriteString("1\x0000" + long + "\x00CONFLICT (contents)\x00text\x00\x00")
	list, err := parseMerges(t.Context(), []byte(out.String()), [][2]Hash{{}}, 100)
	if err != nil {
		t.Fatal(err)
	}
	c := list[0]
	if want := collideNames / object.MaxPath; len(c.Files) != want || c.More != 20-want {
		t.Errorf("%d files and %d more, want %d and %d", len(c.Files), c.More, want, 20-want)
	}
	for _, f := range c.Files {
		if n := len(f.Path); n > object.MaxPath || n < object.MaxPath-2 || !utf8.ValidString(f.Path) {
			t.Errorf("a path of %d bytes is kept, which ends with %q", n, f.Path[n-3:])
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := parseMerges(ctx, []byte(out.String()), [][2]Hash{{}}, 100); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end of its context: %v", err)
	}
}

// TestCollisionGrowth checks that the time to read merges grows with the output of git, also if a merge has many files.
func TestCollisionGrowth(t *testing.T) {
	hash := strings.Repeat("a", 40)
	growth.Check(t, "merges", func(text []byte) {
		if _, err := parseMerges(t.Context(), text, [][2]Hash{{}}, 50); err != nil {
			t.Error(err)
		}
	},
		growth.Case{Name: "entries", Limit: collideBytes / 4, Prefix: "0\x00" + hash + "\x00",
			Each: func(n int) string { return fmt.Sprintf("100644 1\t%05x\x00", n) }, Suffix: "\x00\x00"},
		growth.Case{Name: "messages", Limit: collideBytes / 2, Prefix: "0\x00" + hash + "\x00\x00",
			Each: func(n int) string { return fmt.Sprintf("1\x00%05x\x00CONFLICT (\x00\x00", n) }, Suffix: "\x00"})
}

// TestCollisionsAgree compares the conflicts of random histories with those that git merge-tree finds: of 200 pairs of
// branches, or of 1,000 with RAMUS_TEST=full.
func TestCollisionsAgree(t *testing.T) {
	pairs := 200
	if os.Getenv("RAMUS_TEST") == "full" {
		pairs = 1000
	}
	rnd := rand.New(rand.NewPCG(5, 6))
	r, write := collidingRepo(t)
	state := func() map[string]string { return map[string]string{} }
	base := state()
	for i := range 12 {
		base[fmt.Sprintf("d%d/f%d", i%3, i)] = strings.Repeat(fmt.Sprintf("line of %d\n", i), 3) + "a\nb\nc\nd\ne\nf\ng\n"
	}
	root := write("", base)
	var tips []Hash
	for b := 0; len(tips)*(len(tips)-1)/2 < pairs; b++ {
		changed := state()
		for range 1 + rnd.IntN(4) {
			i := rnd.IntN(12)
			name := fmt.Sprintf("d%d/f%d", i%3, i)
			switch rnd.IntN(6) {
			case 0: // delete
				changed[name] = ""
			case 1: // rename
				changed[name], changed[fmt.Sprintf("moved/%d-%d", i, rnd.IntN(2))] = "", base[name]
			case 2: // add
				changed[fmt.Sprintf("d%d/new%d", rnd.IntN(3), rnd.IntN(4))] = fmt.Sprintf("%d\n", b)
			default: // edit
				lines := strings.SplitAfter(base[name], "\n")
				lines[rnd.IntN(len(lines)-1)] = fmt.Sprintf("by %d\n", rnd.IntN(3))
				changed[name] = strings.Join(lines, "")
			}
		}
		parent := root
		if len(tips) > 0 && rnd.IntN(4) == 0 {
			parent = tips[rnd.IntN(len(tips))]
		}
		tips = append(tips, write(parent, changed))
	}
	var asked [][2]Hash
	for i := range tips {
		for j := range i {
			asked = append(asked, [2]Hash{tips[i], tips[j]})
		}
	}
	got, err := r.Collisions(t.Context(), root, asked, 100)
	if err != nil {
		t.Fatal(err)
	}
	conflicts := 0
	for i, p := range asked {
		want := oracleConflicts(t, r.dir, p)
		var have []string
		for _, f := range got[i].Files {
			have = append(have, f.Path)
		}
		if len(want) > 0 {
			conflicts++
		}
		// git names more paths in its messages than in its list, such as the earlier name of a renamed file.
		for _, path := range want {
			if !slices.Contains(have, path) {
				t.Fatalf("%s and %s: conflicts in %q, git merge-tree finds %q", p[0], p[1], have, want)
			}
		}
		if (len(want) > 0) != (len(have) > 0) {
			t.Fatalf("%s and %s: conflicts in %q, git merge-tree finds %q", p[0], p[1], have, want)
		}
	}
	t.Logf("%d pairs, %d with conflicts", len(asked), conflicts)
	if conflicts < len(asked)/20 || conflicts > len(asked)*19/20 {
		t.Errorf("the histories are no test: %d of %d pairs have conflicts", conflicts, len(asked))
	}
}

// oracleConflicts returns the paths in conflict by git itself.
func oracleConflicts(t *testing.T, dir string, p [2]Hash) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", "merge-tree", "--write-tree", "-z", "--name-only",
		"--no-messages", string(p[0]), string(p[1]))
	cmd.Dir = dir
	out, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 1) {
		t.Fatal(err)
	}
	paths := strings.Split(strings.TrimRight(string(out), "\x00"), "\x00")[1:]
	if err == nil && len(paths) > 0 {
		t.Fatalf("a clean merge with paths: %q", paths)
	}
	if err != nil && len(paths) == 0 {
		return []string{"a conflict without a path"}
	}
	return paths
}

// collidingRepo returns a repository and a function that makes a commit on a parent, with changed files. An empty
// content removes the file.
func collidingRepo(t *testing.T) (*Repo, func(parent Hash, files map[string]string) Hash) {
	t.Helper()
	s := &Server{Root: t.TempDir()}
	if err := s.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	r, err := s.Create(t.Context(), "app")
	if err != nil {
		t.Fatal(err)
	}
	when := time.Unix(1700000000, 0)
	return r, func(parent Hash, files map[string]string) Hash {
		t.Helper()
		when = when.Add(time.Minute)
		c := NewCommit{Author: Person{Name: "A", Email: "a@example.org"}, When: when, Message: "change", From: parent}
		if parent != "" {
			c.Parents = []Hash{parent}
		}
		for path, content := range files {
			if content == "" {
				c.Delete = append(c.Delete, path)
			} else {
				c.Put = append(c.Put, File{Path: path, Content: []byte(content)})
			}
		}
		h, err := r.WriteCommit(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
}

// FuzzRegions has the readers of git's output read other bytes.
func FuzzRegions(f *testing.F) {
	one, two := strings.Repeat("a", 40), strings.Repeat("b", 40)
	f.Add([]byte("0\x00"+one+"\x00100644 x 1\tf\x00\x001\x00f\x00CONFLICT (contents)\x00text\x00\x00"),
		[]byte(one+" "+two+"\n+++ b/f\n@@ -1,2 +1,3 @@\n-x\n-y\n+<<<<<<< "+one+"\n+=======\n+>>>>>>> "+two+"\n"))
	f.Add([]byte("1\x00"+one+"\x00\x00"), []byte("@@ -0 +1 @@\n"))
	f.Fuzz(func(t *testing.T, merges, diffs []byte) {
		list, err := parseMerges(t.Context(), merges, [][2]Hash{{Hash(one), Hash(two)}}, 3)
		if err != nil {
			return
		}
		m := &list[0]
		rr := newRegionReader(bytes.NewReader(diffs), []side{{merge: m, commit: m.Ours},
			{merge: m, commit: m.Theirs, open: 1}})
		rr.read()
		for _, file := range m.Files {
			for _, g := range file.Regions {
				for _, l := range []LineRange{g.Ours, g.Theirs} {
					if l != (LineRange{}) && (l.From < 1 || l.To < l.From-1) {
						t.Errorf("lines %+v", l)
					}
				}
			}
		}
	})
}
