package document

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestProblemString(t *testing.T) {
	for _, c := range []struct {
		name   string
		column int
		source string
		want   string
	}{
		{"caret", 3, "ab cd", "a.yaml:3:3: bad\n    ab cd\n      ^"},
		{"first column", 1, "ab", "a.yaml:3:1: bad\n    ab\n    ^"},
		{"no column", 0, "ab", "a.yaml:3:0: bad\n    ab\n    ^"},
		{"after the line", 9, "ab", "a.yaml:3:9: bad\n    ab\n      ^"},
		{"tab", 3, "\ta x", "a.yaml:3:3: bad\n    \ta x\n    \t ^"},
		{"wide characters", 3, "éü x", "a.yaml:3:3: bad\n    éü x\n      ^"},
		{"no text", 2, " \t", "a.yaml:3:2: bad"},
	} {
		p := Problem{File: "a.yaml", Line: 3, Column: c.column, Message: "bad", Source: c.source}
		if got := p.String(); got != c.want {
			t.Errorf("%s:\n%s\nwant\n%s", c.name, got, c.want)
		}
	}
	two := Problems{{File: "a", Line: 1, Column: 1, Message: "x"}, {File: "a", Line: 2, Column: 1, Message: "y"}}
	if got, want := two.Error(), "a:1:1: x\na:2:1: y"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestSorted(t *testing.T) {
	at := func(line, column int, message string) Problem {
		return Problem{File: "a", Line: line, Column: column, Message: message}
	}
	got := Problems{at(2, 1, "c"), at(1, 9, "d"), at(1, 2, "b"), at(1, 2, "a"), at(2, 1, "c")}.Sorted()
	if want := "a:1:2: a\na:1:2: b\na:1:9: d\na:2:1: c"; got.Error() != want {
		t.Errorf("%s\nwant\n%s", got.Error(), want)
	}
	for n, want := range map[int]string{
		maxProblems:     "a:100:1: x",
		maxProblems + 3: "a:101:1: and 3 more mistakes from here on",
	} {
		var many Problems
		for i := range n {
			many = append(many, at(i+1, 1, "x"))
		}
		got := many.Sorted()
		if len(got) != min(n, maxProblems+1) || got[len(got)-1].String() != want {
			t.Errorf("of %d problems %d are left, the last %q, want %q", n, len(got), got[len(got)-1], want)
		}
	}
}

func TestSourceLine(t *testing.T) {
	x200, e200 := strings.Repeat("x", 200), strings.Repeat("é", 200)
	lines := []string{"one", "two\r", x200, x200 + "x", e200, e200 + "é"}
	for n, want := range map[int]string{0: "", 1: "one", 2: "two", 3: x200, 4: x200 + "…", 5: e200, 6: e200 + "…", 7: ""} {
		if got := sourceLine(lines, n); got != want {
			t.Errorf("line %d is %q, want %q", n, got, want)
		}
	}
}

func TestSuggest(t *testing.T) {
	long := strings.Repeat("x", maxNear)
	for _, c := range []struct {
		name       string
		candidates []string
		want       string
	}{
		{"nmae", []string{"run", "name"}, `; did you mean "name"?`},
		{"NAME", []string{"run", "name"}, `; did you mean "name"?`},
		{"runs", []string{"turn", "run"}, `; did you mean "run"?`},
		{"ab", []string{"ac", "ad"}, `; did you mean "ac"?`},
		{"ab", []string{"cd"}, ""},
		{"xyz", []string{"name"}, ""},
		{"abcdef", []string{"abcxyz"}, `; did you mean "abcxyz"?`},
		{"abcde", []string{"abxyz"}, ""},
		{"name", nil, ""},
		{long, []string{long}, fmt.Sprintf("; did you mean %q?", long)},
		{long, []string{long + "x"}, ""},
		{long + "x", []string{long}, ""},
	} {
		if got := Suggest(c.name, c.candidates); got != c.want {
			t.Errorf("Suggest(%q, %q) = %q, want %q", c.name, c.candidates, got, c.want)
		}
	}
}

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b        string
		limit, want int
	}{
		{"", "", 9, 0}, {"same", "same", 9, 0}, {"a", "", 9, 1}, {"", "ab", 9, 2}, {"kitten", "sitting", 9, 3},
		{"flaw", "lawn", 9, 2}, {"ab", "ba", 9, 1}, {"abc", "acb", 9, 1}, {"xab", "xba", 9, 1}, {"abcd", "badc", 9, 2},
		{"ca", "abc", 9, 3}, {"aaaa", "bbbb", 9, 4}, {"aaaa", "bbbb", 3, 3}, {"a", "abc", 3, 2}, {"a", "abcd", 3, 3},
		{"abcd", "a", 3, 3}, {"abc", "a", 3, 2},
	} {
		if got := distance(c.a, c.b, c.limit); got != c.want {
			t.Errorf("distance(%q, %q, %d) = %d, want %d", c.a, c.b, c.limit, got, c.want)
		}
	}
}

