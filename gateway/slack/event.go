package slack

import "time"

// Mention is a message that speaks to ramus.
type Mention struct {
	Team     string    `json:"team"`
	Channel  string    `json:"channel"`
	TS       string    `json:"ts"`        // of the message
	ThreadTS string    `json:"thread_ts"` // of the thread's parent; TS when the mention begins one
	User     string    `json:"user"`
	Bot      string    `json:"bot"`             // ramus's own user id, as the envelope or auth.test has it
	Text     string    `json:"text"`            // as Slack sent it, entities and all; see Said
	Slash    bool      `json:"slash,omitempty"` // a slash command: there is no message; TS is made up by the caller
	Time     time.Time `json:"time,omitzero"`
}

// Key is "{channel}:{ts}": the same for both envelopes of a mention and for every retry.
func (m Mention) Key() string { return m.Channel + ":" + m.TS }

// Session is "slack:{team}:{channel}:{thread_ts}".
func (m Mention) Session() string {
	return "slack:" + m.Team + ":" + m.Channel + ":" + m.ThreadTS
}

// Action is a button that was pressed.
type Action struct {
	ID          string `json:"id"`    // action_id: "stop", "retry", "approve", "reject", "diff", "repo"
	Value       string `json:"value"` // the button's value, or the option that was selected
	Team        string `json:"team"`
	Channel     string `json:"channel"`
	ThreadTS    string `json:"thread_ts"`
	MessageTS   string `json:"message_ts"`
	User        string `json:"user"`
	ResponseURL string `json:"response_url"`
	TriggerID   string `json:"trigger_id"`
}

// Command is a slash command.
type Command struct {
	Name, Text, Team, Channel, User, TriggerID, ResponseURL string
}

// Delivery is one thing that Slack sent; at most one field is set. None is an event
// that means nothing to ramus (its own messages, edits, joins): it is
// acknowledged and forgotten.
type Delivery struct {
	Challenge string // url_verification: to be sent back as it is
	Mention   *Mention
	// Reply is a message in a thread that does not mention ramus.
	Reply   *Mention
	Action  *Action
	Command *Command
	EventID string
	Retry   int // X-Slack-Retry-Num, for the log alone: no event is dropped for it
}
