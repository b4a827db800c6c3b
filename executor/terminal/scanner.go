package terminal

import (
	"bytes"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds of the parts of a sequence that are looked at, in bytes. Longer ones are passed over.
const (
	maxParams  = 256
	maxString  = 64 << 10
	maxTitle   = 256
	maxStyling = 256
)

// A Scanner follows the output of a terminal. It finds marks and the title, knows the modes of the screen, and reports
// whether the output may be cut at the present offset. Its zero value is at offset 0 of a new screen. It agrees with
// xterm.js on where sequences end.
type Scanner struct {
	at    int64
	state scanState
	start int64 // the offset of the sequence that is being read
	buf   []byte
	long  bool // buf does not have all of the sequence

	need int  // bytes that the character still lacks
	char rune // the part of the character so far

	modes modes
	title string
}

type scanState byte

const (
	stateGround scanState = iota
	stateEscape
	stateEscapeMore // ESC with an intermediate byte
	stateControl    // CSI
	stateCommand    // OSC
	stateString     // DCS, SOS, PM and APC
)

// Offset returns the offset of the next byte.
func (s *Scanner) Offset() int64 { return s.at }

// Safe reports whether the output may be cut here. No escape sequence and no character is cut then.
func (s *Scanner) Safe() bool { return s.state == stateGround && s.need == 0 }

// Title returns the title that the program has set, without control characters.
func (s *Scanner) Title() string { return s.title }

// FullScreen reports whether a program uses the alternate screen.
func (s *Scanner) FullScreen() bool { return s.modes.alternate() }

// Restore returns sequences that give a new screen the modes of this one.
func (s *Scanner) Restore() string { return s.modes.restore(s.title) }

// Skip moves to an offset after bytes that are lost.
func (s *Scanner) Skip(to int64) {
	s.at, s.state, s.need = to, stateGround, 0
}

// Scan reads the next bytes, and calls seen with each mark.
func (s *Scanner) Scan(p []byte, seen func(Mark)) {
	for i := 0; i < len(p); i++ {
		c := p[i]
		if s.state == stateGround && s.need == 0 && c >= 0x20 && c < 0x80 {
			s.at++
			continue // by far the most bytes
		}
		s.at++
		if s.need > 0 {
			if c&0xc0 == 0x80 {
				s.char = s.char<<6 | rune(c&0x3f)
				if s.need--; s.need == 0 {
					s.wide(s.char, seen)
				}
				continue
			}
			s.need = 0 // the character is broken off
		}
		if c >= 0x80 {
			s.lead(c)
			continue
		}
		s.narrow(c, seen)
	}
}

// lead begins a character of several bytes.
func (s *Scanner) lead(c byte) {
	switch {
	case c >= 0xc2 && c < 0xe0:
		s.need, s.char = 1, rune(c&0x1f)
	case c >= 0xe0 && c < 0xf0:
		s.need, s.char = 2, rune(c&0x0f)
	case c >= 0xf0 && c < 0xf5:
		s.need, s.char = 3, rune(c&0x07)
	}
}

// wide takes a character of several bytes. The controls among them begin and end sequences.
func (s *Scanner) wide(c rune, seen func(Mark)) {
	switch {
	case c == 0x9c:
		s.finish(seen)
	case c == 0x9b:
		s.beginState(stateControl, s.at-2)
	case c == 0x9d:
		s.beginState(stateCommand, s.at-2)
	case c == 0x90 || c == 0x98 || c == 0x9e || c == 0x9f:
		s.beginState(stateString, s.at-2)
	case c < 0xa0, s.state == stateEscape, s.state == stateEscapeMore, s.state == stateControl:
		s.state = stateGround
	case s.state == stateCommand:
		for _, b := range utf8.AppendRune(nil, c) {
			s.put(b, maxString)
		}
	}
}

func (s *Scanner) put(c byte, most int) {
	if len(s.buf) >= most {
		s.long = true
		return
	}
	s.buf = append(s.buf, c)
}

func (s *Scanner) beginState(state scanState, start int64) {
	s.state, s.start, s.buf, s.long = state, start, s.buf[:0], false
}

// finish ends a string.
func (s *Scanner) finish(seen func(Mark)) {
	if s.state == stateCommand && !s.long {
		s.command(seen)
	}
	s.state = stateGround
}

// narrow takes an ASCII byte.
func (s *Scanner) narrow(c byte, seen func(Mark)) {
	switch c {
	case 0x1b:
		start := s.at - 1
		s.finish(seen)
		s.beginState(stateEscape, start)
		return
	case 0x18, 0x1a:
		s.finish(seen)
		return
	}
	switch s.state {
	case stateGround:
		switch c {
		case 0x0e, 0x0f:
			s.modes.shifted = c == 0x0e
		}
	case stateEscape:
		s.escape(c)
	case stateEscapeMore:
		switch {
		case c >= 0x30 && c < 0x7f:
			if len(s.buf) == 1 {
				s.modes.charset(s.buf[0], c)
			}
			s.state = stateGround
		case c >= 0x20:
			s.put(c, maxParams)
		}
	case stateControl:
		switch {
		case c >= 0x40 && c < 0x7f:
			if !s.long {
				s.modes.control(s.buf, c)
			}
			s.state = stateGround
		case c >= 0x20 && c < 0x40:
			s.put(c, maxParams)
		}
	case stateCommand:
		switch {
		case c == 0x07:
			s.finish(seen)
		case c >= 0x20:
			s.put(c, maxString)
		}
	}
}

// escape takes the byte after ESC.
func (s *Scanner) escape(c byte) {
	switch {
	case c == '[':
		s.beginState(stateControl, s.start)
	case c == ']':
		s.beginState(stateCommand, s.start)
	case c == 'P' || c == 'X' || c == '^' || c == '_':
		s.beginState(stateString, s.start)
	case c >= 0x20 && c < 0x30:
		s.put(c, maxParams)
		s.state = stateEscapeMore
	case c >= 0x30 && c < 0x7f:
		switch c {
		case 'c':
			s.modes, s.title = modes{}, ""
		case '=':
			s.modes.keypad = true
		case '>':
			s.modes.keypad = false
		}
		s.state = stateGround
	}
}

// command takes a whole OSC.
func (s *Scanner) command(seen func(Mark)) {
	name, rest, _ := bytes.Cut(s.buf, []byte(";"))
	switch string(name) {
	case "0", "2":
		s.title = cleanLine(string(rest), maxTitle)
	case "133", "633":
		if m, ok := parseMark(string(rest)); ok && seen != nil {
			m.Start, m.Offset = s.start, s.at
			seen(m)
		}
	}
}

// cleanLine returns text as one line without control characters and invisible ones, of at most a number of runes.
func cleanLine(text string, most int) string {
	var b strings.Builder
	n := 0
	for _, r := range text {
		switch {
		case r == utf8.RuneError, unicode.Is(unicode.Bidi_Control, r), !unicode.IsPrint(r) && r != ' ':
			continue
		}
		if n++; n > most {
			break
		}
		b.WriteRune(r)
	}
	return strings.TrimSpace(b.String())
}

// modes are the modes of a screen that a program has set.
type modes struct {
	on      map[int]bool // private modes that differ from those of a new screen
	keypad  bool
	shifted bool
	g0, g1  byte   // character sets; 0 for ASCII
	region  string // parameters of DECSTBM
	cursor  string // parameters of DECSCUSR
	styling string // sequences of SGR since the last reset
}

// remembered are the private modes that are restored, with their values on a new screen.
var remembered = map[int]bool{
	1: false, 6: false, 7: true, 25: true, 45: false, 47: false, 1047: false, 1049: false, 9: false, 1000: false,
	1002: false, 1003: false,
	1004: false, 1005: false, 1006: false, 1015: false, 1016: false, 2004: false,
}

func (m *modes) alternate() bool { return m.on[47] || m.on[1047] || m.on[1049] }

// set sets a private mode. The map is never changed, because copies of m share it.
func (m *modes) set(mode int, value bool) {
	usual, known := remembered[mode]
	if !known || (value != usual) == m.on[mode] {
		return
	}
	on := make(map[int]bool, len(m.on)+1)
	for k, v := range m.on {
		on[k] = v
	}
	delete(on, mode)
	if value != usual {
		on[mode] = true
	}
	m.on = on
}

func (m *modes) charset(which, set byte) {
	if set == 'B' {
		set = 0
	}
	switch which {
	case '(':
		m.g0 = set
	case ')':
		m.g1 = set
	}
}

// control takes a whole control sequence.
func (m *modes) control(params []byte, final byte) {
	text := string(params)
	switch {
	case (final == 'h' || final == 'l') && strings.HasPrefix(text, "?"):
		for part := range strings.SplitSeq(text[1:], ";") {
			if n, err := strconv.Atoi(part); err == nil {
				m.set(n, final == 'h')
			}
		}
	case final == 'p' && text == "!":
		on := m.on
		*m = modes{}
		for _, mode := range []int{47, 1047, 1049} {
			m.set(mode, on[mode])
		}
	case final == 'r' && !strings.ContainsAny(text, "?$"):
		m.region = text
	case final == 'q' && strings.HasSuffix(text, " "):
		m.cursor = text
	case final == 'm' && !strings.ContainsAny(text, "?<=> "):
		if text == "" || text == "0" || strings.HasPrefix(text, "0;") {
			m.styling = ""
		}
		if text != "" && text != "0" && len(m.styling)+len(text)+3 <= maxStyling {
			m.styling += "\x1b[" + text + "m"
		}
	}
}

func (m *modes) restore(title string) string {
	var b strings.Builder
	for _, mode := range []int{47, 1047, 1049, 1, 6, 7, 25, 45, 9, 1000, 1002, 1003, 1004, 1005, 1006, 1015, 1016, 2004} {
		if !m.on[mode] {
			continue
		}
		final := "h"
		if remembered[mode] {
			final = "l"
		}
		b.WriteString("\x1b[?" + strconv.Itoa(mode) + final)
	}
	if m.keypad {
		b.WriteString("\x1b=")
	}
	if m.g0 != 0 {
		b.WriteString("\x1b(" + string(rune(m.g0)))
	}
	if m.g1 != 0 {
		b.WriteString("\x1b)" + string(rune(m.g1)))
	}
	if m.shifted {
		b.WriteByte(0x0e)
	}
	if m.region != "" {
		b.WriteString("\x1b[" + m.region + "r")
	}
	if m.cursor != "" {
		b.WriteString("\x1b[" + m.cursor + "q")
	}
	b.WriteString(m.styling)
	if title != "" {
		b.WriteString("\x1b]2;" + title + "\x07")
	}
	return b.String()
}
