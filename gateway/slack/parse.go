package slack

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/internal/text"
)

// maxChallenge bounds the answer to a url_verification, in bytes. Slack's challenges have about 50.
const maxChallenge = 1 << 10

// envelope is the outer body of the Events API around a message.
type envelope struct {
	TeamID         string `json:"team_id"`
	ContextTeamID  string `json:"context_team_id"`
	EnterpriseID   string `json:"enterprise_id"`
	Authorizations []struct {
		TeamID       string `json:"team_id"`
		EnterpriseID string `json:"enterprise_id"`
		UserID       string `json:"user_id"`
		IsBot        bool   `json:"is_bot"`
	} `json:"authorizations"`
	Event words `json:"event"`
}

// words is an event with a person's text.
type words struct {
	kind
	Hidden      bool   `json:"hidden"`
	Channel     string `json:"channel"`
	ChannelType string `json:"channel_type"`
	User        string `json:"user"`
	BotID       string `json:"bot_id"`
	Team        string `json:"team"`
	Text        string `json:"text"`
	TS          string `json:"ts"`
	ThreadTS    string `json:"thread_ts"`
}

// kind has the fields by which events are distinguished.
type kind struct {
	Type    string `json:"type"`
	Subtype string `json:"subtype"`
}

// read reports whether an event of the kind is read further. The others have different values under the same names,
// such as a whole channel or user.
func (k kind) read() bool {
	switch k.Subtype {
	case "", "file_share", "thread_broadcast":
		return k.Type == "app_mention" || k.Type == "message"
	}
	return false
}

// ParseEvent reads a body of the Events API. bot is ramus's own user id, for envelopes without one.
//
// An app_mention and the message envelope that Slack also sends (with another event_id) become the same Mention, with
// the same Key. So does every message of a direct conversation. Messages of bots are ignored, because two bots would
// otherwise talk forever.
func ParseEvent(body []byte, bot string) (Delivery, error) {
	var head struct {
		Type      string          `json:"type"`
		Challenge string          `json:"challenge"`
		EventID   string          `json:"event_id"`
		Event     json.RawMessage `json:"event"`
	}
	if err := unmarshal(body, &head); err != nil {
		return Delivery{}, fmt.Errorf("cannot read an event of Slack's: %w", err)
	}
	switch head.Type {
	case "url_verification":
		if head.Challenge == "" || len(head.Challenge) > maxChallenge {
			return Delivery{}, fmt.Errorf("cannot answer Slack's url_verification: its challenge has %d bytes",
				len(head.Challenge))
		}
		return Delivery{Challenge: head.Challenge}, nil
	case "event_callback":
	default:
		return Delivery{}, nil
	}
	if len(head.EventID) > maxID {
		return Delivery{}, fmt.Errorf("cannot read an event of Slack's: its event_id has %d bytes", len(head.EventID))
	}
	d := Delivery{EventID: head.EventID}
	var k kind
	err := json.Unmarshal(head.Event, &k)
	if len(head.Event) > 0 && err != nil {
		return Delivery{}, fmt.Errorf("cannot read event %q of Slack's: %w", head.EventID, err)
	}
	if k.Type == "app_home_opened" {
		d.Visit, err = parseVisit(body)
		return d, err
	}
	if !k.read() {
		return d, nil
	}
	var e envelope
	if err := unmarshal(body, &e); err != nil {
		return Delivery{}, fmt.Errorf("cannot read event %q of Slack's: %w", head.EventID, err)
	}
	m, err := e.mention(bot)
	if err != nil {
		return Delivery{}, fmt.Errorf("cannot read event %q of Slack's: %w", head.EventID, err)
	}
	switch {
	case m == nil:
	case e.Event.Type == "app_mention", e.Event.ChannelType == "im", mentions(m.Text, m.Bot):
		d.Mention = m
	case e.Event.ThreadTS != "":
		d.Reply = m
	}
	return d, nil
}

// parseVisit reads a look at one of the app's tabs. Returns nil for any other tab than Home.
func parseVisit(body []byte) (*Visit, error) {
	var e struct {
		TeamID string `json:"team_id"`
		Event  struct {
			User string `json:"user"`
			Tab  string `json:"tab"`
		} `json:"event"`
	}
	if err := unmarshal(body, &e); err != nil {
		return nil, fmt.Errorf("cannot read an app_home_opened of Slack's: %w", err)
	}
	if e.Event.Tab != "home" {
		return nil, nil
	}
	if err := check(idOf("team_id", e.TeamID), idOf("user", e.Event.User)); err != nil {
		return nil, fmt.Errorf("cannot read an app_home_opened of Slack's: %w", err)
	}
	return &Visit{e.TeamID, e.Event.User}, nil
}

