package terminal

import (
	"fmt"
	"strings"
	"testing"
)

// TestControls follows sequences that begin with a character of two bytes in place of ESC and a letter.
func TestControls(t *testing.T) {
	for _, c := range []struct {
		text, title, restore string
		safe                 bool
	}{
		{"\u009d2;a\x07", "a", "\x1b]2;a\x07", true},
		{"\u009d0;é字🙂ß\u009c", "é字🙂ß", "\x1b]2;é字🙂ß\x07", true},
		{"\x1b]2;a\x1b\\\x1b]1;b\x07", "a", "\x1b]2;a\x07", true},
		{"\u009b?1049h", "", "\x1b[?1049h", true},
		{"\u00901\x1b]2;a\x07", "a", "\x1b]2;a\x07", true}, // ESC ends the string
		{"\u0090q2;a", "", "", false},
		{"\u0098x", "", "", false},
		{"\u009ex", "", "", false},
		{"\u009fx\u009b1m", "", "\x1b[1m", true},
		{"\u0090q\u009c", "", "", true},
		{"\u0091", "", "", true},
		{"\x1bPx", "", "", false},
		{"\x1bXx", "", "", false},
		{"\x1b^x", "", "", false},
		{"\x1b_x", "", "", false},
		{"\x1b_x\x18", "", "", true},
		{"\x1b[31", "", "", false},
		{"\x1b[31é", "", "", true},
		{"\x1b(", "", "", false},
		{"\xc2", "", "", false},
		{"\xc1", "", "", true},
		{"\xdf", "", "", false},
		{"\xe0\x80", "", "", false},
		{"\xf4\x80\x80", "", "", false},
		{"\xf5", "", "", true},
		{"\xe5x", "", "", true},
	} {
		var s Scanner
		s.Scan([]byte(c.text), nil)
		if s.Title() != c.title || s.Restore() != c.restore || s.Safe() != c.safe || s.Offset() != int64(len(c.text)) {
			t.Errorf("%q: title %q, restored %q, safe %t; want %q, %q, %t", c.text, s.Title(), s.Restore(), s.Safe(), c.title, c.restore, c.safe)
		}
	}
}

