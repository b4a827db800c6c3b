package diff

import (
	"strings"

	"github.com/ramus-dev/ramus/internal/align"
)

// maxCells bounds a comparison, see [align.Signs].
const maxCells = 1 << 20

// Compare returns the lines of both texts, with as many as possible that are the same. A missing newline at an end makes no difference.
func Compare(before, after string) []Line {
	a, b := SplitLines(before), SplitLines(after)
	var list []Line
	i, j := 0, 0
	for _, sign := range align.Signs(a, b, maxCells) {
		l := Line{Sign: sign}
		if sign != Added {
			l.Text = a[i]
			i++
			l.Old = i
		}
		if sign != Deleted {
			l.Text = b[j]
			j++
			l.New = j
		}
		list = append(list, l)
	}
	return list
}

// SplitLines splits a text into its lines, without their newlines. An empty text has none.
func SplitLines(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(s, "\n"), "\n")
}
