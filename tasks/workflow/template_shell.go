package workflow

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/ramus-dev/ramus/internal/pattern"
)

// checkCommand returns the slots of a command template at which a quoted word would not be one argument: inside quotes,
// backticks, comments, here-documents, ${…}, $((…)) or "$(…)". It also marks slots that touch other text of their word.
//
// It follows the rules of the POSIX shell. Where these are unclear (a `case` inside "$(…)", quotes inside ${…},
// differences between bash and dash) it does not guess, and refuses every later slot.
func checkCommand(t *template) []mistake {
	l := &shellLexer{refused: map[int]bool{}}
	for _, p := range t.parts {
		if p.slot == nil {
			if i := strings.IndexByte(p.text, 0); i >= 0 {
				return []mistake{{0, "a command cannot hold a NUL byte"}}
			}
			l.text = append(l.text, p.text...)
			continue
		}
		l.at = append(l.at, len(l.text))
		l.slots = append(l.slots, p.slot)
		l.text = append(l.text, slotMark)
	}
	l.lastEsac = bytes.LastIndex(l.text, []byte("esac"))
	l.run()
	return l.mistakes
}

// slotMark represents a slot in the text of the lexer. Templates contain no NUL.
const slotMark = 0

// shellLexer reads a command line once, from left to right.
type shellLexer struct {
	text  []byte
	at    []int   // positions of the slots in text
	slots []*slot // the slots at these positions

	i       int
	stack   []shellFrame
	doubles int // number of double-quoted strings in stack
	// lastEsac is the position of the last `esac`, or -1.
	lastEsac int
	// pending are here-documents whose bodies begin at the next line.
	pending  []hereDoc
	lost     string // the reason why the text after this point is not understood; "" if it is
	mistakes []mistake
	refused  map[int]bool // slots with a mistake
}

// shellFrame is an open construct, either a double-quoted string or a command substitution with its own count of
// parentheses.
type shellFrame struct {
	double bool
	parens int
	start  int
}

type hereDoc struct {
	delimiter string
	quoted    bool // the body is not expanded
	tabs      bool // <<-, which removes leading tabs
}

func (l *shellLexer) run() {
	for l.i < len(l.text) && l.lost == "" {
		if l.double() {
			l.quoted()
		} else {
			l.code()
		}
	}
	if l.lost != "" {
		for n := len(l.at) - 1; n >= 0 && l.at[n] >= l.i; n-- {
			l.refuse(l.at[n], "this slot comes after %s, where ramus cannot be sure how the shell reads on; set a variable at the beginning of the command (value=%s) and use \"$value\" here", l.lost, l.slotAt(l.at[n]))
		}
		return
	}
	for _, f := range l.stack {
		if f.double {
			l.wrong(f.start, "this double quote is not closed")
			return
		}
	}
}

// double reports whether the innermost open construct is a double-quoted string.
func (l *shellLexer) double() bool {
	return len(l.stack) > 0 && l.stack[len(l.stack)-1].double
}

// withinDouble reports whether any open construct is a double-quoted string.
func (l *shellLexer) withinDouble() bool { return l.doubles > 0 }

// peek returns the byte n positions ahead, or a newline after the end.
func (l *shellLexer) peek(n int) byte {
	if i := l.i + n; i >= 0 && i < len(l.text) {
		return l.text[i]
	}
	return '\n'
}

// code reads one item outside quotes.
func (l *shellLexer) code() {
	switch c := l.text[l.i]; c {
	case slotMark:
		l.slot()
		l.i++
	case '\'':
		l.single()
	case '"':
		l.stack = append(l.stack, shellFrame{double: true, start: l.i})
		l.doubles++
		l.i++
	case '\\':
		l.backslash()
	case '#':
		if l.i > 0 && !l.wordEnds(l.i-1) {
			l.i++
			return
		}
		if l.i > 0 && l.text[l.i-1] == ')' {
			// After $(…) it belongs to the word, but after (…) it begins a comment.
			l.lose("a # directly after a parenthesis")
			return
		}
		end := len(l.text)
		if n := bytes.IndexByte(l.text[l.i:], '\n'); n >= 0 {
			end = l.i + n
		}
		if l.withinDouble() {
			l.lose("a comment inside \"$(…)\"")
			return
		}
		l.refuseIn(l.i, end, "this slot is in a comment; a value with a line break in it would end the comment")
		l.i = end
	case '\n':
		l.i++
		if len(l.pending) > 0 {
			l.bodies()
		}
	case '<':
		if l.peek(1) == '<' {
			l.heredoc()
			return
		}
		l.i++
	case '(':
		if l.i > 0 && l.text[l.i-1] == '(' {
			l.lose("((")
			return
		}
		if n := len(l.stack); n > 0 {
			l.stack[n-1].parens++
		}
		l.i++
	case ')':
		// A pattern of `case` ends with an unpaired ")". Reading it as the end of a $(…) is harmless as long as the
		// text around is not quoted. Inside double quotes `case` is not accepted at all.
		if n := len(l.stack); n > 0 {
			if l.stack[n-1].parens > 0 {
				l.stack[n-1].parens--
			} else {
				l.stack = l.stack[:n-1]
			}
		}
		l.i++
	case '$':
		l.dollar()
	case '`':
		l.backticks()
	default:
		l.i++
	}
}

