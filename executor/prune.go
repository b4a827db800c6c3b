package executor

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
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/worktree"
	"github.com/ramus-dev/ramus/gitd"
)

// Work is kept until Prune is called, because it is a record. Prune removes everything that [Executor.Keep] does not
// keep and nobody can still need. git removes objects two weeks after the last ref that reached them.

// Keep is the retention of one kind of thing. It keeps everything younger than Age, and the Count newest in each
// repository. Zero values keep none.
type Keep struct {
	Age   time.Duration
	Count int
}

// Retention is the policy of [Executor.Prune].
type Retention struct {
	// Branches are the branches of callers that have ended, with the saved work of their lost containers. Branches
	// whose commits are all in the base are removed at any age.
	Branches Keep
	// Runs are the sealed runs of callers without a branch, and the looks of browsers at trees.
	Runs Keep
	// Layers are the work trees, and the dependencies, that containers begin with.
	Layers Keep
	// Artifacts are the artifacts that no run names any more, counted over all repositories.
	Artifacts Keep
}

// The kinds of things that can be pruned, in the order of their removal. A thing that was removed does not keep later ones.
const (
	PruneBranches  = "branches"
	PruneRuns      = "runs"
	PruneBrowser   = "browser"
	PruneLayers    = "layers"
	PruneArtifacts = "artifacts"
	PruneObjects   = "objects"
	PruneLFS       = "lfs"
)

// PruneKinds returns the kinds.
func PruneKinds() []string {
	return []string{PruneBranches, PruneRuns, PruneBrowser, PruneLayers, PruneArtifacts, PruneObjects, PruneLFS}
}

// Pruning is a request to remove things that are not needed.
type Pruning struct {
	Kinds []string `json:"kinds,omitempty"` // empty for all
	Repo  string   `json:"repo,omitempty"`  // empty for all; artifacts belong to none
	// DryRun removes nothing. Prune returns the things that it would remove.
	DryRun bool `json:"dry_run,omitempty"`
}

// Pruned is one thing that was removed, or would be.
type Pruned struct {
	Kind  string    `json:"kind"`
	Repo  string    `json:"repo,omitempty"`
	Name  string    `json:"name"` // a ref, a layer, the SHA-256 of an artifact or a Git LFS object
	Why   string    `json:"why"`
	Time  time.Time `json:"time,omitzero"`  // of its last use
	Bytes int64     `json:"bytes,omitzero"` // where that is known
}

// claimLife is the time for which a run that was requested from outside always stays. Its ref distinguishes a
// repeated delivery of a request from a new request.
const claimLife = 24 * time.Hour

// Prune removes the things that are not kept, and returns them. With an error the list has those that were removed.
// Things in use stay, and so does everything that began meanwhile.
func (x *Executor) Prune(ctx context.Context, p Pruning) ([]Pruned, error) {
	if err := x.isOpen(); err != nil {
		return nil, err
	}
	for _, kind := range p.Kinds {
		if !slices.Contains(PruneKinds(), kind) {
			return nil, fmt.Errorf("%w kind %q to prune: want %s", record.ErrInvalid, kind, strings.Join(PruneKinds(), ", "))
		}
	}
	release, err := x.runs.lock(ctx, pruneLock)
	if err != nil {
		return nil, err
	}
	defer release()
	repos, err := x.Git.Repos(ctx)
	if p.Repo != "" {
		var repo *gitd.Repo
		repo, err = x.Git.Repo(p.Repo)
		repos = []*gitd.Repo{repo}
	}
	if err != nil {
		return nil, fmt.Errorf("cannot prune: %w", err)
	}
	n := &pruning{x: x, keep: x.options().Keep, ask: p, now: x.Now(), gone: make(map[string]bool)}
	if err := n.all(ctx, repos); err != nil {
		return n.list, fmt.Errorf("cannot prune: %w", err)
	}
	return n.list, nil
}

// pruning is one call of Prune.
type pruning struct {
	x    *Executor
	keep Retention
	ask  Pruning
	now  time.Time
	list []Pruned
	gone map[string]bool // the refs that go now, as "REPO REF"
}

