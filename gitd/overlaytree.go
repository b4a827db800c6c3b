package gitd

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ramus-dev/ramus/gitd/object"
)

// overlayNode is an entry of an overlay with what it holds.
type overlayNode struct {
	*OverlayEntry // nil: the root
	name          string
	kids          []*overlayNode // sorted by name
}

func (n *overlayNode) kid(name string) *overlayNode {
	i, ok := slices.BinarySearchFunc(n.kids, name, func(k *overlayNode, name string) int { return strings.Compare(k.name, name) })
	if !ok {
		return nil
	}
	return n.kids[i]
}

// overlayTree makes a tree of the entries, which may be any.
func overlayTree(entries []OverlayEntry) (*overlayNode, error) {
	root := &overlayNode{}
	folders := map[string]*overlayNode{"": root}
	nodes := make([]overlayNode, len(entries))
	for i := range entries {
		e := &entries[i]
		if e.Path == ".git" || strings.HasPrefix(e.Path, ".git/") {
			continue
		}
		if len(e.Path) > object.MaxPath {
			return nil, fmt.Errorf("path %.100q… is longer than %d bytes: %w", e.Path, object.MaxPath, ErrPortable)
		}
		up, name := splitName(e.Path)
		// A parent that was not listed, or was no folder, holds nothing; its own name was looked at then.
		in := folders[up]
		if in == nil || join(up, name) != e.Path || name == "" || name == "." || name == ".." || strings.IndexByte(name, 0) >= 0 {
			return nil, fmt.Errorf("entry %.200q stands in no folder of the overlay: %w", e.Path, ErrInvalid)
		}
		n := &nodes[i]
		n.OverlayEntry, n.name = e, name
		switch e.Kind {
		case 'd':
			folders[e.Path] = n
		case 'f', 'l', 'w', 'o':
		default:
			return nil, fmt.Errorf("entry %.200q is of kind %q, which is none: %w", e.Path, e.Kind, ErrInvalid)
		}
		if last := len(in.kids) - 1; last >= 0 && in.kids[last].name >= name {
			return nil, fmt.Errorf("entry %.200q is out of order: %w", e.Path, ErrInvalid)
		}
		in.kids = append(in.kids, n)
	}
	return root, nil
}
