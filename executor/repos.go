package executor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ramus-dev/ramus/executor/index"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/secret"
	"github.com/ramus-dev/ramus/gitd"
)

// RemoveRepo removes a repository with its branches, runs and Git LFS objects. It is an [record.ErrConflict] if a run in
// it has not ended, unless force is set. Then the runs are stopped first. A task that has not ended is one in any case,
// because the task would go on.
func (x *Executor) RemoveRepo(ctx context.Context, name string, force bool, by gitd.Person) error {
	if err := x.removeRepo(ctx, name, force, by); err != nil {
		return fmt.Errorf("cannot remove %s: %w", name, err)
	}
	return nil
}

func (x *Executor) removeRepo(ctx context.Context, name string, force bool, by gitd.Person) error {
	repo, err := x.Git.Repo(name)
	if err != nil {
		return err
	}
	if err := x.endWork(ctx, name, force, by); err != nil {
		return err
	}
	mark := ""
	if x.LFS != nil {
		if mark, err = repo.Mark(); err != nil {
			return err
		}
	}
	if err := x.Git.Remove(ctx, name); err != nil {
		return err
	}
	// The repository is gone. The following data is derived from it. Open and Prune remove the rest of it.
	ctx = context.WithoutCancel(ctx)
	err = x.forgetRuns(name)
	x.dropLayers(name)
	if x.SecretStore != nil { // a later repository of the name must not have them
		err = errors.Join(err, x.SecretStore.RemoveOf(secret.OfRepo(name)))
	}
	if x.LFS != nil {
		err = errors.Join(err, x.LFS.Drop(ctx, mark))
	}
	return errors.Join(err, x.deps.Forget(ctx, name))
}

// RenameRepo gives a repository another name. Its branches, runs and Git LFS objects stay. It is an
// [record.ErrConflict] if a run in it has not ended. Containers of its callers are removed, as if they went to sleep.
func (x *Executor) RenameRepo(ctx context.Context, name, to string, by gitd.Person) (*gitd.Repo, error) {
	if err := x.endWork(ctx, name, false, by); err != nil {
		return nil, fmt.Errorf("cannot rename %s: %w", name, err)
	}
	repo, err := x.Git.Rename(ctx, name, to)
	if err != nil {
		return nil, err
	}
	// The rest is derived from the repository, and Open finishes it.
	ctx = context.WithoutCancel(ctx)
	runs, err := index.RunsOf(ctx, repo)
	x.dropLayers(name)
	if x.SecretStore != nil {
		err = errors.Join(err, x.SecretStore.Rename(name, to))
	}
	if err == nil {
		err = errors.Join(x.forgetRuns(name), x.index.Put(runs...), x.deps.Forget(ctx, name))
	}
	if err != nil {
		return nil, fmt.Errorf("%s is %s now, but cannot be listed: %w; `ramus reindex` repairs that", name, to, err)
	}
	return repo, nil
}

// endWork ends the work in a repository, or returns [record.ErrConflict] with the names of runs that have not ended.
func (x *Executor) endWork(ctx context.Context, name string, force bool, by gitd.Person) error {
	if err := x.life.err(); err != nil {
		return err
	}
	if _, err := x.Git.Repo(name); err != nil {
		return err
	}
	var open []string
	callers := make(map[record.Caller]bool)
	for _, r := range x.Current() {
		if _, with := r.Addition(name); with && r.Repo != name {
			if err := x.needs(ctx, r, name); err != nil {
				return err
			}
		}
		if r.Repo != name {
			continue
		}
		callers[r.Caller] = true
		switch {
		case r.Ended() && !x.runs.has(r):
		case r.Kind == record.KindConversation:
			return fmt.Errorf("%w: the task %s has not ended; `ramus task cancel %[2]s` ends it", record.ErrConflict,
				r.Caller.ID())
		default:
			open = append(open, r.Name())
		}
	}
	if len(open) > 0 && !force {
		slices.Sort(open)
		return fmt.Errorf("%w: %d of its runs have not ended (%s)", record.ErrConflict, len(open),
			strings.Join(open[:min(len(open), 3)], ", "))
	}
	keys := make([]string, 0, len(callers))
	for c := range callers {
		keys = append(keys, c.String())
	}
	if len(keys) > 0 && !force {
		for _, h := range x.Fleet.List(ctx, keys...) {
			if h.Live > 0 {
				what := "processes"
				if h.Live == 1 {
					what = "process"
				}
				return fmt.Errorf("%w: %s has %d %s in the background", record.ErrConflict, h.Key, h.Live, what)
			}
		}
	}
	for c := range callers {
		if runs := x.OfCaller(c); runs[len(runs)-1].Repo != name {
			continue // it works elsewhere now
		}
		if err := x.Stop(ctx, c.String(), by); err != nil {
			return err
		}
	}
	return nil
}

// needs returns an [record.ErrConflict] if the caller of a run works in an additional repository that is to go or to get
// another name.
func (x *Executor) needs(ctx context.Context, r record.Run, name string) error {
	repo, err := x.Git.Repo(r.Repo)
	if err == nil {
		_, err = repo.Resolve(ctx, "refs/heads/"+r.Caller.Branch())
	}
	if errors.Is(err, gitd.ErrNotFound) {
		return nil // the caller is gone
	}
	if err != nil {
		return err
	}
	return fmt.Errorf("%w: %s of %s works in %s too; `ramus rm %s` removes it", record.ErrConflict, r.Caller, r.Repo, name,
		r.Caller.ID())
}

// forgetRuns removes the runs of a repository from the index, and their files.
func (x *Executor) forgetRuns(name string) error {
	var gone []record.Run
	for _, r := range x.index.All() {
		if r.Repo == name {
			gone = append(gone, r)
		}
	}
	err := x.index.Remove(gone...)
	for _, r := range gone {
		err = errors.Join(err, x.folder.Remove(r))
	}
	return err
}

// dropLayers removes the layers of a repository that no container is over. Others go when they are the oldest.
func (x *Executor) dropLayers(name string) {
	for _, l := range x.trees.Unheld(name) {
		x.trees.Drop(l)
	}
}

// forgetGone rebuilds the index if it has runs of a repository that is not there. The last process was killed while it
// removed or renamed one, or somebody else did.
func (x *Executor) forgetGone(ctx context.Context) error {
	seen := make(map[string]bool)
	var gone []record.Run
	for _, r := range x.index.All() {
		there, known := seen[r.Repo]
		if !known {
			_, err := x.Git.Repo(r.Repo)
			there = !errors.Is(err, gitd.ErrNotFound)
			seen[r.Repo] = there
		}
		if !there {
			gone = append(gone, r)
		}
	}
	if len(gone) == 0 {
		return nil
	}
	x.Log.Warn("repositories are gone, and the index is rebuilt without them", "runs", len(gone))
	_, err := x.Reindex(ctx)
	return err
}