func (n *pruning) wants(kind string) bool {
	return len(n.ask.Kinds) == 0 || slices.Contains(n.ask.Kinds, kind)
}

func (n *pruning) all(ctx context.Context, repos []*gitd.Repo) error {
	for _, step := range []struct {
		kind string
		do   func(context.Context, *gitd.Repo) error
	}{{PruneBranches, n.branches}, {PruneBranches, n.additions}, {PruneRuns, n.runs}, {PruneBrowser, n.baselines},
		{PruneLayers, n.layers}} {
		if !n.wants(step.kind) {
			continue
		}
		for _, repo := range repos {
			if err := step.do(ctx, repo); err != nil {
				return fmt.Errorf("%s of %s: %w", step.kind, repo.Name(), err)
			}
		}
	}
	if n.wants(PruneArtifacts) {
		if err := n.artifacts(ctx); err != nil {
			return fmt.Errorf("%s: %w", PruneArtifacts, err)
		}
	}
	if n.wants(PruneObjects) && !n.ask.DryRun {
		for _, repo := range repos {
			if err := repo.Prune(ctx); err != nil {
				return err
			}
		}
	}
	if n.wants(PruneLFS) && n.x.LFS != nil {
		for _, repo := range repos {
			if err := n.largeFiles(ctx, repo); err != nil {
				return fmt.Errorf("%s of %s: %w", PruneLFS, repo.Name(), err)
			}
		}
	}
	return nil
}

// largeFiles removes the Git LFS objects that no pointer names.
func (n *pruning) largeFiles(ctx context.Context, repo *gitd.Repo) error {
	removed, err := n.x.LFS.Prune(ctx, repo, n.ask.DryRun)
	for _, o := range removed {
		n.list = append(n.list, Pruned{Kind: PruneLFS, Repo: repo.Name(), Name: o.OID, Time: o.Time, Bytes: o.Size,
			Why: "no pointer names it"})
	}
	return err
}

// candidate is a thing that is removed unless it is kept.
type candidate struct {
	Pruned
	ref gitd.Ref // its ref, if it has one
}

// over returns the candidates that k does not keep, the newest first.
func (n *pruning) over(k Keep, all []candidate) []candidate {
	slices.SortFunc(all, func(a, b candidate) int {
		return cmp.Or(b.Time.Compare(a.Time), strings.Compare(a.Name, b.Name))
	})
	if k.Count >= len(all) {
		return nil
	}
	return slices.DeleteFunc(all[max(k.Count, 0):], func(c candidate) bool { return n.now.Sub(c.Time) < k.Age })
}

// pruneBatch is how many refs are removed at once. git writes all packed refs again each time.
const pruneBatch = 200

// remove removes refs that still are at the commits that were seen.
func (n *pruning) remove(ctx context.Context, repo *gitd.Repo, all []candidate) ([]candidate, error) {
	if n.ask.DryRun {
		n.removed(repo, all)
		return all, nil
	}
	var done []candidate
	for batch := range slices.Chunk(all, pruneBatch) {
		updates := make([]gitd.RefUpdate, len(batch))
		for i := range batch {
			updates[i] = gitd.RefUpdate{Name: batch[i].ref.Name, Old: &batch[i].ref.Hash}
		}
		err := repo.Update(ctx, updates...)
		if errors.Is(err, gitd.ErrConflict) && len(batch) > 1 { // somebody changed one of them
			for _, c := range batch {
				some, err := n.remove(ctx, repo, []candidate{c})
				if done = append(done, some...); err != nil {
					return done, err
				}
			}
			continue
		}
		if errors.Is(err, gitd.ErrConflict) {
			continue
		}
		if err != nil {
			return done, err
		}
		n.removed(repo, batch)
		done = append(done, batch...)
	}
	return done, nil
}

func (n *pruning) removed(repo *gitd.Repo, all []candidate) {
	for _, c := range all {
		n.gone[repo.Name()+" "+c.ref.Name] = true
		n.list = append(n.list, c.Pruned)
	}
}

