package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/settings"
	"github.com/ramus-dev/ramus/tasks/environment"
)

// newLimits returns the limits of containers.
func newLimits(c LimitsConfig) containers.Limits {
	return containers.Limits{
		Memory: int64(c.Memory), CPUs: c.CPUs, PIDs: c.PIDs, Tmp: int64(c.Tmp), FileSize: int64(c.FileSize),
		Output: int64(c.Output), Disk: cmp.Or(int64(c.Disk), -1), DiskFree: int64(c.DiskFree),
	}
}

// newBounds returns the bounds of the settings of repositories. image is that of the engine.
func newBounds(c Config, image string) (settings.Bounds, error) {
	b := settings.Bounds{
		Image:      image,
		Limits:     newLimits(c.Limits),
		Timeout:    time.Duration(c.Timeout),
		Agents:     slices.Sorted(maps.Keys(c.Agents)),
		Tasks:      executor.TaskNames(),
		Repos:      make(map[string]settings.Repo, len(c.Repos)),
		Configured: configuredKeys(c),
	}
	for name, value := range c.Env {
		b.Env = append(b.Env, name+"="+value)
	}
	slices.Sort(b.Env)
	var err error
	if b.Egress, err = newHosts("egress", c.Egress); err != nil {
		return b, err
	}
	if b.Allow, err = newAllow("allow", c.Allow); err != nil {
		return b, err
	}
	for name, repo := range c.Repos {
		allow, err := newAllow("repos."+name+".allow", repo.Allow)
		if err != nil {
			return b, err
		}
		b.Repos[name] = settings.Repo{Allow: allow, Merge: environment.Merge(repo.Merge)}
	}
	return b, nil
}

// newAllow returns the values that a repository may choose. path is the key.
func newAllow(path string, c AllowConfig) (settings.Allow, error) {
	hosts, err := newHosts(path+".egress", c.Egress)
	l := c.Limits
	return settings.Allow{
		Egress: hosts, Images: c.Images, Build: c.Build,
		Limits: environment.Limits{Memory: int64(l.Memory), CPUs: l.CPUs, PIDs: l.PIDs, Tmp: int64(l.Tmp),
			FileSize: int64(l.FileSize),
			Output:   int64(l.Output), Disk: int64(l.Disk)},
	}, err
}

// newHosts returns the hosts of a list. path is its key.
func newHosts(path string, list []EgressConfig) ([]settings.Host, error) {
	var hosts []settings.Host
	for _, e := range list {
		if e.Host != "*" && !environment.ValidHost(e.Host) {
			return nil, fmt.Errorf("%s: %q is no host; want NAME or *.NAME, with :PORT if it is not 80 or 443", path, e.Host)
		}
		hosts = append(hosts, settings.Host{Egress: environment.Egress{Host: e.Host, Header: e.Header},
			Private: e.Private, Trusted: true})
	}
	return hosts, nil
}

// configuredKeys returns the keys whose values are not the defaults, of those that a repository's settings are about.
func configuredKeys(c Config) map[string]bool {
	d := Defaults()
	l, dl := c.Limits, d.Limits
	set := map[string]bool{
		"image": c.Image != d.Image, "egress": len(c.Egress) > 0, "timeout": c.Timeout != d.Timeout,
		"limits.memory": l.Memory != dl.Memory, "limits.cpus": l.CPUs != dl.CPUs, "limits.pids": l.PIDs != dl.PIDs,
		"limits.tmp":       l.Tmp != dl.Tmp,
		"limits.file_size": l.FileSize != dl.FileSize, "limits.output": l.Output != dl.Output,
		"limits.disk": l.Disk != dl.Disk,
	}
	maps.DeleteFunc(set, func(_ string, is bool) bool { return !is })
	return set
}
