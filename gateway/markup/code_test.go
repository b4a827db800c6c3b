package markup

import (
	"html"
	"regexp"
	"strings"
	"testing"
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
		got := string(Code(source, "", file))
		text := codeSpan.ReplaceAllString(got, "")
		if strings.ContainsAny(text, "<>") ||
			strings.TrimSuffix(html.UnescapeString(text), "\n") != strings.TrimSuffix(Visible(source), "\n") {
			t.Errorf("%s: %q", file, got)
		}
	}
	if got := Code("func f()", "go", ""); !strings.Contains(string(got), `class="kd"`) {
		t.Errorf("%q", got)
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
