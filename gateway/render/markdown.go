package render

import (
	"fmt"
	"net/url"
	"strings"
	"unicode"

	"github.com/ramus-dev/ramus/internal/pattern"
)

// Text for GitHub is Markdown, and may become the message of a squashed commit, which is plain text. So untrusted text is neutralized
// twice. Its markup is escaped, and a zero-width space breaks the words that GitHub acts on in plain text (names, numbers of issues,
// words that close issues or skip checks).

// pullMax bounds a body, in characters. GitHub takes 65,536.
const pullMax = 60_000

// gap breaks a word for GitHub and is invisible. Untrusted text has lost its own such characters before.
const gap = "\u200b"

var (
	// anyLink matches text that GitHub could make a link of. asCode matches text to show as code, which is that and code of the
	// author.
	anyLink = pattern.New(`(?i)(?:[a-z][a-z0-9+.-]*://|\bwww\.|\bmailto:|\bxmpp:)\S*`)
	asCode  = pattern.New("`[^`]+`|" + anyLink.String())
	// closers matches words that close an issue, with a reference.
	closers = pattern.New(`(?i)\b((?:close[sd]?|fix(?:e[sd])?|resolve[sd]?):?)(\s+(?:#|GH-|[\w.-]+/[\w.-]+#|https?://))`)
	// skipping matches words in a commit's message that skip checks.
	skipping = pattern.New(`(?i)\[(skip|no|ci|actions)([ -]?(?:ci|skip|actions|checks)?\])`)
	// numbered matches a reference to an issue.
	numbered = pattern.New(`(?i)(#|\bGH-)(\d)`)
)

// inert breaks everything in a text that GitHub acts on even in code.
func inert(s string) string {
	s = closers.ReplaceAllString(s, "$1"+gap+"$2")
	s = skipping.ReplaceAllString(s, "["+gap+"$1$2")
	return strings.ReplaceAll(s, "<!--", "<"+gap+"!--") // ramus marks its comments so
}

// MarkdownText returns an untrusted line as a part of a sentence or paragraph. It looks unchanged, without markup, links and mentions.
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
			at[1] -= len(code) - len(short) // punctuation belongs to the sentence
			code = short
		}
		if strings.TrimSpace(code) != "" {
			b.WriteString(markdownCell(code, most)) // the text may be in a table
		}
		s = s[at[1]:]
	}
	return b.String()
}

// mdWords is MarkdownText without links. Characters that are markup only at the beginning of a line are escaped only there.
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

// markdownCode returns an untrusted text as code on one line.
func markdownCode(s string, most int) string { return ticked(inert(OneLine(s, most))) }

// ticked returns one line between more backticks than it has in a row.
func ticked(s string) string {
	if s == "" {
		return ""
	}
	mark := strings.Repeat("`", longest(s, '`')+1)
	if len(mark) > 1 {
		s = " " + s + " " // Markdown removes one space of each side
	}
	return mark + s + mark
}

// markdownCell is markdownCode for a table, in which | ends a cell even in code.
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

// longest returns the length of the longest run of a character.
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

// ticksMax bounds a run of backticks, since the fence around it must be longer.
const ticksMax = 40

var ticks = pattern.New(fmt.Sprintf("`{%d,}", ticksMax+1))

// Fence returns an untrusted text as a block of code that nothing in it can end.
func Fence(language, text string) string { return codeFence(language, readable(text)) }

// codeFence is Fence for a text that is readable and may have gaps.
func codeFence(language, text string) string {
	text = ticks.ReplaceAllString(strings.Trim(text, "\n"), strings.Repeat("`", ticksMax))
	mark := strings.Repeat("`", max(3, longest(text, '`')+1))
	return mark + language + "\n" + text + "\n" + mark
}

// markdownQuote returns untrusted paragraphs as a quotation of at most most units that has all of their lines. Blocks of code stay blocks
// of code.
func markdownQuote(s string, most int) string {
	s = strings.Trim(readable(head(s, most)), "\n")
	if strings.TrimSpace(s) == "" {
		return ""
	}
	var b strings.Builder
	lines := strings.Split(s, "\n")
	last := 0 // the last line that can end a block
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
			quoted = strings.TrimSpace("> " + strings.Repeat("&nbsp;", min(len(indent), 20)) +
				MarkdownText(text, min(2000, most/2)))
		}
		if most -= width(quoted) + 1; most < 0 {
			b.WriteString("> …\n")
			break
		}
		b.WriteString(quoted + "\n")
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// fencedLines returns the number of lines of the block of code that the first line begins.
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

// endsFence reports whether a line ends a block of code.
func endsFence(line string) bool { return strings.TrimSpace(line) == "```" }

// markdownLink returns a link, and the label if to is not an absolute http address.
func markdownLink(to, label string) string {
	label = MarkdownText(label, 100)
	u, err := url.Parse(to)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || len(to) > linkMax {
		return label
	}
	to = strings.NewReplacer("(", "%28", ")", "%29", "<", "%3C", ">", "%3E", " ", "%20", "\\", "%5C", "|", "%7C", "`",
		"%60").Replace(u.String())
	return "[" + label + "](" + to + ")"
}

// markdownList returns the first of n items, at most most, that fit into units together. The last item has the number of the others.
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

// markdownTable returns a table of at most most rows that fit into units. A note below it has the number of the others.
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

// markdownDetails returns a long text that is folded under a trusted summary.
func markdownDetails(summary, text string) string {
	if text == "" {
		return ""
	}
	return "<details>\n<summary>" + summary + "</summary>\n\n" + text + "\n\n</details>"
}