// quoted reads one item inside double quotes.
func (l *shellLexer) quoted() {
	switch l.text[l.i] {
	case slotMark:
		l.refuse(l.i, "this slot is inside double quotes; write %s bare, ramus quotes the value itself", l.slotAt(l.i))
		l.i++
	case '"':
		l.stack = l.stack[:len(l.stack)-1]
		l.doubles--
		l.i++
	case '\\':
		l.backslash()
	case '$':
		l.dollar()
	case '`':
		l.backticks()
	default:
		l.i++
	}
}

// slot accepts or refuses a slot outside quotes.
func (l *shellLexer) slot() {
	switch {
	case l.withinDouble():
		l.refuse(l.i, "this slot is inside \"$(…)\"; set a variable before (value=%s) and use \"$value\" here",
			l.slotAt(l.i))
		return
	case len(l.pending) > 0:
		l.refuse(l.i, "this slot is between << and its here-document; put it into another command")
		return
	case l.i > 0 && l.text[l.i-1] == '$':
		l.refuse(l.i, "this slot comes right after a $, which would change how its quotes are read")
		return
	}
	before := l.i == 0 || l.wordEnds(l.i-1) && (l.i < 2 || l.text[l.i-1] != '\n' || l.text[l.i-2] != '\\')
	after := l.i == len(l.text)-1 || l.wordEnds(l.i+1)
	if n, ok := slices.BinarySearch(l.at, l.i); ok {
		l.slots[n].glued = !before || !after
	}
}

// wordEnds reports whether the byte at i separates words.
func (l *shellLexer) wordEnds(i int) bool {
	return strings.IndexByte(" \t\n;&|()<>", l.text[i]) >= 0
}

func (l *shellLexer) single() {
	if l.i > 0 && l.text[l.i-1] == '$' {
		l.lose("$'…' (bash and sh read it differently)")
		return
	}
	n := bytes.IndexByte(l.text[l.i+1:], '\'')
	if n < 0 {
		l.refuseIn(l.i, len(l.text), "this slot is inside single quotes; write it bare, ramus quotes the value itself")
		l.wrong(l.i, "this single quote is not closed")
		l.i = len(l.text)
		return
	}
	end := l.i + 1 + n
	l.refuseIn(l.i, end, "this slot is inside single quotes; write it bare, ramus quotes the value itself")
	l.i = end + 1
}

func (l *shellLexer) backslash() {
	if l.peek(1) == '\n' && l.i+1 < len(l.text) {
		// The shell removes a backslash with its line break before it reads operators, so an operator may be split
		// across the lines.
		joins := l.i > 0 && strings.IndexByte("$<(", l.text[l.i-1]) >= 0 || strings.IndexByte("#\\", l.peek(2)) >= 0
		if l.withinDouble() || joins {
			l.lose("a line break in the middle of something")
			return
		}
	} else if l.peek(1) == slotMark {
		l.refuse(l.i+1, "this slot follows a backslash")
	}
	if l.i += 2; l.peek(0) == '#' && l.text[l.i-1] != '\n' {
		l.i++ // the word continues, although a blank may precede the #
	}
}

func (l *shellLexer) dollar() {
	switch next := l.peek(1); {
	case next == '\\' && l.peek(2) == '\n':
		l.lose("a line break in the middle of something")
	case next == '(' && l.peek(2) == '(':
		l.arithmetic()
	case next == '(':
		if l.withinDouble() && l.lastEsac > l.i {
			l.lose("a case inside \"$(…)\"")
			return
		}
		l.stack = append(l.stack, shellFrame{start: l.i})
		l.i += 2
	case next == '{':
		l.braces()
	case strings.IndexByte("?#$!@*-0123456789", next) >= 0:
		l.i += 2
	default:
		l.i++
	}
}

// arithmetic skips $((…)) if it contains only numbers, names and operators.
func (l *shellLexer) arithmetic() {
	depth := 0
	for j := l.i + 1; j < len(l.text); j++ {
		switch c := l.text[j]; {
		case c == '(':
			depth++
		case c == ')':
			if depth--; depth == 0 {
				if l.text[j-1] != ')' {
					l.lose("$((…)) that is not arithmetic")
					return
				}
				l.i = j + 1
				return
			}
		case c == slotMark:
			l.refuse(j, "this slot is inside $((…)); set a variable before (value=%s) and use $((value)) here", l.slotAt(j))
		case c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z':
		case strings.IndexByte(" \t+-*/%<>=!&|^~?:,$", c) >= 0:
		default:
			l.lose("$((…)) with more than numbers, names and operators in it")
			return
		}
	}
	l.lose("$(( that is not closed")
}

