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
)

// Slack's limits on Block Kit, in characters (docs.slack.dev, Block Kit
// reference). What they are counted in is not said: here it is UTF-16 units
// after escaping, which is never less than what a reader would count. The texts
// of a message's blocks may have about 13,000 together, so that most parts are
// held far below their own limit.
const (
	sectionMax    = 3000
	headerMax     = 150
	valueMax      = 2000
	optionMax     = 75
	optionValue   = 150
	optionsMax    = 100
	linkMax       = 3000
	notifiableMax = 400 // of Message.Text, ours: a notification shows less
)

// The shapes of Block Kit that are used.
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

// layout collects a message's blocks. Texts that are given to it are mrkdwn
// already: what strangers wrote has gone through escape, codeSpan or quote.
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

// section adds a paragraph. Texts that could be too long were cut before, where
// it was known what may be cut; the cut here keeps the rest of the message alive.
func (l *layout) section(text string) {
	if text == "" {
		return
	}
	t := mrkdwn(cutEscaped(text, sectionMax))
	l.add(block{Type: "section", Text: &t})
}

// context adds a line of small print; empty parts are left out.
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

// actions adds buttons. One whose value is too long is left out: cut, it would press something else.
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

// readable is a text of strangers without what cannot be seen or turns it
// around: control characters but line ends and tabs, escape sequences,
// zero-width and bidirectional signs, broken UTF-8.
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
		case Invisible(r), r == '\u200c', r == '\u200d', r == '\u115f', r == '\u1160', r == '\u3164', r == '\uffa0':
			return -1
		}
		return r
	}, s)
}

// head is more of a text than can be shown of it: work is bounded before the text is read.
func head(s string, most int) string { return s[:min(len(s), 64*most)] }

// OneLine is a text of strangers on one line, cut.
func OneLine(s string, most int) string {
	s = head(s, most)
	return Cut(strings.Join(strings.Fields(readable(s)), " "), most)
}

var entities = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")

// escape makes text safe in mrkdwn: without < nothing in it is a link or mentions anybody.
func escape(s string) string { return entities.Replace(s) }

// NoTicks keeps text from ending the code it stands in; mrkdwn has no escape for it.
func NoTicks(s string) string { return strings.ReplaceAll(s, "`", "ˋ") }

// CodeSpan shows a text of strangers as code on one line.
func CodeSpan(s string, most int) string {
	if s = InlineText(s, most); s == "" {
		return ""
	}
	return "`" + s + "`"
}

// said is a text of strangers within a sentence of ours.
func InlineText(s string, most int) string {
	return cutEscaped(escape(NoTicks(OneLine(s, most))), most)
}

// quote shows a text of strangers as a quotation: no line of it stands outside.
func quote(s string, lines, most int) string {
	s = strings.TrimSpace(readable(head(s, most)))
	if s == "" {
		return ""
	}
	cutOff := false
	list := strings.Split(s, "\n")
	if len(list) > lines {
		list, cutOff = list[:lines], true
	}
	s = escape(noFences(strings.Join(list, "\n")))
	if shorter := cutEscaped(s, most); shorter != s {
		s, cutOff = shorter, false // it ends in … already
	}
	if cutOff {
		s += "\n…"
	}
	return ">" + strings.ReplaceAll(s, "\n", "\n>")
}

// ending is the last lines of a text, at most most units of them.
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

// noFences keeps a quotation from opening a block of code that swallows what follows.
func noFences(s string) string { return strings.ReplaceAll(s, "```", "ˋˋˋ") }

// codeBlock shows a text of strangers as a block of code of at most most
// units. It tells how many lines were left out, and whether one was cut short.
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

// link shows a link of ours; the label is of strangers, perhaps. What is no
// absolute http address becomes the label alone: Slack would show it as text.
func link(address, label string) string {
	label = InlineText(strings.ReplaceAll(label, "|", "∣"), 80)
	to, ok := linkable(address, linkMax/2)
	if !ok {
		return label
	}
	return "<" + to + "|" + label + ">"
}

// linkable is an absolute http address of at most most bytes as it stands in a link.
func linkable(address string, most int) (string, bool) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || len(address) > most {
		return "", false
	}
	return strings.NewReplacer("&", "&amp;", "<", "%3C", ">", "%3E", "|", "%7C", " ", "%20").Replace(u.String()), true
}

// width counts UTF-16 units.
func width(s string) (n int) {
	for _, r := range s {
		n++
		if r > 0xffff {
			n++
		}
	}
	return n
}

// Cut shortens a text that is wider than most to most, with … at its end, and
// not within what is one sign to its reader.
func Cut(s string, most int) string {
	if len(s) <= most || width(s) <= most {
		return s
	}
	return s[:boundary(s, most-1)] + "…"
}

// cutEscaped is cut for a text in which an entity must not be cut in two.
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

// boundary is the last place within the first most units where a text may be cut.
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
	// A sign of more than 32 runes is none: cutting it harms nobody.
	for range 32 {
		if len(starts) == 0 || end == len(s) || !joined(s[:end], s[end:]) {
			break
		}
		end, starts = starts[len(starts)-1], starts[:len(starts)-1]
	}
	return end
}

// joined tells whether a cut between two texts would be within one sign.
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

// bullets are the first of n lines, at most most and within units together;
// the last says how many more there are.
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
