package diff_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/gateway/diff"
	"github.com/ramus-dev/ramus/gitd/gittest"
	"github.com/ramus-dev/ramus/internal/growth"
)

// randomText returns lines of few different words, now and then without a newline at the end.
func randomText(r *rand.Rand) string {
	var b strings.Builder
	for range r.IntN(40) {
		fmt.Fprintf(&b, "%s\n", []string{"one", "two", "-- a", "++ b", "", "@@ -1 +1 @@", "diff --git a/x b/x", `\ No newline`, "\xff", "\tend"}[r.IntN(10)])
	}
	if r.IntN(3) == 0 {
		b.WriteString("open")
	}
	return b.String()
}

// changeText changes some lines of a text.
func changeText(r *rand.Rand, s string) string {
	lines := strings.SplitAfter(s, "\n")
	for range 1 + r.IntN(6) {
		at := r.IntN(len(lines))
		switch r.IntN(3) {
		case 0:
			lines = slices.Insert(lines, at, "new "+strconv.Itoa(r.IntN(3))+"\n")
		case 1:
			lines = slices.Delete(lines, at, min(at+1+r.IntN(3), len(lines)))
		default:
			lines[at] = "two\n"
		}
		if len(lines) == 0 {
			return ""
		}
	}
	return strings.Join(lines, "")
}

