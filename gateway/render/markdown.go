package render

import (
	"fmt"
	"net/url"
	"strings"
	"unicode"

	"github.com/ramus-dev/ramus/internal/pattern"
)

// What is posted to GitHub is Markdown, and may become the message of a squashed
// commit, which is no Markdown. So texts of strangers are made harmless twice: their
// signs are escaped, and what GitHub finds in plain text (names, numbers of issues,
// words that close them or keep checks from running) is broken by a space of no width.

// pullMax bounds a body, in characters; GitHub takes 65,536.
const pullMax = 60_000

// gap stands where GitHub must not see one word. It is invisible, and all that
// strangers send of its kind was taken out before.
const gap = "\u200b"

var (
	// anyLink is what a link could be made of, asCode what is shown as code: that, and
	// what its author wrote as code.
	anyLink = pattern.New(`(?i)(?:[a-z][a-z0-9+.-]*://|\bwww\.|\bmailto:|\bxmpp:)\S*`)
	asCode  = pattern.New("`[^`]+`|" + anyLink.String())
	// closers are the words that close an issue, with what they may refer to.
	closers = pattern.New(`(?i)\b((?:close[sd]?|fix(?:e[sd])?|resolve[sd]?):?)(\s+(?:#|GH-|[\w.-]+/[\w.-]+#|https?://))`)
	// skipping keeps checks from running when it stands in a commit's message.
	skipping = pattern.New(`(?i)\[(skip|no|ci|actions)([ -]?(?:ci|skip|actions|checks)?\])`)
	// numbered refers to an issue.
	numbered = pattern.New(`(?i)(#|\bGH-)(\d)`)
)

// inert takes from a text what GitHub acts upon wherever it stands, code included.
func inert(s string) string {
	s = closers.ReplaceAllString(s, "$1"+gap+"$2")
	s = skipping.ReplaceAllString(s, "["+gap+"$1$2")
	return strings.ReplaceAll(s, "<!--", "<"+gap+"!--") // marks of ours are such comments
}

// mdText is a line of strangers as a part of a sentence or paragraph: it looks as it
// was written, and nothing of it is markup, a link or the name of somebody.
func MarkdownText(s string, most int) string {
	s = OneLine(s, most)
	var b strings.Builder
	for s != "" {
		at := asCode.FindStringIndex(s)
		if at == nil {
			at = []int{len(s), len(s)}
		}
		b.WriteString(mdWords(s[:at[0]], b.Len() == 0))
		code := s[at[0]:at[1]]
		if written, ok := strings.CutPrefix(code, "`"); ok {
			code = strings.TrimSuffix(written, "`")
		} else if short := strings.TrimRight(code, ".,;:!?)>\"'"); anyLink.MatchString(short) {
			at[1] -= len(code) - len(short) // they belong to the sentence
			code = short
		}
		if strings.TrimSpace(code) != "" {
			b.WriteString(markdownCell(code, most)) // the text may stand in a table
		}
		s = s[at[1]:]
	}
	return b.String()
}

// mdWords is mdText without links. Signs that mean something at the beginning of a
// line only are escaped there.
func mdWords(s string, begins bool) string {
	s = numbered.ReplaceAllString(inert(s), "$1"+gap+"$2")
	s = strings.ReplaceAll(s, "@", "@"+gap)
	var b strings.Builder
	digits := begins
	for i, c := range s {
		switch {
		case c == '&':
			b.WriteString("&amp;")
		case c == '<':
			b.WriteString("&lt;")
		case c == '>':
			b.WriteString("&gt;")
		case strings.ContainsRune("\\`*_[]|~$", c),
			begins && i == 0 && strings.ContainsRune("#+-=:", c),
			digits && i > 0 && (c == '.' || c == ')'):
			b.WriteByte('\\')
			b.WriteRune(c)
		default:
			b.WriteRune(c)
		}
		digits = digits && '0' <= c && c <= '9'
	}
	return b.String()
}

// mdCode shows a text of strangers as code on one line.
func markdownCode(s string, most int) string { return ticked(inert(OneLine(s, most))) }

// ticked puts one line between more backticks than it has in a row.
func ticked(s string) string {
	if s == "" {
		return ""
	}
	mark := strings.Repeat("`", longest(s, '`')+1)
	if len(mark) > 1 {
		s = " " + s + " " // one of each side is taken away again
	}
	return mark + s + mark
}

// mdCell is mdCode within a table, where a | would end the cell even in code.
func markdownCell(s string, most int) string {
	if s = inert(OneLine(s, most)); !strings.Contains(s, "|") {
		return markdownCode(s, most)
	}
	var b strings.Builder
	b.WriteString("<code>")
	for _, c := range s {
		if c < 0x80 && !unicode.IsLetter(c) && !unicode.IsDigit(c) && c != ' ' && c != '-' {
			fmt.Fprintf(&b, "&#%d;", c)
		} else {
			b.WriteRune(c)
		}
	}
	b.WriteString("</code>")
	return b.String()
}

