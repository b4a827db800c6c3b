package prune

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/executor/lfs"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/seal"
	"github.com/ramus-dev/ramus/executor/store"
	"github.com/ramus-dev/ramus/executor/worktree"
	"github.com/ramus-dev/ramus/gitd"
)

// Keep is the retention of one kind of thing. It keeps everything younger than Age, and the Count newest in each
// repository. Zero values keep none.
type Keep struct {
	Age   time.Duration
	Count int
}

// Retention is the policy of [Pruner.Prune]. The zero value keeps only data that is still needed.
type Retention struct {
	// Branches are the branches of callers that have ended, with the saved work of their lost containers. Branches
	// whose commits are all in the base are removed at any age.
	Branches Keep
	// Runs are the sealed runs of callers without a branch, the looks of browsers at trees, and the results of commands by tree. The
	// verdict about a run goes with the run.
	Runs Keep
	// Layers are the work trees, and the dependencies, that containers begin with.
	Layers Keep
	// Artifacts are the artifacts that no run names any more, counted over all repositories.
	Artifacts Keep
}

// The kinds of things that can be pruned, in the order of their removal. A thing that was removed does not keep later
// ones.
const (
	Branches  = "branches"
	Runs      = "runs"
	Browser   = "browser"
	Layers    = "layers"
	Artifacts = "artifacts"
	Objects   = "objects"
	LFS       = "lfs"
)

// Kinds returns the kinds, in that order.
func Kinds() []string {
	return []string{Branches, Runs, Browser, Layers, Artifacts, Objects, LFS}
}

// Pruning is a request to remove things that are not needed.
type Pruning struct {
	Kinds []string `json:"kinds,omitempty"` // empty for all
	Repo  string   `json:"repo,omitempty"`  // empty for all; artifacts belong to none
	// DryRun removes nothing. Prune returns the things that it would remove.
	DryRun bool `json:"dry_run,omitempty"`
}

// Check returns an error if p contains an unknown kind.
func (p Pruning) Check() error {
	for _, kind := range p.Kinds {
		if !slices.Contains(Kinds(), kind) {
			return fmt.Errorf("%w kind %q to prune: want %s", record.ErrInvalid, kind, strings.Join(Kinds(), ", "))
		}
	}
	return nil
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

// Pruner removes things that are not needed. Its fields are options that do not change while Prune works.
type Pruner struct {
	Git *gitd.Server
	// Chain has the chains of seals, which name the runs that are removed. Nil means that there are none.
	Chain     *seal.Chain
	Trees     *worktree.Store
	Artifacts *store.Store
	LFS       *lfs.Objects // nil if there are none
	// Runs returns all runs, and Works reports whether something works at one that may have ended.
	Runs  func() []record.Run
	Works func(record.Run) bool
	// Forget removes runs from the index, after their refs.
	Forget func(...record.Run) error
	// Hosts returns the callers that have a container, by name.
	Hosts func() []string
	// Sweep removes the branches of upstream that belong to a caller's branch, and returns them. See
	// [github.com/ramus-dev/ramus/executor/upstream.Bases.Sweep].
	Sweep func(ctx context.Context, repo string, c record.Caller, dry bool) ([]string, error)
	Keep  Retention
	Log   *slog.Logger
	At    time.Time // the present
}

// Prune removes the things that are not kept, and returns them. With an error the list has those that were removed.
// Things in use stay, and so does everything that began meanwhile. One Prune runs at a time.
func (p *Pruner) Prune(ctx context.Context, ask Pruning) ([]Pruned, error) {
	if err := ask.Check(); err != nil {
		return nil, err
	}
	repos, err := p.repos(ctx, ask.Repo)
	if err != nil {
		return nil, fmt.Errorf("cannot prune: %w", err)
	}
	n := &pass{p: p, ask: ask, gone: make(map[string]bool)}
	if err := n.all(ctx, repos); err != nil {
		return n.list, fmt.Errorf("cannot prune: %w", err)
	}
	return n.list, nil
}

// repos returns the repository of a name, or all if name is empty.
func (p *Pruner) repos(ctx context.Context, name string) ([]*gitd.Repo, error) {
	if name == "" {
		return p.Git.Repos(ctx)
	}
	repo, err := p.Git.Repo(name)
	return []*gitd.Repo{repo}, err
}

// pass is one call of Prune.
type pass struct {
	p    *Pruner
	ask  Pruning
	list []Pruned
	gone map[string]bool // the refs that go now, as "REPO REF"
}

func (n *pass) wants(kind string) bool {
	return len(n.ask.Kinds) == 0 || slices.Contains(n.ask.Kinds, kind)
}

func (n *pass) all(ctx context.Context, repos []*gitd.Repo) error {
	for _, step := range []struct {
		kind string
		do   func(context.Context, *gitd.Repo) error
	}{{Branches, n.branches}, {Branches, n.additions}, {Runs, n.runs}, {Runs, n.replays}, {Runs, n.tournaments}, {Runs, n.tries}, {Runs, n.checks},
		{Browser, n.baselines}, {Layers, n.layers}} {
		if !n.wants(step.kind) {
			continue
		}
		for _, repo := range repos {
			if err := step.do(ctx, repo); err != nil {
				return fmt.Errorf("%s of %s: %w", step.kind, repo.Name(), err)
			}
		}
	}
	if n.wants(Artifacts) {
		if err := n.artifacts(ctx); err != nil {
			return fmt.Errorf("%s: %w", Artifacts, err)
		}
	}
	if n.wants(Objects) && !n.ask.DryRun {
		for _, repo := range repos {
			if err := repo.Prune(ctx); err != nil {
				return err
			}
		}
	}
	if n.wants(LFS) && n.p.LFS != nil {
		for _, repo := range repos {
			if err := n.largeFiles(ctx, repo); err != nil {
				return fmt.Errorf("%s of %s: %w", LFS, repo.Name(), err)
			}
		}
	}
	return nil
}

// largeFiles removes the Git LFS objects that no pointer names.
func (n *pass) largeFiles(ctx context.Context, repo *gitd.Repo) error {
	removed, err := n.p.LFS.Prune(ctx, repo, n.ask.DryRun)
	for _, o := range removed {
		n.list = append(n.list, Pruned{Kind: LFS, Repo: repo.Name(), Name: o.OID, Time: o.Time, Bytes: o.Size,
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
func (n *pass) over(k Keep, all []candidate) []candidate {
	slices.SortFunc(all, func(a, b candidate) int {
		return cmp.Or(b.Time.Compare(a.Time), strings.Compare(a.Name, b.Name))
	})
	if k.Count >= len(all) {
		return nil
	}
	return slices.DeleteFunc(all[max(k.Count, 0):], func(c candidate) bool { return n.p.At.Sub(c.Time) < k.Age })
}

// batchSize is how many refs are removed at once. git writes all packed refs again each time.
const batchSize = 200

// remove removes refs that still are at the commits that were seen.
func (n *pass) remove(ctx context.Context, repo *gitd.Repo, all []candidate) ([]candidate, error) {
	if n.ask.DryRun {
		n.removed(repo, all)
		return all, nil
	}
	var done []candidate
	for batch := range slices.Chunk(all, batchSize) {
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

func (n *pass) removed(repo *gitd.Repo, all []candidate) {
	for _, c := range all {
		n.gone[repo.Name()+" "+c.ref.Name] = true
		n.list = append(n.list, c.Pruned)
	}
}
