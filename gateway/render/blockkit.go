package render

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/ramus-dev/ramus/gateway/slack"
	"github.com/ramus-dev/ramus/internal/text"
)

// Slack's limits on Block Kit, in characters (docs.slack.dev, Block Kit reference). The reference does not define the characters.
// The limits count UTF-16 units after escaping, which are never fewer than a reader would count. The texts of a message's blocks may
// have about 13,000 together, so most parts have far smaller bounds.
const (
	sectionMax    = 3000
	headerMax     = 150
	valueMax      = 2000
	optionMax     = 75
	optionValue   = 150
	optionsMax    = 100
	linkMax       = 3000
	notifiableMax = 400 // of Message.Text, an own limit, since a notification shows less
)

// The used types of Block Kit.
type (
	textObject struct {
		Type string `json:"type"` // mrkdwn or plain_text
		Text string `json:"text"`
		// Verbatim keeps Slack from making links and mentions of plain text.
		Verbatim bool `json:"verbatim,omitempty"`
		Emoji    bool `json:"emoji,omitempty"`
	}
	block struct {
		Type     string      `json:"type"`
		Text     *textObject `json:"text,omitempty"`
		Elements []any       `json:"elements,omitempty"`
	}
	button struct {
		Type   string     `json:"type"`
		Text   textObject `json:"text"`
		Action string     `json:"action_id"`
		Value  string     `json:"value,omitempty"`
		Style  string     `json:"style,omitempty"` // primary, danger
	}
	choice struct {
		Type        string     `json:"type"`
		Placeholder textObject `json:"placeholder"`
		Action      string     `json:"action_id"`
		Options     []option   `json:"options"`
	}
	option struct {
		Text  textObject `json:"text"`
		Value string     `json:"value"`
	}
)

func mrkdwn(text string) textObject { return textObject{Type: "mrkdwn", Text: text, Verbatim: true} }

func plainText(text string) textObject {
	return textObject{Type: "plain_text", Text: text, Emoji: true}
}

// layout collects a message's blocks. Its methods take mrkdwn. Untrusted text has gone through escape, CodeSpan or quote.
type layout struct{ blocks []slack.Block }

func (l *layout) add(b block) {
	text, err := json.Marshal(b)
	if err != nil {
		panic(err) // structs of strings
	}
	l.blocks = append(l.blocks, text)
}

func (l *layout) header(text string) {
	t := plainText(Cut(text, headerMax))
	l.add(block{Type: "header", Text: &t})
}

// section adds a paragraph. The caller cuts long texts where a cut does no harm. The cut in section only keeps the message valid.
func (l *layout) section(text string) {
	if text == "" {
		return
	}
	t := mrkdwn(cutEscaped(text, sectionMax))
	l.add(block{Type: "section", Text: &t})
}

// context adds a line of small print without its empty parts.
func (l *layout) context(parts ...string) {
	var kept []string
	for _, p := range parts {
		if p != "" {
			kept = append(kept, p)
		}
	}
	if len(kept) > 0 {
		l.add(block{Type: "context", Elements: []any{mrkdwn(cutEscaped(strings.Join(kept, " · "), sectionMax))}})
	}
}

// actions adds buttons. It leaves out a button with a value that is too long, since a cut value would name something else.
func (l *layout) actions(elements ...any) {
	elements = slices.DeleteFunc(elements, func(e any) bool {
		b, ok := e.(button)
		return ok && width(b.Value) > valueMax
	})
	if len(elements) > 0 {
		l.add(block{Type: "actions", Elements: elements})
	}
}

func press(action, label, style string, value ...string) button {
	return button{Type: "button", Text: plainText(label), Action: action, Value: strings.Join(value, " "), Style: style}
}

// readable returns an untrusted text without characters that are invisible or change its direction. These are control characters other
// than newline and tab, escape sequences, zero-width and bidirectional characters, and broken UTF-8.
func readable(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if strings.ContainsRune(s, '\x1b') {
		s = ansi.ReplaceAllString(s, "")
	}
	s = strings.ReplaceAll(s, "\r\n", "\n")
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\r' || r == '\u2028' || r == '\u2029' || r == '\u0085' || r == '\v' || r == '\f':
			return '\n'
		case text.Invisible(r), r == '\u200c', r == '\u200d', r == '\u115f', r == '\u1160', r == '\u3164',
			r == '\uffa0':
			return -1
		}
		return r
	}, s)
}

// head returns more of a text than can be shown, so that work on the text is bounded.
func head(s string, most int) string { return s[:min(len(s), 64*most)] }

// OneLine returns an untrusted text on one line, cut.
func OneLine(s string, most int) string {
	s = head(s, most)
	return Cut(strings.Join(strings.Fields(readable(s)), " "), most)
}

var entities = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")

// escape returns text for mrkdwn. Without < nothing in it is a link or a mention.
func escape(s string) string { return entities.Replace(s) }

// NoTicks replaces backticks, which would end code. mrkdwn has no escape for them.
func NoTicks(s string) string { return strings.ReplaceAll(s, "`", "ˋ") }

// CodeSpan returns an untrusted text as code on one line.
func CodeSpan(s string, most int) string {
	if s = InlineText(s, most); s == "" {
		return ""
	}
	return "`" + s + "`"
}

// InlineText returns an untrusted text as a part of a sentence.
func InlineText(s string, most int) string {
	return cutEscaped(escape(NoTicks(OneLine(s, most))), most)
}

// quote returns an untrusted text as a quotation that has its first lines.
func quote(s string, lines, most int) string {
	q, _ := quoteWhole(s, lines, most)
	return q
}

