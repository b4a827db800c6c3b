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
	// From is a commit whose tree is the starting point. Empty means an empty tree.
	From Hash
	// Put adds or replaces files by slash-separated path. Delete removes files and folders before Put adds any.
	// Paths in Delete need not exist. A folder that becomes empty is removed. A file replaces a folder of its
	// name, and a folder replaces a file. A Put with Source streams, so a large output needs no memory.
	Put               []File
	Delete            []string
	Parents           []Hash
	Author, Committer Person    // an empty Committer means the Author
	When              time.Time // zero means now
	Message           string
}

// File is one file to be written.
type File struct {
	Path    string
	Mode    uint32 // mode of git, 0o100644 (also if zero), 0o100755 or 0o120000
	Content []byte
	// Source, if it is not empty, is a regular file on disk that is read instead of Content.
	Source string
	// Blob, if it is not empty, is a blob of the repository that is used instead of Content and Source.
	Blob Hash
}

// WriteCommit writes blobs, trees and the commit, durably, as one pack. No ref is changed.
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

	root := &openedFolder{entries: map[string]openedEntry{}}
	if c.From != "" {
		tree, err := r.objects.TreeOf(ctx, c.From)
		if err != nil {
			return "", fmt.Errorf("starting point %s: %w", c.From, err)
		}
		root = &openedFolder{was: tree}
	}
	for _, p := range c.Delete {
		parts, err := object.SplitPath(p)
		if err != nil {
			return "", err
		}
		if err := r.removeNode(ctx, root, parts); err != nil {
			return "", err
		}
	}

	put, err := checkPaths(c.Put)
	if err != nil {
		return "", err
	}
	for _, f := range c.Put {
		if err := r.putFile(ctx, w, root, f, put); err != nil {
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

// checkPaths checks the paths of files and returns them as a set.
func checkPaths(files []File) (map[string]bool, error) {
	put := map[string]bool{}
	for _, f := range files {
		parts, err := object.SplitPath(f.Path)
		if err != nil {
			return nil, err
		}
		if put[f.Path] {
			return nil, fmt.Errorf("file %.200q is put twice: %w", f.Path, ErrInvalid)
		}
		put[f.Path] = true
		for _, part := range parts {
			if object.IsDotGit(part) {
				return nil, fmt.Errorf("path %.200q has a part that git keeps for itself: %w", f.Path, ErrInvalid)
			}
		}
	}
	return put, nil
}

// putFile writes the blob of a file and inserts it into root. put are the paths of all files.
func (r *Repo) putFile(ctx context.Context, w *pack.Writer, root *openedFolder, f File, put map[string]bool) error {
	for dir := f.Path; strings.Contains(dir, "/"); {
		dir = dir[:strings.LastIndexByte(dir, '/')]
		if put[dir] {
			return fmt.Errorf("%.200q is put as a file and as a folder: %w", dir, ErrInvalid)
		}
	}
	if f.Mode == 0 {
		f.Mode = object.ModeFile
	}
	if f.Mode != object.ModeFile && f.Mode != object.ModeExecutable && f.Mode != object.ModeSymlink {
		return fmt.Errorf("file %.200q has mode %o, allowed are 100644, 100755 and 120000: %w", f.Path, f.Mode, ErrInvalid)
	}
	h, err := r.writeBlob(ctx, w, f)
	if err != nil {
		return fmt.Errorf("file %.200q: %w", f.Path, err)
	}
	return r.insertNode(ctx, root, strings.Split(f.Path, "/"), openedEntry{mode: f.Mode, hash: h})
}

// checkParents returns [ErrInvalid] unless all parents are commits of the repository.
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

// newCommit returns the commit that c describes, with the given tree.
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

// placePack moves a finished pack into the repository.
func placePack(w *pack.Writer) error {
	p, err := w.Place()
	if p == nil || err != nil {
		return err
	}
	return p.Close()
}

// needSHA1 returns [ErrInvalid] for a repository whose objects have SHA-256 names. Such a repository is served,
// but nothing can be written into it.
func (r *Repo) needSHA1(ctx context.Context) error {
	format := r.format.Load()
	if format == nil {
		out, err := r.output(ctx, "rev-parse", "--show-object-format")
		if err != nil {
			return fmt.Errorf("cannot read the object format: %w", err)
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

// cleanMessage returns a message that git can read back. It has no NUL, and one newline at the end.
func cleanMessage(s string) string {
	s = strings.ReplaceAll(strings.ToValidUTF8(s, "\ufffd"), "\x00", "")
	s = strings.TrimRight(s, "\n")
	if s == "" {
		return ""
	}
	return s + "\n"
}

// openedFolder is a folder that is being changed. Its entries are read when they are needed, so a change reads
// only the folders on its path.
type openedFolder struct {
	was     Hash                   // empty for a new folder
	entries map[string]openedEntry // nil means not read yet
}

// openedEntry is one entry of a folder, either an object or a folder that is being changed.
type openedEntry struct {
	mode uint32
	hash Hash
	open *openedFolder
}

func (r *Repo) readFolder(ctx context.Context, f *openedFolder) error {
	if f.entries != nil {
		return nil
	}
	entries, err := r.objects.ReadTree(ctx, f.was)
	if err != nil {
		return err
	}
	f.entries = make(map[string]openedEntry, len(entries))
	for _, e := range entries {
		f.entries[e.Name] = openedEntry{mode: e.Mode, hash: e.Hash}
	}
	return nil
}

// openFolder opens the folder called name in f. With create it makes the folder if it is missing.
func (r *Repo) openFolder(ctx context.Context, f *openedFolder, name string, create bool) (*openedFolder, error) {
	if err := r.readFolder(ctx, f); err != nil {
		return nil, err
	}
	n, ok := f.entries[name]
	switch {
	case ok && n.open != nil:
		return n.open, nil
	case ok && n.mode == object.ModeFolder:
		n.open = &openedFolder{was: n.hash}
	case create:
		n = openedEntry{mode: object.ModeFolder, open: &openedFolder{entries: map[string]openedEntry{}}}
	default:
		return nil, nil
	}
	f.entries[name] = n
	return n.open, nil
}

func (r *Repo) insertNode(ctx context.Context, f *openedFolder, parts []string, n openedEntry) error {
	for ; len(parts) > 1; parts = parts[1:] {
		var err error
		if f, err = r.openFolder(ctx, f, parts[0], true); err != nil {
			return err
		}
	}
	if err := r.readFolder(ctx, f); err != nil {
		return err
	}
	f.entries[parts[0]] = n
	return nil
}

func (r *Repo) removeNode(ctx context.Context, f *openedFolder, parts []string) error {
	for ; len(parts) > 1; parts = parts[1:] {
		var err error
		if f, err = r.openFolder(ctx, f, parts[0], false); err != nil || f == nil {
			return err
		}
	}
	if err := r.readFolder(ctx, f); err != nil {
		return err
	}
	delete(f.entries, parts[0])
	return nil
}

// writeFolder writes the trees of opened folders, the innermost first.
func (r *Repo) writeFolder(ctx context.Context, w *pack.Writer, f *openedFolder) (Hash, bool, error) {
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

// writeBlob writes the content of a file.
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

	// NOFOLLOW, because the name may be in a folder that a task has written. NONBLOCK, because opening a named
	// pipe must not wait for a writer.
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
		return "", fmt.Errorf("%s is not a regular file: %w", f.Source, ErrInvalid)
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

// sourceMemory is the size of the largest file that is read as a whole. Such a file is not written if the
// repository has it.
const sourceMemory = 1 << 20

// newPack starts a pack of new objects. It ends with ctx. Returns an error if the repository has
// SHA-256 names.
func (r *Repo) newPack(ctx context.Context) (*pack.Writer, error) {
	if err := r.needSHA1(ctx); err != nil {
		return nil, err
	}
	return pack.NewWriter(ctx, &r.objects.Packs), nil
}
