package main

import (
	"cmp"
	"fmt"

	"github.com/ramus-dev/ramus/gateway/collision"
)

// The values of the key tell_conflicts.
const (
	tellAll     = "all"
	tellThreads = "threads" // and no pull requests
	tellOff     = "off"
)

// checkTelling returns an error if a value of tell_conflicts is unknown.
func checkTelling(c Config) error {
	check := func(key, value string) error {
		switch value {
		case "", tellAll, tellThreads, tellOff:
			return nil
		}
		return fmt.Errorf("cannot use %s: %q is none of all, threads and off", key, value)
	}
	if err := check("tell_conflicts", c.TellConflicts); err != nil {
		return err
	}
	for name, r := range c.Repos {
		if err := check("repos."+name+".tell_conflicts", r.TellConflicts); err != nil {
			return err
		}
	}
	return nil
}

// connectTeller connects the part that tells people which branches do not merge. It is opened when the server listens.
func (o *opening) connectTeller() {
	t := o.teller
	t.Bot, t.Wants, t.IsPrivate = o.executor.Bot, o.tellsConflicts, o.privacy.IsPrivate
	t.Places = []collision.Places{o.engineer}
	if o.chat != nil {
		t.Places = append(t.Places, o.chat)
	}
}

// tellsConflicts reports whether a place is told about the branches of a repository.
func (i *installation) tellsConflicts(repo, place string) bool {
	c := i.current.Load()
	if c == nil {
		c = &i.config
	}
	switch cmp.Or(c.Repos[repo].TellConflicts, c.TellConflicts) {
	case tellOff:
		return false
	case tellThreads:
		return place != collision.Pull
	}
	return true
}
