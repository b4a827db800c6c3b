package slack

import (
	"encoding/json"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Said returns the text for people and agents. Mentions of ramus itself are removed, entities (&amp;, links) are
// decoded, and the text is trimmed. Other users stay <@U…>. Within code (`…`, ```…```) only the entities change.
func (m Mention) Said() string {
	said := plain(m.Text, func(user, _ string) (string, bool) {
		if m.Bot != "" && user == m.Bot {
			return "", true
		}
		return "<@" + user + ">", false
	})
	return strings.TrimSpace(said)
}

// maxEntity bounds the search for the end of an entity, which keeps the time linear. URLs in Slack are shorter.
const maxEntity = 8 << 10

// plain decodes Slack's markup of a text (https://docs.slack.dev/messaging/formatting-message-text). Characters <, >
// and & that people typed arrive as entities, so every <…> is Slack's own. name returns the text for a user, or that
// the mention is dropped together with the gap after it. A mention within code was typed as code and is never dropped.
func plain(text string, name func(user, label string) (written string, drop bool)) string {
	var out strings.Builder
	out.Grow(len(text))
	fence := "" // the end of the open code
	for text != "" {
		if fence == "" {
			fence = opens(text)
			out.WriteString(fence)
			text = text[len(fence):]
		} else if rest, closes := strings.CutPrefix(text, fence); closes {
			out.WriteString(fence)
			fence, text = "", rest
			continue
		}
		if inner, rest, ok := angled(text); ok {
			written, drop := entity(inner, fence != "", name)
			text = rest
			if drop {
				text = closeGap(&out, text)
			}
			out.WriteString(written)
			continue
		}
		if c, rest, ok := unescape(text); ok {
			out.WriteByte(c)
			text = rest
			continue
		}
		c, size := utf8.DecodeRuneInString(text)
		text = text[size:]
		if c == '\u00a0' && fence == "" {
			// Slack's editor puts these characters around mentions. They would hide the words of a command.
			c = ' '
		}
		out.WriteRune(c)
	}
	// Control characters affect terminals and are of no use to readers.
	return strings.Map(func(c rune) rune {
		if unicode.IsControl(c) && c != '\n' && c != '\t' {
			return -1
		}
		return c
	}, out.String())
}

// opens returns the fence of the code with which the text begins, or "". Unclosed code is not code, and `…` ends on its
// line.
func opens(text string) string {
	if rest, ok := strings.CutPrefix(text, "```"); ok && strings.Contains(rest, "```") {
		return "```"
	}
	if rest, ok := strings.CutPrefix(text, "`"); ok {
		if end := strings.IndexAny(rest, "`\n"); end > 0 && rest[end] == '`' {
			return "`"
		}
	}
	return ""
}

// angled returns the text between the < at the beginning of the text and its >.
func angled(text string) (inner, rest string, ok bool) {
	if text == "" || text[0] != '<' {
		return "", text, false
	}
	end := 1 + strings.IndexAny(text[1:min(len(text), maxEntity)], "<>\n")
	if end == 0 || text[end] != '>' {
		return "", text, false
	}
	return text[1:end], text[end+1:], true
}

// closeGap removes the gap that a dropped mention leaves. "@ramus: run" becomes "run", and "hey @ramus run" becomes
// "hey run".
func closeGap(out *strings.Builder, text string) string {
	said := out.String()
	begins := len(said) < 64 && strings.TrimSpace(said) == "" // bounded, because a text may consist of gaps
	if begins && text != "" && (text[0] == ':' || text[0] == ',') {
		text = text[1:]
	}
	if begins || strings.HasSuffix(said, " ") || strings.HasSuffix(said, "\n") {
		text = strings.TrimLeft(text, " \u00a0")
	}
	return text
}

func unescape(text string) (c byte, rest string, ok bool) {
	if text == "" || text[0] != '&' {
		return 0, text, false
	}
	for _, e := range [...]struct {
		name string
		c    byte
	}{{"&lt;", '<'}, {"&gt;", '>'}, {"&amp;", '&'}} {
		if rest, ok = strings.CutPrefix(text, e.name); ok {
			return e.c, rest, true
		}
	}
	return 0, text, false
}

// unescapeAll decodes the entities of a label or a URL.
var unescapeAll = strings.NewReplacer("&lt;", "<", "&gt;", ">", "&amp;", "&").Replace

// entity returns the text for the part between < and >.
func entity(inner string, code bool, name func(user, label string) (string, bool)) (written string, drop bool) {
	target, label, labelled := strings.Cut(inner, "|")
	target, label = unescapeAll(target), unescapeAll(label)
	switch {
	case strings.HasPrefix(target, "@") && isID(target[1:]):
		written, drop = name(target[1:], label)
		if drop && code {
			return "<" + target + ">", false
		}
		return written, drop
	case strings.HasPrefix(target, "#") && isID(target[1:]):
		if label != "" {
			return "#" + label, false
		}
		return "<" + target + ">", false
	case strings.HasPrefix(target, "!"):
		return special(target[1:], label), false
	case !labelled || label == "":
		return target, false
	case code, label == target, shown(target) == shown(label):
		// Slack made a link of the typed text, which is the label.
		return label, false
	}
	return label + " (" + target + ")", false
}

// shown returns a link as people type it.
func shown(link string) string {
	for _, scheme := range [...]string{"https://", "http://", "mailto:", "tel:"} {
		if rest, ok := strings.CutPrefix(link, scheme); ok {
			return strings.TrimSuffix(rest, "/")
		}
	}
	return strings.TrimSuffix(link, "/")
}

// special returns the text for <!here>, <!subteam^S1|@team> and <!date^…|text>.
func special(what, label string) string {
	switch what {
	case "here", "channel", "everyone":
		return "@" + what
	}
	if label != "" {
		return label
	}
	kind, id, _ := strings.Cut(what, "^")
	if kind == "subteam" {
		return "@" + id
	}
	return "@" + kind
}

// maxBlockDepth is deeper than the nesting of Block Kit. A list in a rich text has four levels.
const maxBlockDepth = 12

// blocksText returns the text of blocks in Slack's markup, one line per block, for messages without other text.
func blocksText(raw json.RawMessage) string {
	var blocks []any
	if len(raw) == 0 || json.Unmarshal(raw, &blocks) != nil {
		return ""
	}
	var lines []string
	for _, b := range blocks {
		var line strings.Builder
		blockText(&line, b, 0)
		if text := strings.TrimSpace(line.String()); text != "" {
			lines = append(lines, text)
		}
	}
	return strings.Join(lines, "\n")
}

// asMarkup escapes a text for Slack's markup.
var asMarkup = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")

func blockText(out *strings.Builder, v any, depth int) {
	b, ok := v.(map[string]any)
	if !ok || depth > maxBlockDepth {
		return
	}
	text := func(name string) string {
		text, _ := b[name].(string)
		return text
	}
	switch text("type") {
	case "button", "image", "static_select", "overflow":
		return // buttons and pictures have no text
	case "user":
		out.WriteString("<@" + text("user_id") + ">")
	case "channel":
		out.WriteString("<#" + text("channel_id") + ">")
	case "emoji":
		out.WriteString(":" + text("name") + ":")
	case "link":
		out.WriteString("<" + text("url"))
		if label := text("text"); label != "" {
			out.WriteString("|" + label)
		}
		out.WriteString(">")
	case "rich_text_section", "rich_text_preformatted", "rich_text_quote", "rich_text_list":
		if out.Len() > 0 && !strings.HasSuffix(out.String(), "\n") {
			out.WriteByte('\n')
		}
	case "text":
		// Only this text is as typed, and not in markup.
		out.WriteString(asMarkup.Replace(text("text")))
	default:
		out.WriteString(text("text"))
	}
	if o, ok := b["text"].(map[string]any); ok {
		blockText(out, o, depth+1)
	}
	for _, name := range [...]string{"fields", "elements"} {
		list, _ := b[name].([]any)
		for i, e := range list {
			if name == "fields" || i > 0 && text("type") == "context" {
				out.WriteByte(' ')
			}
			blockText(out, e, depth+1)
		}
	}
}
