package slack

import (
	"encoding/json"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Said is the text for people and agents: mentions of ramus itself taken out,
// entities (&amp;, links) undone, trimmed. Other users stay as <@U…>. Within
// code (`…`, ```…```) nothing but the entities changes.
func (m Mention) Said() string {
	said := plain(m.Text, func(user, _ string) (string, bool) {
		if m.Bot != "" && user == m.Bot {
			return "", true
		}
		return "<@" + user + ">", false
	})
	return strings.TrimSpace(said)
}

// maxEntity bounds the search for an entity's end, which keeps the time linear. URLs in Slack are shorter.
const maxEntity = 8 << 10

// plain undoes Slack's markup of a text
// (https://docs.slack.dev/messaging/formatting-message-text). What people typed
// as <, > and & arrives as an entity, so every <…> is Slack's own. name tells how
// a user is written, or that the mention is dropped, and the gap after it. A
// mention within code was typed as code and is never dropped.
func plain(text string, name func(user, label string) (written string, drop bool)) string {
	var out strings.Builder
	out.Grow(len(text))
	fence := "" // what ends the code that we are in
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
			// Slack's editor puts these around mentions; they would hide the words of a command.
			c = ' '
		}
		out.WriteRune(c)
	}
	// Control characters do something to terminals and nothing for readers.
	return strings.Map(func(c rune) rune {
		if unicode.IsControl(c) && c != '\n' && c != '\t' {
			return -1
		}
		return c
	}, out.String())
}

// opens is the fence of the code that the text begins with; "" where it begins
// with none. Code that nobody closes is none, and `…` ends on its line.
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

// angled is what stands between the < that the text begins with and its >.
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

// closeGap takes away what a dropped mention leaves behind: "@ramus: run"
// becomes "run", "hey @ramus run" becomes "hey run".
func closeGap(out *strings.Builder, text string) string {
	said := out.String()
	begins := len(said) < 64 && strings.TrimSpace(said) == "" // bounded: a text may be nothing but gaps
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

// unescapeAll undoes the entities of a label or a URL.
var unescapeAll = strings.NewReplacer("&lt;", "<", "&gt;", ">", "&amp;", "&").Replace

// entity writes what stands between < and >.
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
		// Slack made a link of what was typed; the label is what was typed.
		return label, false
	}
	return label + " (" + target + ")", false
}

// shown is a link as people type it.
func shown(link string) string {
	for _, scheme := range [...]string{"https://", "http://", "mailto:", "tel:"} {
		if rest, ok := strings.CutPrefix(link, scheme); ok {
			return strings.TrimSuffix(rest, "/")
		}
	}
	return strings.TrimSuffix(link, "/")
}

// special writes <!here>, <!subteam^S1|@team> and <!date^…|text>.
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

// maxBlockDepth is deeper than Block Kit nests: a list in a rich text has four levels.
const maxBlockDepth = 12

// blocksText is what blocks say, in Slack's markup, for messages that have no
// text beside them: a line a block.
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

// asMarkup writes a text as Slack's markup has it.
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
		return // for hands and eyes
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
		// Here alone a text is as it was typed, not in markup.
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
