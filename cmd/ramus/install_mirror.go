package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/ramus-dev/ramus/executor/mirror"
	"github.com/ramus-dev/ramus/executor/upstream"
	"github.com/ramus-dev/ramus/gitd"
)

// newMirrors returns the mirrors of the configuration. They are opened when the executor is.
func (i *installation) newMirrors(secret *secrets) (*mirror.Mirrors, error) {
	m := &mirror.Mirrors{Git: i.git, Targets: map[string]gitd.Upstream{}, Log: i.log, Now: time.Now}
	m.Pull = func(ctx context.Context, repo string) error {
		_, err := i.executor.Bases.Refresh(ctx, upstream.Deploy{Repo: repo}, nil)
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(i.config.Repos)) {
		c := i.config.Repos[name]
		if c.Mirror == mirror.Pull {
			m.Pulled = append(m.Pulled, name)
		}
		if c.Mirror != mirror.Push {
			if c.MirrorTo != "" {
				return nil, fmt.Errorf("cannot use repos.%s.mirror_to: mirror is not push", name)
			}
			continue
		}
		to, err := newMirrorTarget(name, c, i.forges, secret)
		if err != nil {
			return nil, fmt.Errorf("cannot use repos.%s: %w", name, err)
		}
		m.Targets[name] = to
	}
	return m, nil
}

// newMirrorTarget returns the repository that a mirror is pushed to.
func newMirrorTarget(name string, c RepoConfig, at *forges, secret *secrets) (gitd.Upstream, error) {
	to := gitd.Upstream{URL: c.MirrorTo}
	if to.URL == "" {
		return to, errors.New("mirror is push, but mirror_to names no repository")
	}
	var cred gitd.Credential
	var err error
	if cred.Password, err = secret.value("repos."+name+".mirror_password", c.MirrorPasswordEnv, c.MirrorPasswordFile); err != nil {
		return to, err
	}
	if cred.KeyFile, err = fileIn(c.MirrorSSHKey); err != nil {
		return to, err
	}
	if cred.KnownHosts, err = fileIn(c.MirrorKnownHosts); err != nil {
		return to, err
	}
	cred.User = c.MirrorUser
	switch {
	case cred != gitd.Credential{User: c.MirrorUser}:
		to.Credential = func(context.Context) (gitd.Credential, error) { return cred, nil }
	default:
		_, to.Credential, _ = at.find(to.URL)
	}
	return to, nil
}
