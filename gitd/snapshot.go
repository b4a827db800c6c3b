package gitd

import (
	"context"
	"errors"
	"io"
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
	// Open opens a regular file among the Entries by its path.
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
	Redirect     string
}

// OverlayCache remembers which blob a file is, by path, inode, size, times and mode. Its
// zero value is empty. Safe for concurrent use; bounded.
type OverlayCache struct{}

// Snapshot is a commit of an [Overlay].
type Snapshot struct {
	Commit  Hash // empty: the tree is that of Known, and nothing was written
	Tree    Hash
	Changed []TreeChange // from Known's tree to this one, sorted by path
	Hashed  int          // files that were read, for who counts
	// Pack holds the objects that were written, for the work tree's own repository; nil
	// when nothing was. The caller closes it.
	Pack *Pack
	// Leaks are secrets in what would have been committed; then nothing was written.
	Leaks []Leak
}

// TreeChange is a path whose entry differs between two trees; a zero mode: it is not there.
type TreeChange struct {
	Path     string
	OldMode  uint32
	NewMode  uint32
	Old, New Hash
}

// Snapshot writes the commit that `git add -A && git commit` would make in the work
// tree, without running git and without looking at anything but the overlay: c's
// Parents, persons, time and message; its From, Put and Delete are not used. No ref is
// changed. [ErrPortable] says that only git itself can do it.
func (r *Repo) Snapshot(ctx context.Context, o Overlay, c NewCommit) (Snapshot, error) {
	panic("not built")
}

// Compare lists how the tree of commit b differs from that of a, sorted by path;
// folders are entered, submodules are entries. More than max is [ErrTooLarge].
func (r *Repo) Compare(ctx context.Context, a, b Hash, max int) ([]TreeChange, error) {
	panic("not built")
}
