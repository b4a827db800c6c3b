package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/gateway/engineer"
	"github.com/ramus-dev/ramus/gateway/forge"
	"github.com/ramus-dev/ramus/gateway/github"
	"github.com/ramus-dev/ramus/gateway/githubread"
	"github.com/ramus-dev/ramus/gateway/signin"
	"github.com/ramus-dev/ramus/gitd"
)

// GitHubConfig has the App, or the token, of ramus at GitHub.
type GitHubConfig struct {
	URL               string       `yaml:"url"`
	APIURL            string       `yaml:"api_url"`
	AppID             int64        `yaml:"app_id"`
	InstallationID    int64        `yaml:"installation_id"`
	KeyEnv            string       `yaml:"key_env"`
	KeyFile           string       `yaml:"key_file"`
	TokenEnv          string       `yaml:"token_env"`
	TokenFile         string       `yaml:"token_file"`
	WebhookSecretEnv  string       `yaml:"webhook_secret_env"`
	WebhookSecretFile string       `yaml:"webhook_secret_file"`
	SignIn            SignInConfig `yaml:"sign_in"`
}

// SignInConfig selects the users of GitHub that get a token of ramus.
type SignInConfig struct {
	ClientID         string   `yaml:"client_id"`
	ClientSecretEnv  string   `yaml:"client_secret_env"`
	ClientSecretFile string   `yaml:"client_secret_file"`
	Users            []string `yaml:"users"`
	Organizations    []string `yaml:"organizations"`
	Scopes           []string `yaml:"scopes"`
	Life             Duration `yaml:"life"`
}

// hub is the configured GitHub.
type hub struct {
	web    *url.URL       // of its web site
	tokens github.Tokens  // nil if ramus has no identity there
	client *github.Client // nil if tokens is nil
	secret string         // of webhooks; if empty, none are accepted
	signIn *signin.GitHub // nil if there is no sign-in
	log    *slog.Logger
}

const githubURL = "https://github.com"

// newHub returns the GitHub of a configuration.
func newHub(c GitHubConfig, people PeopleConfig, secret *secrets, log *slog.Logger) (*hub, error) {
	h := &hub{log: log}
	var err error
	if h.web, err = siteURL("github.url", c.URL); err != nil {
		return nil, err
	}
	api := c.APIURL
	switch {
	case api != "":
		if _, err := siteURL("github.api_url", api); err != nil {
			return nil, err
		}
	case strings.EqualFold(h.web.Host, "github.com"):
		api = github.DefaultURL
	default:
		api = h.web.JoinPath("api", "v3").String() // the API of an Enterprise Server
	}
	if h.tokens, err = newTokens(c, api, secret); err != nil {
		return nil, err
	}
	if h.tokens != nil {
		h.client = &github.Client{URL: api, Web: h.web.String(), Tokens: h.tokens, Log: log}
	}
	if h.secret, err = secret.value("github.webhook_secret", c.WebhookSecretEnv, c.WebhookSecretFile); err != nil {
		return nil, err
	}
	if h.secret != "" && h.tokens == nil {
		return nil, errors.New("github.webhook_secret is set, but neither an App nor a token, without which ramus cannot read pull requests")
	}
	h.signIn, err = newSignIn(c.SignIn, people, h.web.String(), api, secret, log)
	return h, err
}

// hooks returns the accepted webhooks.
func (h *hub) hooks() map[string]engineer.Hook {
	if h.secret == "" {
		return map[string]engineer.Hook{}
	}
	return map[string]engineer.Hook{"github": {Forge: h.client,
		Parse: func(header http.Header, body []byte) (forge.Delivery, error) {
			return github.ParseDelivery(header, body, h.secret)
		}}}
}

// siteURL parses a URL to which secrets are sent.
func siteURL(key, text string) (*url.URL, error) {
	u, err := url.Parse(strings.TrimSuffix(text, "/"))
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("%s is %q: want a URL such as %s", key, text, githubURL)
	}
	ip, _ := netip.ParseAddr(u.Hostname())
	if u.Scheme != "https" && (u.Scheme != "http" || !ip.IsLoopback() && u.Hostname() != "localhost") {
		return nil, fmt.Errorf("%s is %q: want https, since tokens are sent there", key, text)
	}
	return u, nil
}

// newTokens returns the source of tokens. Returns nil if none is configured.
func newTokens(c GitHubConfig, api string, secret *secrets) (github.Tokens, error) {
	key, err := secret.value("github.key", c.KeyEnv, c.KeyFile)
	if err != nil {
		return nil, err
	}
	token, err := secret.value("github.token", c.TokenEnv, c.TokenFile)
	if err != nil {
		return nil, err
	}
	switch app := key != "" || c.AppID != 0 || c.InstallationID != 0; {
	case app && token != "":
		return nil, errors.New("github has an App and a token: want one")
	case token != "":
		return github.Token(token), nil
	case !app:
		return nil, nil
	case key == "" || c.AppID == 0:
		return nil, errors.New("github needs app_id, and key_env or key_file")
	}
	parsed, err := github.ParseKey([]byte(key))
	if err != nil {
		return nil, err
	}
	return &github.App{ID: c.AppID, Installation: c.InstallationID, Key: parsed, URL: api}, nil
}

