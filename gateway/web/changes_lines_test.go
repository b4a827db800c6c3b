package web

import (
	"strconv"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"github.com/ramus-dev/ramus/gateway/changes"
	"github.com/ramus-dev/ramus/gateway/diff"
	"github.com/ramus-dev/ramus/gateway/markup"
)

// FuzzChangedLines checks that the lines of a page have no other elements than those of this package, no ids twice, and the texts of the
// lines.
func FuzzChangedLines(f *testing.F) {
	f.Add("a\nfunc x() {}\n", "b\nfunc y(z) {}\n\r\n", "x.go", true)
	f.Add("<script>\u202e\x00", "\"><b>\xff", "<x>.html", false)
	f.Fuzz(func(t *testing.T, before, after, path string, split bool) {
		if len(before)+len(after) > 4000 {
			return
		}
		lines := diff.Compare(before, after)
		if len(lines) == 0 {
			return
		}
		m := lineMaker{split: split, pieces: 1000}
		file := &changes.File{ID: "f0", Hunks: []diff.Hunk{{Old: 1, New: 1, Head: "@@ -1 +1 @@ " + path, Lines: lines}}}
		file.Change.Path = path
		m.out.WriteString("<div>")
		m.hunk(file, file.Hunks[0], 0, changesView{at: "/x"})
		old, fresh := side(markup.CodeLines(strings.ReplaceAll(before, "\r\n", "\n"), path)), side(markup.CodeLines(strings.ReplaceAll(after, "\r\n", "\n"), path))
		if split {
			for _, p := range diff.Pairs(lines) {
				m.pair(file.ID, p, old, fresh)
			}
		} else {
			m.lines(file.ID, lines, old, fresh)
		}
		root, err := html.Parse(strings.NewReader(m.out.String() + "</div>"))
		if err != nil {
			t.Fatal(err)
		}
		ids, shownLines := map[string]bool{}, map[string]string{}
		for n := range root.Descendants() {
			if n.Type != html.ElementNode {
				continue
			}
			switch n.Data {
			case "html", "head", "body", "div", "span", "a", "mark", "i", "p":
			default:
				t.Fatalf("an element %s in %s", n.Data, m.out.String())
			}
			for _, a := range n.Attr {
				if a.Key == "id" {
					if ids[a.Val] {
						t.Fatalf("the id %s twice in %s", a.Val, m.out.String())
					}
					ids[a.Val] = true
					shownLines[a.Val] = textOf(n)
				}
			}
		}
		for _, l := range lines {
			if l.Sign == diff.Deleted || l.New == 0 {
				continue
			}
			id := "f0-R" + strconv.Itoa(l.New)
			if want := strconv.Itoa(l.New) + shown(l.Text); !strings.HasPrefix(shownLines[id], strings.ReplaceAll(want, "\x00", "\uFFFD")) {
				t.Errorf("line %d is %q, want %q", l.New, shownLines[id], want)
			}
		}
	})
}

func textOf(n *html.Node) string {
	var b strings.Builder
	for c := range n.Descendants() {
		if c.Type == html.TextNode {
			b.WriteString(c.Data)
		}
	}
	return b.String()
}
