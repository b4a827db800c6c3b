package markup

import (
	"html"
	"html/template"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

var codeSpan = regexp.MustCompile(`<span class="[a-z0-9]{1,3}">|</span>`)

// TestCode checks that highlighting changes no text.
func TestCode(t *testing.T) {
	for file, source := range map[string]string{
		"a.go":   "package a\n\n// <x>\nvar b = `\"`\n",
		"a.py":   "def f():\n\treturn '<b>'",
		"a.html": "<script>alert('x')</script>\n",
		"a.none": "<b>&amp;",
		"a.js":   strings.Repeat("x", maxCodeLine+1),
		"a.sh":   "echo \u202e $((",
		"":       "",
	} {
		got := string(new(Colours).Code(source, "", file))
		text := codeSpan.ReplaceAllString(got, "")
		if strings.ContainsAny(text, "<>") ||
			strings.TrimSuffix(html.UnescapeString(text), "\n") != strings.TrimSuffix(Visible(source), "\n") {
			t.Errorf("%s: %q", file, got)
		}
	}
	if got := new(Colours).Code("func f()", "go", ""); !strings.Contains(string(got), `class="kd"`) {
		t.Errorf("%q", got)
	}
}

// TestCodeLines cuts code into lines of pieces with classes.
func TestCodeLines(t *testing.T) {
	const source = "package a\n\n// one\nfunc b() {\n}\n\nvar c = `\nx\n`"
	for _, end := range []string{"", "\n"} {
		var got []string
		classes := map[string]bool{}
		for _, line := range CodeLines(source+end, "a.go") {
			text, before := "", "none"
			for _, p := range line {
				if p.Text == "" || p.Class == before {
					t.Errorf("the piece %+v comes after the class %q", p, before)
				}
				text, before = text+p.Text, p.Class
				classes[p.Class] = true
			}
			got = append(got, text)
		}
		if want := strings.Split(source, "\n"); !slices.Equal(got, want) {
			t.Errorf("lines %q, want %q", got, want)
		}
		if !classes["kd"] || !classes[""] || classes["p"] || classes["nx"] {
			t.Errorf("classes %v", classes)
		}
	}
	if lines := CodeLines("<a href=x>b</a>\n", "a.html"); len(lines) != 1 { // the lexer returns empty tokens
		t.Errorf("HTML: %q", lines)
	}
	if CodeLines("x", "a.none") != nil {
		t.Error("a language that is not known has lines")
	}
}

// TestEndlessTokens highlights code for which lexers return empty tokens without an end.
func TestEndlessTokens(t *testing.T) {
	for file, source := range map[string]string{"a.jsonata": "\\\n", "a.jungle": "!\n"} {
		done := make(chan template.HTML, 1)
		go func() { done <- new(Colours).Code(source, "", file) }()
		select {
		case got := <-done:
			if string(got) != source {
				t.Errorf("%s: %q", file, got)
			}
		case <-time.After(20 * codeWithin):
			t.Fatalf("%s: no end", file)
		}
	}
}

// TestColours checks that the code of a text has no colours after the time for it.
func TestColours(t *testing.T) {
	const text = "```go\nfunc f()\n```\n\n```go\nfunc g()\n```\n"
	spans := func(s *Stream) int {
		blocks := s.Write(text)
		last, _ := s.Close()
		n := 0
		for _, b := range append(blocks, last...) {
			n += strings.Count(string(b), `<span class="kd">func</span>`)
		}
		return n
	}
	colours := &Colours{}
	s := &Stream{Colours: colours}
	if n := spans(s); n != 2 || colours.spent <= 0 || colours.bytes != 18 {
		t.Errorf("%d blocks have colours, %+v", n, colours)
	}
	colours.spent = coloursWithin + time.Second
	if n := spans(s); n != 0 {
		t.Errorf("%d blocks have colours after the time", n)
	}
	if n := spans(&Stream{}); n != 2 {
		t.Errorf("%d blocks of another text have colours", n)
	}
	if colours.bytes += int(time.Second / coloursPerByte); colours.exhausted() {
		t.Error("much code has no more time than little")
	}
}

func TestVisible(t *testing.T) {
	for s, want := range map[string]string{"a\tb\n": "a\tb\n", "a\u200bb\u202e\u2066": "a\uFFFDb\uFFFD\uFFFD",
		"\xff": "\uFFFD", "\u0085": "\uFFFD", "👩\u200d💻": "👩\u200d💻"} {
		if got := Visible(s); got != want {
			t.Errorf("%q is %q", s, got)
		}
	}
}
