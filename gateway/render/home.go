package render

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/ramus-dev/ramus/gateway/slack"
)

// The action ids of the elements of the Home tab.
const (
	ActionHomeRepo   = "home_repo"
	ActionHomeBase   = "home_base"
	ActionHomeAgent  = "home_agent"
	ActionHomeNotify = "home_notify"
)

// HomeDefault is the value of the option that leaves a preference to the configuration.
const HomeDefault = "-"

// HomeBaseMax bounds the name of a branch in the Home tab, in characters.
const HomeBaseMax = 200

// blocksMax is how many blocks Slack takes in a message.
const blocksMax = 50

// HomeOption is a value that a person may choose, with the text for it.
type HomeOption struct{ Value, Text string }

// Home is the content of a person's Home tab. An empty preference is left to the configuration.
type Home struct {
	Repos, Agents             []string // that the person may choose
	Notify                    []HomeOption
	Repo, Base, Agent, Notice string // the preferences
	// Mistake tells why the last choice was not accepted.
	Mistake string
}

// chooser is a select with a present choice.
type chooser struct {
	choice
	Initial *option `json:"initial_option,omitempty"`
}

// labelled is a section with a chooser.
type labelled struct {
	Type      string     `json:"type"`
	Text      textObject `json:"text"`
	Accessory chooser    `json:"accessory"`
}

// typed is an input block with one line of text, which Slack sends when the person presses Enter.
type typed struct {
	Type     string     `json:"type"`
	Block    string     `json:"block_id"`
	Dispatch bool       `json:"dispatch_action"`
	Optional bool       `json:"optional"`
	Label    textObject `json:"label"`
	Hint     textObject `json:"hint"`
	Element  struct {
		Type     string   `json:"type"`
		Action   string   `json:"action_id"`
		Initial  string   `json:"initial_value,omitempty"`
		Max      int      `json:"max_length"`
		Dispatch dispatch `json:"dispatch_action_config"`
	} `json:"element"`
}

type dispatch struct {
	On []string `json:"trigger_actions_on"`
}

// Blocks returns the content.
func (h Home) Blocks() []slack.Block {
	var l layout
	l.header("ramus for you")
	l.section("These settings count for threads that you begin. Words in a mention (`repo:NAME`, `base:BRANCH`, `agent:NAME`), the thread's own branch, and the settings of a channel come first.")
	if h.Mistake != "" {
		l.section("⚠️ " + InlineText(h.Mistake, 400))
	}
	l.choose("*Repository*", ActionHomeRepo, h.Repo, homeOptions(h.Repos))
	if h.Repo != "" {
		l.typed("Branch to begin from", "Empty means the base of the repository. Press Enter to save.",
			ActionHomeBase, h.Base)
	}
	l.choose("*Agent* for plain words", ActionHomeAgent, h.Agent, homeOptions(h.Agents))
	l.choose("*Mention me* in a thread", ActionHomeNotify, h.Notice, h.Notify)
	return l.blocks
}

func homeOptions(values []string) []HomeOption {
	list := make([]HomeOption, len(values))
	for i, v := range values {
		list[i] = HomeOption{v, v}
	}
	return list
}

// choose adds a labelled choice. Values that Slack does not take are left out, except that the present one stays.
func (l *layout) choose(label, action, present string, values []HomeOption) {
	options := []option{{plainText("As configured here"), HomeDefault}}
	initial := options[0]
	for _, v := range values {
		if width(v.Value) > optionValue || strings.TrimSpace(readable(v.Text)) == "" || len(options) == optionsMax && v.Value != present {
			continue
		}
		o := option{plainText(Cut(readable(v.Text), optionMax)), v.Value}
		if len(options) == optionsMax {
			options[optionsMax-1] = o
		} else {
			options = append(options, o)
		}
		if v.Value == present {
			initial = o
		}
	}
	if present != "" && !slices.ContainsFunc(options, func(o option) bool { return o.Value == present }) {
		label += " (`" + NoTicks(InlineText(present, 100)) + "` is not available any more)"
	}
	l.raw(labelled{"section", mrkdwn(label),
		chooser{choice{"static_select", plainText("Choose"), action, options}, &initial}})
}

func (l *layout) typed(label, hint, action, present string) {
	t := typed{Type: "input", Block: action, Dispatch: true, Optional: true, Label: plainText(label), Hint: plainText(hint)}
	t.Element.Type, t.Element.Action, t.Element.Initial, t.Element.Max = "plain_text_input", action, present, HomeBaseMax
	t.Element.Dispatch.On = []string{"on_enter_pressed"}
	l.raw(t)
}

func (l *layout) raw(v any) {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // structs of strings
	}
	l.blocks = append(l.blocks, text)
}

// Notice returns a message with one more block before its others, which mentions users by their ids. A message without
// users, or with as many blocks as Slack takes, stays as it is.
func Notice(msg slack.Message, users ...string) slack.Message {
	if len(users) == 0 || len(msg.Blocks) >= blocksMax {
		return msg
	}
	text := ""
	for _, u := range users {
		text += "<@" + u + "> "
	}
	text = text[:len(text)-1]
	var l layout
	l.section(text)
	if len(msg.Blocks) > 0 {
		msg.Blocks = append(l.blocks, msg.Blocks...)
	}
	msg.Text = text + " " + msg.Text
	return msg
}

// Asks returns the message that a run waits for an answer.
func Asks(question string) slack.Message {
	return TaskMessage("❓ This run waits for you: " + InlineText(question, 400))
}
