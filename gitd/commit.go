package gitd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/gitd/object"
	"github.com/ramus-dev/ramus/gitd/pack"
	"golang.org/x/sys/unix"
)

// NewCommit describes a commit for [Repo.WriteCommit].
type NewCommit struct {
	// From is a commit whose tree is the starting point; empty starts from an empty tree.
	From Hash
	// Put adds or replaces files by slash-separated path; Delete removes files
	// and folders, before Put adds. What is not there need not be removed. A
	// folder that becomes empty is gone; a file takes the place of a folder and
	// the other way round. A Put with Source streams, so that a large output
	// needs no memory.
	Put               []File
	Delete            []string
	Parents           []Hash
	Author, Committer Person    // an empty Committer is the Author
	When              time.Time // zero: now
	Message           string
}

// File is one file to be written.
type File struct {
	Path    string
	Mode    uint32 // git mode: 0o100644 (also when zero), 0o100755, 0o120000
	Content []byte
	// Source, when not empty, is a regular file on disk that is read instead of Content.
	Source string
	// Blob, when not empty, is a blob that the repository has, instead of both.
	Blob Hash
}

// WriteCommit writes blobs, trees and the commit, durably, as one pack; no ref is changed.
func (r *Repo) WriteCommit(ctx context.Context, c NewCommit) (Hash, error) {
	h, err := r.writeCommit(ctx, c)
	if err != nil {
		return "", fmt.Errorf("cannot write a commit in %s: %w", r.name, err)
	}
	return h, nil
}

func (r *Repo) writeCommit(ctx context.Context, c NewCommit) (Hash, error) {
	if _, err := os.Lstat(filepath.Join(r.dir, "objects")); err != nil {
		return "", fmt.Errorf("the repository is gone: %w", ErrNotFound)
	}
	w, err := r.newPack(ctx)
	if err != nil {
		return "", err
	}
	defer w.Drop()
	if err := r.checkParents(ctx, c.Parents); err != nil {
		return "", err
	}
	root := &folder{entries: map[string]node{}}
	if c.From != "" {
		tree, err := r.objects.TreeOf(ctx, c.From)
		if err != nil {
			return "", fmt.Errorf("starting point %s: %w", c.From, err)
		}
		root = &folder{was: tree}
	}
	for _, p := range c.Delete {
		parts, err := object.SplitPath(p)
		if err != nil {
			return "", err
		}
		if err := r.remove(ctx, root, parts); err != nil {
			return "", err
		}
	}
	put := map[string]bool{}
	for _, f := range c.Put {
		parts, err := object.SplitPath(f.Path)
		if err != nil {
			return "", err
		}
		if put[f.Path] {
			return "", fmt.Errorf("file %.200q is put twice: %w", f.Path, ErrInvalid)
		}
		put[f.Path] = true
		for _, part := range parts {
			if object.IsDotGit(part) {
				return "", fmt.Errorf("path %.200q has a part that git keeps for itself: %w", f.Path, ErrInvalid)
			}
		}
	}
	for _, f := range c.Put {
		for dir := f.Path; strings.Contains(dir, "/"); {
			dir = dir[:strings.LastIndexByte(dir, '/')]
			if put[dir] {
				return "", fmt.Errorf("%.200q is put as a file and as a folder: %w", dir, ErrInvalid)
			}
		}
		if f.Mode == 0 {
			f.Mode = object.ModeFile
		}
		if f.Mode != object.ModeFile && f.Mode != object.ModeExecutable && f.Mode != object.ModeSymlink {
			return "", fmt.Errorf("file %.200q has mode %o, allowed are 100644, 100755 and 120000: %w", f.Path, f.Mode, ErrInvalid)
		}
		h, err := r.writeBlob(ctx, w, f)
		if err != nil {
			return "", fmt.Errorf("file %.200q: %w", f.Path, err)
		}
		if err := r.insert(ctx, root, strings.Split(f.Path, "/"), node{mode: f.Mode, hash: h}); err != nil {
			return "", err
		}
	}
	tree, _, err := r.writeFolder(ctx, w, root)
	if err != nil {
		return "", err
	}
	data, err := r.server.encodeCommit(r.newCommit(c, tree))
	if err != nil {
		return "", err
	}
	h, err := w.AddNew("commit", data)
	if err != nil {
		return "", err
	}
	return h, placePack(w)
}

func (r *Repo) checkParents(ctx context.Context, parents []Hash) error {
	for _, p := range parents {
		if kind, err := r.objects.Kind(ctx, p); err != nil {
			return fmt.Errorf("parent %s: %w", p, err)
		} else if kind != "commit" {
			return fmt.Errorf("parent %s is a %s: %w", p, kind, ErrInvalid)
		}
	}
	return nil
}

// newCommit returns the commit that c describes, with the tree tree.
func (r *Repo) newCommit(c NewCommit, tree Hash) object.RawCommit {
	when := c.When
	if when.IsZero() {
		when = r.server.now()
	}
	if c.Committer == (Person{}) {
		c.Committer = c.Author
	}
	return object.RawCommit{
		Tree: tree, Parents: c.Parents,
		Author: c.Author.Signature(when), Committer: c.Committer.Signature(when),
		Message: []byte(cleanMessage(c.Message)),
	}
}

// placePack puts a pack that nobody reads here into the repository.
func placePack(w *pack.Writer) error {
	p, err := w.Place()
	if p == nil || err != nil {
		return err
	}
	return p.Close()
}

