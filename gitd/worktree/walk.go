package worktree

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/ramus-dev/ramus/gitd/object"
	"github.com/ramus-dev/ramus/gitd/pack"
	"github.com/ramus-dev/ramus/gitd/pathspec"
)

// walk goes through the three trees of an overlay. It enters only folders in which they may differ.
type walk struct {
	ctx     context.Context
	repo    Repo
	overlay *Overlay
	pack    *pack.Writer
	began   time.Time // by the clock of this machine, as times of files are
	round   uint64    // of the cache

	upper        *upperNode
	lowerTree    object.Hash
	indexedTree  object.Hash
	trees        map[object.Hash]*treeEntries // that were read or made
	lowerFolders map[string]*folder           // from which something was moved
	matching     pathspec.Tally
	rules        int // bytes of rules that were read
	entries      int // that were visited

	hashed int
	cost   int64 // bytes that were written, or read to convert them
	seen   []seenFile
	leaks  []object.Leak
}

// seenFile is a file that the cache may remember once its blob is in the repository.
type seenFile struct {
	path  string
	state fileState
	blob  object.Hash
}

// walkRoot returns the tree of the whole work tree.
func (w *walk) walkRoot() (object.Hash, error) {
	h, err := w.walkFolder(&folder{upper: w.upper}, w.lowerTree, "", w.indexedTree, 0)
	if h == "" && err == nil {
		return w.writeTree("", nil, "", "")
	}
	return h, err
}

// remember tells the cache of the files whose blobs are in the repository now.
func (w *walk) remember() {
	for _, f := range w.seen {
		if isSettled(f.state, w.began) {
			w.overlay.Cache.put(f.path, f.state, f.blob, w.round)
		}
	}
}

// treeEntries are the entries of a tree in their order and by name.
type treeEntries struct {
	list  []object.Entry
	named map[string]object.Entry // nil means not needed yet
}

// equals reports whether a list has the same entries in any order.
func (t *treeEntries) equals(list []object.Entry) bool {
	if len(list) != len(t.list) {
		return false
	}
	for _, e := range list {
		if t.named[e.Name] != e {
			return false
		}
	}
	return true
}

// readTree returns the entries of a tree. It reads each tree once.
func (w *walk) readTree(ctx context.Context, h object.Hash) ([]object.Entry, error) {
	t, err := w.treeEntries(ctx, h)
	if err != nil {
		return nil, err
	}
	return t.list, nil
}

func (w *walk) treeEntries(ctx context.Context, h object.Hash) (*treeEntries, error) {
	if t := w.trees[h]; t != nil {
		return t, nil
	}
	t := &treeEntries{}
	if h != "" {
		var err error
		if t.list, err = w.repo.Objects.ReadTree(ctx, h); err != nil {
			return nil, err
		}
	}
	w.trees[h] = t
	return t, nil
}

// namedEntries returns a tree with its entries by name. The empty hash has none.
func (w *walk) namedEntries(h object.Hash) (*treeEntries, error) {
	t, err := w.treeEntries(w.ctx, h)
	if err == nil && t.named == nil {
		t.named = make(map[string]object.Entry, len(t.list))
		for _, e := range t.list {
			t.named[e.Name] = e
		}
	}
	return t, err
}

// walkFolder returns the tree of the folder p, or "" if nothing in it is committed. lower is the tree that
// shows through the overlay, which is that of the lower folder origin. indexed is the tree of the index.
// Either may be empty.
func (w *walk) walkFolder(p *folder, lower object.Hash, origin string, indexed object.Hash, depth int) (object.Hash, error) {
	if w.ctx.Err() != nil {
		return "", context.Cause(w.ctx)
	}
	if depth > object.MaxDepth {
		return "", fmt.Errorf("folders are nested more than %d deep: %w", object.MaxDepth, ErrNeedsGit)
	}
	below, err := w.namedEntries(lower)
	if err != nil {
		return "", err
	}
	index, err := w.namedEntries(indexed)
	if err != nil {
		return "", err
	}
	p.lower, p.indexed = below.named, index.named
	var over []*upperNode
	if p.upper != nil {
		over = p.upper.children
	}
	if w.entries += len(below.list) + len(over); w.entries > object.MaxEntries {
		return "", fmt.Errorf("more than %d files: %w", object.MaxEntries, ErrNeedsGit)
	}

	made := make([]object.Entry, 0, len(below.list)+len(over))
	add := func(e object.Entry, err error) error {
		if e.Mode == 0 || err != nil {
			return err
		}
		made = append(made, e)
		if was := p.indexed[e.Name]; e == was || e.Mode == object.ModeFolder && was.Mode == object.ModeFolder {
			return nil
		}
		return checkNew(joinPath(p.path, e.Name), e)
	}
	for _, b := range below.list {
		if p.upper == nil || p.upper.child(b.Name) == nil {
			if err := add(w.commitLower(p, b, origin, p.indexed[b.Name], depth)); err != nil {
				return "", err
			}
		}
	}
	for _, n := range over {
		if err := add(w.commitUpper(p, n, p.lower[n.name], origin, p.indexed[n.name], depth)); err != nil {
			return "", err
		}
	}
	if len(made) == 0 {
		return "", nil
	}
	if index.equals(made) {
		return indexed, nil
	}
	return w.writeTree(p.path, made, indexed, lower)
}