// TestMistakes checks the bounds of the mistakes of one file.
func TestMistakes(t *testing.T) {
	d := &Document{Format: file, file: "a"}
	near := func() []string { return []string{"name"} }
	for i := range maxKept {
		if d.Full() {
			t.Fatalf("the document is full after %d mistakes", i)
		}
		d.Problem(i+1, 1, "x")
	}
	if !d.Full() || d.Suggest("nmae", near) != "" {
		t.Error("the document is not full")
	}
	if got := d.Mistakes(); len(got) != maxProblems+1 || got[maxProblems].Message != "and 900 more mistakes from here on" {
		t.Errorf("%d mistakes, the last is %q", len(got), got[len(got)-1].Message)
	}
	for i := range 3 {
		d.Problem(i+1, 2, "x")
	}
	if got := d.Mistakes(); len(got) != maxProblems+1 || got[maxProblems].Message != "and 903 more mistakes from here on" {
		t.Errorf("%d mistakes, the last is %q", len(got), got[len(got)-1].Message)
	}

	few := &Document{Format: file, file: "a"}
	few.Problem(2, 1, "y")
	few.Problem(1, 1, "x%s", few.Suggest("nmae", near))
	if got, want := few.Mistakes().Error(), "a:1:1: x; did you mean \"name\"?\na:2:1: y"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestProblemMessage checks positions, lines and lengths of single mistakes.
func TestProblemMessage(t *testing.T) {
	d, v := parse(t, "one: 1\ntwo: 2\n")
	d.Problem(2, 3, "x")
	d.Problem(1, 1, "x")
	d.Problem(0, 0, "x")
	d.Problem(9, -1, "x")
	d.At(&Value{Kind: BrokenValue, Line: 1, Column: 1}, "x")
	d.At(v.Get("two"), "x")
	want := []Problem{{"a.yaml", 2, 3, "x", "two: 2"}, {"a.yaml", 1, 1, "x", "one: 1"}, {"a.yaml", 1, 1, "x", "one: 1"},
		{"a.yaml", 9, 1, "x", ""}, {"a.yaml", 2, 6, "x", "two: 2"}}
	if fmt.Sprint(d.Problems) != fmt.Sprint(Problems(want)) {
		t.Errorf("%+v\nwant\n%+v", d.Problems, want)
	}

	whole := strings.Repeat("x", maxMessage)
	for _, c := range []struct {
		name, format string
		text, want   string
	}{
		{"longest", "%s", whole, whole},
		{"too long", "%s", whole + "x", whole + "…"},
		{"too long with its frame", "a%s", whole, "a" + whole[1:] + "…"},
		{"cut at a character", "%s", strings.Repeat("é", maxMessage), strings.Repeat("é", maxMessage/2) + "…"},
		{"cut within a character", "%s", "x" + strings.Repeat("é", maxMessage), "x" + strings.Repeat("é", maxMessage/2-1) + "…"},
	} {
		d.Problem(1, 1, c.format, c.text)
		got := d.Problems[len(d.Problems)-1].Message
		if got != c.want || !utf8.ValidString(got) {
			t.Errorf("%s: %d bytes, want %d: %.20q", c.name, len(got), len(c.want), got)
		}
	}
}
