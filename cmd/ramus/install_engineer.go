package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/gateway/engineer"
	"github.com/ramus-dev/ramus/gateway/render"
)

// EngineerConfig configures how tasks become pull requests.
type EngineerConfig struct {
	Repo           string   `yaml:"repo"`
	Agent          string   `yaml:"agent"`
	SlackChannel   string   `yaml:"slack_channel"`
	Branch         string   `yaml:"branch"`
	Draft          bool     `yaml:"draft"`
	Labels         []string `yaml:"labels"`
	PromptTemplate string   `yaml:"prompt_template"`
	Mention        string   `yaml:"mention"`
	Repairs        int      `yaml:"repairs"`
	DeleteBranch   bool     `yaml:"delete_branch"`
	Status         bool     `yaml:"status"`
	Evidence       string   `yaml:"evidence"`
	DeleteEvidence bool     `yaml:"delete_evidence"`
	Gather         Duration `yaml:"gather"`
	Every          Duration `yaml:"every"`
}

// maxPromptFile bounds the template of the first prompt, in bytes.
const maxPromptFile = 256 << 10

// newEngineer returns the engineer, which takes tasks.
func newEngineer(c EngineerConfig, log *slog.Logger) (*engineer.Engineer, error) {
	set, err := newEngineerSettings(c)
	return &engineer.Engineer{Settings: set, Log: log}, err
}

// newEngineerSettings returns the settings of the engineer that a reload changes.
func newEngineerSettings(c EngineerConfig) (engineer.Settings, error) {
	set := engineer.Settings{
		Repo: c.Repo, Agent: c.Agent, Channel: c.SlackChannel, Mention: c.Mention,
		Branch: c.Branch, Draft: c.Draft, Labels: c.Labels, Repairs: c.Repairs, DeleteBranch: c.DeleteBranch,
		Status:   c.Status,
		Evidence: engineer.Evidence(c.Evidence), DeleteEvidence: c.DeleteEvidence,
		Gather: time.Duration(c.Gather), Every: time.Duration(c.Every),
	}
	if !strings.Contains(c.Branch, "{task_id}") && !strings.Contains(c.Branch, "{caller}") {
		return set, fmt.Errorf("cannot use engineer.branch %q: without {task_id} or {caller} all tasks would be on one branch", c.Branch)
	}
	switch set.Evidence {
	case engineer.EvidenceLinks, engineer.EvidenceBranch, engineer.EvidenceNone:
	default:
		return set, fmt.Errorf("cannot use engineer.evidence %q: want %s, %s or %s", c.Evidence, engineer.EvidenceLinks,
			engineer.EvidenceBranch, engineer.EvidenceNone)
	}
	if set.Repairs == 0 {
		set.Repairs = -1 // in the configuration 0 means never
	}
	if c.PromptTemplate == "" {
		return set, nil
	}
	text, err := os.ReadFile(c.PromptTemplate)
	if err == nil && len(text) > maxPromptFile {
		err = fmt.Errorf("it has more than %d KiB", maxPromptFile>>10)
	}
	if err == nil {
		_, err = render.Prompt(string(text), render.PromptData{})
	}
	if err != nil {
		return set, fmt.Errorf("cannot use engineer.prompt_template: %w", err)
	}
	set.Prompt = string(text)
	return set, nil
}

// openEngineer opens the engineer over the other rooms. A command with its own server does not open it, because it
// would end soon after it has begun with tasks.
func (i *installation) openEngineer(ctx context.Context) error {
	e := i.engineer
	if i.chat != nil {
		e.Slack, e.PostChannels = i.chat.Slack, i.chat.PostChannels
		i.chat.Engineer = e
	}
	return e.Open(ctx)
}
