package prune

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
)

// callers summarizes the runs of a repository by caller.
func (n *pass) callers(repo string) map[string]*callerRuns {
	open := make(map[string]bool) // runs of all repositories that have not ended
	for _, r := range n.p.Runs() {
		if !r.Ended() || n.p.Works(r) {
			open[r.Name()] = true
		}
	}
	hosts := make(map[string]bool)
	for _, key := range n.p.Hosts() {
		hosts[key] = true
	}
	callers := make(map[string]*callerRuns)
	for _, r := range n.p.Runs() {
		base, home := r.Base, ""
		if r.Repo != repo {
			a, with := r.Addition(repo)
			if !with {
				continue
			}
			base, home = a.Base, r.Repo
		}
		c := callers[r.Caller.Slug()]
		if c == nil {
			c = &callerRuns{caller: r.Caller, base: base, home: home, with: map[string]string{},
				busy: hosts[r.Caller.String()]}
			callers[r.Caller.Slug()] = c
		}
		// A parent that continues may still need the work of its child.
		c.busy = c.busy || open[r.Name()] || open[r.Parent]
		if at := cmp.Or(r.EndedAt, r.CreatedAt); at.After(c.last) {
			c.last = at
		}
		if home == "" {
			c.runs = append(c.runs, r)
			for _, a := range r.With {
				c.with[a.Repo] = a.Base
			}
		}
	}
	return callers
}

// callerRuns are the runs of a caller in one repository.
type callerRuns struct {
	caller record.Caller
	base   string
	home   string            // the caller's own repository, if this one is additional
	with   map[string]string // the bases of its additional repositories
	busy   bool              // it is at work, waits for somebody, or has a container
	last   time.Time
	runs   []record.Run
}

// branchPrefix begins the refs of callers' branches.
const branchPrefix = "refs/heads/ramus"

// branches removes the branches of callers that have ended. Branches of that form that belong to no caller are a
// person's own.
func (n *pass) branches(ctx context.Context, repo *gitd.Repo) error {
	callers := n.callers(repo.Name())
	maps.DeleteFunc(callers, func(_ string, c *callerRuns) bool { return c.home != "" })
	var old, merged []candidate
	all, err := n.ofCallers(ctx, repo, callers)
	if err != nil {
		return err
	}
	for _, gone := range all {
		slug, branch := strings.CutPrefix(gone.ref.Name, branchPrefix+"/")
		if c := callers[slug]; branch {
			in, err := n.contained(ctx, repo, gone.ref.Hash, c.base)
			if err == nil && in {
				in, err = n.containedWith(ctx, c)
			}
			if err != nil {
				return err
			}
			if in {
				gone.Why = "its commits are in " + cmp.Or(c.base, "the base")
				merged = append(merged, gone)
				continue
			}
		}
		old = append(old, gone)
	}
	_, err = n.remove(ctx, repo, n.sweep(ctx, repo, append(merged, n.over(n.p.Keep.Branches, old)...), callers))
	return err
}

// additions removes the branches in an additional repository of callers that have no branch in their own one any more.
func (n *pass) additions(ctx context.Context, repo *gitd.Repo) error {
	callers := n.callers(repo.Name())
	for slug, c := range callers {
		if c.home == "" {
			delete(callers, slug)
			continue
		}
		has, err := n.has(ctx, c.home, c.caller)
		if err != nil {
			return err
		}
		if has {
			delete(callers, slug)
		}
	}
	all, err := n.ofCallers(ctx, repo, callers)
	if err != nil {
		return err
	}
	_, err = n.remove(ctx, repo, n.sweep(ctx, repo, all, callers))
	return err
}

// ofCallers returns the branches, and the saved work, of callers that are not busy.
func (n *pass) ofCallers(ctx context.Context, repo *gitd.Repo,
	callers map[string]*callerRuns) (all []candidate, err error) {
	for _, prefix := range []string{branchPrefix, record.WIPPrefix, record.ConflictPrefix, gitd.StageRefs} {
		refs, err := repo.Refs(ctx, prefix)
		if err != nil {
			return nil, err
		}
		for _, ref := range refs {
			slug := strings.TrimPrefix(ref.Name, prefix+"/")
			if prefix == record.ConflictPrefix || prefix == gitd.StageRefs {
				slug, _, _ = strings.Cut(slug, "/") // a run or a token follows
			}
			if c := callers[slug]; c != nil && !c.busy {
				all = append(all, candidate{Pruned{Kind: Branches, Repo: repo.Name(), Name: ref.Name, Time: c.last,
					Why: "its caller has ended"}, ref})
			}
		}
	}
	return all, nil
}

// has reports whether a caller has a branch in a repository after this Prune.
func (n *pass) has(ctx context.Context, repo string, c record.Caller) (bool, error) {
	branch := "refs/heads/" + c.Branch()
	if n.gone[repo+" "+branch] {
		return false, nil
	}
	r, err := n.p.Git.Repo(repo)
	if err == nil {
		_, err = r.Resolve(ctx, branch)
	}
	if errors.Is(err, gitd.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// containedWith reports whether the bases of a caller's additional repositories have its commits there.
func (n *pass) containedWith(ctx context.Context, c *callerRuns) (bool, error) {
	for name, base := range c.with {
		repo, err := n.p.Git.Repo(name)
		var tip gitd.Hash
		if err == nil {
			tip, err = repo.Resolve(ctx, "refs/heads/"+c.caller.Branch())
		}
		if errors.Is(err, gitd.ErrNotFound) {
			continue
		}
		if err != nil {
			return false, err
		}
		if in, err := n.contained(ctx, repo, tip, base); err != nil || !in {
			return false, err
		}
	}
	return true, nil
}

// sweep removes the branches of upstream that belong to branches here, and returns the candidates without those whose
// upstream does not answer. A later Prune tries these again.
func (n *pass) sweep(ctx context.Context, repo *gitd.Repo, all []candidate,
	callers map[string]*callerRuns) []candidate {
	return slices.DeleteFunc(all, func(c candidate) bool {
		slug, branch := strings.CutPrefix(c.ref.Name, branchPrefix+"/")
		if !branch || callers[slug] == nil {
			return false
		}
		gone, err := n.p.Sweep(ctx, repo.Name(), callers[slug].caller, n.ask.DryRun)
		for _, name := range gone {
			n.list = append(n.list, Pruned{Kind: Branches, Repo: repo.Name(), Name: "upstream " + name,
				Time: c.Time, Why: "its pull request was merged"})
		}
		if err != nil {
			n.p.Log.Warn("cannot remove a branch of upstream, so the branch here stays too", "repo", repo.Name(),
				"caller", callers[slug].caller, "err", err)
		}
		return err != nil
	})
}

// contained reports whether the base has a commit.
func (n *pass) contained(ctx context.Context, repo *gitd.Repo, tip gitd.Hash, base string) (bool, error) {
	if base == "" {
		var err error
		if base, err = repo.Base(ctx); err != nil {
			return false, err
		}
	}
	at, err := repo.Resolve(ctx, "refs/heads/"+base)
	if errors.Is(err, gitd.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return repo.Descends(ctx, at, tip)
}
