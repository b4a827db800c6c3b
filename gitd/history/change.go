package history

import (
	"cmp"
	"context"
	"fmt"

	"github.com/ramus-dev/ramus/gitd/object"
)

// Change is a path whose entry differs between two trees. A zero mode means that a tree does not have
// the path.
type Change struct {
	Path     string
	OldMode  uint32
	NewMode  uint32
	Old, New object.Hash
}

// CompareTrees returns the changes from the tree a to the tree b, sorted by path. Folders are entered,
// submodules are entries. An empty Hash is a tree without entries. read returns the entries of a tree. Returns
// [object.ErrTooLarge] if there are more than max changes, or more than [object.MaxFolders] folders with changes.
func CompareTrees(ctx context.Context, read func(context.Context, object.Hash) ([]object.Entry, error), a, b object.Hash, max int) ([]Change, error) {
	c := comparison{read: read, max: max}
	err := c.compareTrees(ctx, a, b, "", 0)
	return c.list, err
}

// comparison collects the changes between two trees.
type comparison struct {
	read    func(context.Context, object.Hash) ([]object.Entry, error)
	max     int
	list    []Change
	folders int // that were compared
}

// compareTrees compares two trees at path. Either may be empty.
func (c *comparison) compareTrees(ctx context.Context, a, b object.Hash, path string, depth int) error {
	if a == b {
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if depth > object.MaxDepth {
		return fmt.Errorf("folders are nested more than %d deep: %w", object.MaxDepth, object.ErrTooLarge)
	}
	if c.folders++; c.folders > object.MaxFolders {
		return fmt.Errorf("more than %d folders: %w", object.MaxFolders, object.ErrTooLarge)
	}
	from, err := c.readEntries(ctx, a)
	if err != nil {
		return err
	}
	to, err := c.readEntries(ctx, b)
	if err != nil {
		return err
	}

	for len(from) > 0 || len(to) > 0 {
		var x, y object.Entry
		// A folder and a file of one name are two entries at two positions of the order.
		switch {
		case len(to) == 0 || len(from) > 0 && from[0].Key() < to[0].Key():
			x, from = from[0], from[1:]
		case len(from) == 0 || to[0].Key() < from[0].Key():
			y, to = to[0], to[1:]
		default:
			x, from, y, to = from[0], from[1:], to[0], to[1:]
		}
		if err := c.compareEntries(ctx, x, y, path, depth); err != nil {
			return err
		}
	}
	return nil
}

func (c *comparison) readEntries(ctx context.Context, tree object.Hash) ([]object.Entry, error) {
	if tree == "" {
		return nil, nil
	}
	return c.read(ctx, tree)
}

// compareEntries compares two entries of one name and kind. Either may be zero.
func (c *comparison) compareEntries(ctx context.Context, x, y object.Entry, path string, depth int) error {
	if x == y {
		return nil
	}
	name := cmp.Or(x.Name, y.Name)
	if path != "" {
		name = path + "/" + name
	}
	if x.Mode == object.ModeFolder || y.Mode == object.ModeFolder {
		return c.compareTrees(ctx, x.Hash, y.Hash, name, depth+1)
	}
	if len(c.list) == c.max {
		return fmt.Errorf("more than %d paths differ: %w", c.max, object.ErrTooLarge)
	}
	c.list = append(c.list, Change{Path: name, OldMode: x.Mode, NewMode: y.Mode, Old: x.Hash, New: y.Hash})
	return nil
}
