package main

import (
	"fmt"
	"maps"
	"net/url"
	"path/filepath"
	"slices"
	"time"

	"github.com/ramus-dev/ramus/gateway/announce"
)

// HookConfig is a receiver of the webhooks of a repository.
type HookConfig struct {
	URL        string `yaml:"url"`
	SecretEnv  string `yaml:"secret_env"`
	SecretFile string `yaml:"secret_file"`
}

// hookSecretMin is the least number of bytes of a secret that signs webhooks.
const hookSecretMin = 16

// newAnnouncer returns the webhooks of the configuration. They are opened when the server listens.
func (i *installation) newAnnouncer(secret *secrets) (*announce.Announcer, error) {
	a := &announce.Announcer{Git: i.git, Dir: filepath.Join(i.config.Data, "webhooks"),
		URL: programsURL(i.config), Log: i.log, Now: time.Now}
	for _, repo := range slices.Sorted(maps.Keys(i.config.Repos)) {
		hooks := i.config.Repos[repo].Webhooks
		for _, name := range slices.Sorted(maps.Keys(hooks)) {
			path := "repos." + repo + ".webhooks." + name
			u, err := url.Parse(hooks[name].URL)
			if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
				return nil, fmt.Errorf("cannot use %s.url: want an address such as https://ci.example.org/hook", path)
			}
			key, err := secret.value(path+".secret", hooks[name].SecretEnv, hooks[name].SecretFile)
			if err != nil {
				return nil, fmt.Errorf("cannot use a webhook: %w", err)
			}
			if len(key) < hookSecretMin {
				return nil, fmt.Errorf("cannot use %s: its secret (secret_env or secret_file) has %d characters, at least %d are needed",
					path, len(key), hookSecretMin)
			}
			a.Targets = append(a.Targets, announce.Target{Repo: repo, URL: hooks[name].URL, Secret: key})
		}
	}
	return a, nil
}
