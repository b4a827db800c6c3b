package markup

import (
	"html"
	"html/template"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestTerminal(t *testing.T) {
	for output, want := range map[string]string{
		"plain <b>":                                "plain &lt;b&gt;",
		"\x1b[31mred\x1b[0m not":                   `<span class="f1">red</span> not`,
		"\x1b[1;4;92mx\x1b[22;39my\x1b[mz":         `<span class="bo un f10">x</span><span class="un">y</span>z`,
		"\x1b[38;5;196mx\x1b[48;2;0;0;0my":         `<span class="f9">x</span><span class="f9 b0">y</span>`,
		"\x1b[38:2:255:255:255mx":                  `<span class="f15">x</span>`,
		"\x1b[;1mx":                                `<span class="bo">x</span>`,
		"\x1b[?25l\x1b[2J\x1b[1;1Hx":               "x",
		"\x1b]0;title\x07x\x1b]8;;http://e\x1b\\y": "xy",
		"\x1b]never ends\nx":                       "\nx",
		"10%\r20%\r100%\nok\r\n":                   "100%\nok\n",
		"\x1b(Bx\x1b=y\x1b7z":                      "xyz",
		"a\x1b":                                    "a",
		"\x1b[":                                    "",
		"\x1b]x\x1b":                               "",
		"\x1b[2 qx":                                "x",
		"\x1b[99999999999999999999;1mx":            `<span class="bo">x</span>`,
		"\x1b[5mx\x1b[104my":                       `x<span class="b12">y</span>`,
		"\x1b[3":                                   "",
		"\x1b[3\x1b[1mx":                           `<span class="bo">x</span>`,
		"\u009b31mx":                               `<span class="f1">x</span>`,
		"a\x00\u202eb\u200b":                       "a\uFFFD\uFFFDb\uFFFD",
		"\x1b[999999999999999999999mx":             "x",
		"\x1b[38mx\x1b[38;5mx\x1b[38;2;1mx":        "x" + `<span class="f0">xx</span>`,
	} {
		if got := string(Terminal(output)); got != want {
			t.Errorf("%q\n got %q\nwant %q", output, got, want)
		}
	}
	if got := Terminal(strings.Repeat("é", maxTerminal)); len(got) != maxTerminal {
		t.Errorf("%d bytes", len(got))
	}
}

// TestSequence reads the lengths of escape sequences.
func TestSequence(t *testing.T) {
	for s, want := range map[string]int{"\x1b": 1, "\x1b\n": 1, "\x1b/x": 1, "\x1b0x": 2, "\x1b~x": 2, "\x1b\x7fx": 1,
		"\x1bcx": 2, "\x1b(Bx": 3, "\x1b(": 2, "\x1b]0;t\ax": 6, "\x1b]0;t\x1b\\x": 7, "\x1b[1mx": 4} {
		if _, _, n := sequence(s); n != want {
			t.Errorf("%q has a sequence of %d bytes, want %d", s, n, want)
		}
	}
}

// TestLines has looks go on in later lines, and bounds the elements.
func TestLines(t *testing.T) {
	got := Lines([]string{"a\x1b[31mb", "10%\rc\r", "", "\x1b[0md", "\x1b[1me", "\x1b[1mf"}, 3)
	want := []template.HTML{`a<span class="f1">b</span>`, `<span class="f1">c</span>`, "", "d", `<span class="bo">e</span>`, "f"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
}

var span = regexp.MustCompile(`<span class="(?:bo|di|it|un|st|in|[fb](?:1[0-5]|[0-9]))(?: (?:bo|di|it|un|st|in|[fb](?:1[0-5]|[0-9])))*">|</span>`)

func FuzzTerminal(f *testing.F) {
	for _, s := range []string{"", "a\x1b[31mb\x1b[0m", "\x1b]0;x\x07", "\x1b[38;5;1m<", "\r\n\r", "\u009b1m",
		"\x1bP1\x1b\\", "\x9b1m", "&amp;\b", "\x1b[1;;m"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, output string) {
		shown := string(Terminal(output))
		rest := span.ReplaceAllString(shown, "")
		if strings.ContainsAny(rest, "<>\"'\x1b\r\b") || Visible(html.UnescapeString(rest)) != html.UnescapeString(rest) {
			t.Fatalf("%q: %q", output, shown)
		}
		if n := strings.Count(shown, "<span"); n != strings.Count(shown, "</span>") {
			t.Fatalf("%q: %q", output, shown)
		}
		if !strings.ContainsAny(output, "\x1b\u009b\r\b") && rest != template.HTMLEscapeString(Visible(output)) &&
			len(output) <= maxTerminal {
			t.Fatalf("%q: %q", output, shown)
		}
	})
}
