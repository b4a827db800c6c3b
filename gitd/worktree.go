package gitd

import (
	"context"
	"fmt"
	"io"

	"github.com/ramus-dev/ramus/gitd/lfs"
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
			return r.server.encodeCommit(r.newCommit(c, tree), c.Signer)
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
	w := worktree.Repo{
		Objects: &r.objects, NewPack: r.newPack, Secrets: r.server.Secrets,
		MaxObject: limits.ObjectBytes, MaxBytes: limits.PackBytes,
	}
	if r.server.LFS != nil {
		w.Large = keptFiles{r}
	}
	return w
}

// keptFiles has the Git LFS objects of a repository keep the large files of its work trees.
type keptFiles struct{ repo *Repo }

// MaxSize implements [worktree.LargeFiles].
func (k keptFiles) MaxSize() int64 { return k.repo.server.limits.LFSBytes }

// Keep implements [worktree.LargeFiles].
func (k keptFiles) Keep(ctx context.Context, o lfs.Object, open func() (io.ReadCloser, error)) error {
	s := k.repo.server
	found, err := s.LFS.Find(ctx, k.repo, []lfs.Object{o}, false)
	if err != nil || len(found) > 0 && found[0] == o {
		return err
	}
	in, err := open()
	if err != nil {
		return err
	}
	defer in.Close()
	return s.LFS.Put(ctx, k.repo, o, &searched{from: lfs.NewContent(o, in), secrets: s.Secrets.Finder()})
}
