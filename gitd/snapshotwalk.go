package gitd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/ramus-dev/ramus/gitd/object"
	"github.com/ramus-dev/ramus/gitd/pack"
	"github.com/ramus-dev/ramus/gitd/pathspec"
	"github.com/ramus-dev/ramus/internal/redact"
)

// snapshotWalk goes through the three trees that meet in a work tree: what lies over it,
// what lies under it, and what the index knows. It enters only folders in which they may
// differ.
type snapshotWalk struct {
	ctx     context.Context
	repo    *Repo
	overlay *Overlay
	pack    *pack.Writer
	began   time.Time // of this machine, as the file system's times are
	round   uint64    // of the overlay's cache

	over      *overlayNode
	underTree Hash // of Overlay.Under
	knownTree Hash
	trees     map[Hash]*treeEntries // that were read, and those that were made
	places    map[string]*place     // folders of Under that something was moved out of
	matching  pathspec.Tally
	rules     int // bytes of them that were read
	entries   int // that were looked at

	hashed  int
	cost    int64 // bytes that were written, or read to convert them
	seen    []seenFile
	leaks   []Leak
	secrets *redact.Secrets
}

// seenFile is a file that the cache may remember, once its blob is in the repository.
type seenFile struct {
	path  string
	state cachedState
	blob  Hash
}

func (r *Repo) newSnapshotWalk(ctx context.Context, o *Overlay) (*snapshotWalk, error) {
	pack, err := r.newPack(ctx)
	if err != nil {
		return nil, err
	}
	w, err := r.checkoutOf(ctx, o.Under)
	if err != nil {
		return nil, fmt.Errorf("the commit below: %w", err)
	}
	w.overlay, w.pack, w.secrets = o, pack, r.server.Secrets
	w.began, w.round = time.Now(), o.Cache.begin()
	if w.knownTree, err = r.objects.TreeOf(ctx, o.Known); err != nil {
		return nil, fmt.Errorf("the commit of the index: %w", err)
	}
	w.over, err = overlayTree(o.Entries)
	return w, err
}

// checkoutOf is a walk that knows what lies below, and no more.
func (r *Repo) checkoutOf(ctx context.Context, commit Hash) (*snapshotWalk, error) {
	tree, err := r.objects.TreeOf(ctx, commit)
	return &snapshotWalk{ctx: ctx, repo: r, underTree: tree, trees: map[Hash]*treeEntries{}, places: map[string]*place{}}, err
}

// root is the tree of the whole work tree.
func (w *snapshotWalk) root() (Hash, error) {
	h, err := w.folder(&place{over: w.over}, w.underTree, "", w.knownTree, 0)
	if h == "" && err == nil {
		return w.writeTree("", nil, "", "")
	}
	return h, err
}

// remember tells the cache of the files whose blobs are in the repository now.
func (w *snapshotWalk) remember() {
	for _, f := range w.seen {
		if settled(f.state, w.began) {
			w.overlay.Cache.put(f.path, f.state, f.blob, w.round)
		}
	}
}

// treeEntries are the entries of a tree in their order, and by name.
type treeEntries struct {
	list  []object.Entry
	named map[string]object.Entry // nil: not needed yet
}

// tree reads a tree, or recalls it.
func (w *snapshotWalk) tree(ctx context.Context, h Hash) ([]object.Entry, error) {
	t, err := w.recall(ctx, h)
	if err != nil {
		return nil, err
	}
	return t.list, nil
}

func (w *snapshotWalk) recall(ctx context.Context, h Hash) (*treeEntries, error) {
	if t := w.trees[h]; t != nil {
		return t, nil
	}
	t := &treeEntries{}
	if h != "" {
		var err error
		if t.list, err = w.repo.objects.ReadTree(ctx, h); err != nil {
			return nil, err
		}
	}
	w.trees[h] = t
	return t, nil
}

