package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"

	"github.com/ramus-dev/ramus/executor/secret"
	"github.com/ramus-dev/ramus/executor/upstream"
	"github.com/ramus-dev/ramus/gateway/bitbucket"
	"github.com/ramus-dev/ramus/gateway/engineer"
	"github.com/ramus-dev/ramus/gateway/forge"
	"github.com/ramus-dev/ramus/gateway/forgekey"
	"github.com/ramus-dev/ramus/gateway/gitea"
	"github.com/ramus-dev/ramus/gateway/github"
	"github.com/ramus-dev/ramus/gateway/gitlab"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/redact"
)

// ForgeConfig has the token of ramus at a GitLab or a Gitea.
type ForgeConfig struct {
	URL               string `yaml:"url"`
	TokenEnv          string `yaml:"token_env"`
	TokenFile         string `yaml:"token_file"`
	WebhookSecretEnv  string `yaml:"webhook_secret_env"`
	WebhookSecretFile string `yaml:"webhook_secret_file"`
}

// BitbucketConfig has the token of ramus at Bitbucket Cloud.
type BitbucketConfig struct {
	URL               string `yaml:"url"`
	APIURL            string `yaml:"api_url"`
	User              string `yaml:"user"`
	TokenEnv          string `yaml:"token_env"`
	TokenFile         string `yaml:"token_file"`
	WebhookSecretEnv  string `yaml:"webhook_secret_env"`
	WebhookSecretFile string `yaml:"webhook_secret_file"`
}

const (
	gitlabURL    = "https://gitlab.com"
	bitbucketURL = "https://bitbucket.org"
	// nestedGroups is GitLab's limit for the groups of a project.
	nestedGroups = 21
)

// forges are the configured forges. The host of a repository's upstream selects one.
type forges struct {
	hub   *hub
	sites []*site
	log   *slog.Logger
}

// site is a forge other than GitHub.
type site struct {
	name   string   // of its section
	web    *url.URL // of its pages
	groups int      // of a repository's owner, at most
	forge  forge.Forge
	git    gitd.Credential // for git over HTTP
	secret string          // of webhooks; if empty, none are accepted
	parse  func(http.Header, []byte, string) (forge.Delivery, error)
	redact func(*redact.Secrets) // has the forge remove secrets from posts
	// personal returns the forge with the access of another token. It is nil if people have no tokens of that kind.
	personal func(token string) forge.Forge
	scopes   string // of the tokens of people
}

// newForges returns the forges of a configuration.
func newForges(c Config, secret *secrets, log *slog.Logger) (*forges, error) {
	f := &forges{log: log}
	var err error
	if f.hub, err = newHub(c.GitHub, c.SignIn, secret, log); err != nil {
		return nil, err
	}
	b := c.Bitbucket
	for _, one := range []struct {
		name   string
		config ForgeConfig
		open   func(s *site, token string) error
	}{
		{"gitlab", c.GitLab, func(s *site, token string) error {
			client := &gitlab.Client{URL: s.web.String(), Token: token, Log: log}
			s.groups, s.forge, s.parse, s.git = nestedGroups, client, gitlab.ParseDelivery,
				gitd.Credential{User: "oauth2", Password: token}
			s.redact = func(set *redact.Secrets) { client.Secrets = set }
			s.scopes = "the scope api"
			s.personal = func(token string) forge.Forge {
				return &gitlab.Client{URL: client.URL, Token: token, Secrets: client.Secrets, Log: log}
			}
			return nil
		}},
		{"gitea", c.Gitea, func(s *site, token string) error {
			client := &gitea.Client{URL: s.web.String(), Token: token, Log: log}
			s.groups, s.forge, s.parse, s.git = 1, client, gitea.ParseDelivery,
				gitd.Credential{User: "ramus", Password: token}
			s.redact = func(set *redact.Secrets) { client.Secrets = set }
			s.scopes = "write:repository, read:user"
			s.personal = func(token string) forge.Forge {
				return &gitea.Client{URL: client.URL, Token: token, Secrets: client.Secrets, Log: log}
			}
			return nil
		}},
		{"bitbucket", ForgeConfig{b.URL, b.TokenEnv, b.TokenFile, b.WebhookSecretEnv, b.WebhookSecretFile},
			func(s *site, token string) error {
				if b.APIURL != "" {
					if _, err := siteURL("bitbucket.api_url", b.APIURL); err != nil {
						return err
					}
				}
				client := &bitbucket.Client{URL: b.APIURL, Web: s.web.String(), User: b.User, Token: token, Log: log}
				s.groups, s.forge, s.parse, s.git = 1, client, bitbucket.ParseDelivery,
					gitd.Credential{User: "x-token-auth", Password: token}
				if b.User != "" {
					s.git.User = "x-bitbucket-api-token-auth"
				}
				s.redact = func(set *redact.Secrets) { client.Secrets = set }
				return nil
			}},
	} {
		s, token, err := newSite(one.name, one.config, secret)
		if err != nil {
			return nil, err
		}
		if s == nil {
			continue
		}
		if err := one.open(s, token); err != nil {
			return nil, err
		}
		f.sites = append(f.sites, s)
	}
	return f, nil
}

