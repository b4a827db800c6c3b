package gitd

import (
	"cmp"
	"context"
	"fmt"

	"github.com/ramus-dev/ramus/gitd/history"
	"github.com/ramus-dev/ramus/gitd/object"
)

// Compare returns the changes from the tree of commit a to that of commit b, sorted by path. Folders are
// entered, submodules are entries. An empty Hash is a commit without files. Returns [ErrTooLarge] if there
// are more than max changes, for which zero means a million, or changes in more than [object.MaxFolders] folders.
func (r *Repo) Compare(ctx context.Context, a, b Hash, max int) ([]TreeChange, error) {
	list, err := r.compare(ctx, a, b, max)
	if err != nil {
		return nil, fmt.Errorf("cannot compare %.12s with %.12s in %s: %w", a, b, r.name, err)
	}
	return list, nil
}

func (r *Repo) compare(ctx context.Context, a, b Hash, max int) ([]TreeChange, error) {
	var trees [2]Hash
	for i, commit := range []Hash{a, b} {
		if commit == "" {
			continue
		}
		var err error
		if trees[i], err = r.objects.TreeOf(ctx, commit); err != nil {
			return nil, err
		}
	}
	return history.CompareTrees(ctx, r.objects.ReadTree, trees[0], trees[1], cmp.Or(max, object.MaxEntries))
}