// callers summarizes the runs of a repository by caller.
func (n *pruning) callers(repo string) map[string]*callerRuns {
	open := make(map[string]bool) // runs of all repositories that have not ended
	for _, r := range n.x.current() {
		if !r.Ended() || n.x.works(r) {
			open[r.Name()] = true
		}
	}
	hosts := make(map[string]bool)
	for _, h := range n.x.Fleet.List(n.x.ctx) {
		hosts[h.Key] = true
	}
	callers := make(map[string]*callerRuns)
	for _, r := range n.x.current() {
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

// works reports whether something works at a run that may have ended, because it is being sealed.
func (x *Executor) works(r record.Run) bool {
	return x.runs.alive(r.Caller, r.ID) != nil
}

// branchPrefix begins the refs of callers' branches.
const branchPrefix = "refs/heads/ramus"

// branches removes the branches of callers that have ended. Branches of that form that belong to no caller are a person's own.
func (n *pruning) branches(ctx context.Context, repo *gitd.Repo) error {
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
	_, err = n.remove(ctx, repo, n.sweep(ctx, repo, append(merged, n.over(n.keep.Branches, old)...), callers))
	return err
}

// additions removes the branches in an additional repository of callers that have no branch in their own one any more.
func (n *pruning) additions(ctx context.Context, repo *gitd.Repo) error {
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
func (n *pruning) ofCallers(ctx context.Context, repo *gitd.Repo, callers map[string]*callerRuns) (all []candidate, err error) {
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
				all = append(all, candidate{Pruned{Kind: PruneBranches, Repo: repo.Name(), Name: ref.Name, Time: c.last,
					Why: "its caller has ended"}, ref})
			}
		}
	}
	return all, nil
}

