package prune

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/executor/browse"
	"github.com/ramus-dev/ramus/executor/prepare"
	"github.com/ramus-dev/ramus/executor/recall"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/replay"
	"github.com/ramus-dev/ramus/executor/tournament"
	"github.com/ramus-dev/ramus/executor/trial"
	"github.com/ramus-dev/ramus/executor/worktree"
	"github.com/ramus-dev/ramus/gitd"
)

// claimLife is the time for which a run that was requested from outside always stays. Its ref distinguishes a
// repeated delivery of a request from a new request.
const claimLife = 24 * time.Hour

// runs removes the runs of callers that are done, that have no branch any more, and whose origin knows of their end.
func (n *pass) runs(ctx context.Context, repo *gitd.Repo) error {
	refs, err := repo.Refs(ctx, record.RunsPrefix)
	if err != nil {
		return err
	}
	at := make(map[string]gitd.Ref, len(refs))
	for _, ref := range refs {
		at[ref.Name] = ref
	}
	var all []candidate
	byRef := make(map[string]record.Run)
	for _, c := range n.callers(repo.Name()) {
		needed := c.busy
		for _, name := range append(slices.Sorted(maps.Keys(c.with)), repo.Name()) {
			has, err := n.has(ctx, name, c.caller)
			if err != nil {
				return err
			}
			needed = needed || has // also a branch in an additional repository, which nothing else names
		}
		if needed {
			continue
		}
		for _, r := range c.runs {
			name := record.RunRef(r.Caller, r.ID)
			when := cmp.Or(r.EndedAt, r.CreatedAt)
			ref, there := at[name]
			if !there || r.Origin != nil && (r.Told == nil || n.p.At.Sub(when) < claimLife) {
				continue
			}
			byRef[name] = r
			all = append(all, candidate{Pruned{Kind: Runs, Repo: repo.Name(), Name: name, Time: when,
				Why: "it has ended, and its caller has no branch"}, ref})
		}
	}
	all = n.over(n.p.Keep.Runs, all)
	if n.p.Chain != nil && !n.ask.DryRun && len(all) > 0 {
		seals := make([]gitd.Ref, len(all))
		for i, c := range all {
			seals[i] = c.ref
		}
		if err := n.p.Chain.Prune(ctx, repo, seals); err != nil {
			return err
		}
	}
	done, err := n.remove(ctx, repo, all)
	if n.ask.DryRun {
		return err
	}
	runs := make([]record.Run, len(done))
	for i, c := range done {
		runs[i] = byRef[c.ref.Name]
	}
	return errors.Join(err, n.p.Forget(runs...))
}

// baselines removes the looks of browsers at trees.
func (n *pass) baselines(ctx context.Context, repo *gitd.Repo) error {
	return n.derived(ctx, repo, browse.BaselineRefs, Browser, "it can be looked at again")
}

// tries removes the results of commands by tree.
func (n *pass) tries(ctx context.Context, repo *gitd.Repo) error {
	return n.derived(ctx, repo, trial.BookRefs, Runs, "the commands can be tried again")
}

// checks removes the results of checks.
func (n *pass) checks(ctx context.Context, repo *gitd.Repo) error {
	return n.derived(ctx, repo, recall.Refs, Runs, "the checks can run again")
}

// derived removes refs whose commits can be made again, as old as these are.
func (n *pass) derived(ctx context.Context, repo *gitd.Repo, prefix, kind, why string) error {
	refs, err := repo.Refs(ctx, prefix)
	if err != nil {
		return err
	}
	var all []candidate
	for _, ref := range refs {
		c, err := repo.Commit(ctx, string(ref.Hash))
		if err != nil {
			return err
		}
		all = append(all, candidate{Pruned{Kind: kind, Repo: repo.Name(), Name: ref.Name, Time: c.When, Why: why}, ref})
	}
	_, err = n.remove(ctx, repo, n.over(n.p.Keep.Runs, all))
	return err
}

// replays removes the verdicts about runs that are not there any more.
func (n *pass) replays(ctx context.Context, repo *gitd.Repo) error {
	refs, err := repo.Refs(ctx, replay.Refs)
	if err != nil {
		return err
	}
	var all []candidate
	for _, ref := range refs {
		run := record.RunsPrefix + strings.TrimPrefix(ref.Name, replay.Refs)
		if !n.gone[repo.Name()+" "+run] {
			_, err := repo.Resolve(ctx, run)
			if err == nil {
				continue
			}
			if !errors.Is(err, gitd.ErrNotFound) {
				return err
			}
		}
		all = append(all, candidate{Pruned{Kind: Runs, Repo: repo.Name(), Name: ref.Name, Why: "its run is not there any more"}, ref})
	}
	_, err = n.remove(ctx, repo, all)
	return err
}

