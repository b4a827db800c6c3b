package terminal

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// MarkKind is the kind of a [Mark], the letter of its escape sequence.
type MarkKind byte

// The kinds of marks.
const (
	MarkPrompt  MarkKind = 'A' // a prompt begins
	MarkInput   MarkKind = 'B' // the prompt has ended; a person types
	MarkOutput  MarkKind = 'C' // a command begins
	MarkEnd     MarkKind = 'D' // a command has ended
	MarkCommand MarkKind = 'E' // the text of the command that begins next
)

// maxCommand bounds the text of a command in a mark, in bytes.
const maxCommand = 16 << 10

// A Mark is a statement of a shell about its commands.
type Mark struct {
	Kind    MarkKind
	Start   int64  // the offset of its escape sequence
	Offset  int64  // the offset after it
	Exit    int    // of MarkEnd; -1 if it is unknown
	Number  int64  // of MarkEnd, which the shells of [Launch] count from 1; 0 if it has none
	Command string // of MarkCommand
}

// parseMark parses the text after "133;" or "633;".
func parseMark(text string) (Mark, bool) {
	kind, rest, more := strings.Cut(text, ";")
	if len(kind) != 1 {
		return Mark{}, false
	}
	m := Mark{Kind: MarkKind(kind[0]), Exit: -1}
	switch m.Kind {
	case MarkPrompt, MarkInput, MarkOutput:
		return m, true
	case MarkEnd:
		exit, number, _ := strings.Cut(rest, ";")
		if n, err := strconv.Atoi(exit); err == nil && n >= 0 && n <= 255 {
			m.Exit = n
		}
		if n, err := strconv.ParseInt(number, 10, 64); err == nil && n > 0 {
			m.Number = n
		}
		return m, true
	case MarkCommand:
		command, _, _ := strings.Cut(rest, ";")
		m.Command = unescape(command)
		return m, more
	}
	return Mark{}, false
}

// unescape reads \\ and \xHH, by which a command can hold any byte.
func unescape(text string) string {
	var b strings.Builder
	for i := 0; i < len(text) && b.Len() < maxCommand; i++ {
		switch {
		case strings.HasPrefix(text[i:], `\\`):
			i++
			b.WriteByte('\\')
		case strings.HasPrefix(text[i:], `\x`) && len(text) >= i+4:
			n, err := strconv.ParseUint(text[i+2:i+4], 16, 8)
			if err != nil {
				b.WriteByte(text[i])
				continue
			}
			b.WriteByte(byte(n))
			i += 3
		default:
			b.WriteByte(text[i])
		}
	}
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if r < 0x20 && r != '\n' && r != '\t' || r == 0x7f {
			return -1
		}
		return r
	}, strings.ToValidUTF8(b.String(), string(utf8.RuneError))))
}

// Typed returns the line that a person typed, of its echo by a terminal without an editor of its own. It is for shells
// that do not say it.
func Typed(echo []byte) string {
	var line []rune
	text := string(echo)
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRuneInString(text[i:])
		i += n
		switch {
		case r == '\n' || r == '\r' && i < len(text) && text[i] == '\n':
			return strings.TrimSpace(string(line))
		case r == '\b':
			line = line[:max(0, len(line)-1)]
			if strings.HasPrefix(text[i:], " \b") {
				i += 2 // it was overwritten
			}
		case r == 0x1b:
			i += sequence(text[i:])
		case r < 0x20 || r == 0x7f || r == utf8.RuneError:
		case len(line) < maxCommand:
			line = append(line, r)
		}
	}
	return strings.TrimSpace(string(line))
}

// sequence returns the length of an escape sequence without its ESC.
func sequence(text string) int {
	if !strings.HasPrefix(text, "[") {
		return min(1, len(text))
	}
	for i := 1; i < len(text); i++ {
		if text[i] >= 0x40 && text[i] < 0x7f {
			return i + 1
		}
	}
	return len(text)
}
