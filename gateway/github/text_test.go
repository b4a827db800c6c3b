package github

import (
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/ramus-dev/ramus/internal/redact"
)

func TestText(t *testing.T) {
	secrets, _ := redact.New(map[string]string{"KEY": "s3cr3t-value"})
	c := &Client{Secrets: secrets}
	mark := trailer("m")
	long := strings.Repeat("äöü line\n", maxText/9-20)
	for name, one := range map[string]struct{ body, begin, end string }{
		"short":     {"a s3cr3t-value b", "a [secret KEY] b\n\n" + mark, ""},
		"empty":     {"", "\n\n" + mark, ""},
		"no UTF-8":  {"a\xffb", "a�b", ""},
		"long":      {long + long, "äöü line\n", "äöü line" + cutNote + "\n\n" + mark},
		"one line":  {strings.Repeat("ä", maxText+1), "ä", "ä" + cutNote + "\n\n" + mark},
		"in code":   {"````go\n```\n" + long + long, "````go", "line\n````" + cutNote + "\n\n" + mark},
		"after":     {"```\nx\n```\n" + long + long, "```", "line" + cutNote + "\n\n" + mark},
		"folded":    {"<details><summary>x</summary>\n<details>\n\n</details>\n~~~\n" + long + long, "<details>", "line\n~~~\n\n</details>" + cutNote + "\n\n" + mark},
		"the limit": {strings.Repeat("x", maxText-len(mark)-2), "x", "x\n\n" + mark},
	} {
		got := c.text(one.body, mark)
		if n := utf8.RuneCountInString(got); n > maxText || !strings.HasPrefix(got, one.begin) || !strings.HasSuffix(got, one.end) {
			t.Errorf("%s: %d characters, %.40q … %q", name, n, got, got[max(0, len(got)-200):])
		}
	}
	if got := c.title("  s3cr3t-value\n" + strings.Repeat("x", 300)); utf8.RuneCountInString(got) != maxTitle || !strings.HasPrefix(got, "[secret KEY] x") {
		t.Errorf("%q", got)
	}
}

func FuzzText(f *testing.F) {
	f.Add("```\n", 70000, "x\n")
	f.Add("<details>\n", 9000, "<details>```````````````````````````````````````````````````````````````````````````````````````````````\n")
	f.Fuzz(func(t *testing.T, begin string, n int, line string) {
		if len(line) > 2000 || len(begin) > 2000 {
			return
		}
		body := begin + strings.Repeat(line, max(0, n)%(1<<17)/max(1, len(line)))
		got := (&Client{}).text(body, trailer("m"))
		if !utf8.ValidString(got) || utf8.RuneCountInString(got) > maxText || !strings.HasSuffix(got, trailer("m")) {
			t.Errorf("%d characters of %q", utf8.RuneCountInString(got), got[:min(100, len(got))])
		}
		if utf8.ValidString(body) && utf8.RuneCountInString(body) < maxText-100 && !strings.HasPrefix(got, body) {
			t.Error("a text that was short enough has changed")
		}
	})
}

func TestLastLines(t *testing.T) {
	hunk := "@@ -1 +1 @@\n" + strings.Repeat("+line\n", maxHunk) + "+the last"
	got := lastLines(hunk)
	if len(got) > maxHunk || !strings.HasPrefix(got, "+line\n") || !strings.HasSuffix(got, "+the last") {
		t.Errorf("%d bytes, %.20q", len(got), got)
	}
	one := strings.Repeat("ä", maxHunk+rand.IntN(2))
	if got := lastLines(one); len(got) > maxHunk || !utf8.ValidString(got) {
		t.Errorf("%d bytes", len(got))
	}
}