// has reports whether a caller has a branch in a repository after this Prune.
func (n *pruning) has(ctx context.Context, repo string, c record.Caller) (bool, error) {
	branch := "refs/heads/" + c.Branch()
	if n.gone[repo+" "+branch] {
		return false, nil
	}
	r, err := n.x.Git.Repo(repo)
	if err == nil {
		_, err = r.Resolve(ctx, branch)
	}
	if errors.Is(err, gitd.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// containedWith reports whether the bases of a caller's additional repositories have its commits there.
func (n *pruning) containedWith(ctx context.Context, c *callerRuns) (bool, error) {
	for name, base := range c.with {
		repo, err := n.x.Git.Repo(name)
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
func (n *pruning) sweep(ctx context.Context, repo *gitd.Repo, all []candidate, callers map[string]*callerRuns) []candidate {
	return slices.DeleteFunc(all, func(c candidate) bool {
		slug, branch := strings.CutPrefix(c.ref.Name, branchPrefix+"/")
		if !branch || callers[slug] == nil {
			return false
		}
		gone, err := n.x.bases.Sweep(ctx, repo.Name(), callers[slug].caller, n.ask.DryRun)
		for _, name := range gone {
			n.list = append(n.list, Pruned{Kind: PruneBranches, Repo: repo.Name(), Name: "upstream " + name,
				Time: c.Time, Why: "its pull request was merged"})
		}
		if err != nil {
			n.x.Log.Warn("cannot remove a branch of upstream, so the branch here stays too", "repo", repo.Name(),
				"caller", callers[slug].caller, "err", err)
		}
		return err != nil
	})
}

// contained reports whether the base has a commit.
func (n *pruning) contained(ctx context.Context, repo *gitd.Repo, tip gitd.Hash, base string) (bool, error) {
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

// runs removes the runs of callers that are done, that have no branch any more, and whose origin knows of their end.
func (n *pruning) runs(ctx context.Context, repo *gitd.Repo) error {
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
			if !there || r.Origin != nil && (r.Told == nil || n.now.Sub(when) < claimLife) {
				continue
			}
			byRef[name] = r
			all = append(all, candidate{Pruned{Kind: PruneRuns, Repo: repo.Name(), Name: name, Time: when,
				Why: "it has ended, and its caller has no branch"}, ref})
		}
	}
	done, err := n.remove(ctx, repo, n.over(n.keep.Runs, all))
	if n.ask.DryRun {
		return err
	}
	runs := make([]record.Run, len(done))
	for i, c := range done {
		runs[i] = byRef[c.ref.Name]
	}
	return errors.Join(err, n.x.index.Remove(runs...))
}

// baselines removes the looks of browsers at trees.
func (n *pruning) baselines(ctx context.Context, repo *gitd.Repo) error {
	refs, err := repo.Refs(ctx, browse.BaselineRefs)
	if err != nil {
		return err
	}
	var all []candidate
	for _, ref := range refs {
		c, err := repo.Commit(ctx, string(ref.Hash))
		if err != nil {
			return err
		}
		all = append(all, candidate{Pruned{Kind: PruneBrowser, Repo: repo.Name(), Name: ref.Name, Time: c.When,
			Why: "it can be looked at again"}, ref})
	}
	_, err = n.remove(ctx, repo, n.over(n.keep.Runs, all))
	return err
}

// layers removes work trees and dependencies that no container is over.
func (n *pruning) layers(_ context.Context, repo *gitd.Repo) error {
	trees := n.x.trees
	byName := make(map[string]*worktree.Layer)
	// The work trees of bases, those of branches, and the dependencies of each ecosystem.
	byKind := make(map[[2]string][]candidate)
	for _, l := range trees.Unheld(repo.Name()) {
		byName[l.Name()] = l
		kind := [2]string{l.Ecosystem}
		if l.Branch != "" {
			kind[1] = "branch"
		}
		byKind[kind] = append(byKind[kind], candidate{Pruned: Pruned{Kind: PruneLayers, Repo: repo.Name(),
			Name: l.Name(), Time: trees.LastUse(l), Bytes: l.Bytes, Why: "no container uses it"}})
	}
	kinds := slices.SortedFunc(maps.Keys(byKind), func(a, b [2]string) int { return slices.Compare(a[:], b[:]) })
	for _, kind := range kinds {
		for _, c := range n.over(n.keep.Layers, byKind[kind]) {
			if n.ask.DryRun || trees.Drop(byName[c.Name]) {
				n.list = append(n.list, c.Pruned)
			}
		}
	}
	return nil
}

// artifacts removes the artifacts that no manifest names any more.
func (n *pruning) artifacts(ctx context.Context) error {
	// They are listed first. Later ones are not looked at, and an artifact that a later manifest names was marked as in use
	// before.
	var all []candidate
	for o, err := range n.x.artifacts.List(ctx) {
		if err != nil {
			return err
		}
		all = append(all, candidate{Pruned: Pruned{Kind: PruneArtifacts, Name: o.Key, Time: o.Time, Bytes: o.Size,
			Why: "no run names it"}})
	}
	named, err := n.named(ctx)
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(c candidate) bool { return named[c.Name] })
	for _, c := range n.over(n.keep.Artifacts, all) {
		if !n.ask.DryRun {
			removed, err := n.x.artifacts.Remove(ctx, c.Name)
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
func (n *pruning) keptFiles(ctx context.Context) error {
	bucket := n.x.artifacts.Bucket
	var all []candidate
	for o, err := range bucket.List(ctx, prepare.KeptPrefix) {
		if err != nil {
			return err
		}
		name, branch := prepare.KeptBranch(o.Key)
		there := false
		if repo, err := n.x.Git.Repo(name); err == nil && !n.gone[name+" "+branch] {
			_, err := repo.Resolve(ctx, branch)
			if err != nil && !errors.Is(err, gitd.ErrNotFound) {
				return err
			}
			there = err == nil
		}
		if !there {
			all = append(all, candidate{Pruned: Pruned{Kind: PruneArtifacts, Repo: name, Name: o.Key, Time: o.Time,
				Bytes: o.Size, Why: "its caller has no branch"}})
		}
	}
	for _, c := range n.over(n.keep.Artifacts, all) {
		if !n.ask.DryRun {
			if err := bucket.Delete(ctx, c.Name); err != nil {
				return err
			}
		}
		n.list = append(n.list, c.Pruned)
	}
	return nil
}

// named returns the artifacts that runs name. It fails if one manifest cannot be read, because nobody knows which artifacts that
// names.
func (n *pruning) named(ctx context.Context) (map[string]bool, error) {
	repos, err := n.x.Git.Repos(ctx)
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
			text, err := repo.ReadFile(ctx, string(ref.Hash), manifestPath, maxManifest)
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
