package main

import (
	"fmt"
	"log/slog"
	"net/http"

	"github.com/ramus-dev/ramus/gateway/engineer"
	"github.com/ramus-dev/ramus/gateway/jira"
	"github.com/ramus-dev/ramus/gateway/linear"
	"github.com/ramus-dev/ramus/gateway/ticket"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/redact"
)

// TrackerConfig has the token of ramus at Jira, and the issues that start tasks.
type TrackerConfig struct {
	URL               string            `yaml:"url"`
	User              string            `yaml:"user"`
	TokenEnv          string            `yaml:"token_env"`
	TokenFile         string            `yaml:"token_file"`
	WebhookSecretEnv  string            `yaml:"webhook_secret_env"`
	WebhookSecretFile string            `yaml:"webhook_secret_file"`
	Label             string            `yaml:"label"`
	Assignee          string            `yaml:"assignee"`
	Repos             map[string]string `yaml:"repos"`
}

// LinearConfig has the token of ramus at Linear, and the issues that start tasks.
type LinearConfig struct {
	URL               string            `yaml:"url"`
	TokenEnv          string            `yaml:"token_env"`
	TokenFile         string            `yaml:"token_file"`
	WebhookSecretEnv  string            `yaml:"webhook_secret_env"`
	WebhookSecretFile string            `yaml:"webhook_secret_file"`
	Label             string            `yaml:"label"`
	Assignee          string            `yaml:"assignee"`
	Repos             map[string]string `yaml:"repos"`
}

// trackers are the configured issue trackers.
type trackers struct {
	byName map[string]ticket.Tracker
	hooks  map[string]engineer.TicketHook
	redact []func(*redact.Secrets)
}

// parseTicket reads a webhook of a tracker.
type parseTicket func(h http.Header, body []byte, secret string, names ticket.Names) (ticket.Event, error)

// newTrackers returns the issue trackers of a configuration.
func newTrackers(c Config, secret *secrets, log *slog.Logger) (*trackers, error) {
	t := &trackers{byName: map[string]ticket.Tracker{}, hooks: map[string]engineer.TicketHook{}}
	err := t.add("jira", c.Jira, secret, func(url, token string) (ticket.Tracker, parseTicket, func(*redact.Secrets)) {
		client := &jira.Client{URL: url, User: c.Jira.User, Token: token, Log: log}
		return client, client.Parse, func(set *redact.Secrets) { client.Secrets = set }
	})
	if err != nil {
		return nil, err
	}
	l := c.Linear
	return t, t.add("linear",
		TrackerConfig{URL: l.URL, TokenEnv: l.TokenEnv, TokenFile: l.TokenFile, WebhookSecretEnv: l.WebhookSecretEnv,
			WebhookSecretFile: l.WebhookSecretFile, Label: l.Label, Assignee: l.Assignee, Repos: l.Repos}, secret,
		func(url, token string) (ticket.Tracker, parseTicket, func(*redact.Secrets)) {
			client := &linear.Client{URL: url, Token: token, Log: log}
			return client, client.Parse, func(set *redact.Secrets) { client.Secrets = set }
		})
}

// add adds a tracker if it has a token.
func (t *trackers) add(name string, c TrackerConfig, secret *secrets, open func(url, token string) (ticket.Tracker, parseTicket, func(*redact.Secrets))) error {
	token, err := secret.value(name+".token", c.TokenEnv, c.TokenFile)
	if err != nil {
		return err
	}
	hook, err := secret.value(name+".webhook_secret", c.WebhookSecretEnv, c.WebhookSecretFile)
	if err != nil {
		return err
	}
	switch {
	case token == "" && hook == "":
		return nil
	case token == "" || hook == "":
		return fmt.Errorf("%s needs token_env or token_file, and webhook_secret_env or webhook_secret_file", name)
	case c.Label == "" && c.Assignee == "":
		return fmt.Errorf("%s starts no task: name a label or an assignee", name)
	case len(c.Repos) == 0:
		return fmt.Errorf("%s starts no task: name the repositories of projects in %s.repos", name, name)
	}
	for project, repo := range c.Repos {
		if err := gitd.CheckName(repo); err != nil {
			return fmt.Errorf("cannot use %s.repos.%s: %w", name, project, err)
		}
	}
	url, err := siteURL(name+".url", c.URL)
	if err != nil {
		return err
	}
	tracker, parse, redact := open(url.String(), token)
	names := ticket.Names{Label: c.Label, Assignee: c.Assignee}
	t.byName[name] = tracker
	t.redact = append(t.redact, redact)
	t.hooks[name] = engineer.TicketHook{Repos: c.Repos,
		Parse: func(h http.Header, body []byte) (ticket.Event, error) { return parse(h, body, hook, names) }}
	return nil
}

// removeSecrets has all posts cleaned.
func (t *trackers) removeSecrets(set *redact.Secrets) {
	for _, f := range t.redact {
		f(set)
	}
}
