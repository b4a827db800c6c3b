package gitd

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/ramus-dev/ramus/internal/redact"
)

// snapshotWalk goes through the three trees that meet in a work tree: what lies over it,
// what lies under it, and what the index knows. It enters only folders in which they may
// differ.
type snapshotWalk struct {
	ctx     context.Context
	repo    *Repo
	overlay *Overlay
	pack    *packWriter
	exclude ignoreRules
	began   time.Time // of this machine, as the file system's times are
	round   uint64    // of the overlay's cache

	over      *overlayNode
	underTree Hash // of Overlay.Under
	knownTree Hash
	trees     map[Hash]*treeEntries // that were read, and those that were made
	places    map[string]*place     // folders of Under that something was moved out of
	matching  matching
	rules     int // bytes of them that were read
	entries   int // that were looked at

	hashed  int
	written int64 // bytes that went into the pack
	seen    []seenFile
	leaks   []Leak
	secrets *redact.Secrets
}

// seenFile is a file that the cache may remember, once its blob is in the repository.
type seenFile struct {
	entry *OverlayEntry
	blob  Hash
}

func (r *Repo) newSnapshotWalk(ctx context.Context, o *Overlay) (*snapshotWalk, error) {
	pack, err := r.newPack(ctx)
	if err != nil {
		return nil, err
	}
	w := &snapshotWalk{ctx: ctx, repo: r, overlay: o, pack: pack, places: map[string]*place{}, exclude: parseIgnore(o.Exclude),
		began: time.Now(), round: o.Cache.begin(), secrets: r.server.Secrets,
		trees: map[Hash]*treeEntries{}}
	if len(o.Exclude) > ruleFileMax {
		return nil, fmt.Errorf(".git/info/exclude has more than %d bytes: %w", ruleFileMax, ErrPortable)
	}
	if w.underTree, err = r.treeOf(ctx, o.Under); err != nil {
		return nil, fmt.Errorf("the commit below: %w", err)
	}
	if w.knownTree, err = r.treeOf(ctx, o.Known); err != nil {
		return nil, fmt.Errorf("the commit of the index: %w", err)
	}
	w.over, err = overlayTree(o.Entries)
	return w, err
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
		if settled(f.entry, w.began) {
			w.overlay.Cache.put(*f.entry, f.blob, w.round)
		}
	}
}

// treeEntries are the entries of a tree in their order, and by name.
type treeEntries struct {
	list  []entry
	named map[string]entry // nil: not needed yet
}

