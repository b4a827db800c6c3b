package main

import (
	"context"
	"fmt"
	"path"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/gateway"
	"github.com/ramus-dev/ramus/gateway/model"
)

// reloadable are the keys whose changes count without a restart. In a path, * matches one name. All keys below one of
// them are reloadable too.
var reloadable = []string{
	"agents", "allow", "egress", "engineer", "env", "gate", "keep", "limits", "log.level", "models.budget",
	"models.*.prices", "quotas", "repos",
	"run_timeout", "slack.agent", "slack.channels", "slack.repo", "slack.rules", "slack.thread_replies", "tell_conflicts", "timeout",
}

// restarting are keys below reloadable ones that need a restart, because they name secrets that have to be known before
// they are used.
var restarting = []string{"repos.*.ssh_key"}

// isReloadable reports whether a change of a key counts without a restart.
func isReloadable(key string) bool {
	below := func(pattern string) bool {
		parts := strings.Split(key, ".")
		n := strings.Count(pattern, ".") + 1
		ok, _ := path.Match(pattern, strings.Join(parts[:min(n, len(parts))], "."))
		return ok && len(parts) >= n
	}
	return slices.ContainsFunc(reloadable, below) && !slices.ContainsFunc(restarting, below)
}

// mergeReloaded returns old with the reloadable changes of next, and the keys that differ.
func mergeReloaded(old, next Config) (merged Config, changes gateway.Reloaded) {
	merged = old
	changes = gateway.Reloaded{Applied: []string{}, Restart: []string{}}
	mergeStruct(reflect.ValueOf(&merged).Elem(), reflect.ValueOf(next), "", &changes)
	slices.Sort(changes.Applied)
	slices.Sort(changes.Restart)
	return merged, changes
}

func mergeStruct(to, next reflect.Value, path string, changes *gateway.Reloaded) {
	for i, name := range keys(to.Type()) {
		a, b, key := to.Field(i), next.Field(i), join(path, name)
		if reflect.DeepEqual(a.Interface(), b.Interface()) {
			continue
		}
		switch {
		case a.Kind() == reflect.Struct:
			mergeStruct(a, b, key, changes)
		case a.Kind() == reflect.Map && a.Type().Elem().Kind() == reflect.Struct:
			mergeMap(a, b, key, changes)
		case isReloadable(key):
			a.Set(b)
			changes.Applied = append(changes.Applied, key)
		default:
			changes.Restart = append(changes.Restart, key)
		}
	}
}

// mergeMap merges a mapping of names to structs, name by name. The map of to is replaced and not changed.
func mergeMap(to, next reflect.Value, path string, changes *gateway.Reloaded) {
	merged := reflect.MakeMap(to.Type())
	names := make(map[string]bool)
	for _, m := range []reflect.Value{to, next} {
		for it := m.MapRange(); it.Next(); {
			names[it.Key().String()] = true
		}
	}
	for name := range names {
		key := reflect.ValueOf(name)
		a, b := to.MapIndex(key), next.MapIndex(key)
		one := reflect.New(to.Type().Elem()).Elem()
		switch {
		case a.IsValid() && b.IsValid():
			one.Set(a)
			mergeStruct(one, b, join(path, name), changes)
			merged.SetMapIndex(key, one)
		case !isReloadable(join(path, name)):
			changes.Restart = append(changes.Restart, join(path, name))
			if a.IsValid() {
				merged.SetMapIndex(key, a)
			}
		case b.IsValid():
			var parts gateway.Reloaded
			mergeStruct(one, b, join(path, name), &parts) // a part of it may need a restart
			merged.SetMapIndex(key, one)
			changes.Applied = append(changes.Applied, join(path, name))
			changes.Restart = append(changes.Restart, parts.Restart...)
		default:
			changes.Applied = append(changes.Applied, join(path, name))
		}
	}
	to.Set(merged)
}

// reload reads the configuration again and applies the changes that need no restart, all or none. Work that goes on is
// not disturbed.
func (i *installation) reload(context.Context) (gateway.Reloaded, error) {
	i.reloading.Lock()
	defer i.reloading.Unlock()
	next, err := i.load()
	if err != nil {
		return gateway.Reloaded{}, fmt.Errorf("the configuration is as before: %w", err)
	}
	merged, changes := mergeReloaded(*i.now(), next)
	if err := i.apply(merged); err != nil {
		return gateway.Reloaded{}, fmt.Errorf("the configuration is as before: %w", err)
	}
	i.current.Store(&merged)
	i.log.Info("the configuration was read again", "applied", strings.Join(changes.Applied, " "), "restart",
		strings.Join(changes.Restart, " "))
	return changes, nil
}

// now returns the present configuration, which must not be changed.
func (i *installation) now() *Config {
	if c := i.current.Load(); c != nil {
		return c
	}
	return &i.config
}

// apply gives all parts their options of a configuration. It changes nothing after an error.
func (i *installation) apply(c Config) error {
	if err := checkTelling(c); err != nil {
		return err
	}
	bounds, err := newBounds(c, i.executor.Containers.Image)
	if err != nil {
		return err
	}
	options, err := newOptions(c).Check()
	if err != nil {
		return err
	}
	sources, err := newUpstreams(c.Repos, i.forges)
	if err != nil {
		return err
	}
	talking, err := newChatSettings(c)
	if err != nil {
		return err
	}
	working, err := newEngineerSettings(c.Engineer)
	if err != nil {
		return err
	}
	if err := i.models.Apply(newPrices(c.Models), newBudget(c.Models.Budget)); err != nil {
		return fmt.Errorf("cannot serve models: %w", err)
	}
	if err := i.executor.Apply(options); err != nil {
		return err
	}
	i.executor.Settings.SetBounds(bounds)
	i.executor.Bases.SetSources(sources)
	if i.chat != nil {
		i.chat.Apply(talking)
	}
	i.engineer.Apply(working)
	_ = i.level.UnmarshalText([]byte(c.Log.Level)) // one of a closed list
	return nil
}

// newOptions returns the options of the executor that a reload changes.
func newOptions(c Config) executor.Options {
	o := executor.Options{Limits: newLimits(c.Limits), Timeout: time.Duration(c.Timeout),
		RunTimeout: time.Duration(c.RunTimeout),
		Agents:     newAgents(c.Agents), Keep: newRetention(c.Keep), Quotas: newQuotas(c.Quotas)}
	o.Egress, o.PrivateEgress = hosts(c.Egress)
	for name, value := range c.Env {
		o.Env = append(o.Env, name+"="+value)
	}
	slices.Sort(o.Env)
	return o
}

// newPrices returns the prices of models by provider.
func newPrices(c ModelsConfig) map[string]map[string]model.Price {
	all := make(map[string]map[string]model.Price)
	for name, m := range map[string]ModelConfig{"anthropic": c.Anthropic, "openai": c.OpenAI, "gemini": c.Gemini} {
		all[name] = make(map[string]model.Price)
		for pattern, price := range m.Prices {
			all[name][pattern] = model.Price{Input: micros(price.Input), Output: micros(price.Output),
				CacheRead: micros(price.CacheRead), CacheWrite: micros(price.CacheWrite)}
		}
	}
	return all
}

func newBudget(c BudgetConfig) model.Budget {
	return model.Budget{Tokens: c.Tokens, CostMicros: micros(c.Cost), Calls: c.Calls}
}
