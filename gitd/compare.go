package gitd

import (
	"cmp"
	"context"
	"fmt"

	"github.com/ramus-dev/ramus/gitd/object"
)

// TreeChange is a path whose entry differs between two trees; a zero mode: it is not there.
type TreeChange struct {
	Path     string
	OldMode  uint32
	NewMode  uint32
	Old, New Hash
}

// Compare lists how the tree of commit b differs from that of a, sorted by path;
// folders are entered, submodules are entries. An empty Hash is a commit without files.
// More than max is [ErrTooLarge]; zero means a million.
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
		if trees[i], err = r.treeOf(ctx, commit); err != nil {
			return nil, err
		}
	}
	c := comparison{ctx: ctx, read: r.tree, max: cmp.Or(max, treeListMax)}
	err := c.trees(trees[0], trees[1], "", 0)
	return c.list, err
}

// folderDepthMax bounds how deep folders may be nested; no path that a file system takes
// is that deep.
const folderDepthMax = 2048

// comparison walks two trees side by side.
type comparison struct {
	ctx  context.Context
	read func(context.Context, Hash) ([]object.Entry, error)
	max  int
	list []TreeChange
}

// trees compares two trees at path, either of which may be none.
func (c *comparison) trees(a, b Hash, path string, depth int) error {
	if a == b {
		return nil
	}
	if err := c.ctx.Err(); err != nil {
		return context.Cause(c.ctx)
	}
	if depth > folderDepthMax {
		return fmt.Errorf("folders are nested more than %d deep: %w", folderDepthMax, ErrTooLarge)
	}
	from, err := c.entriesOf(a)
	if err != nil {
		return err
	}
	to, err := c.entriesOf(b)
	if err != nil {
		return err
	}
	for len(from) > 0 || len(to) > 0 {
		var x, y object.Entry
		// A folder and a file of one name are two entries, in two places of the order.
		switch {
		case len(to) == 0 || len(from) > 0 && from[0].Key() < to[0].Key():
			x, from = from[0], from[1:]
		case len(from) == 0 || to[0].Key() < from[0].Key():
			y, to = to[0], to[1:]
		default:
			x, from, y, to = from[0], from[1:], to[0], to[1:]
		}
		if err := c.entries(x, y, path, depth); err != nil {
			return err
		}
	}
	return nil
}

func (c *comparison) entriesOf(tree Hash) ([]object.Entry, error) {
	if tree == "" {
		return nil, nil
	}
	return c.read(c.ctx, tree)
}

// entries compares two entries of one name and kind, either of which may be none.
func (c *comparison) entries(x, y object.Entry, path string, depth int) error {
	if x == y {
		return nil
	}
	name := cmp.Or(x.Name, y.Name)
	if path != "" {
		name = path + "/" + name
	}
	if x.Mode == object.ModeFolder || y.Mode == object.ModeFolder {
		return c.trees(x.Hash, y.Hash, name, depth+1)
	}
	if len(c.list) == c.max {
		return fmt.Errorf("more than %d paths differ: %w", c.max, ErrTooLarge)
	}
	c.list = append(c.list, TreeChange{Path: name, OldMode: x.Mode, NewMode: y.Mode, Old: x.Hash, New: y.Hash})
	return nil
}
