package gitd

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"
)

// PruneRefs removes the refs below a prefix whose commits are the oldest, until kept of them are left. It does nothing
// while there are at most kept and a tenth more, so that a new ref rarely costs the time to read all commits. Refs of the
// same time are removed in the reverse order of their names.
func (r *Repo) PruneRefs(ctx context.Context, prefix string, kept int) error {
	refs, err := r.Refs(ctx, prefix)
	if err != nil || len(refs) <= kept+kept/10 {
		return err
	}

	made := make(map[Hash]time.Time, len(refs))
	for _, ref := range refs {
		c, err := r.Commit(ctx, string(ref.Hash))
		if err != nil {
			return err
		}
		made[ref.Hash] = c.When
	}
	slices.SortFunc(refs, func(a, b Ref) int {
		return cmp.Or(made[b.Hash].Compare(made[a.Hash]), strings.Compare(a.Name, b.Name))
	})

	var updates []RefUpdate
	for _, ref := range refs[kept:] {
		updates = append(updates, RefUpdate{Name: ref.Name})
	}
	return r.Update(ctx, updates...)
}