// named is a tree with its entries by name; of no tree at all, none.
func (w *snapshotWalk) named(h Hash) (*treeEntries, error) {
	t, err := w.recall(w.ctx, h)
	if err == nil && t.named == nil {
		t.named = make(map[string]object.Entry, len(t.list))
		for _, e := range t.list {
			t.named[e.Name] = e
		}
	}
	return t, err
}

// folder is the tree of the folder p, empty when nothing in it is committed. under is the
// tree that shows through the overlay, that of the folder origin of Overlay.Under; known is the
// tree that the index has here. Either may be empty.
func (w *snapshotWalk) folder(p *place, under Hash, origin string, known Hash, depth int) (Hash, error) {
	if err := w.ctx.Err(); err != nil {
		return "", context.Cause(w.ctx)
	}
	if depth > object.MaxDepth {
		return "", fmt.Errorf("folders are nested more than %d deep: %w", object.MaxDepth, ErrPortable)
	}
	below, err := w.named(under)
	if err != nil {
		return "", err
	}
	index, err := w.named(known)
	if err != nil {
		return "", err
	}
	p.under, p.index = below.named, index.named
	var kids []*overlayNode
	if p.over != nil {
		kids = p.over.kids
	}
	if w.entries += len(below.list) + len(kids); w.entries > object.MaxEntries {
		return "", fmt.Errorf("more than %d files: %w", object.MaxEntries, ErrPortable)
	}
	made := make([]object.Entry, 0, len(below.list)+len(kids))
	add := func(e object.Entry, err error) error {
		if e.Mode == 0 || err != nil {
			return err
		}
		made = append(made, e)
		if was := p.index[e.Name]; e == was || e.Mode == object.ModeFolder && was.Mode == object.ModeFolder {
			return nil
		}
		return checkNew(join(p.path, e.Name), e)
	}
	for _, b := range below.list {
		if p.over == nil || p.over.kid(b.Name) == nil {
			if err := add(w.uncovered(p, b, origin, p.index[b.Name], depth)); err != nil {
				return "", err
			}
		}
	}
	for _, n := range kids {
		if err := add(w.covered(p, n, p.under[n.name], origin, p.index[n.name], depth)); err != nil {
			return "", err
		}
	}
	if len(made) == 0 {
		return "", nil
	}
	if index.same(made) {
		return known, nil
	}
	return w.writeTree(p.path, made, known, under)
}

