package engineer

import (
	"cmp"
	"time"
)

// Settings are the options that [Engineer.Apply] changes while tasks go on. They have the meaning of the fields of
// Engineer. A Settings is never changed.
type Settings struct {
	Channel        string
	Repo, Agent    string
	Branch         string
	Draft          bool
	Labels         []string
	Prompt         string
	Mention        string
	Repairs        int
	DeleteBranch   bool
	Evidence       Evidence
	DeleteEvidence bool
	Gather, Every  time.Duration
}

// Apply changes the settings. A task keeps the branch that it has.
func (e *Engineer) Apply(s Settings) {
	s.Branch = cmp.Or(s.Branch, defaultBranch)
	s.Mention = cmp.Or(s.Mention, "@ramus")
	s.Repairs = cmp.Or(s.Repairs, 3)
	s.Evidence = cmp.Or(s.Evidence, EvidenceLinks)
	s.Gather = cmp.Or(max(s.Gather, 0), 2*time.Second)
	s.Every = cmp.Or(max(s.Every, 0), 10*time.Minute)
	e.applied.Store(&s)
}

// settings returns the present settings.
func (e *Engineer) settings() *Settings {
	if s := e.applied.Load(); s != nil {
		return s
	}
	return e.Settings()
}

// Settings returns the settings of the fields.
func (e *Engineer) Settings() *Settings {
	return &Settings{e.Channel, e.Repo, e.Agent, e.Branch, e.Draft, e.Labels, e.Prompt, e.Mention, e.Repairs, e.DeleteBranch, e.Evidence,
		e.DeleteEvidence, e.Gather, e.Every}
}