// quoteWhole is quote. whole reports whether the quotation has all of the text.
func quoteWhole(s string, lines, most int) (q string, whole bool) {
	whole = len(head(s, most)) == len(s)
	s = strings.TrimSpace(readable(head(s, most)))
	if s == "" {
		return "", whole
	}
	cutOff := false
	list := strings.Split(s, "\n")
	if len(list) > lines {
		list, cutOff, whole = list[:lines], true, false
	}
	s = escape(noFences(strings.Join(list, "\n")))
	if shorter := cutEscaped(s, most); shorter != s {
		s, cutOff, whole = shorter, false, false // it already ends in …
	}
	if cutOff {
		s += "\n…"
	}
	return ">" + strings.ReplaceAll(s, "\n", "\n>"), whole
}

// ending returns the last lines of a text, of at most most units.
func ending(s string, lines, most int) string {
	s = strings.TrimSpace(readable(s[max(0, len(s)-64*most):]))
	list := strings.Split(s, "\n")
	whole := len(list) <= lines
	list = list[max(0, len(list)-lines):]
	for len(list) > 1 && width(strings.Join(list, "\n")) > most {
		list, whole = list[1:], false
	}
	if s = strings.Join(list, "\n"); !whole {
		s = "…\n" + s
	}
	return s
}

// noFences replaces fences, so that a quotation does not open a block of code.
func noFences(s string) string { return strings.ReplaceAll(s, "```", "ˋˋˋ") }

// codeBlock returns an untrusted text as a block of code of at most most units, the number of lines left out, and whether a line was
// cut.
func codeBlock(s string, most int) (text string, left int, short bool) {
	s = noFences(strings.Trim(readable(s), "\n"))
	if s == "" {
		return "", 0, false
	}
	lines := strings.Split(s, "\n")
	room := most - len("```\n\n```")
	var kept []string
	for _, line := range lines {
		line = escape(line)
		if n := width(line) + 1; n <= room {
			room -= n
			kept = append(kept, line)
			continue
		}
		if len(kept) == 0 {
			kept, short = append(kept, cutEscaped(line, room)), true
		}
		break
	}
	return "```\n" + strings.Join(kept, "\n") + "\n```", len(lines) - len(kept), short
}

// link returns a link with a label that may be untrusted. If address is not an absolute http address, link returns the label, because
// Slack would show the address as text.
func link(address, label string) string {
	label = InlineText(strings.ReplaceAll(label, "|", "∣"), 80)
	to, ok := linkable(address, linkMax/2)
	if !ok {
		return label
	}
	return "<" + to + "|" + label + ">"
}

// linkable returns an absolute http address of at most most bytes as it is written in a link.
func linkable(address string, most int) (string, bool) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || len(address) > most {
		return "", false
	}
	return strings.NewReplacer("&", "&amp;", "<", "%3C", ">", "%3E", "|", "%7C", " ", "%20").Replace(u.String()), true
}

// width returns the number of UTF-16 units.
func width(s string) (n int) {
	for _, r := range s {
		n++
		if r > 0xffff {
			n++
		}
	}
	return n
}

// Cut shortens a text that is wider than most to most, with … at its end. It never cuts within a character that its reader sees.
func Cut(s string, most int) string {
	if len(s) <= most || width(s) <= most {
		return s
	}
	return s[:boundary(s, most-1)] + "…"
}

// cutEscaped is Cut for escaped text, and does not cut within an entity.
func cutEscaped(s string, most int) string {
	if width(s) <= most {
		return s
	}
	s = s[:boundary(s, most-1)]
	if i := strings.LastIndexByte(s, '&'); i >= 0 && !strings.Contains(s[i:], ";") {
		s = s[:i]
	}
	return s + "…"
}

// boundary returns the last place within the first most units where a text may be cut.
func boundary(s string, most int) int {
	var starts []int // of the runes before the cut
	end := 0
	for units := 0; end < len(s); {
		r, size := utf8.DecodeRuneInString(s[end:])
		if units++; r > 0xffff {
			units++
		}
		if units > most {
			break
		}
		starts = append(starts, end)
		end += size
	}
	// A character of more than 32 runes is artificial and may be cut.
	for range 32 {
		if len(starts) == 0 || end == len(s) || !joined(s[:end], s[end:]) {
			break
		}
		end, starts = starts[len(starts)-1], starts[:len(starts)-1]
	}
	return end
}

// joined reports whether a cut between two texts would be within a character.
func joined(before, after string) bool {
	last, _ := utf8.DecodeLastRuneInString(before)
	next, _ := utf8.DecodeRuneInString(after)
	switch {
	case unicode.In(next, unicode.Mn, unicode.Me, unicode.Mc), next == '\u200d', last == '\u200d':
		return true
	case '\U0001f3fb' <= next && next <= '\U0001f3ff': // skin tones
		return true
	case isFlag(next) && isFlag(last): // two letters make a flag
		rest := strings.TrimRightFunc(before, isFlag)
		return utf8.RuneCountInString(before[len(rest):])%2 == 1
	}
	return false
}

func isFlag(r rune) bool { return '\U0001f1e6' <= r && r <= '\U0001f1ff' }

// bullets returns the first of n lines, at most most, that fit into units together. The last line has the number of the others.
func bullets(n, most, units int, more string, line func(i int) string) string {
	var b strings.Builder
	for i := range n {
		text := "\n• "
		if i < most {
			text += line(i)
		}
		if units -= width(text); i == most || units < 0 {
			fmt.Fprintf(&b, "\n• "+more, n-i)
			break
		}
		b.WriteString(text)
	}
	return b.String()
}