// newSite returns a site without its client. Returns nil if there is no token for it.
func newSite(name string, c ForgeConfig, secret *secrets) (s *site, token string, err error) {
	if token, err = secret.value(name+".token", c.TokenEnv, c.TokenFile); err != nil {
		return nil, "", err
	}
	hook, err := secret.value(name+".webhook_secret", c.WebhookSecretEnv, c.WebhookSecretFile)
	switch {
	case err != nil:
		return nil, "", err
	case token == "" && hook != "":
		return nil, "", fmt.Errorf("%s.webhook_secret is set, but no token, without which ramus cannot read pull requests", name)
	case token == "" && name == "gitea" && c.URL != "":
		return nil, "", fmt.Errorf("gitea needs token_env or token_file")
	case token == "":
		return nil, "", nil
	}
	web, err := siteURL(name+".url", c.URL)
	return &site{name: name, web: web, secret: hook}, token, err
}

// at reports whether the repository of a URL is at this site, and returns its name.
func (s *site) at(upstream string) (forge.Name, bool) {
	if !isAt(s.web, upstream) {
		return forge.Name{}, false
	}
	if prefix := strings.Trim(s.web.Path, "/"); prefix != "" && isHTTP(upstream) {
		u, err := url.Parse(upstream)
		if err != nil {
			return forge.Name{}, false
		}
		rest, ok := strings.CutPrefix(strings.Trim(u.Path, "/"), prefix+"/")
		if !ok {
			return forge.Name{}, false
		}
		upstream = rest
	}
	return forge.ParseName(upstream, s.groups)
}

func (s *site) credential(context.Context) (gitd.Credential, error) { return s.git, nil }

// read returns the credential with which git reads an upstream. Returns nil if there is none.
func (f *forges) read(upstream string) func(context.Context) (gitd.Credential, error) {
	for _, s := range f.sites {
		if _, here := s.at(upstream); here && isHTTP(upstream) {
			return s.credential
		}
	}
	return f.hub.read(upstream)
}

// hooks returns the accepted webhooks.
func (f *forges) hooks() map[string]engineer.Hook {
	hooks := f.hub.hooks()
	for _, s := range f.sites {
		if s.secret != "" {
			hooks[s.name] = engineer.Hook{Forge: s.forge,
				Parse: func(h http.Header, body []byte) (forge.Delivery, error) { return s.parse(h, body, s.secret) }}
		}
	}
	return hooks
}

// newForgeKeys returns the tokens of people at the forges. Returns nil if no forge takes any.
func (f *forges) newForgeKeys(store *secret.Store, url string) *forgekey.Keys {
	keys := &forgekey.Keys{Store: store, URL: url, Log: f.log}
	if h := f.hub; h.client != nil {
		keys.Sites = append(keys.Sites, forgekey.Site{Name: "github", URL: h.web.String(), Forge: h.client,
			Scopes: "pull requests, read and write", With: func(token string) forge.Forge {
				return &github.Client{URL: h.client.URL, Web: h.client.Web, Tokens: github.Token(token),
					Secrets: h.client.Secrets, Log: f.log}
			}})
	}
	for _, s := range f.sites {
		if s.personal != nil {
			keys.Sites = append(keys.Sites,
				forgekey.Site{Name: s.name, URL: s.web.String(), Forge: s.forge, With: s.personal, Scopes: s.scopes})
		}
	}
	if len(keys.Sites) == 0 {
		return nil
	}
	return keys
}

// removeSecrets has all posts cleaned.
func (f *forges) removeSecrets(set *redact.Secrets) {
	if f.hub.client != nil {
		f.hub.client.Secrets = set
	}
	for _, s := range f.sites {
		s.redact(set)
	}
}

// find returns the repository of an upstream at one of the forges, and the credential with which git writes to it, which
// is nil if git uses no token. Returns false if the upstream is elsewhere, or ramus is nobody there.
func (f *forges) find(upstream string) (forge.Repo, func(context.Context) (gitd.Credential, error), bool) {
	for _, s := range f.sites {
		if name, here := s.at(upstream); here {
			if !isHTTP(upstream) {
				return forge.Repo{Forge: s.forge, Name: name}, nil, true
			}
			return forge.Repo{Forge: s.forge, Name: name}, s.credential, true
		}
	}
	at, ok := f.hub.repo(upstream)
	if !ok || !isHTTP(upstream) {
		return at, nil, ok
	}
	return at, f.hub.write(upstream), true
}

// upstream returns a function that returns the upstream of a repository at one of the forges, with a credential to
// write.
func (f *forges) upstream(git *gitd.Server, source func(repo string) upstream.Source) func(repo string) (gitd.Upstream, forge.Repo, bool) {
	return func(repo string) (gitd.Upstream, forge.Repo, bool) {
		up := source(repo).Upstream
		if up.URL == "" {
			r, err := git.Repo(repo)
			if err != nil {
				return gitd.Upstream{}, forge.Repo{}, false
			}
			if up.URL, err = r.Upstream(context.Background()); err != nil {
				f.log.Warn("cannot read the upstream of a repository", "repo", repo, "err", err)
			}
		}
		at, credential, ok := f.find(up.URL)
		if credential != nil {
			up.Credential = credential
		}
		return up, at, ok
	}
}
