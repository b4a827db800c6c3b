package gitd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/ramus-dev/ramus/gitd/object"
	"github.com/ramus-dev/ramus/gitd/pack"
	"golang.org/x/sys/unix"
)

// treeEditor changes a tree and writes the result.
type treeEditor struct {
	objects *pack.Reader
	pack    *pack.Writer
	root    *openedFolder
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

// putFile writes the blob of a file and inserts it. put are the paths of all files.
func (e *treeEditor) putFile(ctx context.Context, f File, put map[string]bool) error {
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
	h, err := e.writeBlob(ctx, f)
	if err != nil {
		return fmt.Errorf("file %.200q: %w", f.Path, err)
	}
	return e.insert(ctx, strings.Split(f.Path, "/"), openedEntry{mode: f.Mode, hash: h})
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

// readFolder reads the entries of a folder, once.
func (e *treeEditor) readFolder(ctx context.Context, f *openedFolder) error {
	if f.entries != nil {
		return nil
	}
	entries, err := e.objects.ReadTree(ctx, f.was)
	if err != nil {
		return err
	}
	f.entries = make(map[string]openedEntry, len(entries))
	for _, entry := range entries {
		f.entries[entry.Name] = openedEntry{mode: entry.Mode, hash: entry.Hash}
	}
	return nil
}

// openFolder opens the folder called name in f. With create it makes the folder if it is missing.
func (e *treeEditor) openFolder(ctx context.Context, f *openedFolder, name string, create bool) (*openedFolder, error) {
	if err := e.readFolder(ctx, f); err != nil {
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

// insert puts an entry at a path.
func (e *treeEditor) insert(ctx context.Context, parts []string, n openedEntry) error {
	f := e.root
	for ; len(parts) > 1; parts = parts[1:] {
		var err error
		if f, err = e.openFolder(ctx, f, parts[0], true); err != nil {
			return err
		}
	}
	if err := e.readFolder(ctx, f); err != nil {
		return err
	}
	f.entries[parts[0]] = n
	return nil
}

// remove removes the entry at a path, if there is one.
func (e *treeEditor) remove(ctx context.Context, path string) error {
	parts, err := object.SplitPath(path)
	if err != nil {
		return err
	}
	f := e.root
	for ; len(parts) > 1; parts = parts[1:] {
		if f, err = e.openFolder(ctx, f, parts[0], false); err != nil || f == nil {
			return err
		}
	}
	if err := e.readFolder(ctx, f); err != nil {
		return err
	}
	delete(f.entries, parts[0])
	return nil
}

// writeFolder writes the tree of a folder after those of the opened folders in it.
func (e *treeEditor) writeFolder(ctx context.Context, f *openedFolder) (_ Hash, empty bool, err error) {
	if err := ctx.Err(); err != nil {
		return "", false, context.Cause(ctx)
	}
	if f.entries == nil {
		return f.was, false, nil
	}
	entries := make([]object.Entry, 0, len(f.entries))
	for name, n := range f.entries {
		if n.open != nil {
			h, empty, err := e.writeFolder(ctx, n.open)
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
	h, err := e.pack.AddNew("tree", data)
	return h, len(entries) == 0, err
}

// writeBlob writes the content of a file.
func (e *treeEditor) writeBlob(ctx context.Context, f File) (Hash, error) {
	if f.Blob != "" {
		if kind, err := e.objects.Kind(ctx, f.Blob); err != nil {
			return "", err
		} else if kind != "blob" {
			return "", fmt.Errorf("%s is a %s: %w", f.Blob, kind, ErrInvalid)
		}
		return f.Blob, nil
	}
	if f.Source == "" {
		return e.pack.AddNew("blob", f.Content)
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
		return e.pack.Stream("blob", info.Size(), in)
	}

	data := make([]byte, info.Size())
	if n, err := io.ReadFull(in, data); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return "", pack.ShrankError(info.Size(), int64(n))
	} else if err != nil {
		return "", err
	}
	return e.pack.AddNew("blob", data)
}

// sourceMemory is the size of the largest file that is read as a whole. Such a file is not written if the
// repository has it.
const sourceMemory = 1 << 20