// newSignIn returns the sign-in. Returns nil if none is configured.
func newSignIn(c SignInConfig, people PeopleConfig, web, api string, secret *secrets, log *slog.Logger) (*signin.GitHub, error) {
	text, err := secret.value("github.sign_in.client_secret", c.ClientSecretEnv, c.ClientSecretFile)
	if err != nil {
		return nil, err
	}
	switch {
	case c.ClientID == "" && text == "" && len(c.Users)+len(c.Organizations) == 0:
		return nil, nil
	case c.ClientID == "" || text == "":
		return nil, errors.New("github.sign_in needs client_id, and client_secret_env or client_secret_file")
	case len(c.Users)+len(c.Organizations) == 0 && !people.letsGitHub():
		return nil, errors.New("github.sign_in accepts nobody: name users or organizations there or in sign_in")
	}
	s := &signin.GitHub{Client: &github.SignIn{URL: web, API: api, ClientID: c.ClientID, ClientSecret: text, Log: log},
		Users: c.Users, Organizations: c.Organizations, Scopes: c.Scopes, Life: time.Duration(c.Life)}
	return s, s.Check()
}

// at reports whether the repository of a URL is at this GitHub, and returns its name.
func (h *hub) at(upstream string) (forge.Name, bool) {
	name, ok := github.ParseName(upstream)
	return name, ok && isAt(h.web, upstream)
}

// isAt reports whether an upstream is at the host of a site.
func isAt(web *url.URL, upstream string) bool {
	if !strings.Contains(upstream, ":") {
		return false // a name without a host has no site
	}
	host := ""
	if u, err := url.Parse(upstream); err == nil && u.Host != "" {
		if u.Scheme == web.Scheme {
			return strings.EqualFold(u.Host, web.Host)
		}
		host = u.Hostname()
		if u.Scheme != "ssh" {
			return false
		}
	} else if host, _, _ = strings.Cut(upstream, ":"); strings.Contains(host, "@") {
		_, host, _ = strings.Cut(host, "@")
	}
	return strings.EqualFold(host, web.Hostname()) || strings.EqualFold(host, "ssh."+web.Hostname()) ||
		strings.EqualFold(host, "altssh."+web.Hostname())
}

// isHTTP reports whether git would send a token to an upstream.
func isHTTP(upstream string) bool {
	return strings.HasPrefix(upstream, "https://") || strings.HasPrefix(upstream, "http://")
}

// read returns the credential with which git reads an upstream at this GitHub. Returns nil if there is none.
func (h *hub) read(upstream string) func(context.Context) (gitd.Credential, error) {
	if _, here := h.at(upstream); !here || h.tokens == nil || !isHTTP(upstream) {
		return nil
	}
	ask := github.Credential(h.tokens, upstream, github.AccessRead)
	return func(ctx context.Context) (gitd.Credential, error) {
		c, err := ask(ctx)
		if errors.Is(err, forge.ErrNotFound) {
			// The repository may be public.
			h.log.WarnContext(ctx, "the GitHub App is not installed for a repository, which is read without a token",
				"upstream", upstream, "err", err)
			return gitd.Credential{}, nil
		}
		return c, err
	}
}

// repo returns the repository of an upstream at this GitHub. Returns false if it is elsewhere, or ramus is nobody there.
func (h *hub) repo(upstream string) (forge.Repo, bool) {
	name, here := h.at(upstream)
	if !here || h.tokens == nil {
		return forge.Repo{}, false
	}
	return forge.Repo{Forge: h.client, Name: name}, true
}

// write returns the credential with which git writes to an upstream at this GitHub.
func (h *hub) write(upstream string) func(context.Context) (gitd.Credential, error) {
	return github.Credential(h.tokens, upstream, github.AccessWrite)
}

// reader returns the door of containers to GitHub, for the repositories that find finds there. It is nil if ramus has no
// identity there.
func (h *hub) reader(find func(repo string) (gitd.Upstream, forge.Repo, bool)) *githubread.Reader {
	if h.tokens == nil {
		return nil
	}
	return &githubread.Reader{Web: h.web, API: h.client.URL, Tokens: h.tokens, Log: h.log,
		Upstream: func(repo string) (forge.Name, bool) {
			_, at, ok := find(repo)
			return at.Name, ok && at.Forge == h.client
		}}
}
