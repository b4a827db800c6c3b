package acp

import (
	"encoding/json"
	"strings"
)

// The kinds of updates that ParseUpdate decodes, see [Update].
const (
	UpdateMessage  = "agent_message_chunk"
	UpdateThought  = "agent_thought_chunk"
	UpdateUser     = "user_message_chunk" // of a session that is loaded, an earlier prompt
	UpdateTool     = "tool_call"
	UpdateToolMore = "tool_call_update"
	UpdatePlan     = "plan"
	UpdateMode     = "current_mode_update"
)

// Update is a report of an agent about its work. An update of another kind has Kind
// and Raw only.
type Update struct {
	Kind string
	Text string     // of UpdateMessage and UpdateThought; empty if the chunk is not text
	Tool *Tool      // of UpdateTool and UpdateToolMore
	Plan []PlanItem // of UpdatePlan
	Mode string     // of UpdateMode
	Raw  json.RawMessage
}

// Tool is the part of a tool call that an update reports. Fields that are empty did
// not change.
type Tool struct {
	ID        string     `json:"toolCallId"`
	Title     string     `json:"title,omitempty"`
	Kind      string     `json:"kind,omitempty"`   // "read", "edit", "execute" …
	Status    string     `json:"status,omitempty"` // "pending", "in_progress", "completed", "failed"
	Locations []Location `json:"locations,omitempty"`
	// RawInput is the tool's input as the agent sent it.
	RawInput json.RawMessage `json:"rawInput,omitempty"`
	// Content is the result so far. It takes the place of an earlier one.
	Content Contents `json:"content,omitempty"`
}

// Location is a file that a tool call works on.
type Location struct {
	Path string `json:"path"`
	Line *int   `json:"line,omitempty"`
}

// PlanItem is one entry of an agent's plan.
type PlanItem struct {
	Content  string `json:"content"`
	Status   string `json:"status"`
	Priority string `json:"priority"`
}

// ParseUpdate decodes the parameters of a session/update.
func ParseUpdate(params []byte) (session string, u Update, err error) {
	var n struct {
		SessionID string          `json:"sessionId"`
		Update    json.RawMessage `json:"update"`
	}
	if err := json.Unmarshal(params, &n); err != nil {
		return "", Update{}, err
	}
	var kind struct {
		Kind string `json:"sessionUpdate"`
	}
	if err := json.Unmarshal(n.Update, &kind); err != nil {
		return "", Update{}, err
	}
	u = Update{Kind: kind.Kind, Raw: n.Update}
	switch u.Kind {
	case UpdateMessage, UpdateThought, UpdateUser:
		var c struct {
			Content struct {
				Text string `json:"text"`
			} `json:"content"`
		}
		err = json.Unmarshal(n.Update, &c)
		u.Text = c.Content.Text
	case UpdateTool, UpdateToolMore:
		u.Tool = &Tool{}
		err = json.Unmarshal(n.Update, u.Tool)
	case UpdatePlan:
		var p struct {
			Entries []PlanItem `json:"entries"`
		}
		err = json.Unmarshal(n.Update, &p)
		u.Plan = p.Entries
	case UpdateMode:
		var m struct {
			Mode string `json:"currentModeId"`
		}
		err = json.Unmarshal(n.Update, &m)
		u.Mode = m.Mode
	}
	return n.SessionID, u, err
}

// Question is an agent's request for permission.
type Question struct {
	Tool    Tool
	Options []Option
}

// Option is an answer that an agent accepts.
type Option struct {
	ID   string `json:"optionId"`
	Name string `json:"name"`
	Kind string `json:"kind"` // "allow_once", "allow_always", "reject_once", "reject_always"
}

// The kinds of options.
const (
	AllowOnce    = "allow_once"
	AllowAlways  = "allow_always"
	RejectOnce   = "reject_once"
	RejectAlways = "reject_always"
)

// Allows reports whether the option lets the agent go on. An option of an unknown kind does not.
func (o Option) Allows() bool { return o.Kind == AllowOnce || o.Kind == AllowAlways }

// Pick returns the option that allows or rejects, for once if the agent offers that.
// ok is false if there is none.
func (q Question) Pick(allow bool) (o Option, ok bool) {
	kinds := []string{RejectOnce, RejectAlways}
	if allow {
		kinds = []string{AllowOnce, AllowAlways}
	}
	for _, kind := range kinds {
		for _, o := range q.Options {
			if o.Kind == kind {
				return o, true
			}
		}
	}
	return Option{}, false
}

// Words returns a tool call in one line.
func (t Tool) Words() string {
	words := t.Title
	if words == "" {
		words = t.Kind
	}
	if words == "" {
		words = t.ID
	}
	return strings.Join(strings.Fields(words), " ")
}
