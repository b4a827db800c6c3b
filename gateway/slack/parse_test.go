package slack_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/gateway/slack"
)

// event is an envelope with the fields of an event changed; nil takes one away.
func event(change map[string]any) []byte {
	e := map[string]any{"type": "message", "channel": "C01", "channel_type": "channel", "user": "U01", "team": "T01",
		"text": "hello", "ts": "1700000000.000100"}
	maps.Copy(e, change)
	maps.DeleteFunc(e, func(_ string, v any) bool { return v == nil })
	body, err := json.Marshal(map[string]any{
		"type": "event_callback", "team_id": "T01", "event_id": "Ev01", "event": e,
		"authorizations": []any{map[string]any{"team_id": "T01", "user_id": "U0RAMUS", "is_bot": true}},
	})
	if err != nil {
		panic(err)
	}
	return body
}

type fields = map[string]any

func TestParseEvent(t *testing.T) {
	const mention, reply, none = "mention", "reply", "none"
	for _, c := range []struct {
		name   string
		change fields
		want   string
	}{
		{"a mention", fields{"type": "app_mention", "text": "<@U0RAMUS> test", "channel_type": nil}, mention},
		{"a mention whose text has another form", fields{"type": "app_mention", "text": "test"}, mention},
		{"its twin", fields{"text": "<@U0RAMUS> test"}, mention},
		{"its twin with a name", fields{"text": "<@U0RAMUS|ramus> test"}, mention},
		{"its twin with a file", fields{"text": "<@U0RAMUS> test", "subtype": "file_share"}, mention},
		{"its twin, told to the channel", fields{"text": "<@U0RAMUS> test", "subtype": "thread_broadcast",
			"thread_ts": "1600000000.000100"}, mention},
		{"a mention in a thread",
			fields{"type": "app_mention", "text": "<@U0RAMUS> test", "thread_ts": "1600000000.000100"}, mention},
		{"a direct message", fields{"channel": "D01", "channel_type": "im"}, mention},
		{"a direct reply", fields{"channel": "D01", "channel_type": "im", "thread_ts": "1600000000.000100"}, mention},
		{"a reply", fields{"thread_ts": "1600000000.000100"}, reply},
		{"a reply in a group", fields{"thread_ts": "1600000000.000100", "channel_type": "mpim"}, reply},
		{"a reply that speaks to another", fields{"text": "<@U0RAMUSX> hi", "thread_ts": "1600000000.000100"}, reply},
		{"a message", fields{}, none},
		{"ramus's own", fields{"user": "U0RAMUS", "text": "<@U0RAMUS>", "thread_ts": "1600000000.000100"}, none},
		{"a bot's", fields{"bot_id": "B01", "text": "<@U0RAMUS> test"}, none},
		{"a bot's mention", fields{"type": "app_mention", "bot_id": "B01", "text": "<@U0RAMUS> test"}, none},
		{"a bot_message", fields{"subtype": "bot_message", "user": nil, "text": "<@U0RAMUS> test"}, none},
		{"an edit", fields{"subtype": "message_changed", "hidden": true, "user": nil}, none},
		{"a deletion", fields{"subtype": "message_deleted", "hidden": true, "user": nil}, none},
		{"a hidden message", fields{"hidden": true, "text": "<@U0RAMUS> test"}, none},
		{"a join", fields{"subtype": "channel_join", "text": "<@U01> joined <@U0RAMUS>"}, none},
		{"a reaction", fields{"type": "reaction_added"}, none},
	} {
		d, err := slack.ParseEvent(event(c.change), "UOTHER")
		got := none
		switch {
		case d.Mention != nil && d.Reply != nil:
			got = "both"
		case d.Mention != nil:
			got = mention
		case d.Reply != nil:
			got = reply
		}
		if err != nil || got != c.want || d.EventID != "Ev01" || d.Action != nil || d.Command != nil || d.Challenge != "" {
			t.Errorf("%s: %s (%+v), %v; want %s", c.name, got, d, err, c.want)
		}
	}
}

// Events that ramus does nothing with have what they like below the names that it reads of messages.
// TestParseEventLength takes an event with as many bytes as a body may have, and refuses a longer one.
func TestParseEventLength(t *testing.T) {
	body := event(nil)
	body = append(body, strings.Repeat(" ", slack.MaxBody-len(body))...)
	if _, err := slack.ParseEvent(body, "U0RAMUS"); err != nil {
		t.Errorf("%d bytes: %v", len(body), err)
	}
	if _, err := slack.ParseEvent(append(body, ' '), "U0RAMUS"); err == nil {
		t.Errorf("%d bytes are parsed", len(body)+1)
	}
}

