package terminal

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// TestMarks reads marks and titles, cut at every byte.
func TestMarks(t *testing.T) {
	text := "$ \x1b]133;A\x07\x1b]633;B\x1b\\ls\r\n\x1b]633;E;echo a\\x3bb\\\\c\\x0ad;nonce\x07\x1b]633;C\x07é\u009b1m\u009d2;a\x07b" +
		"\x1b]2;Ti\u202etle\x07\x1b]633;D;3;7\x07\x1bP\x1b]633;D;1\x07\x1b]633;X\x07\x1b]1337;x\x07\x1b]633;D\x18"
	want := []string{"A 2 10", "B 10 18", "E echo a;b\\c\nd", "C", "D 3 7", "D 1 0", "D -1 0"}
	for cut := range len(text) + 1 {
		var s Scanner
		var got []string
		see := func(m Mark) {
			switch m.Kind {
			case MarkCommand:
				got = append(got, "E "+m.Command)
			case MarkEnd:
				got = append(got, fmt.Sprintf("D %d %d", m.Exit, m.Number))
			case MarkOutput:
				got = append(got, "C")
			default:
				got = append(got, fmt.Sprintf("%c %d %d", m.Kind, m.Start, m.Offset))
			}
		}
		s.Scan([]byte(text[:cut]), see)
		s.Scan([]byte(text[cut:]), see)
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("cut at %d: %q, want %q", cut, got, want)
		}
		if s.Title() != "Title" || s.Offset() != int64(len(text)) || !s.Safe() {
			t.Fatalf("cut at %d: title %q, offset %d, safe %t", cut, s.Title(), s.Offset(), s.Safe())
		}
	}
}

// TestSafe checks that no prefix that ends in the middle of something is safe.
func TestSafe(t *testing.T) {
	for _, part := range []string{"\x1b[1;31m", "\x1b]0;title\x07", "\x1b]8;;x\x1b\\", "\x1bPq\x1b\\", "\x1b(0", "é", "字", "🙂", "\x1b7"} {
		for i := 1; i < len(part); i++ {
			if part == "\x1b]8;;x\x1b\\" && i == len(part)-1 || strings.HasPrefix(part, "\x1bPq") && i == len(part)-1 {
				continue // only ESC is open there, which is not safe either
			}
			var s Scanner
			s.Scan([]byte(part[:i]), nil)
			if s.Safe() {
				t.Errorf("%q is safe", part[:i])
			}
		}
		var s Scanner
		s.Scan([]byte(part), nil)
		if !s.Safe() {
			t.Errorf("%q is not safe", part)
		}
	}
}

// TestRestore checks that the restored modes are those of the screen.
func TestRestore(t *testing.T) {
	var s Scanner
	s.Scan([]byte("\x1b[?1049h\x1b[?2004;1002h\x1b[?25l\x1b[31m\x1b[1m\x1b(0\x1b[2;5r\x1b[4 q\x1b]0;vim\x07\x1b="), nil)
	var again Scanner
	again.Scan([]byte(s.Restore()), nil)
	if !reflect.DeepEqual(s.modes, again.modes) || again.Title() != "vim" || !again.FullScreen() {
		t.Errorf("restored %+v, want %+v", again.modes, s.modes)
	}
	s.Scan([]byte("\x1b[?1049l\x1b[?1002l\x1b[?25h\x1b[0m"), nil)
	if r := s.Restore(); strings.Contains(r, "1049") || strings.Contains(r, "1002") || strings.Contains(r, "?25") ||
		strings.Contains(r, "31m") {
		t.Errorf("restored %q", r)
	}
	s.Scan([]byte("\x1bc"), nil)
	if r := s.Restore(); r != "" {
		t.Errorf("a new screen restored %q", r)
	}
}

// TestTyped reads lines from their echo.
func TestTyped(t *testing.T) {
	for echo, want := range map[string]string{
		"ls -l\r\nfile":        "ls -l",
		"ecxh\b \b\b \bho\r\n": "echo",
		"a\x1b[Kb\x1b[1;2Hc\n": "abc",
		"\r\n":                 "",
		"no end":               "no end",
		"\b\b \bé字\r\n":        "é字",
	} {
		if got := Typed([]byte(echo)); got != want {
			t.Errorf("%q: %q, want %q", echo, got, want)
		}
	}
}

// FuzzScanner feeds any output, in two pieces. The pieces must not matter, and the restored modes must be stable.
func FuzzScanner(f *testing.F) {
	for _, seed := range []string{"\x1b]633;E;a;b\x07\x1b]633;C\x07x\x1b]633;D;0;1\x07", "\x1b[?1049h\x1b[31;1m",
		"é\u009d633;D\u009c", "\x1b]0;t\x1b\\", "\x1bP\x18\xff\xc2", "\x1b[!p\x1bc\x0e"} {
		f.Add([]byte(seed), 3)
	}
	f.Fuzz(func(t *testing.T, p []byte, cut int) {
		cut = max(0, min(cut, len(p)))
		var one, two Scanner
		var a, b []Mark
		one.Scan(p, func(m Mark) { a = append(a, m) })
		two.Scan(p[:cut], func(m Mark) { b = append(b, m) })
		two.Scan(p[cut:], func(m Mark) { b = append(b, m) })
		if !reflect.DeepEqual(a, b) || one.Safe() != two.Safe() || one.Restore() != two.Restore() || one.Title() != two.Title() {
			t.Fatalf("pieces matter: %v, %v", a, b)
		}
		last := int64(0)
		for _, m := range a {
			if m.Start < last || m.Offset <= m.Start || m.Offset > int64(len(p)) || len(m.Command) > maxCommand*4 ||
				m.Exit < -1 || m.Exit > 255 {
				t.Fatalf("mark %+v", m)
			}
			last = m.Offset
		}
		var again Scanner
		again.Scan([]byte(one.Restore()), nil)
		if !again.Safe() || again.Restore() != one.Restore() {
			t.Fatalf("restored %q, then %q", one.Restore(), again.Restore())
		}
		Typed(p)
	})
}
