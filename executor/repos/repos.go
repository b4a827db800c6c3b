package repos

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ramus-dev/ramus/executor/deps"
	"github.com/ramus-dev/ramus/executor/index"
	"github.com/ramus-dev/ramus/executor/lfs"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/runs"
	"github.com/ramus-dev/ramus/executor/secret"
	"github.com/ramus-dev/ramus/executor/store"
	"github.com/ramus-dev/ramus/executor/worktree"
	"github.com/ramus-dev/ramus/gitd"
)

// Repos removes, renames and moves the repositories of a server. Its fields are set before the first use. All are required
// unless their comment describes the zero value. Methods are safe for concurrent use.
type Repos struct {
	Git  *gitd.Server
	Runs *runs.Reader
	// Stop ends the runs of a caller and removes its container.
	Stop func(ctx context.Context, caller string, by gitd.Person) error
	// Open returns an error if the server is closing.
	Open func() error
	// Data is the data folder, on the disk of the artifacts.
	Data      string
	Artifacts *store.Store
	// Shared is true if all servers have one store of artifacts.
	Shared bool
	Trees  *worktree.Store
	Deps   *deps.Cache
	// SecretStore has the credentials of repositories. Nil means that there are none.
	SecretStore *secret.Store
	// LFS keeps Git LFS objects. Nil means that there are none.
	LFS *lfs.Objects
	// Hides reports whether the work of a caller is hidden from others. Nil hides nothing.
	Hides func(c record.Caller) bool
}

// Remove removes a repository with its branches, runs and Git LFS objects. It is an [record.ErrConflict] if a run in
// it has not ended, unless force is set. Then the runs are stopped first. A task that has not ended is one in any case,
// because the task would go on.
func (rs *Repos) Remove(ctx context.Context, name string, force bool, by gitd.Person) error {
	if err := rs.remove(ctx, name, force, by); err != nil {
		return fmt.Errorf("cannot remove %s: %w", name, err)
	}
	return nil
}

func (rs *Repos) remove(ctx context.Context, name string, force bool, by gitd.Person) error {
	repo, err := rs.Git.Repo(name)
	if err != nil {
		return err
	}
	if err := rs.endWork(ctx, name, force, by); err != nil {
		return err
	}
	mark := ""
	if rs.LFS != nil {
		if mark, err = repo.Mark(); err != nil {
			return err
		}
	}
	if err := rs.Git.Remove(ctx, name); err != nil {
		return err
	}
	// The repository is gone. The following data is derived from it. Open and Prune remove the rest of it.
	ctx = context.WithoutCancel(ctx)
	err = rs.forgetRuns(name)
	rs.dropLayers(name)
	if rs.SecretStore != nil { // a later repository of the name must not have them
		err = errors.Join(err, rs.SecretStore.RemoveOf(secret.OfRepo(name)))
	}
	if rs.LFS != nil {
		err = errors.Join(err, rs.LFS.Drop(ctx, mark))
	}
	return errors.Join(err, rs.Deps.Forget(ctx, name))
}

// Rename gives a repository another name. Its branches, runs and Git LFS objects stay. It is an
// [record.ErrConflict] if a run in it has not ended. Containers of its callers are removed, as if they went to sleep.
func (rs *Repos) Rename(ctx context.Context, name, to string, by gitd.Person) (*gitd.Repo, error) {
	if err := rs.endWork(ctx, name, false, by); err != nil {
		return nil, fmt.Errorf("cannot rename %s: %w", name, err)
	}
	repo, err := rs.Git.Rename(ctx, name, to)
	if err != nil {
		return nil, err
	}
	// The rest is derived from the repository, and Open finishes it.
	ctx = context.WithoutCancel(ctx)
	runs, err := index.RunsOf(ctx, repo)
	rs.dropLayers(name)
	if rs.SecretStore != nil {
		err = errors.Join(err, rs.SecretStore.Rename(name, to))
	}
	if err == nil {
		err = errors.Join(rs.forgetRuns(name), rs.Runs.Index.Put(runs...), rs.Deps.Forget(ctx, name))
	}
	if err != nil {
		return nil, fmt.Errorf("%s is %s now, but cannot be listed: %w; `ramus reindex` repairs that", name, to, err)
	}
	return repo, nil
}

// endWork ends the work in a repository, or returns [record.ErrConflict] with the names of runs that have not ended.
func (rs *Repos) endWork(ctx context.Context, name string, force bool, by gitd.Person) error {
	if err := rs.Open(); err != nil {
		return err
	}
	if _, err := rs.Git.Repo(name); err != nil {
		return err
	}
	var open []string
	callers := make(map[record.Caller]bool)
	for _, r := range rs.Runs.Current() {
		if _, with := r.Addition(name); with && r.Repo != name {
			if err := rs.needs(ctx, r, name); err != nil {
				return err
			}
		}
		if r.Repo != name {
			continue
		}
		callers[r.Caller] = true
		switch {
		case r.Ended() && !rs.works(r):
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
		for _, h := range rs.Runs.Fleet.List(ctx, keys...) {
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
		if runs := rs.Runs.OfCaller(c); runs[len(runs)-1].Repo != name {
			continue // it works elsewhere now
		}
		if err := rs.Stop(ctx, c.String(), by); err != nil {
			return err
		}
	}
	return nil
}

// needs returns an [record.ErrConflict] if the caller of a run works in an additional repository that is to go or to get
// another name.
func (rs *Repos) needs(ctx context.Context, r record.Run, name string) error {
	repo, err := rs.Git.Repo(r.Repo)
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
func (rs *Repos) forgetRuns(name string) error {
	var gone []record.Run
	for _, r := range rs.Runs.Index.All() {
		if r.Repo == name {
			gone = append(gone, r)
		}
	}
	err := rs.Runs.Index.Remove(gone...)
	for _, r := range gone {
		err = errors.Join(err, rs.Runs.Folder.Remove(r))
	}
	return err
}

// dropLayers removes the layers of a repository that no container is over. Others go when they are the oldest.
func (rs *Repos) dropLayers(name string) {
	for _, l := range rs.Trees.Unheld(name) {
		rs.Trees.Drop(l)
	}
}

// works reports whether something works at a run that may have ended, because it is being sealed.
func (rs *Repos) works(r record.Run) bool { return rs.Runs.Live.AtWork(r.Caller, r.ID) != nil }
