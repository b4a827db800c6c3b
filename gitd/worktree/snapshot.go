package worktree

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ramus-dev/ramus/gitd/history"
	"github.com/ramus-dev/ramus/gitd/object"
	"github.com/ramus-dev/ramus/gitd/pack"
	"github.com/ramus-dev/ramus/internal/redact"
)

// ErrNeedsGit means that only git itself, run in the work tree, can tell its commit. Reasons are filters, nested
// repositories and encodings.
var ErrNeedsGit = errors.New("needs git in the work tree")

// Repo is a repository that has the commits of a work tree and receives its snapshots.
type Repo struct {
	// Objects reads the objects of the repository.
	Objects *pack.Reader
	// NewPack begins a pack of new objects. It is not used by [Repo.Verbatim].
	NewPack func(ctx context.Context) (*pack.Writer, error)
	// Secrets are the values that no snapshot may have. Nil means none.
	Secrets *redact.Secrets
	// Large keeps the contents of files with the attribute filter=lfs, which are committed as pointers. Nil means that
	// they are committed as they are.
	Large LargeFiles
	// MaxObject bounds the bytes of one file.
	MaxObject int64
	// MaxBytes bounds the bytes that one snapshot writes, or reads to convert them.
	MaxBytes int64
}

// Snapshot is a commit of an [Overlay].
type Snapshot struct {
	Commit  object.Hash // empty if the tree is that of Indexed, and nothing was written
	Tree    object.Hash
	Changed []history.Change // from the indexed tree to Tree, sorted by path
	Hashed  int              // number of files that were read
	// Pack holds the objects that were written, for the repository of the work tree. It is nil if nothing
	// was written. The caller closes it.
	Pack *pack.Pack
	// Leaks are secrets in the files that would have been committed. If there are any, nothing was written.
	Leaks []object.Leak
}

// Snapshot writes the commit that `git add -A && git commit` would make in the work tree. encode returns the
// commit object of a tree. No ref is changed.
//
// Returns [ErrNeedsGit] for the attributes ident and working-tree-encoding on a changed path, submodules and
// nested repositories, names that git refuses, a tracked path that became a socket or a pipe, and for trees that
// would cost too much. Returns [object.ErrConflict] if a file changed while it was read, and
// [object.ErrTooLarge] if a bound of r is exceeded.
//
// A file that is not among the upper entries, or that the cache knows, has the content that the index records, as
// for git, which does not read a file whose times did not change. New attributes do not reach it.
func (r Repo) Snapshot(ctx context.Context, o Overlay, encode func(tree object.Hash) ([]byte, error)) (Snapshot, error) {
	w, err := r.newWalk(ctx, &o)
	if err != nil {
		return Snapshot{}, err
	}
	defer w.pack.Drop()
	tree, err := w.walkRoot()
	if err != nil {
		return Snapshot{}, err
	}
	s := Snapshot{Tree: tree, Hashed: w.hashed}
	if tree == w.indexedTree {
		w.remember()
		return s, nil
	}
	if s.Changed, err = history.CompareTrees(ctx, w.readTree, w.indexedTree, tree, object.MaxEntries); err != nil {
		return Snapshot{}, err
	}

	commit, err := encode(tree)
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

// Verbatim returns nil if a checkout of the commit writes the file at path byte for byte as it is stored, with
// no filter, no encoding and no other line ends. It returns [ErrNeedsGit] for a file that only git can write.
func (r Repo) Verbatim(ctx context.Context, commit object.Hash, paths []string) error {
	w, err := r.newLowerWalk(ctx, commit)
	if err != nil {
		return fmt.Errorf("cannot read the attributes of %s: %w", commit, err)
	}
	for _, path := range paths {
		if err := w.checkVerbatim(path); err != nil {
			return fmt.Errorf("cannot write %.200q as it is: %w", path, err)
		}
	}
	return nil
}

// checkVerbatim returns an error for a lower file that its checkout converts.
func (w *walk) checkVerbatim(path string) error {
	up, name := splitName(path)
	p, err := w.lowerFolder(up)
	if err != nil {
		return err
	}
	c, err := w.conversionOf(p, name)
	if err == nil && c.CRLF {
		err = fmt.Errorf("it has the attribute eol=crlf: %w", ErrNeedsGit)
	}
	return err
}

// newWalk returns a walk over an overlay.
func (r Repo) newWalk(ctx context.Context, o *Overlay) (*walk, error) {
	pack, err := r.NewPack(ctx)
	if err != nil {
		return nil, err
	}
	w, err := r.newLowerWalk(ctx, o.Lower)
	if err != nil {
		return nil, fmt.Errorf("the commit below: %w", err)
	}
	w.overlay, w.pack = o, pack
	w.began, w.round = time.Now(), o.Cache.nextRound()
	if w.indexedTree, err = r.Objects.TreeOf(ctx, o.Indexed); err != nil {
		return nil, fmt.Errorf("the commit of the index: %w", err)
	}
	w.upper, err = buildUpper(o.Entries)
	return w, err
}

// newLowerWalk returns a walk that knows the lower tree only.
func (r Repo) newLowerWalk(ctx context.Context, commit object.Hash) (*walk, error) {
	tree, err := r.Objects.TreeOf(ctx, commit)
	return &walk{ctx: ctx, repo: r, lowerTree: tree, trees: map[object.Hash]*treeEntries{},
		lowerFolders: map[string]*folder{}}, err
}
