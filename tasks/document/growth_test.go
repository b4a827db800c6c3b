package document

import (
	"fmt"
	"testing"

	"github.com/ramus-dev/ramus/internal/growth"
)

// TestYAMLGrowth checks that the time to read a YAML file grows with the file.
func TestYAMLGrowth(t *testing.T) {
	cases := growth.Tokens("a", "- ", "- a\n", "a: b\n", "&a ", "*a ", "!a ", "? ", "[", "]", "{", "}", "[a,", "{a: ",
		"'", "''", `"`, `\"`, "\\x41", "|", ">", "%", "@", "`",
		"---\n", "...\n", ": ", ":\n", ",", "#", "# a\n", " ", "\n", "\r\n", "\t", "é", "\u2028", "<<: ", "~\n", "1 ",
		"0x1 ", "1e9 ", "- |\n  a\n", "- >\n  a\n", "- 'a'\n", "- \"a\"\n", "- \"\\u0041\"\n", "- &a b\n", "- *a\n",
		"- a: b\n", "-\n", "- a # b\n", "a:\n  b\n", "a: |\n  b\n", "\"a\": b\n", "\\", "a\\\n", "- !!str a\n",
		"- <<: a\n", "- ? a\n", "\ufeff", "a\n", "a\n\n", " #\n", "a: |\n\n", "a b ", "- 1\n", "- 1.5\n", "- null\n", "%a\n")
	add := func(prefix, suffix string, tokens ...string) {
		for _, token := range tokens {
			cases = append(cases, growth.Case{Prefix: prefix, Token: token, Suffix: suffix})
		}
	}
	add("a: |\n  ", "\n", "\n", "  \n", " ", "a\n  ", "a\n\n  ", "\n  ", "   a\n  ", "#\n  ", "\t", "\t\n  ", "a ",
		"é", ":", "- ")
	add("a: |-\n  ", "\n", "\n", "a\n  ")
	add("a: |+\n  ", "\n", "\n", "a\n  ")
	add("a: >\n  ", "\n", "\n", "  \n", " ", "a\n  ", "a\n\n  ", "\n  ", "   a\n  ", "a ")
	add("a: >-\n  ", "\n", "\n", "a\n  ")
	add("a: '", "'\n", "''", "\n", "a\n", " ", "\n\n", "a ", "\\", "é", "#", " \n")
	add("a: \"", "\"\n", "\\n", "\\\"", "\n", "a\n", " ", "\n\n", "a ", "\\u0041", "\\x41", "\\\n", "é", "#", " \n",
		"\\\\", "\\U0001F600", "\\ud83d\\ude00")
	add("a: b", "\n", "\n", "\n  b", "\n\n  b", " ", " b", "#", " #", ": ", ":", "\n  ", "\n#", "\n  #", "\n  # b\n",
		",", "é", "- ", "\n  - ")
	add("a: [", "]\n", "b,", "'b',", "\"b\",", "1,", "[],", "{},", "b: c,", "\n", "\n#\n", " ", ",", "*b,", "&b c,",
		"b,\n", "#\n", "{a: b},")
	add("a: {", "}\n", "\n", " ", ",", "#\n")
	add("a:\n", "", "- b\n", "  - b\n", "\n", "  \n", "#\n", "  # b\n", "  - b: c\n    d: e\n", "  - - b\n",
		"  - [b]\n", "  - {b: c}\n", "  - |\n    b\n", "  -\n    b\n", "- # b\n  c\n")
	add("a: &a [b,b,b,b,b,b,b,b]\nb:\n", "", "- *a\n")
	add("? ", ": b\n", "a", "a\n  ", "\n")
	for _, form := range []string{"n%d: a\n", "n%d:\n", "n%d: &n%d a\n", "n%d: # a\n  b\n", "'n%d': a\n",
		"n%d: |\n  a\n\n", "n%d: {a: b}\n", "n%d: [a]\n", "n%d:\n  a: b\n", "n%d:\n  - b\n", "n%d:\n\n", "# n%d\n",
		"n%d: \"a\\n\"\n", "n%d:  'a'\n"} {
		cases = append(cases, growth.Case{Name: fmt.Sprintf("keys %q", form), Each: func(n int) string {
			if form == "n%d: &n%d a\n" {
				return fmt.Sprintf(form, n, n)
			}
			return fmt.Sprintf(form, n)
		}})
		cases = append(cases, growth.Case{Name: fmt.Sprintf("flow keys %q", form), Prefix: "a: {", Suffix: "}",
			Each: func(n int) string { return fmt.Sprintf("n%d: a,", n) }})
	}
	growth.Check(t, "YAML", func(text []byte) { file.Parse("a.yaml", text) }, cases...)
}
