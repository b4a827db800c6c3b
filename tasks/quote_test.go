package tasks

import (
	"errors"
	"os/exec"
	"strings"
	"testing"
)

// hostile are values that do harm wherever they are taken for shell text or for an option.
var hostile = []string{
	"", " ", "plain", "two words", "'", "''", `'\''`, `"`, `\`, `\\'`, "a\nb", "\n", "\r\n", "\t",
	"'; rm -rf /; '", "$(id)", "`id`", "${HOME}", "$HOME", "~", "~root", "*", "?", "[a]", "{a,b}",
	"-", "--", "-rf", "--help", "-run=x", "#c", "!x", "a;b", "a&b", "a|b", "a>b", "<x", "(x)", "if", "A=1",
	"\xff\xfe", "é", "\x01\x1b[31m", "%s%n", strings.Repeat("'", 300),
}

// shellWord asks the real shell what a word means.
func shellWord(t testing.TB, word string) string {
	t.Helper()
	out, err := exec.Command("sh", "-c", "printf '%s' "+word).Output()
	if err != nil {
		t.Fatalf("sh refuses %q: %v", word, err)
	}
	return string(out)
}

func TestQuoteIsOneWordForTheShell(t *testing.T) {
	var line strings.Builder
	line.WriteString("printf '%s\\0'")
	for _, s := range hostile {
		if got := shellWord(t, Quote(s)); got != s {
			t.Errorf("Quote(%q) means %q", s, got)
		}
		line.WriteString(" " + Quote(s))
	}
	out, err := exec.Command("sh", "-c", line.String()).Output()
	if err != nil {
		t.Fatal(err)
	}
	if want := strings.Join(hostile, "\x00") + "\x00"; string(out) != want {
		t.Errorf("all in one line: got %q, want %q", out, want)
	}
}

func TestQuotable(t *testing.T) {
	if err := Quotable("a\x00b"); !errors.Is(err, ErrNUL) {
		t.Errorf("got %v, want ErrNUL", err)
	}
	if err := exec.Command("sh", "-c", "printf %s "+Quote("a\x00b")).Run(); err == nil {
		t.Error("a command line with NUL ran")
	}
	for _, s := range hostile {
		if err := Quotable(s); err != nil {
			t.Errorf("%q: %v", s, err)
		}
	}
}

func FuzzQuote(f *testing.F) {
	for _, s := range hostile {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if Quotable(s) != nil {
			return
		}
		if len(s) > 10_000 {
			return // beyond what the kernel takes as one argument when quoted
		}
		if got := shellWord(t, Quote(s)); got != s {
			t.Errorf("Quote(%q) means %q", s, got)
		}
	})
}
