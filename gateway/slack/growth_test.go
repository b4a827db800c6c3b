package slack

import (
	"encoding/json"
	"fmt"
	"net/url"
	"testing"

	"github.com/ramus-dev/ramus/internal/growth"
)

// TestEventGrowth checks that the time to read what Slack sends grows with it.
func TestEventGrowth(t *testing.T) {
	const event = `{"type":"event_callback","team_id":"T1","event_id":"Ev1","event":{"type":"app_mention","user":"U1","channel":"C1","ts":"1355517523.000005",`
	limited := func(cases []growth.Case) []growth.Case {
		for i := range cases {
			cases[i].Limit = MaxBody
			if cases[i].Name == "" && len(cases[i].Prefix) > 20 {
				cases[i].Name = fmt.Sprintf("in an event %q", cases[i].Token)
			}
		}
		return cases
	}
	bodies := growth.Tokens("a", "{", "[", `"`, `\`, `{"a":`, "[[", `{"event":`, `{"type":"event_callback","event":`,
		" ", "1", "-", "1e", "é", "\xff", "\x00", `"\u0061`)
	for _, token := range []string{"a", `\u0061`, `\\`, "é", `\ud83d\ude00`, "<@U1> ", "\xff"} {
		bodies = append(bodies, growth.Case{Prefix: event + `"text":"`, Token: token, Suffix: `"}}`})
	}
	for _, token := range []string{`"a":1,`, `"text":"a",`, `"blocks":[],`, `"a":{"a":[]},`} {
		bodies = append(bodies, growth.Case{Prefix: event, Token: token, Suffix: `"b":1}}`})
	}
	bodies = append(bodies, growth.Case{Prefix: event + `"a":[`, Token: `{},`, Suffix: `1]}}`},
		growth.Case{Prefix: `{"authorizations":[`, Token: `{"is_bot":true},`, Suffix: `1]}}`},
		growth.Case{Prefix: event, Each: func(n int) string { return fmt.Sprintf(`"k%d":1,`, n) }, Suffix: `"b":1}}`,
			Name: "members"})
	growth.Check(t, "event", func(text []byte) { _, _ = ParseEvent(text, "U2") }, limited(bodies)...)

	actions := growth.Tokens("a", "&", "=", "payload=", "%", "%7B", "+", ";", "a=b&", "payload={&", "%5B", "%zz", "\x00")
	actions = append(actions, growth.Case{Prefix: "payload=" + url.QueryEscape(`{"type":"block_actions","actions":[`),
		Token: url.QueryEscape(`{},`), Suffix: url.QueryEscape(`{}]}`), Name: "actions"})
	growth.Check(t, "interaction", func(text []byte) { _, _ = ParseInteraction(text) }, limited(actions)...)
	growth.Check(t, "command", func(text []byte) { _, _ = ParseCommand(text) },
		limited(append(growth.Tokens("a", "&", "=", "command=%2Framus&", "%", "+"),
			growth.Case{Prefix: "command=%2Framus&text=", Token: "%20a"}))...)
	growth.Check(t, "envelope",
		func(text []byte) { _, _ = parseEnvelope(socketMessage{Type: "slash_commands", Payload: text}, "U2") },
		limited(append(growth.Tokens("{", "[", `"`, "a"),
			growth.Case{Prefix: `{"command":"/ramus","text":"`, Token: `\n`, Suffix: `"}`}, growth.Case{Name: "members",
				Prefix: "{", Each: func(n int) string { return fmt.Sprintf(`"k%d":[1],`, n) }, Suffix: `"b":1}`}))...)
}

// TestTextGrowth checks that the time to undo Slack's markup grows with the text.
func TestTextGrowth(t *testing.T) {
	cases := growth.Tokens("a", "<", ">", "<@", "<@U2>", "<@U2> ", " <@U2>", "<@U2|a>", "<@U1>", "<#C1|a>", "<!here>",
		"<!subteam^S1|a>", "<!date^1^{date}|a>", "<http://a|b>", "<http://a>", "<mailto:a@b|a@b>", "<a", "a>", "<|",
		"<|>", "<>", "<!", "<!>",
		"<\n>", "<<>", "&", "&amp;", "&lt;", "&gt;", "&amp", "&a;", "`", "``", "```", "````", "`a", "`a`", "`\n",
		"`a\n", "`\n`", "```a", "```a```", "```\n", "``` `", "```<@U2>", "`<@U2>` ", "\n", " ", "\u00a0", "\u00a0<@U2>",
		"é", "\xff", "\x00", "\u200b", "*a*", "_a_", "~", "> a\n", "• a\n")
	for _, prefix := range []string{"```", "`", "<", "<http://", "&"} {
		for _, token := range []string{"a", "<", "`", "&", "<@U2>", "``", "\n", " ", "|", "&amp;", "<a>"} {
			cases = append(cases, growth.Case{Prefix: prefix, Token: token, Suffix: "```"},
				growth.Case{Prefix: prefix, Token: token})
		}
	}
	growth.Check(t, "text", func(text []byte) { Mention{Text: string(text), Bot: "U2"}.Said() }, cases...)
	blocks := growth.Tokens("[", "{", `[{"elements":`, `[{"text":`)
	for _, block := range []string{`{}`, `{"type":"section","text":{"type":"mrkdwn","text":"a"}}`,
		`{"type":"rich_text","elements":[{"type":"rich_text_section","elements":[{"type":"text","text":"<&"}]}]}`,
		`{"type":"context","elements":[{"type":"mrkdwn","text":"a"}]}`,
		`{"type":"section","fields":[{"text":"a"},{"text":"a"}]}`, `{"type":"button","text":{"text":"a"}}`} {
		blocks = append(blocks, growth.Case{Name: block, Prefix: "[", Token: block + ",", Suffix: "{}]"})
	}
	for _, element := range []string{`{"type":"text","text":"a"}`, `{"type":"rich_text_section","elements":[]}`,
		`{"type":"link","url":"a"}`, `{"type":"user","user_id":"U1"}`, `{"elements":[{}]}`, `{}`} {
		blocks = append(blocks, growth.Case{Name: "within " + element, Prefix: `[{"type":"rich_text","elements":[`,
			Token: element + ",", Suffix: "{}]}]"})
	}
	growth.Check(t, "blocks", func(text []byte) { blocksText(json.RawMessage(text)) }, blocks...)
}
