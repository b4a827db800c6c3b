package pathspec

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"

	curve "github.com/ramus-dev/ramus/internal/growth"
)

// TestRuleGrowth checks that the time to parse rules and to match paths grows with the file.
func TestRuleGrowth(t *testing.T) {
	cases := curve.Tokens("a", "a\n", "*", "*\n", "**", "**/", "**/\n", "*a", "*a\n", "?", "?\n", "[", "[\n", "[a",
		"[a]", "[a]\n", "[!", "[[:alpha:]]", "[[:alpha:]]\n", "[[:", "[a-", "[a-z]*", "\\", "\\\n", "!", "!a\n",
		"/", "/\n", "a/", "a/\n", "/a\n", "a/*\n", "*/a\n", "**/a\n", "a/**/b\n", "**/*a\n", "*a*a*b\n", " ", "a \n",
		" \n", "\t", "#", "#\n", "\r\n", "\n", "\x00", "\xef\xbb\xbf", "é\n", `"`, `"a" b`+"\n", `"\141`, `"\141"`+"\n",
		"a text\n", "a -text !eol a=b\n", "a a=\n", "[attr]a b\n", "[attr]", "[attr]binary binary\n", "* a\n",
		"**/a b\n", "a binary\n")
	for _, line := range []string{"n%d\n", "*n%d\n", "**/n%d/*\n", "* n%d\n", "[attr]n%d n%d\n", "* n%d=a\n"} {
		cases = append(cases, curve.Case{Name: fmt.Sprintf("names %q", line), Each: func(n int) string {
			if strings.Count(line, "%d") == 2 {
				return fmt.Sprintf(line, n, n+1)
			}
			return fmt.Sprintf(line, n)
		}})
	}
	for i := range cases {
		cases[i].Limit = MaxFile
	}
	path := strings.Repeat("a/", 20) + strings.Repeat("a", 60) + "b.txt"
	name := path[strings.LastIndexByte(path, '/')+1:]
	curve.Check(t, "ignore", func(text []byte) { ParseIgnore(text).Match(path, name, false, &Tally{}) }, cases...)
	curve.Check(t, "attributes", func(text []byte) {
		if rules, err := ParseAttributes(text, true); err == nil {
			ConversionOf(Resolve(name, []Source{{&rules, path}}, &Tally{}))
		}
	}, cases...)
	var lines []curve.Case
	for _, c := range cases {
		if c.Each == nil && strings.Contains(c.Token, "\n") {
			continue
		}
		c.Limit = maxAttributeLine - 10 // the longest line of .gitattributes
		lines = append(lines, c)
	}
	curve.Check(t, "attribute line", func(text []byte) {
		if rules, err := ParseAttributes(append(text, " text=auto\n"...), true); err == nil {
			Resolve(name, []Source{{&rules, path}}, &Tally{})
		}
	}, lines...)
}

// TestLineGrowth checks that the time to convert line ends grows with the content.
func TestLineGrowth(t *testing.T) {
	curve.Check(t, "lines", func(text []byte) {
		ToLF(text)
		ToCRLF(text, LinesText)
		_, _ = io.Copy(io.Discard, lfReader{bufio.NewReader(bytes.NewReader(text))})
	}, curve.Tokens("a", "\r", "\n", "\r\n", "\r\r\n", "a\n", "\x00", "\x1a")...)
}
