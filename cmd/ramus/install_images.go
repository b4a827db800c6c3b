package main

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/containers"
)

// refreshImages pulls the images of containers at the start and then at the times of the configuration, until ctx ends.
func (i *installation) refreshImages(ctx context.Context) {
	every := time.Duration(i.config.ImageRefresh)
	engine, able := i.engine.(containers.Refresher)
	if every <= 0 || !able {
		return
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		if err := engine.Refresh(ctx, imageNames(i.config)); err != nil && ctx.Err() == nil {
			i.log.Warn("images could not be pulled; those that are here are used", "err", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// imageNames returns the images that a configuration names. Patterns are left out.
func imageNames(c Config) []string {
	names := map[string]bool{c.Image: true, c.Browser.Image: true}
	for _, a := range c.Agents {
		names[a.Image] = true
	}
	for _, name := range c.Allow.Images {
		names[name] = true
	}
	for _, r := range c.Repos {
		for _, name := range r.Allow.Images {
			names[name] = true
		}
	}
	maps.DeleteFunc(names, func(name string, _ bool) bool { return name == "" || strings.ContainsAny(name, "*?") })
	return slices.Sorted(maps.Keys(names))
}
