package gitd

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/ramus-dev/ramus/gitd/object"
)

// Commitable returns nil if a push may bring an entry of a tree with this path, mode and size in bytes. Returns
// [ErrInvalid] for a name that git or a file system of a client would take for a part of a repository, and
// [ErrTooLarge] for a path or a file over the limits of the server. The text names the limit.
func (s *Server) Commitable(path string, mode uint32, size int64) error {
	for name := range strings.SplitSeq(path, "/") {
		if object.IsDotGit(name) {
			return fmt.Errorf("%.40q is a name that git keeps for itself: %w", name, ErrInvalid)
		}
	}
	switch {
	case len(path) > object.MaxPath:
		return fmt.Errorf("the path is longer than %d bytes: %w", object.MaxPath, ErrTooLarge)
	case size > s.limits.ObjectBytes && mode != object.ModeCommit:
		return fmt.Errorf("%d bytes, git.limits.object_bytes allows %d: %w", size, s.limits.ObjectBytes, ErrTooLarge)
	}
	return nil
}

// PackBytes returns the size of the largest pack of a push in bytes.
func (s *Server) PackBytes() int64 { return s.limits.PackBytes }

// CountFiles returns the number of files, links and submodules in the tree of a commit, or max if there are more. It also
// returns max if the tree has more than [object.MaxFolders] folders.
func (r *Repo) CountFiles(ctx context.Context, commit Hash, max int) (int, error) {
	tree, err := r.objects.TreeOf(ctx, commit)
	if err != nil {
		return 0, fmt.Errorf("cannot count the files of %s in %s: %w", commit, r.name, err)
	}
	files, folders := 0, 0
	var count func(tree Hash, depth int) error
	count = func(tree Hash, depth int) error {
		if depth > object.MaxDepth {
			return nil
		}
		if folders++; folders > object.MaxFolders {
			files = max
		}
		entries, err := r.objects.ReadTree(ctx, tree)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if files >= max {
				return nil
			}
			if e.Mode != object.ModeFolder {
				files++
				continue
			}
			if err := count(e.Hash, depth+1); err != nil {
				return err
			}
		}
		return ctx.Err()
	}
	if err := count(tree, 0); err != nil {
		return 0, fmt.Errorf("cannot count the files of %s in %s: %w", commit, r.name, err)
	}
	return files, nil
}

// TreeOf returns the name of the tree of a commit.
func (r *Repo) TreeOf(ctx context.Context, commit Hash) (Hash, error) {
	tree, err := r.objects.TreeOf(ctx, commit)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return "", fmt.Errorf("cannot read the commit %s of %s: %w", commit, r.name, err)
	}
	return tree, err
}