// commitLower returns the entry that git makes of a lower entry that shows through the overlay. A zero entry means
// none.
func (w *walk) commitLower(p *folder, b object.Entry, origin string, indexed object.Entry, depth int) (object.Entry, error) {
	path, from := joinPath(p.path, b.Name), joinPath(origin, b.Name)
	switch b.Mode {
	case object.ModeFolder:
		return w.commitFolder(p, b.Name, nil, b.Hash, from, indexed, depth)
	case object.ModeCommit:
		// A submodule that was not fetched is an empty folder, wherever it was moved to.
		if indexed.Mode == object.ModeCommit {
			return indexed, nil
		}
		return object.Entry{}, nil
	}
	b.Mode = plainMode(b.Mode)
	if path == from && indexed.Hash == b.Hash && plainMode(indexed.Mode) == b.Mode {
		return indexed, nil
	}
	if indexed.Mode == object.ModeCommit {
		return object.Entry{}, fmt.Errorf("%.200q was a submodule: %w", path, ErrNeedsGit)
	}
	if !isTracked(indexed) {
		if ignored, err := w.isIgnored(p, b.Name, false); ignored || err != nil {
			return object.Entry{}, err
		}
		indexed = object.Entry{}
	}
	if b.Mode == object.ModeSymlink {
		return b, nil
	}
	h, err := w.hashLower(p, b, from, indexed)
	return object.Entry{Name: b.Name, Mode: b.Mode, Hash: h}, err
}

// commitUpper returns the entry that git makes of an upper entry over the lower entry b. A zero entry means none.
func (w *walk) commitUpper(p *folder, n *upperNode, b object.Entry, origin string, indexed object.Entry, depth int) (object.Entry, error) {
	if n.Kind == 'w' {
		return object.Entry{}, nil
	}
	if n.name == ".git" {
		return object.Entry{}, fmt.Errorf("%.200q makes its folder a repository: %w", n.Path, ErrNeedsGit)
	}
	empty := n.Kind == 'd' && len(n.children) == 0 && b.Mode != object.ModeFolder && n.Redirect == ""
	switch {
	case indexed.Mode == object.ModeCommit && !empty:
		return object.Entry{}, fmt.Errorf("%.200q is a submodule: %w", n.Path, ErrNeedsGit)
	case indexed.Mode == object.ModeCommit:
		return indexed, nil
	case n.Kind == 'd':
		return w.commitUpperFolder(p, n, b, origin, indexed, depth)
	case n.Kind == 'o':
		// Git ignores one that it does not track, and stops at one in the place of a file.
		if isTracked(indexed) {
			return object.Entry{}, fmt.Errorf("%.200q is neither file nor link any more: %w", n.Path, ErrNeedsGit)
		}
		return object.Entry{}, nil
	}
	if !isTracked(indexed) {
		if ignored, err := w.isIgnored(p, n.name, false); ignored || err != nil {
			return object.Entry{}, err
		}
		indexed = object.Entry{}
	}
	if n.Kind == 'l' {
		h, err := w.writeBlob(n.Path, []byte(n.Link), indexed.Hash)
		return object.Entry{Name: n.name, Mode: object.ModeSymlink, Hash: h}, err
	}
	mode := uint32(object.ModeFile)
	if n.Exec {
		mode = object.ModeExecutable
	}
	h, err := w.hashUpper(p, n, indexed)
	if errors.Is(err, errGone) {
		return object.Entry{}, nil
	}
	return object.Entry{Name: n.name, Mode: mode, Hash: h}, err
}

