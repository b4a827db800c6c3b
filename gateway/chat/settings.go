package chat

import "github.com/ramus-dev/ramus/gateway/gate"

// Settings are the options that [Chat.Apply] changes while events arrive. A Settings in use is never changed.
type Settings struct {
	Gate gate.Gate
	// Repo and Agent are the defaults of threads that name none and whose channel has none. If Repo is empty too, the
	// only repository is used. If there are several, the person is asked.
	Repo, Agent string
	Channels    map[string]Channel // by id
	// Rules lead threads to repositories by words. The first rule that fits counts.
	Rules []Rule
	// AllReplies treats every reply in a thread of ramus as a mention.
	AllReplies bool
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
	return &c.Settings
}

// gate returns the present rules of permission.
func (c *Chat) gate() *gate.Gate { return &c.settings().Gate }
