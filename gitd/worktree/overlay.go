package worktree

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/ramus-dev/ramus/gitd/object"
)

// Overlay is a work tree as overlayfs keeps it. Everything in Entries and all that Open returns is hostile.
type Overlay struct {
	// Lower is the commit whose tree was checked out.
	Lower object.Hash
	// Indexed is the commit that git's index has. Its files are tracked, even if .gitignore names them.
	Indexed object.Hash
	// Entries are the upper entries. Parents come before their content, siblings are sorted by the bytes
	// of their names. The caller leaves out .git itself.
	Entries []OverlayEntry
	// Open opens a regular file among the Entries by its path. [io/fs.ErrNotExist] means that the file is
	// gone. It is then treated as if it had never been there.
	Open func(ctx context.Context, path string) (io.ReadCloser, error)
	// Cache remembers the blobs of files that did not change. If it is nil, all files are read.
	Cache *BlobCache
}

// OverlayEntry is one upper entry. See overlayfs(5) and Documentation/filesystems/overlayfs.rst of the
// kernel.
type OverlayEntry struct {
	Path         string
	Kind         byte // 'f' file, 'l' link, 'd' folder, 'w' whiteout, 'o' anything else
	Exec         bool
	Size         int64
	Inode        uint64
	MTime, CTime int64 // nanoseconds since 1970
	Link         string
	Opaque       bool
	// Redirect is the path of the lower folder whose content this one shows. Empty means that of the same
	// name in the content that its parent shows.
	Redirect string
}

// upperNode is an upper entry with the entries in it.
type upperNode struct {
	*OverlayEntry // nil for the root
	name          string
	children      []*upperNode // sorted by name
}

// child returns the entry called name, or nil.
func (n *upperNode) child(name string) *upperNode {
	i, ok := slices.BinarySearchFunc(n.children, name,
		func(k *upperNode, name string) int { return strings.Compare(k.name, name) })
	if !ok {
		return nil
	}
	return n.children[i]
}

// buildUpper makes a tree of the entries, which may be any.
func buildUpper(entries []OverlayEntry) (*upperNode, error) {
	root := &upperNode{}
	folders := map[string]*upperNode{"": root}
	nodes := make([]upperNode, len(entries))
	for i := range entries {
		e := &entries[i]
		if e.Path == ".git" || strings.HasPrefix(e.Path, ".git/") {
			continue
		}
		if len(e.Path) > object.MaxPath {
			return nil, fmt.Errorf("path %.100q… is longer than %d bytes: %w", e.Path, object.MaxPath, ErrNeedsGit)
		}
		up, name := splitName(e.Path)
		// A parent that was not listed, or is no folder, has no children. Its own name was checked then.
		parent := folders[up]
		if parent == nil || joinPath(up, name) != e.Path || name == "" || name == "." || name == ".." || strings.IndexByte(name, 0) >= 0 {
			return nil, fmt.Errorf("entry %.200q is in no folder of the overlay: %w", e.Path, object.ErrInvalid)
		}

		n := &nodes[i]
		n.OverlayEntry, n.name = e, name
		switch e.Kind {
		case 'd':
			folders[e.Path] = n
		case 'f', 'l', 'w', 'o':
		default:
			return nil, fmt.Errorf("entry %.200q has the unknown kind %q: %w", e.Path, e.Kind, object.ErrInvalid)
		}
		if last := len(parent.children) - 1; last >= 0 && parent.children[last].name >= name {
			return nil, fmt.Errorf("entry %.200q is out of order: %w", e.Path, object.ErrInvalid)
		}
		parent.children = append(parent.children, n)
	}
	return root, nil
}

// joinPath returns the path of name in a folder. The root is "".
func joinPath(folder, name string) string {
	if folder == "" {
		return name
	}
	return folder + "/" + name
}

// splitName returns the folder and the name of a path.
func splitName(path string) (folder, name string) {
	i := strings.LastIndexByte(path, '/')
	return path[:max(i, 0)], path[i+1:]
}
