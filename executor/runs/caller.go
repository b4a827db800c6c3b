package runs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
)

// CallerStatus is one line of `ramus ps`.
type CallerStatus struct {
	Caller record.Caller `json:"caller"`
	Repo   string        `json:"repo"`
	Branch string        `json:"branch"`
	// With names the additional repositories in which it has worked, sorted. Branch has the same name there.
	With []string  `json:"with,omitempty"`
	Head gitd.Hash `json:"head"`
	// Kept is the commit of its work tree when its container was lost last. It may be forked.
	Kept      gitd.Hash              `json:"kept,omitempty"`
	Runs      int                    `json:"runs"`
	Last      record.Run             `json:"last"`
	Container *containers.HostStatus `json:"container,omitempty"`
}

// Repos returns the names of the caller's repositories, its own first.
func (c CallerStatus) Repos() []string { return append([]string{c.Repo}, c.With...) }

// Callers returns callers, the most recently active first.
func (rd *Reader) Callers(ctx context.Context, f record.Filter) ([]CallerStatus, error) {
	list := rd.callers(f)
	if err := rd.lookAt(ctx, list); err != nil {
		return nil, err
	}
	return list, nil
}

// callers returns Callers without the fields that come from git and from containers.
func (rd *Reader) callers(f record.Filter) []CallerStatus {
	all := rd.Current
	if c, err := record.ParseCaller(f.Caller); err == nil {
		all = func() []record.Run { return rd.OfCaller(c) } // in thousands of threads each asks for its own
	}
	byCaller := make(map[string]*CallerStatus)
	list := []*CallerStatus{}
	for _, r := range all() {
		key := r.Repo + " " + r.Caller.String()
		c := byCaller[key]
		if c == nil {
			c = &CallerStatus{Caller: r.Caller, Repo: r.Repo, Branch: r.Branch, Last: r}
			byCaller[key] = c
			list = append(list, c)
		}
		c.Runs++
		for _, a := range r.With {
			if at, have := slices.BinarySearch(c.With, a.Repo); !have {
				c.With = slices.Insert(c.With, at, a.Repo)
			}
		}
		if a, b := c.Last.Aside(), r.Aside(); a && !b || a == b && Newer(r, c.Last) {
			c.Last = r
		}
	}
	kept := []CallerStatus{}
	sort.SliceStable(list, func(i, j int) bool { return Newer(list[i].Last, list[j].Last) })
	if f.Max <= 0 {
		f.Max = 100
	}
	for _, c := range list {
		if !f.Match(c.Last) {
			continue
		}
		if len(kept) == f.Max {
			break
		}
		kept = append(kept, *c)
	}
	return kept
}

// lookAt sets the fields of callers that come from git and from their containers.
func (rd *Reader) lookAt(ctx context.Context, list []CallerStatus) error {
	keys := make([]string, len(list))
	at := make(map[string][]*CallerStatus, len(list))
	for i := range list {
		c := &list[i]
		keys[i] = c.Caller.String()
		at[keys[i]] = append(at[keys[i]], c)
		repo, err := rd.Git.Repo(c.Repo)
		if err != nil {
			continue
		}
		if c.Head, err = repo.Resolve(ctx, "refs/heads/"+c.Branch); err != nil && !errors.Is(err, gitd.ErrNotFound) {
			return err
		}
		if c.Kept, err = repo.Resolve(ctx, record.WIPRef(c.Caller)); err != nil && !errors.Is(err, gitd.ErrNotFound) {
			return err
		}
	}
	if len(keys) == 0 {
		return nil // List would return all
	}
	hosts := rd.Fleet.List(ctx, keys...)
	for i := range hosts {
		for _, c := range at[hosts[i].Key] {
			c.Container = &hosts[i]
		}
	}
	return nil
}

// Caller returns a caller by "run:ID", by "ID", by its branch, or by a unique part of these. "run:ID" is a whole
// name, so it never matches a caller with a longer name.
func (rd *Reader) Caller(ctx context.Context, name string) (CallerStatus, error) {
	c, err := rd.Named(name)
	if err != nil {
		return c, err
	}
	found := []CallerStatus{c}
	err = rd.lookAt(ctx, found)
	return found[0], err
}

// Named is [Reader.Caller] from the index alone, without branch and container. It takes no time, also if the container has just
// been lost.
func (rd *Reader) Named(name string) (CallerStatus, error) {
	if name == "" {
		return CallerStatus{}, fmt.Errorf("%w caller: it has no name", record.ErrInvalid)
	}
	name = strings.TrimPrefix(name, "ramus/")
	f := record.Filter{Max: 1 << 30}
	if _, err := record.ParseCaller(name); err == nil {
		f.Caller = name // the others need not be looked at
	}
	var found []CallerStatus
	for _, c := range rd.callers(f) {
		if c.Caller.Is(name) {
			found = []CallerStatus{c}
			break
		}
		if strings.Contains(c.Caller.String(), name) {
			found = append(found, c)
		}
	}
	switch len(found) {
	case 0:
		return CallerStatus{}, fmt.Errorf("caller %q: %w; `ramus ps` lists them", name, record.ErrNotFound)
	case 1:
		return found[0], nil
	}
	return CallerStatus{}, fmt.Errorf("caller %q: %w: %s and %d more", name, record.ErrAmbiguous, found[0].Caller,
		len(found)-1)
}

// Home returns the repository of a caller's branch, and its base. The error is ErrNotFound if the caller has no branch.
func (rd *Reader) Home(ctx context.Context, c record.Caller) (repo, base string, err error) {
	r, base, err := rd.HomeRepo(ctx, c)
	if err != nil {
		return "", "", err
	}
	return r.Name(), base, nil
}

// Sessions returns the sessions of a caller with agents, the most recently used first. They follow from its runs, so they are there
// as long as those are.
func (rd *Reader) Sessions(ctx context.Context, caller string) ([]record.Session, error) {
	c, err := rd.Caller(ctx, caller)
	if err != nil {
		return nil, err
	}
	return record.Sessions(rd.OfCaller(c.Caller)), nil
}
