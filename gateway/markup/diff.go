package markup

import (
	"html/template"
	"strconv"
	"strings"

	"github.com/ramus-dev/ramus/gateway/diff"
)

// Bounds of a difference.
const (
	maxDiff     = 256 << 10 // bytes of both texts together
	diffContext = 3         // lines around a change
)

// Diff returns the difference between two texts as HTML, a span for each line. The classes are "add", "del" and, for the lines that
// are left out between two changes, "hunk". Lines begin with the sign of their class, so that the colour is not alone. added and
// deleted count the lines.
func Diff(before, after string) (html template.HTML, added, deleted int) {
	if len(before)+len(after) > maxDiff {
		before, after = before[:min(len(before), maxDiff/2)], after[:min(len(after), maxDiff/2)]
	}
	lines := diff.Compare(before, after)
	shown := make([]bool, len(lines))
	for i, l := range lines {
		switch l.Sign {
		case diff.Added:
			added++
		case diff.Deleted:
			deleted++
		default:
			continue
		}
		for near := max(i-diffContext, 0); near < min(i+diffContext+1, len(lines)); near++ {
			shown[near] = true
		}
	}
	var out strings.Builder
	left := 0
	for i, l := range lines {
		if !shown[i] {
			left++
			continue
		}
		writeLeftOut(&out, left)
		left = 0
		class := ""
		switch l.Sign {
		case diff.Added:
			class = ` class="add"`
		case diff.Deleted:
			class = ` class="del"`
		}
		out.WriteString("<span" + class + ">" + l.Sign +
			template.HTMLEscapeString(Visible(l.Text)) + "\n</span>")
	}
	if added+deleted > 0 {
		writeLeftOut(&out, left)
	}
	return template.HTML(out.String()), added, deleted
}

// writeLeftOut writes how many lines are left out, in a line of its own.
func writeLeftOut(out *strings.Builder, lines int) {
	switch lines {
	case 0:
	case 1:
		out.WriteString(`<span class="hunk">… 1 line …` + "\n</span>")
	default:
		out.WriteString(`<span class="hunk">… ` + strconv.Itoa(lines) + ` lines …` + "\n</span>")
	}
}
