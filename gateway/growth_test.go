package gateway

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/internal/growth"
)

// TestWordsGrowth checks that the time to read a mention grows with its text.
func TestWordsGrowth(t *testing.T) {
	cases := growth.Tokens("a", " ", "\n", "a ", "a\n", ":", "a:b ", "repo:a ", "base:a ", "agent:a ", "repo:", "a: ", "`", "``", "```", "`a", "`a` ", "`a` a:b ", "a:b`a` ", "`a`\n", "```a``` ", "```a``` a:b ", "```\n", "`\n", "> a:b\n", ">\n", "'", `"`, `\"`, `"a" `, "'a' ", "\\",
		"exec ", "run ", "test ", "a=b ", "=", ",", ", ", "…", "—", "“", "–a ", "\u00a0", "\u200b", "\u200d", "é", "\xff", "\x00", "\r\n", "\r", ".", "...", "1", "-", "a.b ")
	for _, prefix := range []string{"exec ", "exec\n", "exec ```", "exec repo:a ", "run a ", "run a b=", "run a b='", "run a b=\"", "run a b:='[", "merge into ", "test ", "log ", "build ", "lint ", "```", "`"} {
		for _, token := range []string{"a", "a ", "a=b ", "'", `\"`, `\`, "`", "```", "``` a:b ", "1", "[", "repo:a ", "\n", "a:b\n", "a.", ":", "\u200b"} {
			cases = append(cases, growth.Case{Prefix: prefix, Token: token})
		}
		cases = append(cases, growth.Case{Name: "names after " + prefix, Prefix: prefix, Each: func(n int) string { return fmt.Sprintf("a%d=b ", n) }})
	}
	for i := range cases {
		cases[i].Limit = wordsMax
	}
	growth.Check(t, "words", func(text []byte) { _, _ = ParseWords(string(text)) }, cases...)
}

// TestMarkdownGrowth checks that the time to make texts of strangers harmless grows with them.
func TestMarkdownGrowth(t *testing.T) {
	cases := growth.Tokens("a", " ", "\n", "a\n", "a\n\n", "`", "``", "```", "```\n", "```a\n", "```a\na\n", "```\na\n```\n", "`a", "`a`", "`a` ", "`\n", "|", "a|", "<", "<!--", "<!-- -->", "&", "@", "@a ", "#", "#1 ", "GH-1 ", "# a\n", "1. a\n", "1", "- a\n", "> a\n", "[", "]", "[a](b)", "![", "*", "**a** ", "_", "~", "$", "\\",
		"http://", "http://a ", "a://", "a:", "www.", "www.a ", "mailto:", "mailto:a ", "http://a. ", "http://a)))", "closes ", "closes #1 ", "fixes: a/b#1 ", "closes\n", "[skip ci]", "[skip", "[ci ", "\t", "\ta\n", "\u200b", "\u00a0", "é", "\xff", "\x00", "\r\n", "\x1b[1m", "-a", "a.")
	growth.Check(t, "mdQuote", func(text []byte) { mdQuote(string(text), len(text)) }, cases...)
	for i := range cases {
		cases[i].Limit = 1 << 18 // no text is longer than 64 KiB
	}
	growth.Check(t, "mdText", func(text []byte) { mdText(string(text), len(text)) }, cases...)
	growth.Check(t, "mdQuote at its bound", func(text []byte) { mdQuote(string(text), pullMax) }, cases...)
	growth.Check(t, "mdCell", func(text []byte) { mdCell(string(text), len(text)) }, cases...)
	growth.Check(t, "fence", func(text []byte) { fence("text", inert(string(text))) }, cases...)
	growth.Check(t, "mdLink", func(text []byte) { mdLink("https://a/"+string(text), string(text)) }, cases...)
	growth.Check(t, "fences", func(text []byte) { closeFences(string(text)) }, cases...)
	growth.Check(t, "links", func(text []byte) { Answer{Text: string(text)}.Message() }, cases...)
	growth.Check(t, "diff", func(text []byte) { _, _, _ = readDiff(strings.NewReader(string(text))) },
		append(cases, growth.Tokens("diff --git a/a b/a\n", "@@ -1 +1 @@\n", "+a\n", "index a\n", "GIT binary patch\n", "\x80", "diff --git a/a b/a\n+a\n")...)...)
	growth.Check(t, "prompt", func(text []byte) { promptCode(string(text), len(text)) }, cases...)
}