// mention returns the event as a message of a person. Returns nil if it is not one.
func (e *envelope) mention(bot string) (*Mention, error) {
	team := cmp.Or(e.TeamID, e.ContextTeamID)
	// Only a bot's authorization names ramus. A user's names the person who installed the app.
	if len(e.Authorizations) > 0 && e.Authorizations[0].IsBot {
		bot = cmp.Or(e.Authorizations[0].UserID, bot)
	}
	if len(e.Authorizations) > 0 {
		team = cmp.Or(team, e.Authorizations[0].TeamID)
	}
	team = cmp.Or(team, e.Event.Team, e.EnterpriseID)
	if e.Event.Hidden || e.Event.BotID != "" || e.Event.User == "" || e.Event.User == bot {
		return nil, nil
	}
	m := &Mention{
		Team:     team,
		Channel:  e.Event.Channel,
		TS:       e.Event.TS,
		ThreadTS: cmp.Or(e.Event.ThreadTS, e.Event.TS),
		User:     e.Event.User,
		Bot:      bot,
		Text:     e.Event.Text,
	}
	if err := check(idOf("team", m.Team), idOf("channel", m.Channel), idOf("user", m.User), stampOf("ts", m.TS),
		stampOf("thread_ts", m.ThreadTS)); err != nil {
		return nil, err
	}
	if m.Bot != "" {
		if err := check(idOf("bot", m.Bot)); err != nil {
			return nil, err
		}
	}
	m.Time = Time(m.TS)
	return m, nil
}

// mentions reports whether a text mentions the user, as <@U1> or <@U1|name>.
func mentions(text, user string) bool {
	return user != "" && (strings.Contains(text, "<@"+user+">") || strings.Contains(text, "<@"+user+"|"))
}

// interaction is a block_actions payload.
type interaction struct {
	Team *struct {
		ID string `json:"id"`
	} `json:"team"`
	Enterprise *struct {
		ID string `json:"id"`
	} `json:"enterprise"`
	User struct {
		ID     string `json:"id"`
		TeamID string `json:"team_id"`
	} `json:"user"`
	Channel struct {
		ID string `json:"id"`
	} `json:"channel"`
	View struct {
		Type string `json:"type"`
	} `json:"view"`
	Container struct {
		Type      string `json:"type"`
		ChannelID string `json:"channel_id"`
		MessageTS string `json:"message_ts"`
		ThreadTS  string `json:"thread_ts"`
	} `json:"container"`
	Message struct {
		TS       string `json:"ts"`
		ThreadTS string `json:"thread_ts"`
	} `json:"message"`
	ResponseURL string `json:"response_url"`
	TriggerID   string `json:"trigger_id"`
	Actions     []struct {
		ActionID       string `json:"action_id"`
		Value          string `json:"value"`
		SelectedOption *struct {
			Value string `json:"value"`
		} `json:"selected_option"`
	} `json:"actions"`
}

// ParseInteraction reads a body (form with a payload) of an interaction. It returns an empty Delivery for kinds that
// ramus does not offer (views, shortcuts).
func ParseInteraction(body []byte) (Delivery, error) {
	form, err := parseForm(body)
	if err != nil {
		return Delivery{}, fmt.Errorf("cannot read an interaction of Slack's: %w", err)
	}
	return parseAction([]byte(form.Get("payload")))
}

// parseAction reads the payload of an interaction, which Socket Mode sends without the form.
func parseAction(payload []byte) (Delivery, error) {
	var k kind
	if err := unmarshal(payload, &k); err != nil {
		return Delivery{}, fmt.Errorf("cannot read an interaction of Slack's: %w", err)
	}
	if k.Type != "block_actions" {
		return Delivery{}, nil
	}
	var p interaction
	if err := unmarshal(payload, &p); err != nil {
		return Delivery{}, fmt.Errorf("cannot read an interaction of Slack's: %w", err)
	}
	if len(p.Actions) != 1 {
		return Delivery{}, fmt.Errorf("cannot read an interaction of Slack's: it has %d actions instead of one",
			len(p.Actions))
	}
	a := &Action{
		ID:          p.Actions[0].ActionID,
		Value:       p.Actions[0].Value,
		Channel:     cmp.Or(p.Channel.ID, p.Container.ChannelID),
		MessageTS:   cmp.Or(p.Container.MessageTS, p.Message.TS),
		User:        p.User.ID,
		ResponseURL: p.ResponseURL,
		TriggerID:   p.TriggerID,
	}
	a.ThreadTS = cmp.Or(p.Container.ThreadTS, p.Message.ThreadTS, a.MessageTS)
	if p.Actions[0].SelectedOption != nil {
		a.Value = p.Actions[0].SelectedOption.Value
	}
	if p.Team != nil {
		a.Team = p.Team.ID
	}
	a.Team = cmp.Or(a.Team, p.User.TeamID)
	if p.Enterprise != nil {
		a.Team = cmp.Or(a.Team, p.Enterprise.ID)
	}
	if a.ID == "" || len(a.ID) > 255 || len(a.Value) > 2000*4 {
		return Delivery{}, fmt.Errorf("cannot read an interaction of Slack's: action_id has %d bytes and value %d",
			len(a.ID), len(a.Value))
	}
	if p.Container.Type == "view" {
		if p.View.Type != "home" {
			return Delivery{}, nil
		}
		a.Home, a.Channel, a.MessageTS, a.ThreadTS = true, "", "", ""
		if err := check(idOf("team", a.Team), idOf("user", a.User)); err != nil {
			return Delivery{}, fmt.Errorf("cannot read an interaction of Slack's: %w", err)
		}
		return Delivery{Action: a}, nil
	}
	if err := check(idOf("team", a.Team), idOf("channel", a.Channel), idOf("user", a.User),
		stampOf("message_ts", a.MessageTS), stampOf("thread_ts", a.ThreadTS),
		opaque("trigger_id", a.TriggerID), opaque("response_url", a.ResponseURL)); err != nil {
		return Delivery{}, fmt.Errorf("cannot read an interaction of Slack's: %w", err)
	}
	return Delivery{Action: a}, nil
}

