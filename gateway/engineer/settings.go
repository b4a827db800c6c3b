package engineer

import (
	"cmp"
	"time"
)

// Settings are the options that [Engineer.Apply] changes while tasks go on. A Settings in use is never changed.
type Settings struct {
	// Channel is the id of the channel of Slack in which each task gets a thread. If it is empty, tasks have no
	// threads.
	Channel string
	// Repo and Agent are the defaults of tasks that name none.
	Repo, Agent string
	// Branch is the template of the pull request's branch. It may contain {task_id} and {caller}. The default is
	// "ramus/conv-{task_id}".
	Branch string
	// Draft makes pull requests drafts. Labels are the labels that they get.
	Draft  bool
	Labels []string
	// Prompt is the template of an agent's first prompt. If it is empty, [render.DefaultPrompt] is used.
	Prompt string
	// Mention is the word that addresses ramus in a comment. The default is "@ramus".
	Mention string
	// Repairs is how often failed checks are repaired before a person has to look. The default is 3. If it is
	// negative, checks are never repaired.
	Repairs int
	// DeleteBranch deletes the branch at the forge after its pull request is merged.
	DeleteBranch bool
	// Status sets the status "ramus" of each commit that is pushed to the forge, with the verdict of the work.
	Status bool
	// Evidence selects how pictures of pages get to the forge. The default is [EvidenceLinks].
	Evidence Evidence
	// DeleteEvidence deletes the branch with the pictures at the forge after the pull request is merged. The comments
	// that show the pictures lose them.
	DeleteEvidence bool
	// Gather is how long the job waits for further comments after the first, so that one piece of work addresses them
	// together. The default is 2 s.
	Gather time.Duration
	// Every is how often a pull request is read if no delivery arrives. The default is 10 min.
	Every time.Duration
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
	return &e.Settings
}