// commitUpperFolder returns the entry that git makes of an upper folder.
func (w *walk) commitUpperFolder(p *folder, n *upperNode, b object.Entry, origin string, indexed object.Entry, depth int) (object.Entry, error) {
	var lower object.Hash
	switch {
	case n.Redirect != "" && !n.Opaque:
		e, err := w.findLower(n.Redirect)
		if err != nil {
			return object.Entry{}, fmt.Errorf("%.200q was %.200q: %w", n.Path, n.Redirect, err)
		}
		if e.Mode == object.ModeFolder {
			lower, origin = e.Hash, n.Redirect
		}
	case b.Mode == object.ModeFolder && !n.Opaque:
		lower, origin = b.Hash, joinPath(origin, n.name)
	}
	return w.commitFolder(p, n.name, n, lower, origin, indexed, depth)
}

// findLower returns the lower folder at a path, which was renamed since.
func (w *walk) findLower(path string) (object.Entry, error) {
	parts, err := object.SplitPath(path)
	if err != nil {
		return object.Entry{}, err
	}
	at := object.Entry{Mode: object.ModeFolder, Hash: w.lowerTree}
	for len(parts) > 0 && at.Mode == object.ModeFolder {
		t, err := w.namedEntries(at.Hash)
		if err != nil {
			return object.Entry{}, err
		}
		at, parts = t.named[parts[0]], parts[1:]
	}
	if len(parts) == 0 && (at.Mode == object.ModeFolder || at.Mode == object.ModeCommit) {
		return at, nil
	}
	return object.Entry{}, fmt.Errorf("the commit below has no such folder: %w", ErrNeedsGit)
}

// commitFolder returns the entry that git makes of a folder of the work tree.
func (w *walk) commitFolder(p *folder, name string, over *upperNode, lower object.Hash, origin string, indexed object.Entry, depth int) (object.Entry, error) {
	path := joinPath(p.path, name)
	if over == nil && path == origin && indexed.Mode == object.ModeFolder && indexed.Hash == lower {
		return indexed, nil
	}
	if len(path) > object.MaxPath {
		return object.Entry{}, fmt.Errorf("path %.100q… is longer than %d bytes: %w", path, object.MaxPath, ErrNeedsGit)
	}
	sub := &folder{parent: p, path: path, name: name, upper: over}
	tree := indexed.Hash
	if indexed.Mode != object.ModeFolder {
		tree = ""
		if excluded, err := w.isExcluded(sub); excluded || err != nil {
			return object.Entry{}, err
		}
	}
	h, err := w.walkFolder(sub, lower, origin, tree, depth+1)
	if h == "" || err != nil {
		return object.Entry{}, err
	}
	return object.Entry{Name: name, Mode: object.ModeFolder, Hash: h}, nil
}

// writeTree writes the tree of the folder at path, unless it is one of those that were there before.
func (w *walk) writeTree(path string, list []object.Entry, indexed, lower object.Hash) (object.Hash, error) {
	for i := range list {
		list[i].Mode = plainMode(list[i].Mode)
	}
	data, err := object.EncodeTree(list)
	if err != nil {
		return "", err
	}
	h := object.Hash(plumbing.ComputeHash(plumbing.TreeObject, data).String())
	w.trees[h] = &treeEntries{list: list}
	if h == indexed || h == lower {
		return h, nil
	}
	return w.write("tree", path, data)
}

// write writes an object and looks for secrets in it.
func (w *walk) write(kind, path string, data []byte) (object.Hash, error) {
	if err := w.charge(int64(len(data))); err != nil {
		return "", err
	}
	h, err := w.pack.Add(kind, data)
	if err != nil || w.repo.Secrets.Empty() {
		return h, err
	}
	names, err := w.repo.Secrets.Find(bytes.NewReader(data))
	if err != nil {
		return "", err
	}
	return h, w.addLeaks(names, kind, path, h)
}

// charge counts bytes that are written, or read to convert them.
func (w *walk) charge(size int64) error {
	if w.cost += size; w.cost > w.repo.MaxBytes {
		return fmt.Errorf("the changes have more than %d bytes: %w", w.repo.MaxBytes, object.ErrTooLarge)
	}
	return nil
}

// addLeaks records the secrets in an object, unless the repository has the object already.
func (w *walk) addLeaks(names []string, kind, path string, h object.Hash) error {
	if len(names) == 0 || len(w.leaks) >= object.MaxLeaks {
		return nil
	}
	if _, err := w.repo.Objects.Kind(w.ctx, h); !errors.Is(err, object.ErrNotFound) {
		return err
	}
	for _, name := range names {
		w.leaks = append(w.leaks,
			object.Leak{Secret: name, Kind: kind, Object: h, Path: object.CleanPath(w.repo.Secrets, path)})
	}
	return nil
}
