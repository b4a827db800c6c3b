package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/gateway/github"
	"github.com/ramus-dev/ramus/gitd"
)

// RepoConfig is where a repository comes from.
type RepoConfig struct {
	Upstream   string          `yaml:"upstream"`
	Base       string          `yaml:"base"`
	Schema     []string        `yaml:"schema"`
	SSHKey     string          `yaml:"ssh_key"`
	KnownHosts string          `yaml:"known_hosts"`
	GitHubApp  GitHubAppConfig `yaml:"github_app"`
}

// GitHubAppConfig is an App whose installation may read the upstream.
type GitHubAppConfig struct {
	AppID          int64  `yaml:"app_id"`
	InstallationID int64  `yaml:"installation_id"`
	KeyEnv         string `yaml:"key_env"`
	KeyFile        string `yaml:"key_file"`
	APIURL         string `yaml:"api_url"`
}

// HooksConfig is what others may tell the server, by signed messages.
type HooksConfig struct {
	DeploySecretEnv  string `yaml:"deploy_secret_env"`
	DeploySecretFile string `yaml:"deploy_secret_file"`
}

// newUpstreams makes what the executor knows of where repositories come from.
func newUpstreams(repos map[string]RepoConfig, secret *secrets) (map[string]executor.Upstream, error) {
	ups := make(map[string]executor.Upstream, len(repos))
	for name, c := range repos {
		up, err := newUpstream(c, "repos."+name, secret)
		if err == nil {
			err = gitd.CheckName(name)
		}
		if err != nil {
			return nil, fmt.Errorf("cannot use repos.%s: %w", name, err)
		}
		ups[name] = up
	}
	return ups, nil
}

func newUpstream(c RepoConfig, path string, secret *secrets) (executor.Upstream, error) {
	up := executor.Upstream{Upstream: gitd.Upstream{URL: c.Upstream, Branch: c.Base}, Schema: c.Schema}
	app, ssh := c.GitHubApp != GitHubAppConfig{}, c.SSHKey != "" || c.KnownHosts != ""
	if up.URL == "" && (app || ssh) {
		return up, errors.New("a credential is set, but no upstream: name it here, so that it is clear what the credential is sent to")
	}
	switch {
	case app && ssh:
		return up, errors.New("github_app and ssh_key are both set: want one")
	case ssh:
		key, err := fileIn(c.SSHKey)
		if err != nil {
			return up, err
		}
		hosts, err := fileIn(c.KnownHosts)
		if err != nil {
			return up, err
		}
		up.Credential = func(context.Context) (gitd.Credential, error) {
			return gitd.Credential{KeyFile: key, KnownHosts: hosts}, nil
		}
	case app:
		text, err := secret.value(path+".github_app.key", c.GitHubApp.KeyEnv, c.GitHubApp.KeyFile)
		if err != nil {
			return up, err
		}
		if text == "" || c.GitHubApp.AppID == 0 || c.GitHubApp.InstallationID == 0 {
			return up, errors.New("github_app needs app_id, installation_id, and key_env or key_file")
		}
		key, err := github.ParseKey([]byte(text))
		if err != nil {
			return up, err
		}
		a := &github.App{ID: c.GitHubApp.AppID, Installation: c.GitHubApp.InstallationID, Key: key, URL: c.GitHubApp.APIURL}
		up.Credential = github.Credential(a, c.Upstream, github.AccessRead)
	}
	return up, nil
}

// fileIn is folder for a file that may be left out.
func fileIn(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	return folder(path)
}
