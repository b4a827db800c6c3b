package main

import (
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestMergeReloaded(t *testing.T) {
	t.Parallel()
	old := Defaults()
	old.Repos = map[string]RepoConfig{"a": {Upstream: "/a"}, "b": {Upstream: "/b"}, "key": {Upstream: "/k"}}
	old.Agents = map[string]AgentConfig{"claude": {Command: []string{"claude"}}}
	before := old.Repos["a"]

	next := Defaults()
	next.Listen, next.Streams, next.Gate.Enabled, next.Log.Level, next.Log.Format = "", 7, true, "debug", "json"
	next.Repos = map[string]RepoConfig{"a": {Upstream: "/other"}, "c": {Upstream: "/c", SSHKey: "~/key"},
		"key": {Upstream: "/k", SSHKey: "~/key"}}
	next.Agents = map[string]AgentConfig{"claude": {Command: []string{"claude", "-p"}}}
	next.Models.Anthropic.Prices = map[string]PriceConfig{"*": {Input: 3}}
	next.Models.Anthropic.APIKeyFile = "~/anthropic"

	merged, changes := mergeReloaded(old, next)
	applied := []string{"agents.claude.command", "gate.enabled", "log.level", "models.anthropic.prices.*",
		"repos.a.upstream", "repos.b", "repos.c"}
	restart := []string{"listen", "log.format", "models.anthropic.api_key_file", "repos.c.ssh_key",
		"repos.key.ssh_key", "streams"}
	if !slices.Equal(changes.Applied, applied) || !slices.Equal(changes.Restart, restart) {
		t.Errorf("applied %q\nrestart %q", changes.Applied, changes.Restart)
	}
	if merged.Streams != old.Streams || merged.Listen != old.Listen || !merged.Gate.Enabled || merged.Log.Format != "text" {
		t.Error("the merged configuration has the wrong values")
	}
	want := map[string]RepoConfig{"a": {Upstream: "/other"}, "c": {Upstream: "/c"}, "key": {Upstream: "/k"}}
	if !reflect.DeepEqual(merged.Repos, want) {
		t.Errorf("the repositories are %+v", merged.Repos)
	}
	if !reflect.DeepEqual(old.Repos["a"], before) || len(old.Repos) != 3 || len(old.Models.Anthropic.Prices) != 0 {
		t.Error("the old configuration was changed")
	}
	if _, changes := mergeReloaded(old, old); len(changes.Applied)+len(changes.Restart) > 0 {
		t.Errorf("nothing has changed: %+v", changes)
	}
}

// TestReloadableKeys compares the keys that need no restart with those of the command's help, and with the configuration.
func TestReloadableKeys(t *testing.T) {
	t.Parallel()
	help := strings.Join(strings.Fields(reloadCommand().long), " ")
	for _, key := range reloadable {
		if !strings.Contains(help, key) {
			t.Errorf("the help of ramus reload does not have %s", key)
		}
		top, _, _ := strings.Cut(key, ".")
		if !slices.Contains(keys(reflect.TypeFor[Config]()), top) {
			t.Errorf("there is no key %s", key)
		}
	}
	for key, want := range map[string]bool{"gate": true, "gate.people.U01.may": true, "gates": false, "models": false,
		"models.budget.calls":  true,
		"models.openai.prices": true, "models.openai.prices.*.input": true, "models.openai.base_url": false,
		"log.format": false, "repos.a": true,
		"repos.a.ssh_key": false, "slack.repo": true, "slack.token_env": false, "data": false} {
		if isReloadable(key) != want {
			t.Errorf("%s is reloadable: %v", key, !want)
		}
	}
}
