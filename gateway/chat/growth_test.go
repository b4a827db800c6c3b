package chat

import (
	"fmt"
	"testing"

	"github.com/ramus-dev/ramus/internal/growth"
)

// TestWordsGrowth checks that the time to read a mention grows with its text.
func TestWordsGrowth(t *testing.T) {
	cases := growth.Tokens("a", " ", "\n", "a ", "a\n", ":", "a:b ", "repo:a ", "base:a ", "agent:a ", "repo:", "a: ",
		"`", "``", "```", "`a", "`a` ", "`a` a:b ", "a:b`a` ", "`a`\n", "```a``` ", "```a``` a:b ", "```\n", "`\n",
		"> a:b\n", ">\n", "'", `"`, `\"`, `"a" `, "'a' ", "\\",
		"exec ", "run ", "test ", "a=b ", "=", ",", ", ", "…", "—", "“", "–a ", "\u00a0", "\u200b", "\u200d", "é",
		"\xff", "\x00", "\r\n", "\r", ".", "...", "1", "-", "a.b ")
	for _, prefix := range []string{"exec ", "exec\n", "exec ```", "exec repo:a ", "run a ", "run a b=", "run a b='",
		"run a b=\"", "run a b:='[", "merge into ", "test ", "log ", "build ", "lint ", "```", "`"} {
		for _, token := range []string{"a", "a ", "a=b ", "'", `\"`, `\`, "`", "```", "``` a:b ", "1", "[", "repo:a ",
			"\n", "a:b\n", "a.", ":", "\u200b"} {
			cases = append(cases, growth.Case{Prefix: prefix, Token: token})
		}
		cases = append(cases, growth.Case{Name: "names after " + prefix, Prefix: prefix,
			Each: func(n int) string { return fmt.Sprintf("a%d=b ", n) }})
	}
	for i := range cases {
		cases[i].Limit = wordsMax
	}
	growth.Check(t, "words", func(text []byte) { _, _ = ParseWords(string(text)) }, cases...)
}