func TestParseOtherEvents(t *testing.T) {
	user := fields{"id": "U01", "team_id": "T01", "name": "ann", "profile": fields{"status_text": "riding a train"},
		"updated": 1700000000}
	for name, change := range map[string]fields{
		"channel_created": {"channel": fields{"id": "C02", "name": "fun", "created": 1360782804, "creator": "U01"},
			"user": nil},
		"channel_rename":       {"channel": fields{"id": "C02", "name": "new_name", "created": 1360782804}, "user": nil},
		"group_rename":         {"channel": fields{"id": "G02", "name": "new_name", "created": 1360782804}, "user": nil},
		"im_created":           {"channel": fields{"id": "D02", "created": 1360782804}},
		"team_join":            {"user": user},
		"user_change":          {"user": user, "cache_ts": 1700000000},
		"user_huddle_changed":  {"user": user, "cache_ts": 1700000000},
		"user_profile_changed": {"user": user},
		"user_status_changed":  {"user": user},
		"team_rename":          {"team": fields{}, "text": 5, "hidden": "no", "ts": 1700000000.1},
		"message": {"subtype": "huddle_thread", "user": user, "channel": fields{"id": "C02"},
			"room": fields{"id": "R01"}},
	} {
		change["type"] = name
		d, err := slack.ParseEvent(event(change), "U0RAMUS")
		if err != nil || !reflect.DeepEqual(d, slack.Delivery{EventID: "Ev01"}) {
			t.Errorf("%s: %+v, %v", name, d, err)
		}
	}
	for _, payload := range []string{
		`{"type":"view_submission","team":"T01","user":"U01","view":{"id":"V01"},"actions":{}}`,
		`{"type":"shortcut","user":5,"channel":"C01","message":"hello","trigger_id":1}`,
	} {
		d, err := slack.ParseInteraction([]byte(url.Values{"payload": {payload}}.Encode()))
		if err != nil || !reflect.DeepEqual(d, slack.Delivery{}) {
			t.Errorf("%s: %+v, %v", payload, d, err)
		}
	}
	for _, bad := range []fields{{"channel": fields{"id": "C02"}}, {"user": user}, {"type": fields{}}, {"text": 5}} {
		if d, err := slack.ParseEvent(event(bad), "U0RAMUS"); err == nil {
			t.Errorf("a message with %v is %+v", bad, d)
		}
	}
}

func TestParseEventWhole(t *testing.T) {
	d, err := slack.ParseEvent(event(fields{"type": "app_mention", "text": "<@U0RAMUS> test &amp; go",
		"thread_ts": "1600000000.000100"}), "")
	want := &slack.Mention{
		Team: "T01", Channel: "C01", TS: "1700000000.000100", ThreadTS: "1600000000.000100", User: "U01", Bot: "U0RAMUS",
		Text: "<@U0RAMUS> test &amp; go", Time: time.Unix(1700000000, 0).UTC(),
	}
	if err != nil || !reflect.DeepEqual(d.Mention, want) {
		t.Fatalf("%+v, %v; want %+v", d.Mention, err, want)
	}
	if key, session := d.Mention.Key(), d.Mention.Session(); key != "C01:1700000000.000100" ||
		session != "slack:T01:C01:1600000000.000100" {
		t.Errorf("key %s, session %s", key, session)
	}
	d, err = slack.ParseEvent(event(fields{"text": "<@U0RAMUS> hi"}), "")
	if err != nil || d.Mention.ThreadTS != d.Mention.TS {
		t.Errorf("a mention that begins a thread: %+v, %v", d.Mention, err)
	}
}

// TestTwins: all envelopes of a message have one key, whichever says what of it.
func TestTwins(t *testing.T) {
	s, _, _ := start(t)
	parent := s.Write("U02", "C01", "", "hello")
	ts := s.Write("U01", "C01", parent, "<@U0RAMUS> test")
	envelopes := append(s.Envelopes("C01", ts), s.Envelopes("C01", ts)...)
	if len(envelopes) != 4 {
		t.Fatalf("%d envelopes", len(envelopes))
	}
	ids := map[string]bool{}
	for _, body := range envelopes {
		d, err := slack.ParseEvent(body, "")
		if err != nil || d.Mention == nil || d.Mention.Key() != "C01:"+ts || d.Mention.ThreadTS != parent {
			t.Errorf("%s: %+v, %v", body, d.Mention, err)
		}
		ids[d.EventID] = true
	}
	if len(ids) != 4 {
		t.Errorf("event_ids: %v", ids)
	}
}

