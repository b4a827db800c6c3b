package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/ramus-dev/ramus/executor/mirror"
	"github.com/ramus-dev/ramus/executor/upstream"
	"github.com/ramus-dev/ramus/gitd"
)

// RepoConfig has the upstream of a repository, and the values that its own configuration may choose.
type RepoConfig struct {
	Upstream   string   `yaml:"upstream"`
	Base       string   `yaml:"base"`
	Merge      string   `yaml:"merge"`
	Schema     []string `yaml:"schema"`
	SSHKey     string   `yaml:"ssh_key"`
	KnownHosts string   `yaml:"known_hosts"`
	LFSHosts   []string `yaml:"lfs_hosts"`
	Submodules []string `yaml:"submodules"`
	With       []string `yaml:"with"`

	Mirror             string `yaml:"mirror"`
	MirrorTo           string `yaml:"mirror_to"`
	MirrorSSHKey       string `yaml:"mirror_ssh_key"`
	MirrorKnownHosts   string `yaml:"mirror_known_hosts"`
	MirrorUser         string `yaml:"mirror_user"`
	MirrorPasswordEnv  string `yaml:"mirror_password_env"`
	MirrorPasswordFile string `yaml:"mirror_password_file"`

	Webhooks map[string]HookConfig `yaml:"webhooks"`
	// TellConflicts is that of the server if it is empty.
	TellConflicts string `yaml:"tell_conflicts"`

	Allow AllowConfig `yaml:"allow"`
}

// HooksConfig has the secrets of signed messages to the server.
type HooksConfig struct {
	DeploySecretEnv  string `yaml:"deploy_secret_env"`
	DeploySecretFile string `yaml:"deploy_secret_file"`
}

// newUpstreams returns the upstreams of repositories for the executor.
func newUpstreams(repos map[string]RepoConfig, at *forges) (map[string]upstream.Source, error) {
	ups := make(map[string]upstream.Source, len(repos))
	for name, c := range repos {
		up, err := newUpstream(c, at)
		for _, checked := range append([]string{name}, c.With...) {
			if err == nil {
				err = gitd.CheckName(checked)
			}
		}
		if err != nil {
			return nil, fmt.Errorf("cannot use repos.%s: %w", name, err)
		}
		ups[name] = up
	}
	return ups, nil
}

func newUpstream(c RepoConfig, at *forges) (upstream.Source, error) {
	up := upstream.Source{Upstream: gitd.Upstream{URL: c.Upstream, Branch: c.Base}, Merge: c.Merge,
		Mirror: c.Mirror == mirror.Pull, Schema: c.Schema}
	if c.SSHKey == "" && c.KnownHosts == "" {
		up.Credential = at.read(c.Upstream)
		return up, nil
	}
	if up.URL == "" {
		return up, errors.New("a credential is set, but no upstream: name the upstream here, because the credential is sent to it")
	}
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
	return up, nil
}

// fileIn is like folder for a file that may be empty.
func fileIn(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	return folder(path)
}

// submodules returns the repositories that containers of another one may read.
func submodules(repos map[string]RepoConfig) map[string][]string {
	listed := make(map[string][]string, len(repos))
	for name, c := range repos {
		listed[name] = c.Submodules
	}
	return listed
}

// additions returns the additional repositories that callers of another one may work in.
func additions(repos map[string]RepoConfig) map[string][]string {
	listed := make(map[string][]string, len(repos))
	for name, c := range repos {
		listed[name] = c.With
	}
	return listed
}
