package history

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/ramus-dev/ramus/gitd/object"
	"github.com/ramus-dev/ramus/gitd/pack"
)

const (
	// collectedTrees bounds the bytes of the folders that are in memory while they are compared.
	collectedTrees = 32 << 20
	// collectedDepth bounds the nesting of folders.
	collectedDepth = 1000
	// collectedOthers bounds the trees that a tree is compared with at once. Merges rarely have more than two parents.
	collectedOthers = 32
)

// Collector collects the objects of commits into a section. It reads each commit and each folder that
// differs once. An entry that a parent has at the same path is taken for an object of the parent. Methods
// return [ErrLarge] if the section or the memory is full.
type Collector struct {
	Objects *pack.Reader
	// Has reports whether the receiver gets an object anyway. If it gets an object, it must get all that
	// the object reaches. Nil means that it gets none.
	Has func(pack.ObjectName) (bool, error)
	// NoBlobs leaves out all files, as the filter blob:none does.
	NoBlobs bool
	// Section has the collected objects.
	Section Section

	seen  map[pack.ObjectName]bool
	trees map[pack.ObjectName][]byte
	held  int   // bytes of trees
	until int64 // the work at which the collector ends, see maxRebuilt; zero before the first read
}

// Collected reports whether an object was collected.
func (c *Collector) Collected(name pack.ObjectName) bool { return c.seen[name] }

// CollectRange collects the commits of a range, with the new objects of their trees.
//
// The order of the commits matters. An object that was seen before is left out together with all that it
// reaches, part of which may have been left to the parents of the commit in which it was seen.
func (c *Collector) CollectRange(ctx context.Context, r *Range) error {
	for _, commit := range r.Commits {
		var parents []object.Hash
		for _, p := range commit.Parents {
			parents = append(parents, r.Trees[p])
		}
		if err := c.CollectCommit(ctx, commit.Hash, commit.Tree, parents); err != nil {
			return err
		}
	}
	return nil
}

// CollectCommit collects a commit, and the objects of its tree that none of the trees others has at the
// same path.
func (c *Collector) CollectCommit(ctx context.Context, h, tree object.Hash, others []object.Hash) error {
	if err := c.Collect(ctx, h, "commit"); err != nil {
		return err
	}
	var names []pack.ObjectName
	for _, other := range others {
		name := plumbing.NewHash(string(other))
		if slices.Contains(names, name) {
			continue
		}
		if len(names) == collectedOthers {
			return ErrLarge
		}
		names = append(names, name)
	}
	return c.collectTree(ctx, plumbing.NewHash(string(tree)), names, 0)
}

// Collect collects a single object of a kind.
func (c *Collector) Collect(ctx context.Context, h object.Hash, kind string) error {
	return c.collect(ctx, plumbing.NewHash(string(h)), kind)
}

func (c *Collector) collect(ctx context.Context, name pack.ObjectName, kind string) error {
	if ok, err := c.isWanted(name); !ok {
		return err
	}
	data, err := c.read(ctx, name, kind)
	if err != nil {
		return err
	}
	return c.Section.add(kind, name, data)
}

// isWanted reports whether an object is neither collected yet nor at the receiver anyway.
func (c *Collector) isWanted(name pack.ObjectName) (bool, error) {
	if c.seen[name] {
		return false, nil
	}
	if c.Has != nil {
		if known, err := c.Has(name); known || err != nil {
			return false, err
		}
	}
	if c.seen == nil {
		c.seen = map[pack.ObjectName]bool{}
	}
	c.seen[name] = true
	return true, nil
}

func (c *Collector) read(ctx context.Context, name pack.ObjectName, kind string) ([]byte, error) {
	if c.until == 0 {
		c.until = c.Objects.Packs.Rebuilt() + maxRebuilt
	}
	if c.Objects.Packs.Rebuilt() > c.until {
		return nil, ErrLarge
	}
	obj, _, err := c.Objects.Small(ctx, object.Hash(name.String()))
	if err != nil {
		if errors.Is(err, object.ErrTooLarge) {
			err = ErrLarge
		}
		return nil, err
	}
	if obj.Kind != kind {
		return nil, fmt.Errorf("object %s is a %s, not a %s: %w", name, obj.Kind, kind, object.ErrInvalid)
	}
	return obj.Data, nil
}

// readTree reads a tree that may be needed again.
func (c *Collector) readTree(ctx context.Context, name pack.ObjectName) ([]byte, error) {
	if data, ok := c.trees[name]; ok {
		return data, nil
	}
	data, err := c.read(ctx, name, "tree")
	if err != nil {
		return nil, err
	}
	if c.held += len(data); c.held > collectedTrees {
		return nil, ErrLarge
	}
	if c.trees == nil {
		c.trees = map[pack.ObjectName][]byte{}
	}
	c.trees[name] = data
	return data, nil
}

// collectTree collects a folder, and its entries that none of others has at the same path.
func (c *Collector) collectTree(ctx context.Context, name pack.ObjectName, others []pack.ObjectName, depth int) error {
	if depth > collectedDepth {
		return ErrLarge
	}
	if slices.Contains(others, name) {
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if ok, err := c.isWanted(name); !ok {
		return err
	}
	data, err := c.readTree(ctx, name)
	if err != nil {
		return err
	}
	if err := c.Section.add("tree", name, data); err != nil {
		return err
	}

	parallel := make([]*treeCursor, len(others))
	for i, other := range others {
		data, err := c.readTree(ctx, other)
		if err != nil {
			return err
		}
		parallel[i] = &treeCursor{rest: data}
	}
	for at := (&treeCursor{rest: data}); ; {
		if ok, err := at.next(); !ok {
			return err
		}
		if at.mode == object.ModeCommit || c.NoBlobs && at.mode != object.ModeFolder {
			continue
		}
		if err := c.collectEntry(ctx, at, parallel, depth); err != nil {
			return err
		}
	}
}

// collectEntry collects the entry at a cursor unless one of the parallel trees has it.
func (c *Collector) collectEntry(ctx context.Context, at *treeCursor, parallel []*treeCursor, depth int) error {
	var below []pack.ObjectName
	same := false
	for _, other := range parallel {
		if other.seek(at) {
			same = same || other.hash == at.hash
			if other.mode == object.ModeFolder && !slices.Contains(below, other.hash) {
				below = append(below, other.hash)
			}
		}
	}
	switch {
	case same:
		return nil
	case at.mode == object.ModeFolder:
		return c.collectTree(ctx, at.hash, below, depth+1)
	}
	return c.collect(ctx, at.hash, "blob")
}
