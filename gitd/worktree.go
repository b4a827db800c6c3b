package gitd

import (
	"context"
	"fmt"

	"github.com/ramus-dev/ramus/gitd/worktree"
)

// Snapshot writes the commit that `git add -A && git commit` would make in a work tree, as
// [worktree.Repo.Snapshot] describes. The commit has the Parents, the persons, the time and the message of c. Its
// From, Put and Delete are not used. No ref is changed.
func (r *Repo) Snapshot(ctx context.Context, o worktree.Overlay, c NewCommit) (worktree.Snapshot, error) {
	err := r.checkParents(ctx, c.Parents)
	var s worktree.Snapshot
	if err == nil {
		s, err = r.worktrees().Snapshot(ctx, o, func(tree Hash) ([]byte, error) {
			return r.server.encodeCommit(r.newCommit(c, tree))
		})
	}
	if err != nil {
		return worktree.Snapshot{}, fmt.Errorf("cannot commit a work tree of %s: %w", r.name, err)
	}
	return s, nil
}

// Verbatim returns nil if a checkout of the commit writes the files with these paths byte for byte as they are
// stored. It returns [worktree.ErrNeedsGit] if only git can write one of them.
func (r *Repo) Verbatim(ctx context.Context, commit Hash, paths []string) error {
	if err := r.worktrees().Verbatim(ctx, commit, paths); err != nil {
		return fmt.Errorf("repository %s: %w", r.name, err)
	}
	return nil
}

// worktrees returns the repository as work trees see it.
func (r *Repo) worktrees() worktree.Repo {
	limits := r.server.limits
	return worktree.Repo{
		Objects: &r.objects, NewPack: r.newPack, Secrets: r.server.Secrets,
		MaxObject: limits.ObjectBytes, MaxBytes: limits.PackBytes,
	}
}
