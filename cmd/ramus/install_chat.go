package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/gateway/chat"
	"github.com/ramus-dev/ramus/gateway/gate"
	"github.com/ramus-dev/ramus/gateway/slack"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/pattern"
)

// newChat returns the Slack front of a configuration. Returns nil if there is no app.
func newChat(c Config, secret *secrets, log *slog.Logger) (*chat.Chat, error) {
	s := c.Slack
	token, err := secret.value("slack.token", s.TokenEnv, s.TokenFile)
	if err != nil {
		return nil, err
	}
	signing, err := secret.value("slack.signing_secret", s.SigningSecretEnv, s.SigningSecretFile)
	if err != nil {
		return nil, err
	}
	app, err := secret.value("slack.app_token", s.AppTokenEnv, s.AppTokenFile)
	if err != nil {
		return nil, err
	}
	switch {
	case token == "" && signing == "" && app == "":
		return nil, nil
	case token == "":
		return nil, errors.New("slack.token_env or slack.token_file is missing: without the bot's token ramus cannot read a thread or answer in it")
	case signing == "" && app == "":
		return nil, errors.New("slack has neither signing_secret_env (for the Events API) nor app_token_env (for Socket Mode), so no event could arrive")
	}
	talking := &chat.Chat{
		Slack:         &slack.Client{URL: s.URL, Token: token, AppToken: app, Log: log},
		SigningSecret: signing, Socket: app != "",
		Now: time.Now, Teams: s.Teams, PostChannels: s.PostChannels,
		EditEvery: time.Duration(s.EditEvery), Log: log,
	}
	if talking.People, err = newAuthors(s.People); err != nil {
		return nil, err
	}
	talking.Settings, err = newChatSettings(c)
	return talking, err
}

// newChatSettings returns the settings of the Slack front that a reload changes.
func newChatSettings(c Config) (chat.Settings, error) {
	set := chat.Settings{
		Gate: gate.Gate{Enabled: c.Gate.Enabled, ThreadStarters: c.Gate.ThreadStarters, Requesters: c.Gate.Requesters,
			Prefix:   c.Gate.Prefix,
			Channels: c.Gate.Channels, Repos: c.Gate.Repos, Percentage: c.Gate.Percentage},
		Repo: c.Slack.Repo, Agent: c.Slack.Agent, Channels: map[string]chat.Channel{},
		AllReplies: c.Slack.ThreadReplies == "all",
	}
	for id, one := range c.Slack.Channels {
		set.Channels[id] = chat.Channel{Repo: one.Repo, Base: one.Base, Agent: one.Agent}
	}
	for _, r := range c.Slack.Rules {
		set.Rules = append(set.Rules,
			chat.Rule{Words: r.Words, Channels: r.Channels, Repo: r.Repo, Base: r.Base, Agent: r.Agent})
	}
	if err := chat.CheckRules(set.Rules); err != nil {
		return set, fmt.Errorf("cannot use slack.rules: %w", err)
	}
	return set, readPeople(c.Gate.People, &set.Gate)
}

// githubLogin is a login of GitHub, or its number and login.
var githubLogin = pattern.New(`^(?:[0-9]{1,20}\+)?[A-Za-z0-9](?:[A-Za-z0-9]|-[A-Za-z0-9]){0,38}$`)

// newAuthors returns the authors of commits, by the ids of users in Slack.
func newAuthors(people map[string]AuthorConfig) (map[string]gitd.Person, error) {
	authors := make(map[string]gitd.Person, len(people))
	for id, c := range people {
		p := gitd.Person{Name: c.Name, Email: c.Email}
		switch {
		case c.GitHub != "" && c.Email != "":
			return nil, fmt.Errorf("cannot use slack.people.%s: it has email and github: want one", id)
		case c.GitHub != "" && !githubLogin.MatchString(c.GitHub):
			return nil, fmt.Errorf("cannot use slack.people.%s.github %q: want LOGIN or ID+LOGIN", id, c.GitHub)
		case c.GitHub != "":
			p.Email = c.GitHub + "@users.noreply.github.com"
		case c.Email != "" && (!strings.Contains(c.Email, "@") || strings.ContainsAny(c.Email, "<> \n")):
			return nil, fmt.Errorf("cannot use slack.people.%s.email %q: want an address", id, c.Email)
		}
		authors[id] = p
	}
	return authors, nil
}

// readPeople sets the permissions of people.
func readPeople(people map[string]PersonConfig, policy *gate.Gate) error {
	for _, name := range slices.Sorted(maps.Keys(people)) {
		set := people[name]
		p := gate.Permission{Repos: set.Repos}
		for _, may := range set.May {
			if !slices.Contains(gate.Deeds(), gate.Deed(may)) {
				return fmt.Errorf("cannot use gate.people.%s.may: unknown value %q, want one of %v", name, may, gate.Deeds())
			}
			p.May = append(p.May, gate.Deed(may))
		}
		if policy.People == nil {
			policy.People = map[string]gate.Permission{}
		}
		policy.People[name] = p
	}
	return nil
}

// openChat opens the Slack front over the other rooms. A command with its own server does not open it, because it would
// end soon after it has begun with mentions.
func (i *installation) openChat(ctx context.Context) error { return i.chat.Open(ctx) }