func TestParseEventWithoutAuthorizations(t *testing.T) {
	body := []byte(`{"type":"event_callback","event_id":"Ev1","enterprise_id":"E01","event":{"type":"message","channel":"C01","user":"U01","text":"<@U9> hi","ts":"1.000001"}}`)
	d, err := slack.ParseEvent(body, "U9")
	if err != nil || d.Mention == nil || d.Mention.Bot != "U9" || d.Mention.Team != "E01" {
		t.Errorf("%+v, %v", d.Mention, err)
	}
	// Authorized by a person: the bot is the one that is given.
	body = []byte(`{"type":"event_callback","team_id":"T01","authorizations":[{"user_id":"U01","is_bot":false}],"event":{"type":"message","channel":"C01","user":"U01","text":"<@U9> hi","ts":"1.000001"}}`)
	if d, err = slack.ParseEvent(body, "U9"); err != nil || d.Mention == nil || d.Mention.Bot != "U9" {
		t.Errorf("%+v, %v", d.Mention, err)
	}
}

func TestParseEventOthers(t *testing.T) {
	d, err := slack.ParseEvent([]byte(`{"type":"url_verification","challenge":"abc","token":"x"}`), "")
	if err != nil || d != (slack.Delivery{Challenge: "abc"}) {
		t.Errorf("url_verification: %+v, %v", d, err)
	}
	d, err = slack.ParseEvent([]byte(`{"type":"app_rate_limited","team_id":"T01"}`), "")
	if err != nil || d != (slack.Delivery{}) {
		t.Errorf("app_rate_limited: %+v, %v", d, err)
	}
	for name, body := range map[string][]byte{
		"no JSON":                 []byte(`hello`),
		"nothing":                 nil,
		"an array":                []byte(`[]`),
		"a challenge too long":    fmt.Appendf(nil, `{"type":"url_verification","challenge":%q}`, strings.Repeat("x", 2000)),
		"no challenge":            []byte(`{"type":"url_verification"}`),
		"more than there may be":  fmt.Appendf(nil, `{"type":"event_callback","x":%q}`, strings.Repeat("x", slack.MaxBody)),
		"a channel that leads up": event(fields{"channel": "../C01", "text": "<@U0RAMUS>"}),
		"a ts with a colon":       event(fields{"ts": "1:2", "text": "<@U0RAMUS>"}),
		"a ts without a point":    event(fields{"ts": "1700000000", "text": "<@U0RAMUS>"}),
		"a thread with a slash":   event(fields{"thread_ts": "1.1/2", "text": "<@U0RAMUS>"}),
		"a user with a newline":   event(fields{"user": "U01\n", "text": "<@U0RAMUS>"}),
		"no ts":                   event(fields{"ts": nil, "text": "<@U0RAMUS>"}),
		"no channel":              event(fields{"channel": nil, "text": "<@U0RAMUS>"}),
	} {
		if d, err := slack.ParseEvent(body, ""); err == nil {
			t.Errorf("%s: %+v", name, d)
		}
	}
}

func TestParseInteraction(t *testing.T) {
	form := func(payload string) []byte { return []byte(url.Values{"payload": {payload}}.Encode()) }
	button := `{"type":"block_actions","team":{"id":"T01"},"user":{"id":"U01","team_id":"T01"},"channel":{"id":"C01"},"container":{"message_ts":"2.000001","thread_ts":"1.000001","channel_id":"C01"},
		"message":{"ts":"2.000001","thread_ts":"1.000001"},"response_url":"https://hooks.slack.com/actions/x","trigger_id":"13.1","actions":[{"action_id":"stop","value":"run-1","type":"button"}]}`
	d, err := slack.ParseInteraction(form(button))
	want := slack.Action{ID: "stop", Value: "run-1", Team: "T01", Channel: "C01", ThreadTS: "1.000001",
		MessageTS: "2.000001", User: "U01", ResponseURL: "https://hooks.slack.com/actions/x", TriggerID: "13.1"}
	if err != nil || d.Action == nil || *d.Action != want {
		t.Errorf("a button: %+v, %v", d.Action, err)
	}
	selected := `{"type":"block_actions","team":null,"enterprise":{"id":"E01"},"user":{"id":"U01"},"channel":{"id":"C01"},"container":{"message_ts":"2.000001","channel_id":"C01"},
		"actions":[{"action_id":"repo","type":"static_select","selected_option":{"text":{"type":"plain_text","text":"x"},"value":"sample"}}]}`
	d, err = slack.ParseInteraction(form(selected))
	if err != nil || d.Action == nil || d.Action.Value != "sample" || d.Action.Team != "E01" || d.Action.ThreadTS != "2.000001" {
		t.Errorf("a select: %+v, %v", d.Action, err)
	}
	if d, err = slack.ParseInteraction(form(`{"type":"view_submission"}`)); err != nil || d != (slack.Delivery{}) {
		t.Errorf("a view: %+v, %v", d, err)
	}
	for name, body := range map[string][]byte{
		"no form":       []byte("%zz"),
		"no payload":    []byte("x=1"),
		"no JSON":       form("{"),
		"no action":     form(strings.Replace(button, `{"action_id":"stop","value":"run-1","type":"button"}`, "", 1)),
		"no action_id":  form(strings.Replace(button, `"stop"`, `""`, 1)),
		"a bad channel": form(strings.ReplaceAll(button, `"C01"`, `"C 01"`)),
		"many fields":   []byte(strings.Repeat("a=1&", 200)),
	} {
		if d, err := slack.ParseInteraction(body); err == nil {
			t.Errorf("%s: %+v", name, d)
		}
	}
}

