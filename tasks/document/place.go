package document

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// places finds positions of a scalar's text in the file. It reads each line of the text once, for any number of
// positions.
type places struct {
	of    *Value
	lines []textLine
}

// textLine is one line of a scalar's text.
type textLine struct {
	offset int    // in the text
	text   string // without its line break

	found  bool   // the fields below are set
	source string // the line of the file from the first character of text on, as far as both are equal
	column int    // of that character, from 1; 0 if there is none
	runes  []int  // number of characters before each step of source
}

// runeStep is the number of bytes that are counted at once in a long line.
const runeStep = 256

// Place returns the line and column of a byte offset in a scalar's text, as described at [Document.Within].
func (d *Document) Place(v *Value, offset int) (line, column int) {
	if v.style == foldedStyle {
		return v.Line, v.Column // the text is not in the file as it is
	}
	if d.placed == nil || d.placed.of != v {
		d.placed = newPlaces(v)
	}
	offset = min(max(offset, 0), len(v.Text))
	all := d.placed.lines
	n, exact := slices.BinarySearchFunc(all, offset, func(t textLine, offset int) int { return t.offset - offset })
	if !exact {
		n--
	}
	line = v.Line + n
	if v.style == literalStyle {
		line++ // the text begins below the mark
	} else if n > 0 {
		return v.Line, v.Column // a line break in the text comes from an escape or from folding
	}
	if line < 1 || line > len(d.lines) {
		return v.Line, v.Column
	}

	t := &all[n]
	if !t.found {
		t.find(v, d.lines[line-1], func(column int) int { return d.skip(line, column) })
	}
	if t.column == 0 || offset-t.offset > len(t.source) {
		return v.Line, v.Column
	}
	return line, t.column + t.count(offset-t.offset)
}

// newPlaces splits a value's text into its lines.
func newPlaces(v *Value) *places {
	p := &places{of: v}
	offset := 0
	for text := range strings.SplitSeq(v.Text, "\n") {
		p.lines = append(p.lines, textLine{offset: offset, text: text})
		offset += len(text) + 1
	}
	return p
}

// cursor is a column of a line of the file and its byte offset.
type cursor struct{ line, column, offset int }

// skip returns the byte offset of a column, from 0, in a line. It continues from the column of the last call.
func (d *Document) skip(line, column int) int {
	c := &d.cursor
	if c.line != line || c.column > column {
		*c = cursor{line: line}
	}
	for source := d.lines[line-1]; c.column < column && c.offset < len(source); c.column++ {
		_, n := utf8.DecodeRuneInString(source[c.offset:])
		c.offset += n
	}
	return c.offset
}

// find searches the line's text in a line of the file. skip returns the byte offset of a column.
func (t *textLine) find(v *Value, source string, skip func(column int) int) {
	t.found = true
	start, column := 0, 0
	if v.style == literalStyle {
		if start = strings.Index(source, t.text); start < 0 {
			return
		}
		column = utf8.RuneCountInString(source[:start])
	} else {
		if column = v.Column - 1; v.style != plainStyle {
			column++ // the quote
		}
		start = skip(column)
	}
	same := 0
	for same < len(t.text) && start+same < len(source) && t.text[same] == source[start+same] {
		same++
	}
	t.source, t.column = source[start:start+same], column+1
	sum := 0
	for i := 0; i < len(t.source); i += runeStep {
		t.runes = append(t.runes, sum)
		sum += begun(t.source[i:min(i+runeStep, len(t.source))])
	}
}

// count returns the number of characters before an offset.
func (t *textLine) count(offset int) int {
	step := min(offset/runeStep, len(t.runes)-1)
	if step < 0 {
		return 0
	}
	return t.runes[step] + begun(t.source[step*runeStep:offset])
}

// begun returns the number of characters that begin in a part of a text, which may be cut within one.
func begun(s string) int {
	n := 0
	for i := range len(s) {
		if utf8.RuneStart(s[i]) {
			n++
		}
	}
	return n
}
