package forge

import (
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestBody(t *testing.T) {
	const most = 65536
	mark, note := Trailer("m"), "\n\n*The rest of the text exceeds GitHub's limit.*"
	long := strings.Repeat("äöü line\n", most/9-20)
	for name, one := range map[string]struct{ body, begin, end string }{
		"short":    {"a b", "a b\n\n" + mark, ""},
		"empty":    {"", "\n\n" + mark, ""},
		"no UTF-8": {"a\xffb", "a�b", ""},
		"long":     {long + long, "äöü line\n", "äöü line" + note + "\n\n" + mark},
		"one line": {strings.Repeat("ä", most+1), "ä", "ä" + note + "\n\n" + mark},
		"in code":  {"````go\n```\n" + long + long, "````go", "line\n````" + note + "\n\n" + mark},
		"after":    {"```\nx\n```\n" + long + long, "```", "line" + note + "\n\n" + mark},
		"folded": {"<details><summary>x</summary>\n<details>\n\n</details>\n~~~\n" + long + long, "<details>",
			"line\n~~~\n\n</details>" + note + "\n\n" + mark},
		"the limit": {strings.Repeat("x", most-len(mark)-2), "x", "x\n\n" + mark},
	} {
		got := Body(one.body, mark, most, "GitHub")
		if n := utf8.RuneCountInString(got); n > most || !strings.HasPrefix(got, one.begin) || !strings.HasSuffix(got, one.end) {
			t.Errorf("%s: %d characters, %.40q … %q", name, n, got, got[max(0, len(got)-200):])
		}
	}
	if got := Line("  x\n"+strings.Repeat("x", 300), 256); utf8.RuneCountInString(got) != 256 || !strings.HasPrefix(got, "x xx") {
		t.Errorf("%q", got)
	}
}

func FuzzBody(f *testing.F) {
	const most = 65536
	f.Add("```\n", 70000, "x\n")
	f.Add("<details>\n", 9000,
		"<details>```````````````````````````````````````````````````````````````````````````````````````````````\n")
	f.Fuzz(func(t *testing.T, begin string, n int, line string) {
		if len(line) > 2000 || len(begin) > 2000 {
			return
		}
		body := begin + strings.Repeat(line, max(0, n)%(1<<17)/max(1, len(line)))
		got := Body(body, Trailer("m"), most, "GitHub")
		if !utf8.ValidString(got) || utf8.RuneCountInString(got) > most || !strings.HasSuffix(got, Trailer("m")) {
			t.Errorf("%d characters of %q", utf8.RuneCountInString(got), got[:min(100, len(got))])
		}
		if utf8.ValidString(body) && utf8.RuneCountInString(body) < most-100 && !strings.HasPrefix(got, body) {
			t.Error("a text that was short enough has changed")
		}
	})
}

func TestLastLines(t *testing.T) {
	hunk := "@@ -1 +1 @@\n" + strings.Repeat("+line\n", MaxHunk) + "+the last"
	got := LastLines(hunk)
	if len(got) > MaxHunk || !strings.HasPrefix(got, "+line\n") || !strings.HasSuffix(got, "+the last") {
		t.Errorf("%d bytes, %.20q", len(got), got)
	}
	one := strings.Repeat("ä", MaxHunk+rand.IntN(2))
	if got := LastLines(one); len(got) > MaxHunk || !utf8.ValidString(got) {
		t.Errorf("%d bytes", len(got))
	}
}
