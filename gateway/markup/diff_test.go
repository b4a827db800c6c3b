package markup

import (
	"math/rand/v2"
	"strings"
	"testing"

	"golang.org/x/net/html"
)

// htmlText returns the text of HTML.
func htmlText(t *testing.T, text string) string {
	t.Helper()
	root, err := html.Parse(strings.NewReader("<pre>" + text + "</pre>"))
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for n := range root.Descendants() {
		if n.Type == html.TextNode {
			b.WriteString(n.Data)
		}
	}
	return b.String()
}

func TestDiff(t *testing.T) {
	many := strings.Repeat("same\n", 10)
	for _, c := range []struct {
		before, after, want string
		added, deleted      int
	}{
		{"", "", "", 0, 0},
		{"a\n", "a\n", "", 0, 0},
		{"a\n", "a", "", 0, 0},
		{"", "a\nb\n", "+a\n+b\n", 2, 0},
		{"a\nb\n", "", "-a\n-b\n", 0, 2},
		{"a\nb\nc\n", "a\nx\nc\n", " a\n-b\n+x\n c\n", 1, 1},
		{"a\nb\nc\n", "b\nc\nd\n", "-a\n b\n c\n+d\n", 1, 1},
		{many + "old\n" + many, many + "new\n" + many,
			"… 7 lines …\n same\n same\n same\n-old\n+new\n same\n same\n same\n… 7 lines …\n", 1, 1},
		{"<b>\n", "<i>\n", "-<b>\n+<i>\n", 1, 1},
	} {
		got, added, deleted := Diff(c.before, c.after)
		if text := htmlText(t, string(got)); text != c.want || added != c.added || deleted != c.deleted {
			t.Errorf("%q, %q: %q, +%d -%d", c.before, c.after, text, added, deleted)
		}
	}
}

// TestLeast compares random texts. No other difference has fewer lines.
func TestLeast(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	random := func() (list []string) {
		for range r.IntN(9) {
			list = append(list, string(rune('a'+r.IntN(3)))+"\n")
		}
		return list
	}
	// least returns how many lines are removed and added at least.
	var least func(a, b []string) int
	least = func(a, b []string) int {
		switch {
		case len(a) == 0 || len(b) == 0:
			return len(a) + len(b)
		case a[0] == b[0]:
			return least(a[1:], b[1:])
		}
		return 1 + min(least(a[1:], b), least(a, b[1:]))
	}
	for range 300 {
		a, b := random(), random()
		_, added, deleted := Diff(strings.Join(a, ""), strings.Join(b, ""))
		if added+deleted != least(a, b) || added-deleted != len(b)-len(a) {
			t.Errorf("%q and %q: +%d -%d, at least %d lines differ", a, b, added, deleted, least(a, b))
		}
	}
}

// FuzzDiff checks that a difference has no other elements than its lines.
func FuzzDiff(f *testing.F) {
	f.Add("a\nb\n", "b\nc")
	f.Add("<script>", "\x1b[31m\n\u202e")
	f.Add("\n\n", "\n")
	f.Fuzz(func(t *testing.T, before, after string) {
		got, _, _ := Diff(before, after)
		root, err := html.Parse(strings.NewReader(string(got)))
		if err != nil {
			t.Fatal(err)
		}
		for n := range root.Descendants() {
			if n.Type == html.ElementNode && n.Data != "html" && n.Data != "head" && n.Data != "body" && n.Data != "span" {
				t.Errorf("an element %s of %q, %q", n.Data, before, after)
			}
		}
	})
}