// TestReadLikeGit reads differences of git of random files. Their lines have the numbers and texts of the files, and make the new file of the old
// one. A reading from the middle has the end of the whole one.
func TestReadLikeGit(t *testing.T) {
	dir := t.TempDir()
	r := rand.New(rand.NewPCG(7, 19))
	names := []string{"plain", "with space", `quo"te`, `back\slash`, "tab\tbed", "new\nline", "ünï", "\x01\x7f", "\xff\xfe", "a/b/c", " lead", "trail ", "b/ b"}
	gittest.Run(t, dir, "init", "-q")
	before := map[string]string{}
	write := func(name, text string) {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for round := range 25 {
		after := map[string]string{}
		for _, name := range names {
			switch text, there := before[name]; {
			case !there && r.IntN(3) > 0:
				after[name] = randomText(r)
			case there && r.IntN(8) > 0:
				after[name] = changeText(r, text)
			}
		}
		for name := range before {
			_ = os.Remove(filepath.Join(dir, name))
		}
		for name, text := range after {
			write(name, text)
		}
		gittest.Run(t, dir, "add", "-A")
		context := r.IntN(5)
		out, err := gittest.Try(dir, "diff", "--cached", "--no-renames", fmt.Sprintf("-U%d", context))
		if err != nil {
			t.Fatal(err)
		}
		list, whole, err := diff.Read(strings.NewReader(out), diff.Limits{})
		if err != nil || !whole {
			t.Fatal(whole, err)
		}
		seen := map[string]bool{}
		for _, f := range list {
			seen[f.New] = true
			if f.Old != f.New || !slices.Contains(names, f.New) {
				t.Fatalf("the paths %q and %q in\n%s", f.Old, f.New, out)
			}
			checkFile(t, f, before[f.New], after[f.New])
		}
		for name := range after {
			if text, there := before[name]; (!there || text != after[name]) && !seen[name] {
				t.Errorf("round %d: %q is missing in\n%s", round, name, out)
			}
		}
		from := r.IntN(10)
		parts, _, err := diff.Read(strings.NewReader(out), diff.Limits{From: from})
		if err != nil {
			t.Fatal(err)
		}
		for i, f := range parts {
			if got, want := lines(f), lines(list[i]); !slices.Equal(got, want[min(from, len(want)):]) || f.Lines != list[i].Lines {
				t.Errorf("from %d: %v, want the end of %v", from, got, want)
			}
		}
		gittest.Run(t, dir, "commit", "-q", "--allow-empty", "-m", "x")
		before = after
	}
}

func lines(f *diff.File) (list []diff.Line) {
	for _, h := range f.Hunks {
		list = append(list, h.Lines...)
	}
	return list
}

// checkFile checks the lines of a file, and applies them.
func checkFile(t *testing.T, f *diff.File, text, after string) {
	t.Helper()
	ends := func(s string) bool { return s != "" && !strings.HasSuffix(s, "\n") }
	old, fresh := diff.SplitLines(text), diff.SplitLines(after)
	var made []string
	at := 0
	for _, h := range f.Hunks {
		first := h.Lines[0]
		if first.Old > 0 && h.Old != first.Old || first.New > 0 && h.New != first.New {
			t.Errorf("%q: a hunk at %d and %d begins with %+v", f.New, h.Old, h.New, first)
		}
		before := h.Old // lines of the old file before the hunk
		if slices.ContainsFunc(h.Lines, func(l diff.Line) bool { return l.Old > 0 }) {
			before--
		}
		made = append(made, old[at:before]...)
		at = before
		for _, l := range h.Lines {
			if l.Old > 0 && (old[l.Old-1] != l.Text || l.Old != at+1) || l.New > 0 && (fresh[l.New-1] != l.Text || l.New != len(made)+1) {
				t.Errorf("%q: %+v is not at lines %d and %d", f.New, l, at+1, len(made)+1)
			}
			open := l.Old == len(old) && ends(text) || l.New == len(fresh) && ends(after)
			if l.Open != open {
				t.Errorf("%q: %+v has an end of the file, want %v", f.New, l, open)
			}
			if l.Old > 0 {
				at = l.Old
			}
			if l.New > 0 {
				made = append(made, l.Text)
			}
		}
	}
	if made = append(made, old[at:]...); !slices.Equal(made, fresh) {
		t.Errorf("%q: the old file and its differences make %q, want %q", f.New, made, fresh)
	}
}

func TestReadNotes(t *testing.T) {
	const text = "diff --git a/old name b/new name\nsimilarity index 90%\nrename from old name\nrename to new name\n" +
		"diff --git a/x b/x\nold mode 100644\nnew mode 100755\n" +
		"diff --git a/p b/p\nindex 1..2 100644\nBinary files a/p and b/p differ\n" +
		"diff --git a/q b/q\nindex 1..2 100644\nGIT binary patch\nliteral 3\nKcmZQz\n\n+x\n@@ -1 +1 @@ f\n-x\n+y\n"
	list, whole, err := diff.Read(strings.NewReader(text), diff.Limits{})
	if err != nil || !whole || len(list) != 4 {
		t.Fatal(len(list), whole, err)
	}
	if f := list[0]; f.Old != "old name" || f.New != "new name" || len(f.Notes) != 3 {
		t.Errorf("%+v", f)
	}
	if f := list[1]; f.New != "x" || len(f.Notes) != 2 {
		t.Errorf("%+v", f)
	}
	if !list[2].Binary || !list[3].Binary || list[1].Binary {
		t.Errorf("%+v %+v", list[2], list[3])
	}
}

func TestReadLimits(t *testing.T) {
	text := "diff --git a/x b/x\n@@ -0,0 +1,100 @@\n" + strings.Repeat("+y\n", 100)
	text += strings.ReplaceAll(text, "x", "z")
	for _, c := range []struct {
		limits diff.Limits
		want   []int
		cut    bool
		whole  bool
	}{
		{diff.Limits{}, []int{100, 100}, false, true},
		{diff.Limits{File: 10}, []int{10, 10}, true, true},
		{diff.Limits{Lines: 150}, []int{100, 50}, true, false},
		{diff.Limits{Files: 1}, []int{100}, false, false},
		{diff.Limits{Bytes: 130}, []int{31}, true, false},
		{diff.Limits{From: 95, File: 10}, []int{5, 5}, false, true},
	} {
		list, whole, err := diff.Read(strings.NewReader(text), c.limits)
		var got []int
		for _, f := range list {
			got = append(got, len(lines(f)))
		}
		if err != nil || whole != c.whole || !slices.Equal(got, c.want) || list[len(list)-1].Cut != c.cut {
			t.Errorf("%+v: %v, whole %v, cut %v, %v", c.limits, got, whole, list[len(list)-1].Cut, err)
		}
	}
	twice := strings.Repeat("diff --git a/x b/x\n@@ -0,0 +1,100 @@\n"+strings.Repeat("+y\n", 100), 2)
	for from, want := range map[int][]int{0: {100, 100}, 95: {5, 100}, 100: {0, 100}, 195: {0, 5}, 200: {0, 0}} {
		list, _, err := diff.Read(strings.NewReader(twice+text), diff.Limits{From: from})
		if err != nil || len(list) != 4 || len(lines(list[0])) != want[0] || len(lines(list[1])) != want[1] ||
			len(lines(list[3])) != max(0, 100-from) {
			t.Errorf("two differences of a file from %d: got %d differences, %v, want %d lines", from, len(list), err, want)
		}
	}
	for most, want := range map[int][]int{99: {99, 0}, 100: {100, 0}, 150: {100, 50}, 200: {100, 100}} {
		list, _, err := diff.Read(strings.NewReader(twice+text), diff.Limits{File: most})
		if err != nil || len(list) != 4 || len(lines(list[0])) != want[0] || len(lines(list[1])) != want[1] || list[1].Cut != (most < 200) ||
			len(lines(list[3])) != min(100, most) {
			t.Errorf("two differences of a file, at most %d: got %d differences, %v, want %d lines", most, len(list), err, want)
		}
	}
	list, _, _ := diff.Read(strings.NewReader("diff --git a/x b/x\n@@ -0,0 +1 @@\n+"+strings.Repeat("é", 4000)), diff.Limits{Line: 10})
	if l := list[0].Hunks[0].Lines[0]; l.Text != "ééééé" || !l.Cut {
		t.Errorf("%+v", l)
	}
	for text, cut := range map[string]bool{strings.Repeat("x", 10): false, strings.Repeat("x", 11): true} {
		for _, hunk := range []string{"@@ -0,0 +1 @@\n+" + text + "\n", "@@ -1 +1 @@\n-" + text + "\n+y\n"} {
			list, _, _ := diff.Read(strings.NewReader("diff --git a/x b/x\n"+hunk), diff.Limits{Line: 10})
			if l := list[0].Hunks[0].Lines[0]; l.Text != text[:10] || l.Cut != cut {
				t.Errorf("%q: %+v", hunk, l)
			}
		}
	}
	list, _, _ = diff.Read(strings.NewReader("diff --git a/x b/x\n"+strings.Repeat("a note\n", 20)), diff.Limits{})
	if n := len(list[0].Notes); n != 16 {
		t.Errorf("%d notes", n)
	}
}

// TestReadHostile reads paths and hunks that git does not write.
func TestReadHostile(t *testing.T) {
	for head, want := range map[string][2]string{
		`diff --git a/plain "b/\303\251"`:    {"plain", "é"},
		`diff --git "a/\303\251" b/plain`:    {"é", "plain"},
		`diff --git "a/x\12" "b/x\1"`:        {"x12", "x1"},
		`diff --git "a/\t\"\\" "b/\377\400"`: {"\t\"\\", "\xff\x00"},
		`diff --git "a/x`:                    {"", ""},
		`diff --git a/x b/y`:                 {"", ""},
	} {
		list, _, err := diff.Read(strings.NewReader(head+"\nold mode 100644\n"), diff.Limits{})
		if err != nil || len(list) != 1 || list[0].Old != want[0] || list[0].New != want[1] {
			t.Errorf("%s: %+v, %v", head, list, err)
		}
	}
	// The first hunk has fewer lines than it declares.
	list, whole, err := diff.Read(strings.NewReader("diff --git a/x b/x\n@@ -1,5 +1,5 @@\n x\n"+
		"diff --git a/y b/y\n@@ -0,0 +1 @@\n+z\n"), diff.Limits{})
	if err != nil || !whole || len(list) != 2 || len(lines(list[0])) != 1 || len(lines(list[1])) != 1 {
		t.Errorf("%+v, %v", list, err)
	}
}

// TestCompareLeast compares random texts. The difference of git has no fewer lines.
func TestCompareLeast(t *testing.T) {
	dir := t.TempDir()
	r := rand.New(rand.NewPCG(1, 2))
	for range 40 {
		before := strings.ReplaceAll(randomText(r), "\n", "\n") + "\n"
		after := changeText(r, before)
		if !strings.HasSuffix(after, "\n") {
			after += "\n"
		}
		for name, text := range map[string]string{"a": before, "b": after} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		out, _ := gittest.Try(dir, "diff", "--no-index", "--minimal", "--numstat", "a", "b")
		want := 0
		for _, n := range strings.Fields(out)[:min(2, len(strings.Fields(out)))] {
			count, err := strconv.Atoi(n)
			if err != nil {
				t.Fatal(out)
			}
			want += count
		}
		got := 0
		for _, l := range diff.Compare(before, after) {
			if l.Sign != diff.Same {
				got++
			}
		}
		if got != want {
			t.Errorf("%q and %q: %d lines differ, by git %d", before, after, got, want)
		}
	}
}

func TestWords(t *testing.T) {
	for _, c := range []struct{ before, after, want string }{
		{"return a, nil", "return b, nil", "return [a], nil|return [b], nil"},
		{"x := one(two)", "x := one(two, three)", "x := one(two)|x := one(two[, three])"},
		{"  indented", "indented", "[  ]indented|indented"},
		{"same", "same", "same|same"},
		{"nothing in common", "+++", "nothing in common|+++"},
		{"größe = 1", "größe = 22", "größe = [1]|größe = [22]"},
	} {
		old, fresh := diff.Words(c.before, c.after)
		if got := marked(c.before, old) + "|" + marked(c.after, fresh); got != c.want {
			t.Errorf("%s, want %s", got, c.want)
		}
	}
}

// marked puts brackets around the parts of a line.
func marked(s string, spans []diff.Span) string {
	var b strings.Builder
	at := 0
	for _, p := range spans {
		b.WriteString(s[at:p.From] + "[" + s[p.From:p.To] + "]")
		at = p.To
	}
	return b.String() + s[at:]
}

func TestPairs(t *testing.T) {
	for _, c := range []struct {
		before, after string
		want          []string
	}{
		{"a\nb\nc\nd\n", "a\nx\nd\ne\n", []string{"a|a", "b|x", "c|·", "d|d", "·|e"}},
		{"return one, nil\n", "x := 1\nreturn two, nil\n", []string{"·|x := 1", "return one, nil|return two, nil"}},
		{"a b c\nd e f\n", "d e g\n", []string{"a b c|·", "d e f|d e g"}},
		{"a\nb\n", "", []string{"a|·", "b|·"}},
		{"alpha one two\nbeta three four\ngamma five six\n", "first of all\nalpha one 2\nnothing\nbeta three 4\ngamma five 6\n",
			[]string{"·|first of all", "alpha one two|alpha one 2", "·|nothing", "beta three four|beta three 4", "gamma five six|gamma five 6"}},
		{"gone away\nalpha one two\nleft behind\nbeta three four\n", "alpha one 2\nbeta three 4\nnew words\n",
			[]string{"gone away|·", "alpha one two|alpha one 2", "left behind|·", "beta three four|beta three 4", "·|new words"}},
	} {
		var got []string
		for _, p := range diff.Pairs(diff.Compare(c.before, c.after)) {
			side := func(l *diff.Line) string {
				if l == nil {
					return "·"
				}
				return l.Text
			}
			got = append(got, side(p.Old)+"|"+side(p.New))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// FuzzPairs checks that each line is on its sides once, in its order.
func FuzzPairs(f *testing.F) {
	f.Add("a\nb\nc\n", "b\nx c\nc y\nd\n")
	f.Fuzz(func(t *testing.T, before, after string) {
		old, fresh := 0, 0
		for _, p := range diff.Pairs(diff.Compare(before, after)) {
			if p.Old == nil && p.New == nil || p.Old != nil && p.New != nil && (p.Old.Sign == diff.Same) != (p.New.Sign == diff.Same) {
				t.Fatalf("%+v", p)
			}
			if p.Old != nil {
				if old++; p.Old.Old != old {
					t.Fatalf("line %d after %d", p.Old.Old, old-1)
				}
			}
			if p.New != nil {
				if fresh++; p.New.New != fresh {
					t.Fatalf("line %d after %d", p.New.New, fresh-1)
				}
			}
		}
		if old != len(diff.SplitLines(before)) || fresh != len(diff.SplitLines(after)) {
			t.Fatalf("%d and %d lines of %q and %q", old, fresh, before, after)
		}
	})
}

func FuzzRead(f *testing.F) {
	f.Add("diff --git a/a b/a\nindex 1..2\n--- a/a\n+++ b/a\n@@ -1 +1 @@\n-x\n+y\n\\ No newline at end of file\n", 0)
	f.Add("diff --git a/b b/b\nnew file mode 100644\nGIT binary patch\nliteral 3\nKcmZQz\n\n", 1)
	f.Add("+++\n@@ -1,9999999999 +1 @@\n"+strings.Repeat("x", 9000), 2)
	f.Add("diff --git \"a/\\303\\2\" b/\xff\x1b[31m\n@@ -0,0 +1,3 @@ f\n+\n\n", 1)
	f.Fuzz(func(t *testing.T, text string, from int) {
		list, whole, err := diff.Read(strings.NewReader(text), diff.Limits{Lines: 20, File: 7, Line: 100, Files: 3, From: from})
		if err != nil || len(list) > 3 || whole && len(list) > 1+strings.Count(text, "diff ") {
			t.Fatal(len(list), whole, err)
		}
		for _, f := range list {
			all := lines(f)
			if len(all) > 7 || f.Lines < len(all) {
				t.Errorf("%d lines of %d", len(all), f.Lines)
			}
			for _, h := range f.Hunks {
				old, fresh := h.Old, h.New
				for _, l := range h.Lines {
					if len(l.Text) > 100 || (l.Old > 0) != (l.Sign != diff.Added) || (l.New > 0) != (l.Sign != diff.Deleted) && l.New+fresh > 0 {
						t.Errorf("%+v", l)
					}
					if l.Old > 0 {
						if l.Old != old {
							t.Errorf("line %d after %d", l.Old, old)
						}
						old++
					}
					if l.New > 0 {
						if l.New != fresh {
							t.Errorf("line %d after %d", l.New, fresh)
						}
						fresh++
					}
				}
			}
			diff.Pairs(all)
		}
	})
}

// FuzzCompare checks that the lines without additions are the first text, and those without deletions the second.
func FuzzCompare(f *testing.F) {
	f.Add("a\nb\n", "b\nc")
	f.Add("\n\n", "\n")
	f.Fuzz(func(t *testing.T, before, after string) {
		var old, fresh []string
		for _, l := range diff.Compare(before, after) {
			if l.Sign != diff.Added {
				if old = append(old, l.Text); l.Old != len(old) {
					t.Errorf("%+v is line %d", l, len(old))
				}
			}
			if l.Sign != diff.Deleted {
				if fresh = append(fresh, l.Text); l.New != len(fresh) {
					t.Errorf("%+v is line %d", l, len(fresh))
				}
			}
		}
		if !slices.Equal(old, diff.SplitLines(before)) || !slices.Equal(fresh, diff.SplitLines(after)) {
			t.Errorf("%q, %q: %q, %q", before, after, old, fresh)
		}
	})
}

func FuzzWords(f *testing.F) {
	f.Add("a b", "a c")
	f.Add("\xffé", "é\xff")
	f.Fuzz(func(t *testing.T, before, after string) {
		old, fresh := diff.Words(before, after)
		left := func(s string, spans []diff.Span) string {
			var b strings.Builder
			at := 0
			for _, p := range spans {
				if p.From < at || p.To <= p.From || p.To > len(s) {
					t.Fatalf("%v of %q", spans, s)
				}
				b.WriteString(s[at:p.From])
				at = p.To
			}
			return b.String() + s[at:]
		}
		if old != nil || fresh != nil {
			if left(before, old) != left(after, fresh) {
				t.Errorf("%q and %q: %v %v", before, after, old, fresh)
			}
		}
	})
}

// TestGrowth checks that the time to read a difference grows with it.
func TestGrowth(t *testing.T) {
	cases := growth.Tokens("a", " ", "\n", "a\n", "+a\n", "-a\n", " a\n", "@@", "diff --git a/a b/a\n", "@@ -1 +1 @@\n",
		"index a\n", "GIT binary patch\n", "\x80", "\x00", "\r\n", "é", "\xff", "\t", "diff --git a/a b/a\n@@ -0,0 +1 @@\n+a\n", `"\`, `diff --git "a" "`)
	growth.Check(t, "diff", func(text []byte) { _, _, _ = diff.Read(strings.NewReader(string(text)), diff.Limits{}) }, cases...)
}