// ParseCommand reads a body (form) of a slash command.
func ParseCommand(body []byte) (Delivery, error) {
	form, err := parseForm(body)
	if err != nil {
		return Delivery{}, fmt.Errorf("cannot read a slash command of Slack's: %w", err)
	}
	// Slack sometimes calls the URL with ssl_check=1 to check its certificate.
	if form.Get("ssl_check") == "1" && form.Get("command") == "" {
		return Delivery{}, nil
	}
	return newCommand(form.Get)
}

// newCommand returns a Command with the given fields. They are those of a form, or in Socket Mode of an object.
func newCommand(field func(string) string) (Delivery, error) {
	c := &Command{
		Name:        field("command"),
		Text:        field("text"),
		Team:        cmp.Or(field("team_id"), field("enterprise_id")),
		Channel:     field("channel_id"),
		User:        field("user_id"),
		UserName:    text.Clip(field("user_name"), clipped),
		TriggerID:   field("trigger_id"),
		ResponseURL: field("response_url"),
	}
	if !strings.HasPrefix(c.Name, "/") || len(c.Name) > maxID {
		return Delivery{}, fmt.Errorf("cannot read a slash command of Slack's: command is %q", text.Clip(c.Name, clipped))
	}
	if err := check(idOf("team_id", c.Team), idOf("channel_id", c.Channel), idOf("user_id", c.User),
		opaque("trigger_id", c.TriggerID), opaque("response_url", c.ResponseURL)); err != nil {
		return Delivery{}, fmt.Errorf("cannot read a slash command of Slack's: %w", err)
	}
	return Delivery{Command: c}, nil
}

// parseForm reads a form. Slack sends few fields, never hundreds.
func parseForm(body []byte) (url.Values, error) {
	if len(body) > MaxBody {
		return nil, fmt.Errorf("it has %d bytes, more than %d", len(body), MaxBody)
	}
	if strings.Count(string(body), "&") > 100 {
		return nil, fmt.Errorf("it has more than 100 fields")
	}
	return url.ParseQuery(string(body))
}

func unmarshal(body []byte, v any) error {
	if len(body) > MaxBody {
		return fmt.Errorf("it has %d bytes, more than %d", len(body), MaxBody)
	}
	return json.Unmarshal(body, v)
}

// maxID is longer than any id of Slack (11 to 20 letters and digits).
const maxID = 64

// field is a value of Slack that is to be checked. Keys, branches and files have names made of such values, so no
// character with a special meaning may pass.
type field struct {
	name, value string
	good        func(string) bool
}

func check(fields ...field) error {
	for _, f := range fields {
		if !f.good(f.value) {
			return fmt.Errorf("%s is %q", f.name, text.Clip(f.value, clipped))
		}
	}
	return nil
}

func idOf(name, value string) field    { return field{name, value, isID} }
func stampOf(name, value string) field { return field{name, value, isStamp} }
func opaque(name, value string) field  { return field{name, value, isShort} }
func isShort(s string) bool            { return len(s) <= 2048 }
func isAlnum(c rune) bool              { return c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || isDigit(c) }
func isDigit(c rune) bool              { return c >= '0' && c <= '9' }
func only(s string, f func(rune) bool) bool {
	return strings.IndexFunc(s, func(c rune) bool { return !f(c) }) < 0
}

// IsID reports whether a text can be an id of Slack.
func IsID(s string) bool { return isID(s) }

// isID reports whether s has only letters and digits. Slack's ids are in upper case.
func isID(s string) bool { return s != "" && len(s) <= maxID && only(s, isAlnum) }

// isStamp reports whether s has the form seconds, point, counter, as 1355517523.000005.
func isStamp(s string) bool {
	seconds, rest, _ := strings.Cut(s, ".")
	return seconds != "" && rest != "" && len(seconds) <= 12 && len(rest) <= 9 && only(seconds+rest, isDigit)
}

// Time returns the time of a message's ts, to the second. Returns the zero time if ts is not valid.
func Time(ts string) time.Time {
	if !isStamp(ts) {
		return time.Time{}
	}
	seconds, _, _ := strings.Cut(ts, ".")
	n, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return time.Time{}
	}
	return time.Unix(n, 0).UTC()
}

// clipped is the number of bytes of foreign text in an error.
const clipped = 80