// same tells whether a list, in any order, holds the same.
func (t *treeEntries) same(list []object.Entry) bool {
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

// checkNew refuses what git refuses to add, and what it looks into when it is pushed.
func checkNew(path string, e object.Entry) error {
	plain := object.FoldName(e.Name)
	switch {
	case len(path) > object.MaxPath:
		return fmt.Errorf("path %.100q… is longer than %d bytes: %w", path, object.MaxPath, ErrPortable)
	case object.IsDotGit(e.Name):
		return fmt.Errorf("%.200q has a name that git keeps for itself: %w", path, ErrPortable)
	case strings.EqualFold(plain, ".gitmodules"), strings.Contains(plain, "~") && len(plain) <= 8 && strings.HasPrefix(strings.ToLower(plain), "gi"):
		// Also by the short names that Windows gives: gitmod~1, gi7eba~1.
		return fmt.Errorf("%.200q tells git of submodules: %w", path, ErrPortable)
	case strings.EqualFold(plain, ".gitattributes") && (e.Name != ".gitattributes" || e.Mode == object.ModeFolder):
		return fmt.Errorf("%.200q is not the .gitattributes that it seems to be: %w", path, ErrPortable)
	}
	return nil
}

// tracked tells whether the index has an entry for a file or link.
func tracked(known object.Entry) bool { return known.Mode != 0 && known.Mode != object.ModeFolder }

// uncovered is what git makes of an entry of Under that shows through the overlay.
func (w *snapshotWalk) uncovered(p *place, b object.Entry, origin string, known object.Entry, depth int) (object.Entry, error) {
	path, from := join(p.path, b.Name), join(origin, b.Name)
	switch b.Mode {
	case object.ModeFolder:
		return w.enter(p, b.Name, nil, b.Hash, from, known, depth)
	case object.ModeCommit:
		// A submodule that was not fetched is an empty folder, wherever that was moved to.
		if known.Mode == object.ModeCommit {
			return known, nil
		}
		return object.Entry{}, nil
	}
	b.Mode = plainMode(b.Mode)
	if path == from && known.Hash == b.Hash && plainMode(known.Mode) == b.Mode {
		return known, nil
	}
	if known.Mode == object.ModeCommit {
		return object.Entry{}, fmt.Errorf("%.200q was a submodule: %w", path, ErrPortable)
	}
	if !tracked(known) {
		if out, err := w.ignored(p, b.Name, false); out || err != nil {
			return object.Entry{}, err
		}
		known = object.Entry{}
	}
	if b.Mode == object.ModeSymlink {
		return b, nil
	}
	h, err := w.moved(p, b, from, known)
	return object.Entry{Name: b.Name, Mode: b.Mode, Hash: h}, err
}

// plainMode is how git writes the mode of a tree's entry today.
func plainMode(mode uint32) uint32 {
	switch {
	case mode == object.ModeFolder || mode == object.ModeCommit || mode == object.ModeSymlink || mode == 0:
		return mode
	case mode&0o100 != 0:
		return object.ModeExecutable
	}
	return object.ModeFile
}

// covered is what git makes of an entry of the overlay, over the entry b of Under.
func (w *snapshotWalk) covered(p *place, n *overlayNode, b object.Entry, origin string, known object.Entry, depth int) (object.Entry, error) {
	if n.Kind == 'w' {
		return object.Entry{}, nil
	}
	if n.name == ".git" {
		return object.Entry{}, fmt.Errorf("%.200q makes its folder a repository: %w", n.Path, ErrPortable)
	}
	if known.Mode == object.ModeCommit && !(n.Kind == 'd' && len(n.kids) == 0 && b.Mode != object.ModeFolder && n.Redirect == "") {
		return object.Entry{}, fmt.Errorf("%.200q is a submodule: %w", n.Path, ErrPortable)
	}
	switch {
	case n.Kind == 'd' && known.Mode == object.ModeCommit:
		return known, nil
	case n.Kind == 'd':
		var under Hash
		switch {
		case n.Redirect != "" && !n.Opaque:
			e, err := w.lookup(n.Redirect)
			if err != nil {
				return object.Entry{}, fmt.Errorf("%.200q was %.200q: %w", n.Path, n.Redirect, err)
			}
			if e.Mode == object.ModeFolder {
				under, origin = e.Hash, n.Redirect
			}
		case b.Mode == object.ModeFolder && !n.Opaque:
			under, origin = b.Hash, join(origin, n.name)
		}
		return w.enter(p, n.name, n, under, origin, known, depth)
	case n.Kind == 'o':
		// Git says nothing about one that it does not track, and refuses to go on over one
		// in the place of a file.
		if tracked(known) {
			return object.Entry{}, fmt.Errorf("%.200q is neither file nor link any more: %w", n.Path, ErrPortable)
		}
		return object.Entry{}, nil
	}
	if !tracked(known) {
		if out, err := w.ignored(p, n.name, false); out || err != nil {
			return object.Entry{}, err
		}
		known = object.Entry{}
	}
	if n.Kind == 'l' {
		h, err := w.blob(n.Path, []byte(n.Link), known.Hash)
		return object.Entry{Name: n.name, Mode: object.ModeSymlink, Hash: h}, err
	}
	mode := uint32(object.ModeFile)
	if n.Exec {
		mode = object.ModeExecutable
	}
	h, err := w.file(p, n, known)
	if errors.Is(err, errGone) {
		return object.Entry{}, nil
	}
	return object.Entry{Name: n.name, Mode: mode, Hash: h}, err
}

// lookup finds a folder of Under that was renamed.
func (w *snapshotWalk) lookup(path string) (object.Entry, error) {
	parts, err := object.SplitPath(path)
	if err != nil {
		return object.Entry{}, err
	}
	at := object.Entry{Mode: object.ModeFolder, Hash: w.underTree}
	for len(parts) > 0 && at.Mode == object.ModeFolder {
		t, err := w.named(at.Hash)
		if err != nil {
			return object.Entry{}, err
		}
		at, parts = t.named[parts[0]], parts[1:]
	}
	if len(parts) == 0 && (at.Mode == object.ModeFolder || at.Mode == object.ModeCommit) {
		return at, nil
	}
	return object.Entry{}, fmt.Errorf("the commit below has no such folder: %w", ErrPortable)
}

// enter is what git makes of a folder of the work tree.
func (w *snapshotWalk) enter(p *place, name string, over *overlayNode, under Hash, origin string, known object.Entry, depth int) (object.Entry, error) {
	path := join(p.path, name)
	if over == nil && path == origin && known.Mode == object.ModeFolder && known.Hash == under {
		return known, nil
	}
	if len(path) > object.MaxPath {
		return object.Entry{}, fmt.Errorf("path %.100q… is longer than %d bytes: %w", path, object.MaxPath, ErrPortable)
	}
	sub := &place{up: p, path: path, name: name, over: over}
	tree := known.Hash
	if known.Mode != object.ModeFolder {
		tree = ""
		if out, err := w.excluded(sub); out || err != nil {
			return object.Entry{}, err
		}
	}
	h, err := w.folder(sub, under, origin, tree, depth+1)
	if h == "" || err != nil {
		return object.Entry{}, err
	}
	return object.Entry{Name: name, Mode: object.ModeFolder, Hash: h}, nil
}

// writeTree writes the tree of the folder path, unless it is one of those that were there before.
func (w *snapshotWalk) writeTree(path string, list []object.Entry, known, under Hash) (Hash, error) {
	for i := range list {
		list[i].Mode = plainMode(list[i].Mode)
	}
	data, err := object.EncodeTree(list)
	if err != nil {
		return "", err
	}
	h := Hash(plumbing.ComputeHash(plumbing.TreeObject, data).String())
	w.trees[h] = &treeEntries{list: list}
	if h == known || h == under {
		return h, nil
	}
	return w.write("tree", path, data)
}

// write writes an object and looks for secrets in it.
func (w *snapshotWalk) write(kind, path string, data []byte) (Hash, error) {
	if err := w.charge(int64(len(data))); err != nil {
		return "", err
	}
	h, err := w.pack.Add(kind, data)
	if err != nil || w.secrets.Empty() {
		return h, err
	}
	names, err := w.secrets.Find(bytes.NewReader(data))
	if err != nil {
		return "", err
	}
	return h, w.found(names, kind, path, h)
}

// charge counts what is written, or read on the way, against what one push may bring.
func (w *snapshotWalk) charge(size int64) error {
	if w.cost += size; w.cost > w.repo.server.limits.PackBytes {
		return fmt.Errorf("what changed has more than %d bytes: %w", w.repo.server.limits.PackBytes, ErrTooLarge)
	}
	return nil
}

// found notes the secrets in an object, unless the repository holds it already.
func (w *snapshotWalk) found(names []string, kind, path string, h Hash) error {
	if len(names) == 0 || len(w.leaks) >= object.MaxLeaks {
		return nil
	}
	if _, err := w.repo.objects.Kind(w.ctx, h); !errors.Is(err, ErrNotFound) {
		return err
	}
	for _, name := range names {
		w.leaks = append(w.leaks, Leak{Secret: name, Kind: kind, Object: h, Path: object.CleanPath(w.secrets, path)})
	}
	return nil
}