// needSHA1 refuses a repository whose objects have SHA-256 names: it is served,
// but nothing here writes into it.
func (r *Repo) needSHA1(ctx context.Context) error {
	format := r.format.Load()
	if format == nil {
		out, err := r.output(ctx, "rev-parse", "--show-object-format")
		if err != nil {
			return fmt.Errorf("cannot find out the object format: %w", err)
		}
		name := strings.TrimSpace(string(out))
		format = &name
		r.format.Store(format)
	}
	if *format != "sha1" {
		return fmt.Errorf("its objects are named by %s, only sha1 can be written: %w", *format, ErrInvalid)
	}
	return nil
}

// cleanMessage makes a message git can read back: no NUL, one newline at the end.
func cleanMessage(s string) string {
	s = strings.ReplaceAll(strings.ToValidUTF8(s, "\ufffd"), "\x00", "")
	s = strings.TrimRight(s, "\n")
	if s == "" {
		return ""
	}
	return s + "\n"
}

// folder is a folder under change. Its entries are read when they are needed,
// so that a change costs the folders on its path only.
type folder struct {
	was     Hash            // empty: new
	entries map[string]node // nil: not read yet
}

// node is one entry of a folder: an object, or a folder under change.
type node struct {
	mode uint32
	hash Hash
	open *folder
}

func (r *Repo) read(ctx context.Context, f *folder) error {
	if f.entries != nil {
		return nil
	}
	entries, err := r.objects.ReadTree(ctx, f.was)
	if err != nil {
		return err
	}
	f.entries = make(map[string]node, len(entries))
	for _, e := range entries {
		f.entries[e.Name] = node{mode: e.Mode, hash: e.Hash}
	}
	return nil
}

// enter opens the folder called name in f; create puts one there if need be.
func (r *Repo) enter(ctx context.Context, f *folder, name string, create bool) (*folder, error) {
	if err := r.read(ctx, f); err != nil {
		return nil, err
	}
	n, ok := f.entries[name]
	switch {
	case ok && n.open != nil:
		return n.open, nil
	case ok && n.mode == object.ModeFolder:
		n.open = &folder{was: n.hash}
	case create:
		n = node{mode: object.ModeFolder, open: &folder{entries: map[string]node{}}}
	default:
		return nil, nil
	}
	f.entries[name] = n
	return n.open, nil
}

func (r *Repo) insert(ctx context.Context, f *folder, parts []string, n node) error {
	for ; len(parts) > 1; parts = parts[1:] {
		var err error
		if f, err = r.enter(ctx, f, parts[0], true); err != nil {
			return err
		}
	}
	if err := r.read(ctx, f); err != nil {
		return err
	}
	f.entries[parts[0]] = n
	return nil
}

func (r *Repo) remove(ctx context.Context, f *folder, parts []string) error {
	for ; len(parts) > 1; parts = parts[1:] {
		var err error
		if f, err = r.enter(ctx, f, parts[0], false); err != nil || f == nil {
			return err
		}
	}
	if err := r.read(ctx, f); err != nil {
		return err
	}
	delete(f.entries, parts[0])
	return nil
}

// writeFolder writes the trees that were opened, the innermost first.
func (r *Repo) writeFolder(ctx context.Context, w *pack.Writer, f *folder) (Hash, bool, error) {
	if err := ctx.Err(); err != nil {
		return "", false, context.Cause(ctx)
	}
	if f.entries == nil {
		return f.was, false, nil
	}
	entries := make([]object.Entry, 0, len(f.entries))
	for name, n := range f.entries {
		if n.open != nil {
			h, empty, err := r.writeFolder(ctx, w, n.open)
			if err != nil {
				return "", false, err
			}
			if empty {
				continue
			}
			n.hash = h
		}
		entries = append(entries, object.Entry{Name: name, Mode: n.mode, Hash: n.hash})
	}
	data, err := object.EncodeTree(entries)
	if err != nil {
		return "", false, err
	}
	h, err := w.AddNew("tree", data)
	return h, len(entries) == 0, err
}

// writeBlob writes a file's content.
func (r *Repo) writeBlob(ctx context.Context, w *pack.Writer, f File) (Hash, error) {
	if f.Blob != "" {
		if kind, err := r.objects.Kind(ctx, f.Blob); err != nil {
			return "", err
		} else if kind != "blob" {
			return "", fmt.Errorf("%s is a %s: %w", f.Blob, kind, ErrInvalid)
		}
		return f.Blob, nil
	}
	if f.Source == "" {
		return w.AddNew("blob", f.Content)
	}
	// NOFOLLOW: the name may stand in a folder that a task has written.
	// NONBLOCK: opening a named pipe must not wait for a writer.
	in, err := os.OpenFile(f.Source, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() {
		return "", fmt.Errorf("%s is no regular file: %w", f.Source, ErrInvalid)
	}
	if info.Size() > sourceMemory {
		return w.Stream("blob", info.Size(), in)
	}
	data := make([]byte, info.Size())
	if n, err := io.ReadFull(in, data); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return "", pack.ShrankError(info.Size(), int64(n))
	} else if err != nil {
		return "", err
	}
	return w.AddNew("blob", data)
}

// sourceMemory is the largest file that is read as a whole, so that it is not written when
// the repository has it.
const sourceMemory = 1 << 20

// newPack starts a pack of new objects. It ends with ctx. Returns an error if the repository has
// SHA-256 names.
func (r *Repo) newPack(ctx context.Context) (*pack.Writer, error) {
	if err := r.needSHA1(ctx); err != nil {
		return nil, err
	}
	return pack.NewWriter(ctx, &r.objects.Packs), nil
}
