package main

import (
	"log/slog"
	"strings"
	"testing"
)

func TestHubs(t *testing.T) {
	t.Parallel()
	environ := []string{"TOKEN=ghp_0123456789abcdef", "SECRET=0123456789abcdef", "KEY=no key"}
	set := func(change func(*GitHubConfig)) GitHubConfig {
		c := Defaults().GitHub
		change(&c)
		return c
	}
	log := slog.New(slog.DiscardHandler)
	for name, one := range map[string]struct {
		change func(*GitHubConfig)
		want   string
	}{
		"none":       {func(*GitHubConfig) {}, ""},
		"a token":    {func(c *GitHubConfig) { c.TokenEnv, c.WebhookSecretEnv = "TOKEN", "SECRET" }, ""},
		"enterprise": {func(c *GitHubConfig) { c.TokenEnv, c.URL = "TOKEN", "https://git.example.org/" }, ""},
		"a stand-in": {func(c *GitHubConfig) {
			c.TokenEnv, c.URL, c.APIURL = "TOKEN", "http://127.0.0.1:1", "http://localhost:2/x"
		}, ""},
		"plain http":       {func(c *GitHubConfig) { c.URL = "http://git.example.org" }, "want https"},
		"plain http API":   {func(c *GitHubConfig) { c.APIURL = "http://git.example.org" }, "want https"},
		"a password":       {func(c *GitHubConfig) { c.URL = "https://u:p@git.example.org" }, "want a URL"},
		"no URL":           {func(c *GitHubConfig) { c.URL = "github.com" }, "want a URL"},
		"both":             {func(c *GitHubConfig) { c.TokenEnv, c.AppID = "TOKEN", 1 }, "want one"},
		"no key":           {func(c *GitHubConfig) { c.AppID = 1 }, "needs app_id, and key_env"},
		"no id":            {func(c *GitHubConfig) { c.KeyEnv = "KEY" }, "needs app_id, and key_env"},
		"a bad key":        {func(c *GitHubConfig) { c.AppID, c.KeyEnv = 1, "KEY" }, "no PEM block"},
		"a missing secret": {func(c *GitHubConfig) { c.TokenEnv = "NONE" }, "not in the environment"},
		"a hook alone":     {func(c *GitHubConfig) { c.WebhookSecretEnv = "SECRET" }, "neither an App nor a token"},
	} {
		_, err := newHub(set(one.change), PeopleConfig{Default: "none"}, &secrets{environ: environ}, log)
		if (err == nil) != (one.want == "") || err != nil && !strings.Contains(err.Error(), one.want) {
			t.Errorf("%s: %v, want %q", name, err, one.want)
		}
	}

	for site, urls := range map[string]map[string]bool{
		"https://github.com": {
			"https://github.com/acme/app.git": true, "https://GitHub.com/acme/app": true,
			"git@github.com:acme/app.git": true, "github.com:acme/app": true,
			"ssh://git@ssh.github.com:443/acme/app.git": true, "http://github.com/acme/app": false,
			"https://github.com:444/acme/app":         false,
			"https://github.com.example.org/acme/app": false, "https://example.org/acme/app": false, "acme/app": false,
			"/srv/acme/app": false, "": false,
			"git@example.org:acme/app.git": false, "https://github.com@example.org/acme/app": false,
			"https://gist.github.com/acme/app": false,
		},
		"http://127.0.0.1:8080": {"http://127.0.0.1:8080/acme/app.git": true,
			"http://127.0.0.1:8081/acme/app.git": false, "https://127.0.0.1:8080/acme/app.git": false},
	} {
		h, err := newHub(set(func(c *GitHubConfig) { c.URL, c.TokenEnv = site, "TOKEN" }),
			PeopleConfig{Default: "none"}, &secrets{environ: environ}, log)
		if err != nil {
			t.Fatal(err)
		}
		for url, want := range urls {
			if _, got := h.at(url); got != want {
				t.Errorf("%s at %s: %v", url, site, got)
			}
			if lets := h.read(url) != nil; lets != (want && strings.HasPrefix(url, "http")) {
				t.Errorf("%s gets a token of %s: %v", url, site, lets)
			}
		}
	}
}
