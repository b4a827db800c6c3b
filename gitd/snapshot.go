package gitd

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/ramus-dev/ramus/gitd/history"
	"github.com/ramus-dev/ramus/gitd/object"
	"github.com/ramus-dev/ramus/gitd/pack"
)

// ErrPortable: only git itself, run in the work tree, can say what its commit is
// (filters, nested repositories, encodings).
var ErrPortable = errors.New("needs git in the work tree")

// Overlay is a work tree as overlayfs keeps it: the tree of a commit, and what lies
// over it. Everything in Entries and what Open gives is hostile.
type Overlay struct {
	// Under is the commit whose tree lies below.
	Under Hash
	// Known is the commit that the work tree's index stands at: what it has is tracked,
	// also where .gitignore names it.
	Known Hash
	// Entries are what lies over it, parents before what they hold, siblings sorted by
	// name as bytes; .git itself is left out by the caller.
	Entries []OverlayEntry
	// Open opens a regular file among the Entries by its path. A file that is gone is
	// [io/fs.ErrNotExist]: then it is as if it had never been there.
	Open func(ctx context.Context, path string) (io.ReadCloser, error)
	// Cache remembers the blobs of files that did not change; nil: all are hashed.
	Cache *OverlayCache
}

// OverlayEntry is one entry over a commit's tree; see overlayfs(5) and the kernel's
// Documentation/filesystems/overlayfs.rst.
type OverlayEntry struct {
	Path         string
	Kind         byte // 'f' file, 'l' link, 'd' folder, 'w' whiteout, 'o' anything else
	Exec         bool
	Size         int64
	Inode        uint64
	MTime, CTime int64
	Link         string
	Opaque       bool
	// Redirect is the path below of the folder whose content this one shows; "" means that
	// of the same name in what its parent shows.
	Redirect string
}

// Snapshot is a commit of an [Overlay].
type Snapshot struct {
	Commit  Hash // empty: the tree is that of Known, and nothing was written
	Tree    Hash
	Changed []TreeChange // from Known's tree to this one, sorted by path
	Hashed  int          // files that were read, for who counts
	// Pack holds the objects that were written, for the work tree's own repository; nil
	// when nothing was. The caller closes it.
	Pack *pack.Pack
	// Leaks are secrets in what would have been committed; then nothing was written.
	Leaks []Leak
}

// Snapshot writes the commit that `git add -A && git commit` would make in the work
// tree, without running git and without looking at anything but the overlay: c's
// Parents, persons, time and message; its From, Put and Delete are not used. No ref is
// changed. [ErrPortable] says that only git itself can do it: the attributes ident
// and working-tree-encoding on a changed path, submodules and nested repositories, names
// that git refuses, a tracked path that became a socket or pipe, and whatever would cost
// more than the server should pay for a hostile tree. [ErrConflict] is a file that changed
// while it was read, [ErrTooLarge] one beyond the server's Limits.
//
// No configuration of the work tree's repository and no file below its .git/info changes the commit; a
// filter is not run. A file
// that the overlay does not hold, or that Cache knows, is what the index says it is, as git
// itself sees a file whose times did not change: new attributes do not reach it.
func (r *Repo) Snapshot(ctx context.Context, o Overlay, c NewCommit) (Snapshot, error) {
	s, err := r.snapshot(ctx, o, c)
	if err != nil {
		return Snapshot{}, fmt.Errorf("cannot commit a work tree of %s: %w", r.name, err)
	}
	return s, nil
}

func (r *Repo) snapshot(ctx context.Context, o Overlay, c NewCommit) (Snapshot, error) {
	if err := r.checkParents(ctx, c.Parents); err != nil {
		return Snapshot{}, err
	}
	w, err := r.newSnapshotWalk(ctx, &o)
	if err != nil {
		return Snapshot{}, err
	}
	defer w.pack.Drop()
	tree, err := w.root()
	if err != nil {
		return Snapshot{}, err
	}
	s := Snapshot{Tree: tree, Hashed: w.hashed}
	if tree == w.knownTree {
		w.remember()
		return s, nil
	}
	if s.Changed, err = history.CompareTrees(ctx, w.tree, w.knownTree, tree, object.MaxEntries); err != nil {
		return Snapshot{}, err
	}
	commit, err := r.server.object(r.made(c, tree))
	if err != nil {
		return Snapshot{}, err
	}
	if s.Commit, err = w.write("commit", "", commit); err != nil {
		return Snapshot{}, err
	}
	if len(w.leaks) > 0 {
		return Snapshot{Hashed: w.hashed, Leaks: w.leaks}, nil
	}
	if s.Pack, err = w.pack.Place(); err != nil {
		return Snapshot{}, err
	}
	w.remember()
	return s, nil
}