func TestParseCommand(t *testing.T) {
	d, err := slack.ParseCommand([]byte(exampleBody))
	want := slack.Command{
		Name: "/webhook-collect", Team: "T1DC2JH3J", Channel: "G8PSS9T3V", User: "U2CERLKJA", UserName: "roadrunner",
		TriggerID:   "398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c",
		ResponseURL: "https://hooks.slack.com/commands/T1DC2JH3J/397700885554/96rGlfmibIGlgcZRskXaIFfN",
	}
	if err != nil || d.Command == nil || *d.Command != want {
		t.Errorf("%+v, %v", d.Command, err)
	}
	if d, err := slack.ParseCommand([]byte("ssl_check=1&token=x")); err != nil || d != (slack.Delivery{}) {
		t.Errorf("ssl_check: %+v, %v", d, err)
	}
	for _, body := range []string{"", "command=ramus&team_id=T1&channel_id=C1&user_id=U1",
		"command=/ramus&team_id=T1&channel_id=C1&user_id=U-1", "command=%"} {
		if d, err := slack.ParseCommand([]byte(body)); err == nil {
			t.Errorf("%q: %+v", body, d)
		}
	}
}

func TestSaid(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"<@U0RAMUS> test", "test"},
		{"<@U0RAMUS|ramus>: test", "test"},
		{"<@U0RAMUS>,\u00a0run\u00a0it", "run it"},
		{"  <@U0RAMUS>   ", ""},
		{"hey <@U0RAMUS> run it", "hey run it"},
		{"run it, <@U0RAMUS>", "run it,"},
		{"<@U0RAMUS> ask <@U01> and <@U02|second>", "ask <@U01> and <@U02>"},
		{"a &lt; b &amp;&amp; c &gt; d", "a < b && c > d"},
		{"&amp;lt; stays an entity", "&lt; stays an entity"},
		{"see <https://example.com/a?b=1&amp;c=2>", "see https://example.com/a?b=1&c=2"},
		{"see <https://example.com/a|the page>", "see the page (https://example.com/a)"},
		{"open <http://example.com|example.com> now", "open example.com now"},
		{"write to <mailto:a@example.com|a@example.com>", "write to a@example.com"},
		{"in <#C01|one> and <#C02> and <#C03|>", "in #one and <#C02> and <#C03>"},
		{"<!here> <!channel> <!everyone>", "@here @channel @everyone"},
		{"<!subteam^S01|@team> <!subteam^S02>", "@team @S02"},
		{"on <!date^1700000000^{date}|14 November 2023>", "on 14 November 2023"},
		{"<@U0RAMUS> exec\n```\n<@U0RAMUS>  a &lt; b\n\tx\n```", "exec\n```\n<@U0RAMUS>  a < b\n\tx\n```"},
		{"```curl <https://example.com/x|example.com/x>```", "```curl example.com/x```"},
		{"```curl <https://example.com/x>```", "```curl https://example.com/x```"},
		{"use `<@U0RAMUS> &amp; co`", "use `<@U0RAMUS> & co`"},
		{"an open ` <@U0RAMUS> tick", "an open ` tick"},
		{"an open ``` <@U0RAMUS> fence", "an open ``` fence"},
		{"no entity < at all", "no entity < at all"},
		{"<unclosed", "<unclosed"},
		{"a\x00b\x1b[31mc\x7f", "ab[31mc"},
		{"<@U0RAMUS> run tests\u00a0repo:sample", "run tests repo:sample"},
	} {
		m := slack.Mention{Bot: "U0RAMUS", Text: c.text}
		if got := m.Said(); got != c.want {
			t.Errorf("%q: %q; want %q", c.text, got, c.want)
		}
	}
}