// tournaments removes the tournaments of which neither a branch nor a run is there any more.
func (n *pass) tournaments(ctx context.Context, repo *gitd.Repo) error {
	list, err := tournament.List(ctx, repo)
	if err != nil {
		return err
	}
	var all []candidate
	for _, t := range list {
		used := !t.Begun // its entries come yet
		for _, e := range t.Entries {
			for _, prefix := range []string{"refs/heads/" + e.Caller.Branch(), record.RunsPrefix + "/" + e.Caller.Slug()} {
				refs, err := repo.Refs(ctx, prefix)
				if err != nil {
					return err
				}
				used = used || slices.ContainsFunc(refs, func(ref gitd.Ref) bool { return !n.gone[repo.Name()+" "+ref.Name] })
			}
		}
		if used {
			continue
		}
		name := tournament.Refs + "/" + t.Name
		at, err := repo.Resolve(ctx, name)
		if err != nil {
			return err
		}
		all = append(all, candidate{Pruned{Kind: Runs, Repo: repo.Name(), Name: name, Time: t.Time, Why: "its entries are not there any more"},
			gitd.Ref{Name: name, Hash: at}})
	}
	_, err = n.remove(ctx, repo, all)
	return err
}

// layers removes work trees and dependencies that no container is over.
func (n *pass) layers(_ context.Context, repo *gitd.Repo) error {
	trees := n.p.Trees
	byName := make(map[string]*worktree.Layer)
	// The work trees of bases, those of branches, and the dependencies of each ecosystem.
	byKind := make(map[[2]string][]candidate)
	for _, l := range trees.Unheld(repo.Name()) {
		byName[l.Name()] = l
		kind := [2]string{l.Ecosystem}
		if l.Branch != "" {
			kind[1] = "branch"
		}
		byKind[kind] = append(byKind[kind], candidate{Pruned: Pruned{Kind: Layers, Repo: repo.Name(),
			Name: l.Name(), Time: trees.LastUse(l), Bytes: l.Bytes, Why: "no container uses it"}})
	}
	kinds := slices.SortedFunc(maps.Keys(byKind), func(a, b [2]string) int { return slices.Compare(a[:], b[:]) })
	for _, kind := range kinds {
		for _, c := range n.over(n.p.Keep.Layers, byKind[kind]) {
			if n.ask.DryRun || trees.Drop(byName[c.Name]) {
				n.list = append(n.list, c.Pruned)
			}
		}
	}
	return nil
}

// artifacts removes the artifacts that no manifest names any more.
func (n *pass) artifacts(ctx context.Context) error {
	// They are listed first. Later ones are not looked at, and an artifact that a later manifest names was marked as in
	// use before.
	var all []candidate
	for o, err := range n.p.Artifacts.List(ctx) {
		if err != nil {
			return err
		}
		all = append(all, candidate{Pruned: Pruned{Kind: Artifacts, Name: o.Key, Time: o.Time, Bytes: o.Size,
			Why: "no run names it"}})
	}
	named, err := n.named(ctx)
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(c candidate) bool { return named[c.Name] })
	for _, c := range n.over(n.p.Keep.Artifacts, all) {
		if !n.ask.DryRun {
			removed, err := n.p.Artifacts.Remove(ctx, c.Name)
			if err != nil {
				return err
			}
			if !removed {
				continue
			}
		}
		n.list = append(n.list, c.Pruned)
	}
	return n.keptFiles(ctx)
}

// keptFiles removes the files that were kept for the next container of callers that have no branch any more.
func (n *pass) keptFiles(ctx context.Context) error {
	bucket := n.p.Artifacts.Bucket
	var all []candidate
	for o, err := range bucket.List(ctx, prepare.KeptPrefix) {
		if err != nil {
			return err
		}
		name, branch := prepare.KeptBranch(o.Key)
		there := false
		if repo, err := n.p.Git.Repo(name); err == nil && !n.gone[name+" "+branch] {
			_, err := repo.Resolve(ctx, branch)
			if err != nil && !errors.Is(err, gitd.ErrNotFound) {
				return err
			}
			there = err == nil
		}
		if !there {
			all = append(all, candidate{Pruned: Pruned{Kind: Artifacts, Repo: name, Name: o.Key, Time: o.Time,
				Bytes: o.Size, Why: "its caller has no branch"}})
		}
	}
	for _, c := range n.over(n.p.Keep.Artifacts, all) {
		if !n.ask.DryRun {
			if err := bucket.Delete(ctx, c.Name); err != nil {
				return err
			}
		}
		n.list = append(n.list, c.Pruned)
	}
	return nil
}

// named returns the artifacts that runs name. It fails if one manifest cannot be read, because nobody knows which
// artifacts that names.
func (n *pass) named(ctx context.Context) (map[string]bool, error) {
	repos, err := n.p.Git.Repos(ctx)
	if err != nil {
		return nil, err
	}
	named := make(map[string]bool)
	for _, repo := range repos {
		refs, err := repo.Refs(ctx, record.RunsPrefix)
		if err != nil {
			return nil, err
		}
		for _, ref := range refs {
			if n.gone[repo.Name()+" "+ref.Name] {
				continue
			}
			text, err := repo.ReadFile(ctx, string(ref.Hash), record.ManifestPath, record.MaxManifest)
			if errors.Is(err, gitd.ErrNotFound) {
				continue // it is at work
			}
			var m record.Manifest
			if err == nil {
				err = json.Unmarshal(text, &m)
			}
			if err != nil {
				return nil, fmt.Errorf("the evidence at %s of %s: %w", ref.Name, repo.Name(), err)
			}
			for _, f := range m.Files {
				if f.Stored {
					named[f.SHA256] = true
				}
			}
		}
	}
	return named, nil
}
