package diff

import (
	"unicode"
	"unicode/utf8"

	"github.com/ramus-dev/ramus/internal/align"
)

// Bounds of the comparison of two lines by words.
const (
	maxWordBytes = 4000 // of both lines together
	maxWordCells = 1 << 15
)

// Span is a part of a line, as offsets of bytes.
type Span struct{ From, To int }

// Words returns the parts of two lines that differ. Both are nil if the lines are equal, too long, or have little in common.
func Words(before, after string) (old, fresh []Span) {
	if before == after || len(before)+len(after) > maxWordBytes {
		return nil, nil
	}
	a, b := splitWords(before), splitWords(after)
	signs := align.Signs(a, b, maxWordCells)
	i, j, atOld, atNew, common := 0, 0, 0, 0, 0
	for _, sign := range signs {
		switch sign {
		case Same:
			if r, _ := utf8.DecodeRuneInString(a[i]); !unicode.IsSpace(r) {
				common += len(a[i])
			}
			atOld, atNew = atOld+len(a[i]), atNew+len(b[j])
			i, j = i+1, j+1
		case Deleted:
			old = addSpan(old, Span{atOld, atOld + len(a[i])})
			atOld += len(a[i])
			i++
		case Added:
			fresh = addSpan(fresh, Span{atNew, atNew + len(b[j])})
			atNew += len(b[j])
			j++
		}
	}
	if common*3 < min(len(before), len(after)) || common == 0 {
		return nil, nil
	}
	return old, fresh
}

// addSpan adds a part to a list. It makes one part of two that touch.
func addSpan(list []Span, s Span) []Span {
	if n := len(list); n > 0 && list[n-1].To == s.From {
		list[n-1].To = s.To
		return list
	}
	return append(list, s)
}

// splitWords splits a line into words, white space and single other characters.
func splitWords(s string) (list []string) {
	kind := func(r rune) int {
		switch {
		case r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.IsMark(r):
			return 1
		case unicode.IsSpace(r):
			return 2
		}
		return 0
	}
	from, before := 0, -1
	for i, r := range s {
		k := kind(r)
		if i > from && (k == 0 || k != before) {
			list = append(list, s[from:i])
			from = i
		}
		before = k
	}
	if from < len(s) {
		list = append(list, s[from:])
	}
	return list
}
