package render

import (
	"testing"

	"github.com/ramus-dev/ramus/internal/growth"
)

// TestMarkdownGrowth checks that the time to make texts of strangers harmless grows with them.
func TestMarkdownGrowth(t *testing.T) {
	cases := growth.Tokens("a", " ", "\n", "a\n", "a\n\n", "`", "``", "```", "```\n", "```a\n", "```a\na\n",
		"```\na\n```\n", "`a", "`a`", "`a` ", "`\n", "|", "a|", "<", "<!--", "<!-- -->", "&", "@", "@a ", "#", "#1 ",
		"GH-1 ", "# a\n", "1. a\n", "1", "- a\n", "> a\n", "[", "]", "[a](b)", "![", "*", "**a** ", "_", "~", "$", "\\",
		"http://", "http://a ", "a://", "a:", "www.", "www.a ", "mailto:", "mailto:a ", "http://a. ", "http://a)))",
		"closes ", "closes #1 ", "fixes: a/b#1 ", "closes\n", "[skip ci]", "[skip", "[ci ", "\t", "\ta\n", "\u200b",
		"\u00a0", "é", "\xff", "\x00", "\r\n", "\x1b[1m", "-a", "a.")
	growth.Check(t, "mdQuote", func(text []byte) { markdownQuote(string(text), len(text)) }, cases...)
	for i := range cases {
		cases[i].Limit = 1 << 18 // no text is longer than 64 KiB
	}
	growth.Check(t, "mdText", func(text []byte) { MarkdownText(string(text), len(text)) }, cases...)
	growth.Check(t, "mdQuote at its bound", func(text []byte) { markdownQuote(string(text), pullMax) }, cases...)
	growth.Check(t, "mdCell", func(text []byte) { markdownCell(string(text), len(text)) }, cases...)
	growth.Check(t, "fence", func(text []byte) { Fence("text", inert(string(text))) }, cases...)
	growth.Check(t, "mdLink", func(text []byte) { markdownLink("https://a/"+string(text), string(text)) }, cases...)
	growth.Check(t, "fences", func(text []byte) { closeFences(string(text)) }, cases...)
	growth.Check(t, "links", func(text []byte) { Answer{Text: string(text)}.Message() }, cases...)
	growth.Check(t, "prompt", func(text []byte) { promptCode(string(text), len(text)) }, cases...)
}
