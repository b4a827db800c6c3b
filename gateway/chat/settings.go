package chat

import "github.com/ramus-dev/ramus/gateway/gate"

// Settings are the options that [Chat.Apply] changes while events arrive. They have the meaning of the fields of Chat. A
// Settings is never changed.
type Settings struct {
	Gate        gate.Gate
	Repo, Agent string
	Channels    map[string]Channel
	Rules       []Rule
	AllReplies  bool
}

// Apply changes the settings. Mentions that are not decided on yet have the new ones.
func (c *Chat) Apply(s Settings) {
	if s.Gate.Prefix == "" {
		s.Gate.Prefix = gate.DefaultPrefix
	}
	c.applied.Store(&s)
}

// settings returns the present settings.
func (c *Chat) settings() *Settings {
	if s := c.applied.Load(); s != nil {
		return s
	}
	return &Settings{c.Gate, c.Repo, c.Agent, c.Channels, c.Rules, c.AllReplies}
}

// gate returns the present rules of permission.
func (c *Chat) gate() *gate.Gate { return &c.settings().Gate }