// TestSaidIsLinear: texts made to be slow take no longer than others of their length.
func TestSaidIsLinear(t *testing.T) {
	for _, piece := range []string{"<", "`", "```", "<@U0RAMUS>", "\n<@U0RAMUS>", "<@", "&", "`a\n", "<a|"} {
		m := slack.Mention{Bot: "U0RAMUS", Text: strings.Repeat(piece, slack.MaxBody/len(piece))}
		m.Said()
	}
}

func FuzzSaid(f *testing.F) {
	for _, text := range []string{"<@U0RAMUS> test", "```<https://a|b>```", "&amp;lt; <!date^1^{date}|x> `a`",
		"<@U0RAMUS>:\u00a0x <#C1|>", "<<@U1>>"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		m := slack.Mention{Bot: "U0RAMUS", Text: text}
		said := m.Said()
		if len(said) > 4*len(text)+16 {
			t.Errorf("%d bytes became %d", len(text), len(said))
		}
		if strings.TrimSpace(said) != said || strings.ContainsAny(said, "\x00\x1b\x7f") {
			t.Errorf("%q became %q", text, said)
		}
	})
}

func FuzzParseEvent(f *testing.F) {
	f.Add(event(fields{"type": "app_mention", "text": "<@U0RAMUS> test"}), "U0RAMUS")
	f.Add(event(fields{"thread_ts": "1.000001"}), "")
	f.Add([]byte(`{"type":"url_verification","challenge":"abc"}`), "")
	f.Add([]byte(`{"type":"event_callback","authorizations":[{}],"event":{"type":"message"}}`), "U1")
	f.Add([]byte(`{"type":"event_callback","team_id":"T01","event":{"type":"app_home_opened","user":"U01","tab":"home"}}`), "U1")
	f.Fuzz(func(t *testing.T, body []byte, bot string) {
		d, err := slack.ParseEvent(body, bot)
		if err != nil {
			return
		}
		if v := d.Visit; v != nil && (v.Team == "" || v.User == "" ||
			strings.ContainsAny(v.Team+v.User, "/: .")) { // they become the name of a ref
			t.Errorf("%+v", v)
		}
		for _, m := range []*slack.Mention{d.Mention, d.Reply} {
			if m == nil {
				continue
			}
			if strings.ContainsAny(m.Session()[len("slack:"):]+m.Key(), "/ \n\\") ||
				strings.Count(m.Session(), ":") != 3 || m.User == m.Bot {
				t.Errorf("%+v", m)
			}
		}
	})
}

func FuzzParseInteraction(f *testing.F) {
	f.Add("payload=" + url.QueryEscape(`{"type":"block_actions","team":{"id":"T01"},"user":{"id":"U01"},"channel":{"id":"C01"},"container":{"message_ts":"2.000001"},"actions":[{"action_id":"stop","value":"run-1"}]}`))
	f.Add("payload=%7B%7D")
	f.Add("payload=" + url.QueryEscape(`{"type":"block_actions","team":{"id":"T01"},"user":{"id":"U01"},"view":{"type":"home"},"container":{"type":"view"},"actions":[{"action_id":"home_base","value":null}]}`))
	f.Fuzz(func(t *testing.T, body string) {
		d, err := slack.ParseInteraction([]byte(body))
		if err == nil && d.Action != nil && strings.ContainsAny(d.Action.Team+d.Action.User, "/: .") {
			t.Errorf("%+v", d.Action)
		}
		if err == nil && d.Action != nil &&
			(d.Action.ID == "" || strings.ContainsAny(d.Action.Channel+d.Action.ThreadTS+d.Action.Team, "/: ")) {
			t.Errorf("%+v", d.Action)
		}
	})
}

func FuzzParseCommand(f *testing.F) {
	f.Add(exampleBody)
	f.Add("ssl_check=1")
	f.Fuzz(func(t *testing.T, body string) {
		d, err := slack.ParseCommand([]byte(body))
		if err == nil && d.Command != nil && (!strings.HasPrefix(d.Command.Name, "/") ||
			strings.ContainsAny(d.Command.Channel+d.Command.Team+d.Command.User, "/: ")) {
			t.Errorf("%+v", d.Command)
		}
	})
}
