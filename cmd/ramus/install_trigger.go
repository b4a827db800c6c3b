package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/engineer"
	"github.com/ramus-dev/ramus/gateway/forge"
	"github.com/ramus-dev/ramus/gateway/trigger"
	"github.com/ramus-dev/ramus/gitd"
)

// TriggerConfig is a trigger, which starts work at times and events.
type TriggerConfig struct {
	Repo     string            `yaml:"repo"`
	Base     string            `yaml:"base"`
	Cron     string            `yaml:"cron"`
	TimeZone string            `yaml:"time_zone"`
	Webhook  WebhookConfig     `yaml:"webhook"`
	Issues   IssuesConfig      `yaml:"issues"`
	Checks   ChecksConfig      `yaml:"checks"`
	Push     PushConfig        `yaml:"push"`
	When     map[string]string `yaml:"when"`
	Workflow string            `yaml:"workflow"`
	Task     string            `yaml:"task"`
	Agent    string            `yaml:"agent"`
	Input    map[string]string `yaml:"input"`
	Take     map[string]string `yaml:"take"`
	Limit    int               `yaml:"limit"`
}

// WebhookConfig is the cause of a trigger at /hooks/NAME.
type WebhookConfig struct {
	Signature  string `yaml:"signature"`
	SecretEnv  string `yaml:"secret_env"`
	SecretFile string `yaml:"secret_file"`
	ID         string `yaml:"id"`
	Time       string `yaml:"time"`
	Title      string `yaml:"title"`
}

// IssuesConfig has the issues at GitHub that cause work. All is for new issues, and Label for labelled ones.
type IssuesConfig struct {
	Label string   `yaml:"label"`
	From  []string `yaml:"from"`
}

// ChecksConfig has the failed checks at GitHub that cause work.
type ChecksConfig struct {
	Branches []string `yaml:"branches"`
	Names    []string `yaml:"names"`
}

// PushConfig has the branches here whose new tips cause work.
type PushConfig struct {
	Branches []string `yaml:"branches"`
}

// newTriggers returns the triggers of a configuration. Returns nil if there are none.
func newTriggers(c Config, secret *secrets, log *slog.Logger) (*trigger.Triggers, error) {
	if len(c.Triggers) == 0 {
		return nil, nil
	}
	all := &trigger.Triggers{Dir: filepath.Join(c.Data, "triggers"), Log: log}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(c.Triggers)) {
		one, err := newTrigger(name, c.Triggers[name], secret)
		if err == nil {
			err = one.Check()
		}
		errs = append(errs, err)
		all.List = append(all.List, one)
	}
	return all, errors.Join(errs...)
}

func newTrigger(name string, c TriggerConfig, secret *secrets) (trigger.Trigger, error) {
	t := trigger.Trigger{Name: name, Repo: c.Repo, Base: c.Base, When: c.When, Workflow: c.Workflow,
		Task: strings.TrimSpace(c.Task), Agent: c.Agent,
		Input: c.Input, Take: c.Take, Limit: c.Limit}
	if c.Cron != "" {
		s, err := trigger.ParseSchedule(c.Cron, c.TimeZone)
		if err != nil {
			return t, fmt.Errorf("cannot use trigger %q: %w", name, err)
		}
		t.Cron = s
	}
	if w := c.Webhook; w != (WebhookConfig{}) {
		value, err := secret.value("triggers."+name+".webhook.secret", w.SecretEnv, w.SecretFile)
		if err != nil {
			return t, err
		}
		t.Webhook = &trigger.Webhook{Scheme: trigger.Scheme(w.Signature), Secret: value, ID: w.ID, Time: w.Time,
			Title: w.Title}
	}
	if i := c.Issues; i.Label != "" || len(i.From) > 0 {
		t.Issues = &trigger.Issues{Label: i.Label, From: i.From}
	}
	if k := c.Checks; len(k.Branches)+len(k.Names) > 0 {
		t.Checks = &trigger.Checks{Branches: k.Branches, Names: k.Names}
	}
	if len(c.Push.Branches) > 0 {
		t.Push = &trigger.Push{Branches: c.Push.Branches}
	}
	return t, nil
}

// openTriggers opens the triggers over the other rooms. A command with its own server does not open them, because it
// would end soon after their work has begun.
func (i *installation) openTriggers(ctx context.Context) error {
	t := i.triggers
	t.Executor, t.Tasks, t.Branches = i.executor, engineerTasks{i.engineer}, branches{i.git}
	upstream := i.forges.upstream(i.git, i.executor.Bases.Source)
	t.Upstream = func(repo string) (forge.Repo, bool) {
		_, at, ok := upstream(repo)
		return at, ok
	}
	return t.Open(ctx)
}

// engineerTasks submits the tasks of triggers to the engineer.
type engineerTasks struct{ engineer *engineer.Engineer }

func (e engineerTasks) Submit(ctx context.Context, t trigger.Task) (record.Task, error) {
	return e.engineer.Submit(ctx, engineer.Submission{Description: t.Description, Context: t.Context, Repo: t.Repo,
		Base: t.Base, Agent: t.Agent, Key: t.Key, Asker: t.Asker})
}

func (e engineerTasks) Task(ctx context.Context, id string) (record.Task, error) {
	return e.engineer.Task(ctx, id)
}

// branches reads the branches of the server's repositories.
type branches struct{ git *gitd.Server }

func (b branches) Tips(ctx context.Context, repo string) (map[string]gitd.Hash, error) {
	r, err := b.git.Repo(repo)
	if errors.Is(err, gitd.ErrNotFound) {
		return nil, nil // it may be imported later
	}
	if err != nil {
		return nil, err
	}
	refs, err := r.Refs(ctx, "refs/heads")
	if err != nil {
		return nil, err
	}
	tips := make(map[string]gitd.Hash, len(refs))
	for _, ref := range refs {
		tips[strings.TrimPrefix(ref.Name, "refs/heads/")] = ref.Hash
	}
	return tips, nil
}

func (b branches) MadeBy(ctx context.Context, repo string, commit gitd.Hash) (string, error) {
	r, err := b.git.Repo(repo)
	if err != nil {
		return "", err
	}
	c, err := r.Commit(ctx, string(commit))
	return c.Trailer(record.TrailerCaller), err
}