// TestModes restores each mode that a program has set, and nothing of the others.
func TestModes(t *testing.T) {
	both := func(mode int) (on, off string) { return fmt.Sprintf("\x1b[?%dh", mode), fmt.Sprintf("\x1b[?%dl", mode) }
	for mode := range remembered {
		change, back := both(mode)
		if mode == 7 || mode == 25 { // lines wrap and the cursor is visible on a new screen
			change, back = back, change
		}
		var s Scanner
		s.Scan([]byte(back), nil)
		if got := s.Restore(); got != "" {
			t.Errorf("mode %d as on a new screen: %q", mode, got)
		}
		s.Scan([]byte(change+change), nil)
		if got := s.Restore(); got != change {
			t.Errorf("mode %d: %q, want %q", mode, got, change)
		}
		if want := mode == 47 || mode == 1047 || mode == 1049; s.FullScreen() != want {
			t.Errorf("mode %d is a full screen: %t", mode, s.FullScreen())
		}
		s.Scan([]byte(back), nil)
		if got := s.Restore(); got != "" || s.FullScreen() {
			t.Errorf("mode %d is reset: %q", mode, got)
		}
	}
	long := "\x1b[" + strings.Repeat("1", 125) + "m"
	for text, want := range map[string]string{
		"\x1b[?12h\x1b[?;1h": "\x1b[?1h", "\x1b[4h": "",
		"\x1b(0": "\x1b(0", "\x1b)0": "\x1b)0", "\x1b(0\x1b(B": "", "\x1b*0": "", "\x1b(%0": "",
		"\x0e": "\x0e", "\x0e\x0f": "", "\x1b=": "\x1b=", "\x1b=\x1b>": "",
		"\x1b[2;5r": "\x1b[2;5r", "\x1b[2;5r\x1b[r": "", "\x1b[?1r": "", "\x1b[1;2$r": "",
		"\x1b[4 q": "\x1b[4 q", "\x1b[4q": "",
		"\x1b[31m\x1b[1m": "\x1b[31m\x1b[1m", "\x1b[31m\x1b[m": "", "\x1b[31m\x1b[0m": "", "\x1b[31m\x1b[0;1m": "\x1b[0;1m",
		"\x1b[>4;1m": "", "\x1b[?4m": "", long + long: long + long, long + long + "\x1b[1m": long + long,
		"\x1b[?1049h\x1b[31m\x1b[?25l\x1b[!p":            "\x1b[?1049h",
		"\x1b[?1h\x1b[31m\x1b=\x1b]2;a\x07\x1bc":         "",
		"\x1b[" + strings.Repeat("1", maxParams+1) + "m": "",
	} {
		var s Scanner
		s.Scan([]byte(text), nil)
		if got := s.Restore(); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// TestMarkBounds checks the numbers and the texts of marks.
func TestMarkBounds(t *testing.T) {
	for text, want := range map[string]Mark{
		"D": {Kind: MarkEnd, Exit: -1}, "D;0": {Kind: MarkEnd}, "D;255;1": {Kind: MarkEnd, Exit: 255, Number: 1},
		"D;256;0": {Kind: MarkEnd, Exit: -1}, "D;-1;-1": {Kind: MarkEnd, Exit: -1}, "D;x;x": {Kind: MarkEnd, Exit: -1},
		"A": {Kind: MarkPrompt, Exit: -1}, "B;x": {Kind: MarkInput, Exit: -1}, "C": {Kind: MarkOutput, Exit: -1},
		"E;a;nonce": {Kind: MarkCommand, Exit: -1, Command: "a"}, "E;": {Kind: MarkCommand, Exit: -1},
		`E;a\x20b\\c\x3b`: {Kind: MarkCommand, Exit: -1, Command: `a b\c;`}, `E;\xzz\x4`: {Kind: MarkCommand, Exit: -1, Command: `\xzz\x4`},
		`E;\x07a\x7f\x09b\xff`: {Kind: MarkCommand, Exit: -1, Command: "a\tb\ufffd"},
		"E":                    {}, "": {}, "AA": {}, "X": {}, "P;Cwd=/": {},
	} {
		m, ok := parseMark(text)
		if !ok {
			m = Mark{}
		}
		if ok != (want.Kind != 0) || m != want {
			t.Errorf("%q: %+v, %t; want %+v", text, m, ok, want)
		}
	}
	for echo, want := range map[string]string{"a\x1b[12": "a", "a\x1b": "a", "a\x1b[": "a", "a\x1b[Kb": "ab", "a\x1b[1;31mb": "ab",
		"a\x1b7b": "ab", "a\rb": "ab", "a\r": "a", "\b\ba": "a", "ab\b": "a", "a\xffb": "ab", "a\x7fb": "ab",
		strings.Repeat("x", maxCommand+1): strings.Repeat("x", maxCommand)} {
		if got := Typed([]byte(echo)); got != want {
			t.Errorf("%.40q: %.40q, want %.40q", echo, got, want)
		}
	}
}

// TestSizes clips sizes to those that a terminal can have.
func TestSizes(t *testing.T) {
	for s, want := range map[Size]Size{{}: {}, {0, 5}: {}, {5, 0}: {}, {-1, 5}: {}, {5, -1}: {}, {1, 1}: {1, 2}, {1, 2}: {1, 2},
		{24, 80}: {24, 80}, {maxSide, maxSide}: {maxSide, maxSide}, {maxSide + 1, maxSide + 1}: {maxSide, maxSide}} {
		if got := s.Clip(); got != want {
			t.Errorf("%v became %v, want %v", s, got, want)
		}
	}
}

// TestAttachAgain keeps the output across connections, unless some of it was lost.
func TestAttachAgain(t *testing.T) {
	term := New("1", Size{24, 80})
	read := func(want string, at int64) {
		t.Helper()
		if got, from := term.Read(0, 100); string(got) != want || from != at {
			t.Errorf("%q at %d, want %q at %d", got, from, want, at)
		}
	}
	term.Attach(newProgram(), 0, 0)
	_, _ = term.Write([]byte("\x1b[1mabc"))
	term.Detach(func() {})
	term.Attach(newProgram(), 7, 7)
	_, _ = term.Write([]byte("def"))
	read("\x1b[1mabcdef", 0)
	v := view(t, term, ViewOptions{Have: 4})
	if out := next(t, v, ItemOutput); out.Offset != 4 || string(out.Data) != "abcdef" {
		t.Errorf("%+v", out)
	}
	term.Detach(func() {})
	term.Attach(newProgram(), 20, 20)
	defer term.Detach(func() {})
	_, _ = term.Write([]byte("end"))
	read("end", 20)
	if reset := next(t, v, ItemReset); reset.Offset != 20 || reset.Reason != "skipped" || string(reset.Data) != "\x1b[1m" {
		t.Errorf("%+v", reset)
	}
	if out := next(t, v, ItemOutput); out.Offset != 20 || string(out.Data) != "end" {
		t.Errorf("%+v", out)
	}
}

// TestEnded checks when a viewer has everything.
func TestEnded(t *testing.T) {
	term := New("1", Size{24, 80})
	term.Attach(newProgram(), 0, 0)
	defer term.Detach(func() {})
	v := view(t, term, ViewOptions{Have: -1})
	check := func(when string, want bool) {
		t.Helper()
		if v.Ended() != want {
			t.Errorf("%s: ended %t", when, !want)
		}
	}
	check("at the beginning", false)
	_, _ = term.Write([]byte("a"))
	term.Announce(Done{Command: "a"})
	check("with output", false)
	next(t, v, ItemOutput)
	next(t, v, ItemDone)
	check("with everything so far", false)
	_, _ = term.Write([]byte("b"))
	term.Announce(Done{Command: "b"})
	term.End(nil, "gone", true)
	check("after the end, with output", false)
	next(t, v, ItemOutput)
	check("after the end, with a command", false)
	next(t, v, ItemDone)
	check("after everything", true)
}