// tree reads a tree, or recalls it.
func (w *snapshotWalk) tree(ctx context.Context, h Hash) ([]entry, error) {
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
		if t.list, err = w.repo.tree(ctx, h); err != nil {
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
		t.named = make(map[string]entry, len(t.list))
		for _, e := range t.list {
			t.named[e.name] = e
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
	if depth > folderDepthMax {
		return "", fmt.Errorf("folders are nested more than %d deep: %w", folderDepthMax, ErrPortable)
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
	if w.entries += len(below.list) + len(kids); w.entries > treeListMax {
		return "", fmt.Errorf("more than %d files: %w", treeListMax, ErrPortable)
	}
	made := make([]entry, 0, len(below.list)+len(kids))
	add := func(e entry, err error) error {
		if e.mode == 0 || err != nil {
			return err
		}
		made = append(made, e)
		if was := p.index[e.name]; e == was || e.mode == modeFolder && was.mode == modeFolder {
			return nil
		}
		return checkNew(join(p.path, e.name), e)
	}
	for _, b := range below.list {
		if p.over == nil || p.over.kid(b.name) == nil {
			if err := add(w.uncovered(p, b, origin, p.index[b.name], depth)); err != nil {
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
func (t *treeEntries) same(list []entry) bool {
	if len(list) != len(t.list) {
		return false
	}
	for _, e := range list {
		if t.named[e.name] != e {
			return false
		}
	}
	return true
}

// checkNew refuses what git refuses to add, and what it looks into when it is pushed.
func checkNew(path string, e entry) error {
	plain := plainName(e.name)
	switch {
	case len(path) > pathMax:
		return fmt.Errorf("path %.100q… is longer than %d bytes: %w", path, pathMax, ErrPortable)
	case dotGit(e.name):
		return fmt.Errorf("%.200q has a name that git keeps for itself: %w", path, ErrPortable)
	case strings.EqualFold(plain, ".gitmodules"), strings.Contains(plain, "~") && len(plain) <= 8 && strings.EqualFold(plain[:2], "gi"):
		// Also by the short names that Windows gives: gitmod~1, gi7eba~1.
		return fmt.Errorf("%.200q tells git of submodules: %w", path, ErrPortable)
	case strings.EqualFold(plain, ".gitattributes") && (e.name != ".gitattributes" || e.mode == modeFolder):
		return fmt.Errorf("%.200q is not the .gitattributes that it seems to be: %w", path, ErrPortable)
	}
	return nil
}

// tracked tells whether the index has an entry for a file or link.
func tracked(known entry) bool { return known.mode != 0 && known.mode != modeFolder }

// uncovered is what git makes of an entry of Under that shows through the overlay.
func (w *snapshotWalk) uncovered(p *place, b entry, origin string, known entry, depth int) (entry, error) {
	path, from := join(p.path, b.name), join(origin, b.name)
	switch b.mode {
	case modeFolder:
		return w.enter(p, b.name, nil, b.hash, from, known, depth)
	case modeCommit:
		// A submodule that was not fetched is an empty folder, wherever that was moved to.
		if known.mode == modeCommit {
			return known, nil
		}
		return entry{}, nil
	}
	b.mode = plainMode(b.mode)
	if path == from && known.hash == b.hash && plainMode(known.mode) == b.mode {
		return known, nil
	}
	if known.mode == modeCommit {
		return entry{}, fmt.Errorf("%.200q was a submodule: %w", path, ErrPortable)
	}
	if !tracked(known) {
		if out, err := w.ignored(p, b.name, false); out || err != nil {
			return entry{}, err
		}
		known = entry{}
	}
	if b.mode == modeSymlink {
		return b, nil
	}
	h, err := w.moved(p, b, from, known)
	return entry{name: b.name, mode: b.mode, hash: h}, err
}

// plainMode is how git writes the mode of a tree's entry today.
func plainMode(mode uint32) uint32 {
	switch {
	case mode == modeFolder || mode == modeCommit || mode == modeSymlink || mode == 0:
		return mode
	case mode&0o100 != 0:
		return modeExecutable
	}
	return modeFile
}

// covered is what git makes of an entry of the overlay, over the entry b of Under.
func (w *snapshotWalk) covered(p *place, n *overlayNode, b entry, origin string, known entry, depth int) (entry, error) {
	if n.Kind == 'w' {
		return entry{}, nil
	}
	if n.name == ".git" {
		return entry{}, fmt.Errorf("%.200q makes its folder a repository: %w", n.Path, ErrPortable)
	}
	if known.mode == modeCommit && !(n.Kind == 'd' && len(n.kids) == 0 && b.mode != modeFolder && n.Redirect == "") {
		return entry{}, fmt.Errorf("%.200q is a submodule: %w", n.Path, ErrPortable)
	}
	switch {
	case n.Kind == 'd' && known.mode == modeCommit:
		return known, nil
	case n.Kind == 'd':
		var under Hash
		switch {
		case n.Redirect != "" && !n.Opaque:
			e, err := w.lookup(n.Redirect)
			if err != nil {
				return entry{}, fmt.Errorf("%.200q was %.200q: %w", n.Path, n.Redirect, err)
			}
			if e.mode == modeFolder {
				under, origin = e.hash, n.Redirect
			}
		case b.mode == modeFolder && !n.Opaque:
			under, origin = b.hash, join(origin, n.name)
		}
		return w.enter(p, n.name, n, under, origin, known, depth)
	case n.Kind == 'o':
		// Git says nothing about one that it does not track, and refuses to go on over one
		// in the place of a file.
		if tracked(known) {
			return entry{}, fmt.Errorf("%.200q is neither file nor link any more: %w", n.Path, ErrPortable)
		}
		return entry{}, nil
	}
	if !tracked(known) {
		if out, err := w.ignored(p, n.name, false); out || err != nil {
			return entry{}, err
		}
		known = entry{}
	}
	if n.Kind == 'l' {
		h, err := w.blob(n.Path, []byte(n.Link), known.hash)
		return entry{name: n.name, mode: modeSymlink, hash: h}, err
	}
	mode := uint32(modeFile)
	if n.Exec {
		mode = modeExecutable
	}
	h, err := w.file(p, n, known)
	if errors.Is(err, errGone) {
		return entry{}, nil
	}
	return entry{name: n.name, mode: mode, hash: h}, err
}

// lookup finds a folder of Under that was renamed.
func (w *snapshotWalk) lookup(path string) (entry, error) {
	parts, err := splitPath(path)
	if err != nil {
		return entry{}, err
	}
	at := entry{mode: modeFolder, hash: w.underTree}
	for len(parts) > 0 && at.mode == modeFolder {
		t, err := w.named(at.hash)
		if err != nil {
			return entry{}, err
		}
		at, parts = t.named[parts[0]], parts[1:]
	}
	if len(parts) == 0 && (at.mode == modeFolder || at.mode == modeCommit) {
		return at, nil
	}
	return entry{}, fmt.Errorf("the commit below has no such folder: %w", ErrPortable)
}

// enter is what git makes of a folder of the work tree.
func (w *snapshotWalk) enter(p *place, name string, over *overlayNode, under Hash, origin string, known entry, depth int) (entry, error) {
	path := join(p.path, name)
	if over == nil && path == origin && known.mode == modeFolder && known.hash == under {
		return known, nil
	}
	if len(path) > pathMax {
		return entry{}, fmt.Errorf("path %.100q… is longer than %d bytes: %w", path, pathMax, ErrPortable)
	}
	sub := &place{up: p, path: path, name: name, over: over}
	tree := known.hash
	if known.mode != modeFolder {
		tree = ""
		if out, err := w.excluded(sub); out || err != nil {
			return entry{}, err
		}
	}
	h, err := w.folder(sub, under, origin, tree, depth+1)
	if h == "" || err != nil {
		return entry{}, err
	}
	return entry{name: name, mode: modeFolder, hash: h}, nil
}

// moved is the blob that git makes of a file of Under that shows at another place, or where
// the index has another.
func (w *snapshotWalk) moved(p *place, b entry, from string, known entry) (Hash, error) {
	to, err := w.conversion(p, b.name)
	if err != nil {
		return "", err
	}
	folder, name := splitName(from)
	was, err := w.underPlace(folder)
	if err != nil {
		return "", err
	}
	out, err := w.conversion(was, name)
	if err != nil {
		return "", err
	}
	if to.lines == linesKept && !out.crlf {
		return b.hash, nil
	}
	obj, _, err := w.repo.objects.small(w.ctx, b.hash)
	if errors.Is(err, ErrTooLarge) {
		err = fmt.Errorf("%.200q is too large to convert: %w", from, ErrPortable)
	}
	if err != nil {
		return "", err
	}
	data := obj.data
	if out.crlf {
		data = toCRLF(data, out.lines)
	}
	if data, err = w.clean(data, to, known); err != nil {
		return "", err
	}
	return w.blob(join(p.path, b.name), data, b.hash)
}

// clean converts a file on its way into the repository.
func (w *snapshotWalk) clean(data []byte, c conversion, known entry) ([]byte, error) {
	if c.lines == linesKept {
		return data, nil
	}
	s := statsOf(data)
	if yes, err := w.converts(&s, c, known); !yes || err != nil {
		return data, err
	}
	return toLF(data), nil
}

// converts tells whether a file that looks like this gets other line ends.
func (w *snapshotWalk) converts(s *textStats, c conversion, known entry) (bool, error) {
	if c.lines == linesKept || s.crlf == 0 {
		return false, nil
	}
	if c.lines == linesText {
		return true, nil
	}
	if s.binary() {
		return false, nil
	}
	was, err := w.hadCRLF(known)
	return !was, err
}

// hadCRLF tells whether the index has the file as text with CRLF: then it stays so.
func (w *snapshotWalk) hadCRLF(known entry) (bool, error) {
	if !tracked(known) {
		return false, nil
	}
	in, _, err := w.repo.objects.stream(w.ctx, known.hash)
	if err != nil {
		return false, err
	}
	defer in.Close()
	var s textStats
	if _, err := io.Copy(&s, contextReader{w.ctx, in}); err != nil {
		return false, err
	}
	s.end()
	return s.crlf > 0 && !s.binary(), nil
}

// file is the blob of a file of the overlay.
func (w *snapshotWalk) file(p *place, n *overlayNode, known entry) (Hash, error) {
	if tracked(known) && w.overlay.Cache.is(n.OverlayEntry, known.hash, w.round) {
		return known.hash, nil
	}
	c, err := w.conversion(p, n.name)
	if err != nil {
		return "", err
	}
	if n.Size < 0 || n.Size > w.repo.server.limits.ObjectBytes {
		return "", fmt.Errorf("%.200q has %d bytes, allowed are %d: %w", n.Path, n.Size, w.repo.server.limits.ObjectBytes, ErrTooLarge)
	}
	w.hashed++
	var h Hash
	if n.Size <= inMemoryMax {
		h, err = w.smallBlob(n, c, known)
	} else {
		h, err = w.largeBlob(n, c, known)
	}
	if err != nil {
		return "", fmt.Errorf("%.200q: %w", n.Path, err)
	}
	w.seen = append(w.seen, seenFile{n.OverlayEntry, h})
	return h, nil
}

// errGone is a file that was deleted after it was listed: as if it had been before.
var errGone = errors.New("it is gone")

// open opens a file of the overlay, as long as it was when it was listed: what has been
// appended since belongs to the next snapshot.
func (w *snapshotWalk) open(n *overlayNode) (io.Reader, io.Closer, error) {
	in, err := w.overlay.Open(w.ctx, n.Path)
	if errors.Is(err, fs.ErrNotExist) {
		err = errGone
	}
	if err != nil {
		return nil, nil, err
	}
	return io.LimitReader(contextReader{w.ctx, in}, n.Size), in, nil
}

// smallBlob reads a file as a whole.
func (w *snapshotWalk) smallBlob(n *overlayNode, c conversion, known entry) (Hash, error) {
	in, closer, err := w.open(n)
	if err != nil {
		return "", err
	}
	defer closer.Close()
	data := make([]byte, n.Size)
	m, err := io.ReadFull(in, data)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && err != io.EOF {
		return "", err
	}
	data = data[:m]
	if n.name == ".gitattributes" {
		// Git refuses in a push what it would leave out here.
		if _, err := parseAttributes(data, true); err != nil {
			return "", fmt.Errorf("%w: %w", err, ErrPortable)
		}
	}
	if data, err = w.clean(data, c, known); err != nil {
		return "", err
	}
	return w.blob(n.Path, data, known.hash)
}

// errChanged is a large file whose parts do not belong together.
var errChanged = fmt.Errorf("it changed while it was read: %w", ErrConflict)

// largeBlob reads a file as often as is needed to hold none of it in memory.
func (w *snapshotWalk) largeBlob(n *overlayNode, c conversion, known entry) (Hash, error) {
	if n.name == ".gitattributes" {
		return "", fmt.Errorf("it has %d bytes: %w", n.Size, ErrPortable)
	}
	size, convert := n.Size, false
	if c.lines != linesKept {
		var s textStats
		if err := w.pass(n, false, func(in io.Reader) error {
			_, err := io.Copy(&s, in)
			return err
		}); err != nil {
			return "", err
		}
		s.end()
		var err error
		if convert, err = w.converts(&s, c, known); err != nil {
			return "", err
		}
		if convert {
			size -= int64(s.crlf)
		}
	}
	var h Hash
	if known.hash != "" {
		// It may be what the index has: that is found out without writing it.
		err := w.pass(n, convert, func(in io.Reader) (err error) {
			h, err = hashBlob(in, size)
			return err
		})
		if h == known.hash || err != nil {
			return h, err
		}
	}
	if err := w.charge(size); err != nil {
		return "", err
	}
	finder := w.secrets.Finder()
	err := w.pass(n, convert, func(in io.Reader) (err error) {
		h, err = w.pack.stream("blob", size, io.TeeReader(in, finder))
		if err == nil && !ended(in) {
			err = errChanged
		}
		return err
	})
	if err != nil {
		return "", err
	}
	return h, w.found(finder.Names(), "blob", n.Path, h)
}

// pass reads a file of the overlay, as it is or with its line ends converted.
func (w *snapshotWalk) pass(n *overlayNode, convert bool, read func(io.Reader) error) error {
	in, closer, err := w.open(n)
	if err != nil {
		return err
	}
	defer closer.Close()
	if convert {
		in = lfReader{bufio.NewReaderSize(in, 64<<10)}
	}
	return read(in)
}

func ended(r io.Reader) bool {
	n, err := io.ReadFull(r, make([]byte, 1))
	return n == 0 && err == io.EOF
}

// hashBlob names a blob that is not held in memory.
func hashBlob(r io.Reader, size int64) (Hash, error) {
	sum := sha1.New()
	fmt.Fprintf(sum, "blob %d\x00", size)
	n, err := io.Copy(sum, io.LimitReader(r, size))
	if err != nil {
		return "", err
	}
	if n < size || !ended(r) {
		return "", errChanged
	}
	return Hash(hex.EncodeToString(sum.Sum(nil))), nil
}

// blob writes a blob, unless it is the one that was there before.
func (w *snapshotWalk) blob(path string, data []byte, was Hash) (Hash, error) {
	if h := Hash(plumbing.ComputeHash(plumbing.BlobObject, data).String()); h == was {
		return h, nil
	}
	return w.write("blob", path, data)
}

// writeTree writes the tree of the folder path, unless it is one of those that were there before.
func (w *snapshotWalk) writeTree(path string, list []entry, known, under Hash) (Hash, error) {
	for i := range list {
		list[i].mode = plainMode(list[i].mode)
	}
	data, err := encodeTree(list)
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
	h, err := w.pack.add(kind, data)
	if err != nil || w.secrets.Empty() {
		return h, err
	}
	names, err := w.secrets.Find(bytes.NewReader(data))
	if err != nil {
		return "", err
	}
	return h, w.found(names, kind, path, h)
}

// charge counts what is written against what one push may bring.
func (w *snapshotWalk) charge(size int64) error {
	if w.written += size; w.written > w.repo.server.limits.PackBytes {
		return fmt.Errorf("what changed has more than %d bytes: %w", w.repo.server.limits.PackBytes, ErrTooLarge)
	}
	return nil
}

// found notes the secrets in an object, unless the repository holds it already.
func (w *snapshotWalk) found(names []string, kind, path string, h Hash) error {
	if len(names) == 0 || len(w.leaks) >= leaksMax {
		return nil
	}
	if _, err := w.repo.objects.kind(w.ctx, h); !errors.Is(err, ErrNotFound) {
		return err
	}
	for _, name := range names {
		w.leaks = append(w.leaks, Leak{Secret: name, Kind: kind, Object: h, Path: shown(w.secrets, path)})
	}
	return nil
}

// underPlace is a folder of Under that something was moved out of, for its attributes.
func (w *snapshotWalk) underPlace(path string) (*place, error) {
	if p := w.places[path]; p != nil {
		return p, nil
	}
	p, tree := &place{path: path}, w.underTree
	if path != "" {
		up, name := splitName(path)
		var err error
		if p.up, err = w.underPlace(up); err != nil {
			return nil, err
		}
		p.name, tree = name, p.up.under[name].hash
	}
	t, err := w.named(tree)
	if err != nil {
		return nil, err
	}
	p.under, w.places[path] = t.named, p
	return p, nil
}

func splitName(path string) (folder, name string) {
	i := strings.LastIndexByte(path, '/')
	return path[:max(i, 0)], path[i+1:]
}