// longest is the length of the longest run of a sign.
func longest(s string, sign byte) (most int) {
	n := 0
	for i := range len(s) {
		if n++; s[i] != sign {
			n = 0
		}
		most = max(most, n)
	}
	return most
}

// ticksMax bounds a run of backticks: the fences around it are longer still.
const ticksMax = 40

var ticks = pattern.New(fmt.Sprintf("`{%d,}", ticksMax+1))

// Fence shows a text of strangers as a block that nothing within it can end.
func Fence(language, text string) string { return codeFence(language, readable(text)) }

// codeFence is fence for a text that is readable, and may have gaps.
func codeFence(language, text string) string {
	text = ticks.ReplaceAllString(strings.Trim(text, "\n"), strings.Repeat("`", ticksMax))
	mark := strings.Repeat("`", max(3, longest(text, '`')+1))
	return mark + language + "\n" + text + "\n" + mark
}

// mdQuote shows paragraphs of strangers as a quotation of at most most units: no line
// of it stands outside. Blocks of code stay blocks of code.
func markdownQuote(s string, most int) string {
	s = strings.Trim(readable(head(s, most)), "\n")
	if strings.TrimSpace(s) == "" {
		return ""
	}
	var b strings.Builder
	lines := strings.Split(s, "\n")
	last := 0 // that can end a block
	for i, line := range lines {
		if endsFence(line) {
			last = i
		}
	}
	for i := 0; i < len(lines); i++ {
		var quoted string
		if n := fencedLines(lines[i : max(i, last)+1]); n > 0 {
			block := codeFence("text", inert(strings.Join(lines[i+1:i+n-1], "\n")))
			quoted = "> " + strings.ReplaceAll(block, "\n", "\n> ")
			i += n - 1
		} else {
			text := strings.TrimLeft(lines[i], " \t")
			indent := strings.ReplaceAll(lines[i][:len(lines[i])-len(text)], "\t", "    ")
			quoted = strings.TrimSpace("> " + strings.Repeat("&nbsp;", min(len(indent), 20)) + MarkdownText(text, min(2000, most/2)))
		}
		if most -= width(quoted) + 1; most < 0 {
			b.WriteString("> …\n")
			break
		}
		b.WriteString(quoted + "\n")
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// fencedLines is how many of the lines are a block of code that the first one begins.
func fencedLines(lines []string) int {
	if !strings.HasPrefix(lines[0], "```") || strings.Contains(lines[0][3:], "`") {
		return 0
	}
	for i, line := range lines[1:] {
		if endsFence(line) {
			return i + 2
		}
	}
	return 0
}

// endsFence tells whether a line ends a block of code.
func endsFence(line string) bool { return strings.TrimSpace(line) == "```" }

// mdLink is a link of ours; what is no absolute http address becomes the label alone.
func markdownLink(to, label string) string {
	label = MarkdownText(label, 100)
	u, err := url.Parse(to)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || len(to) > linkMax {
		return label
	}
	to = strings.NewReplacer("(", "%28", ")", "%29", "<", "%3C", ">", "%3E", " ", "%20", "\\", "%5C", "|", "%7C", "`", "%60").Replace(u.String())
	return "[" + label + "](" + to + ")"
}

// mdList is the first of n items, at most most and within units together; the last
// says how many more there are.
func markdownList(n, most, units int, item func(i int) string) string {
	var b strings.Builder
	for i := range n {
		line := ""
		if i < most {
			line = "- " + item(i) + "\n"
		}
		if units -= width(line); i == most || units < 0 {
			fmt.Fprintf(&b, "- and %d more\n", n-i)
			break
		}
		b.WriteString(line)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// mdTable is a table of at most most rows and within units; note says, below it, how
// many more there are.
func markdownTable(columns []string, n, most, units int, row func(i int) []string) string {
	var b strings.Builder
	line := func(cells []string) string { return "| " + strings.Join(cells, " | ") + " |\n" }
	rule := make([]string, len(columns))
	for i := range rule {
		rule[i] = "---"
	}
	b.WriteString(line(columns) + line(rule))
	for i := range n {
		text := ""
		if i < most {
			text = line(row(i))
		}
		if units -= width(text); i == most || units < 0 {
			fmt.Fprintf(&b, "\nand %d more", n-i)
			break
		}
		b.WriteString(text)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// mdDetails hides a long part behind its summary, which is of ours.
func markdownDetails(summary, text string) string {
	if text == "" {
		return ""
	}
	return "<details>\n<summary>" + summary + "</summary>\n\n" + text + "\n\n</details>"
}
