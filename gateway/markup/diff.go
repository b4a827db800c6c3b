package markup

import (
	"html/template"
	"strconv"
	"strings"
)

// Bounds of a difference. Beyond them the lines between those that both texts begin and end with are all different.
const (
	maxDiff      = 256 << 10 // bytes of both texts together
	maxDiffCells = 1 << 20   // lines of one text times lines of the other
	diffContext  = 3         // lines around a change
)

// The signs of lines of a difference.
const (
	signSame  = ' '
	signGone  = '-'
	signAdded = '+'
)

// diffLine is a line with its sign.
type diffLine struct {
	sign byte
	text string
}

// Diff returns the difference between two texts as HTML, a span for each line. The classes are "add", "del" and, for the lines that
// are left out between two changes, "hunk". Lines begin with the sign of their class, so that the colour is not alone. added and
// deleted count the lines.
func Diff(before, after string) (html template.HTML, added, deleted int) {
	lines := compareLines(before, after)
	shown := make([]bool, len(lines))
	for i, l := range lines {
		switch l.sign {
		case signAdded:
			added++
		case signGone:
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
		switch l.sign {
		case signAdded:
			class = ` class="add"`
		case signGone:
			class = ` class="del"`
		}
		out.WriteString("<span" + class + ">" + string(l.sign) +
			template.HTMLEscapeString(Visible(strings.TrimSuffix(l.text, "\n"))) + "\n</span>")
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

// splitLines splits a text into its lines. An empty text has none.
func splitLines(s string) []string {
	if s == "" {
		return nil
	}
	return strings.SplitAfter(strings.TrimSuffix(s, "\n"), "\n")
}

// compareLines returns the lines of both texts, with as many as possible that are the same.
func compareLines(before, after string) []diffLine {
	if len(before)+len(after) > maxDiff {
		before, after = before[:min(len(before), maxDiff/2)], after[:min(len(after), maxDiff/2)]
	}
	a, b := splitLines(before), splitLines(after)
	same := func(x, y string) bool { return strings.TrimSuffix(x, "\n") == strings.TrimSuffix(y, "\n") }
	var list []diffLine
	for len(a) > 0 && len(b) > 0 && same(a[0], b[0]) {
		list = append(list, diffLine{signSame, b[0]})
		a, b = a[1:], b[1:]
	}
	var tail []diffLine
	for len(a) > 0 && len(b) > 0 && same(a[len(a)-1], b[len(b)-1]) {
		tail = append(tail, diffLine{signSame, b[len(b)-1]})
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	list = append(list, between(a, b, same)...)
	for i := len(tail) - 1; i >= 0; i-- {
		list = append(list, tail[i])
	}
	return list
}

// between returns the lines of two texts by their longest common subsequence.
func between(a, b []string, same func(x, y string) bool) []diffLine {
	var list []diffLine
	if len(a)*len(b) > maxDiffCells {
		for _, line := range a {
			list = append(list, diffLine{signGone, line})
		}
		for _, line := range b {
			list = append(list, diffLine{signAdded, line})
		}
		return list
	}
	// common[i][j] is the length of the subsequence of a[i:] and b[j:].
	width := len(b) + 1
	common := make([]int32, (len(a)+1)*width)
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if same(a[i], b[j]) {
				common[i*width+j] = common[(i+1)*width+j+1] + 1
			} else {
				common[i*width+j] = max(common[(i+1)*width+j], common[i*width+j+1])
			}
		}
	}
	i, j := 0, 0
	for i < len(a) && j < len(b) {
		switch {
		case same(a[i], b[j]):
			list = append(list, diffLine{signSame, b[j]})
			i, j = i+1, j+1
		case common[(i+1)*width+j] >= common[i*width+j+1]:
			list = append(list, diffLine{signGone, a[i]})
			i++
		default:
			list = append(list, diffLine{signAdded, b[j]})
			j++
		}
	}
	for ; i < len(a); i++ {
		list = append(list, diffLine{signGone, a[i]})
	}
	for ; j < len(b); j++ {
		list = append(list, diffLine{signAdded, b[j]})
	}
	return list
}
