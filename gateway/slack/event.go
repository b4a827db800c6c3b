package slack

import "time"

// Mention is a message to ramus.
type Mention struct {
	Team     string    `json:"team"`
	Channel  string    `json:"channel"`
	TS       string    `json:"ts"`        // of the message
	ThreadTS string    `json:"thread_ts"` // of the thread's parent; equal to TS if the mention starts a thread
	User     string    `json:"user"`
	Bot      string    `json:"bot"`             // ramus's own user id, from the envelope or auth.test
	Text     string    `json:"text"`            // as Slack sent it, including entities; see Said
	Slash    bool      `json:"slash,omitempty"` // a slash command, which has no message, so the caller invents TS
	Time     time.Time `json:"time,omitzero"`
}

// Key returns "{channel}:{ts}". It is the same for both envelopes of a mention and for every retry.
func (m Mention) Key() string { return m.Channel + ":" + m.TS }

// Session returns "slack:{team}:{channel}:{thread_ts}".
func (m Mention) Session() string {
	return "slack:" + m.Team + ":" + m.Channel + ":" + m.ThreadTS
}

// Action is the press of a button.
type Action struct {
	ID          string `json:"id"`    // action_id: "stop", "retry", "approve", "reject", "option-0", "diff", "repo"
	Value       string `json:"value"` // the button's value, or the selected option
	Team        string `json:"team"`
	Channel     string `json:"channel"`
	ThreadTS    string `json:"thread_ts"`
	MessageTS   string `json:"message_ts"`
	User        string `json:"user"`
	ResponseURL string `json:"response_url"`
	TriggerID   string `json:"trigger_id"`
	// Home means that the element is in the person's Home tab. Then Channel, ThreadTS and MessageTS are empty.
	Home bool `json:"home,omitempty"`
}

// Visit is a person's look at the Home tab of the app.
type Visit struct{ Team, User string }

// Command is a slash command.
type Command struct {
	Name, Text, Team, Channel, User, TriggerID, ResponseURL string
	// UserName is the name that the user chose. It is only shown.
	UserName string
}

// Delivery is one request of Slack. At most one field is set. It is empty for an event without meaning for ramus (its
// own messages, edits, joins), which is acknowledged and dropped.
type Delivery struct {
	Challenge string // url_verification, to be sent back unchanged
	Mention   *Mention
	// Reply is a message in a thread that does not mention ramus.
	Reply   *Mention
	Action  *Action
	Command *Command
	Visit   *Visit
	EventID string
	Retry   int // X-Slack-Retry-Num, only for the log; no event is dropped because of it
}