// braces skips ${…} if it contains no possible quoting.
func (l *shellLexer) braces() {
	for j := l.i + 2; j < len(l.text); j++ {
		switch c := l.text[j]; {
		case c == '}':
			l.i = j + 1
			return
		case c == slotMark:
			l.refuse(j, "this slot is inside ${…}; set a variable before (value=%s)", l.slotAt(j))
			l.i = j + 1
			l.lose("${…} with a slot in it")
			return
		case strings.IndexByte("'\"`\\$(){\n", c) >= 0:
			l.lose("${…} with quotes or substitutions in it")
			return
		}
	}
	l.lose("${ that is not closed")
}

func (l *shellLexer) backticks() {
	for j := l.i + 1; j < len(l.text); j++ {
		switch l.text[j] {
		case '\\':
			j++
			if j < len(l.text) && l.text[j] == slotMark {
				j--
			}
		case slotMark:
			l.refuse(j, "this slot is inside backticks; write $(…) instead, and the slot bare in it")
		case '\'', '"':
			l.refuseIn(l.i, j, "this slot is inside backticks")
			l.lose("quotes inside backticks")
			return
		case '`':
			l.i = j + 1
			return
		}
	}
	l.wrong(l.i, "this backtick is not closed")
	l.i = len(l.text)
}

var hereDocStart = pattern.New(`^<<(-?)[ \t]*(?:'([A-Za-z0-9_]+)'|"([A-Za-z0-9_]+)"|([A-Za-z0-9_]+))(?:[ \t\n;&|)<>]|$)`)

func (l *shellLexer) heredoc() {
	m := hereDocStart.FindSubmatch(l.text[l.i:])
	switch {
	case len(l.stack) > 0:
		l.lose("a here-document inside $(…)")
	case m == nil:
		l.lose("<< with a delimiter that is not one plain word")
	default:
		delimiter := string(m[2]) + string(m[3]) + string(m[4])
		l.pending = append(l.pending, hereDoc{delimiter: delimiter, quoted: m[4] == nil, tabs: len(m[1]) > 0})
		l.i += strings.Index(string(m[0]), delimiter) + len(delimiter)
		if m[4] == nil {
			l.i++ // the closing quote of the delimiter
		}
	}
}

// bodies skips the here-documents that begin at this line.
func (l *shellLexer) bodies() {
	if len(l.stack) > 0 {
		l.lose("a here-document that begins inside something else")
		return
	}
	for _, doc := range l.pending {
		start, closed := l.i, false
		for l.i < len(l.text) && !closed {
			end := len(l.text)
			if n := bytes.IndexByte(l.text[l.i:], '\n'); n >= 0 {
				end = l.i + n
			}
			line := string(l.text[l.i:end])
			if doc.tabs {
				line = strings.TrimLeft(line, "\t")
			}
			closed = line == doc.delimiter
			l.i = min(end+1, len(l.text))
		}
		body := string(l.text[start:l.i])
		l.refuseIn(start, l.i, "this slot is inside a here-document; write the value with printf '%%s\\n' {{…}} instead")
		if !doc.quoted && (strings.Contains(body, "\\\n") || strings.Contains(body, "$(") ||
			strings.Contains(body, "${") || strings.Contains(body, "`")) {
			l.lose("a here-document with substitutions or joined lines in it")
			return
		}
	}
	l.pending = nil
}

// lose gives up, because the rest of the text cannot be understood for sure.
func (l *shellLexer) lose(why string) { l.lost = why }

// refuse reports the slot at a position of the text.
func (l *shellLexer) refuse(at int, format string, args ...any) {
	if n, ok := slices.BinarySearch(l.at, at); ok && !l.refused[n] {
		l.refused[n] = true
		l.mistakes = append(l.mistakes, mistake{l.slots[n].offset, fmt.Sprintf(format, args...)})
	}
}

// refuseIn reports every slot in a range of the text.
func (l *shellLexer) refuseIn(from, to int, format string, args ...any) {
	n, _ := slices.BinarySearch(l.at, from)
	for ; n < len(l.at) && l.at[n] < to; n++ {
		l.refuse(l.at[n], format, args...)
	}
}

// wrong reports a position of the text that is not a slot. Its offset in the source follows from the preceding slot.
func (l *shellLexer) wrong(at int, message string) {
	offset := at
	for n, place := range l.at {
		if place < at {
			offset = l.slots[n].offset + (at - place)
			// the length of the slot's own text is not known, so this is the offset of its first byte at worst
		}
	}
	l.mistakes = append(l.mistakes, mistake{offset, message})
}

func (l *shellLexer) slotAt(at int) string {
	if n, ok := slices.BinarySearch(l.at, at); ok {
		return l.slots[n].String()
	}
	return "{{…}}"
}
