package gitd

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"path"
	"strconv"
	"strings"

	"github.com/ramus-dev/ramus/gitd/gitcmd"
	"github.com/ramus-dev/ramus/gitd/object"
)

// fileMax bounds [Repo.ReadFile] if the caller gives no bound.
const fileMax = 64 << 20

// TreeEntry is one entry of a folder at a commit.
type TreeEntry struct {
	Path string `json:"path"` // from the root of the tree
	Mode string `json:"mode"` // six octal digits
	Type string `json:"type"` // blob, tree or commit
	Hash Hash   `json:"hash"`
	Size int64  `json:"size"` // of blobs, 0 for others
}

// findEntry returns the entry at a path below the root of rev. The path "" means the root itself.
func (r *Repo) findEntry(ctx context.Context, rev, p string) (object.Entry, error) {
	commit, err := r.resolve(ctx, rev)
	if err != nil {
		return object.Entry{}, fmt.Errorf("%.200q: %w", rev, err)
	}
	root, err := r.objects.TreeOf(ctx, commit)
	if err != nil {
		return object.Entry{}, err
	}
	at := object.Entry{Mode: object.ModeFolder, Hash: root}
	if p == "" {
		return at, nil
	}

	parts, err := object.SplitPath(p)
	if err != nil {
		return object.Entry{}, err
	}
walk:
	for _, part := range parts {
		if at.Mode != object.ModeFolder {
			return object.Entry{}, ErrNotFound
		}
		entries, err := r.objects.ReadTree(ctx, at.Hash)
		if err != nil {
			return object.Entry{}, err
		}
		for _, e := range entries {
			if e.Name == part {
				at = e
				continue walk
			}
		}
		return object.Entry{}, ErrNotFound
	}
	return at, nil
}

// ReadFile returns a file at a commit. Of a symbolic link it returns the target. Returns [ErrTooLarge] if the file
// has more than max bytes. Zero means 64 MiB.
func (r *Repo) ReadFile(ctx context.Context, rev, path string, max int64) ([]byte, error) {
	if max <= 0 {
		max = fileMax
	}
	in, size, err := r.OpenFile(ctx, rev, path)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	if size > max {
		return nil, fmt.Errorf("cannot read %.200q: it has %d bytes, allowed are %d: %w", path, size, max, ErrTooLarge)
	}
	data := make([]byte, size)
	if _, err := io.ReadFull(in, data); err != nil {
		return nil, fmt.Errorf("cannot read %.200q: %w", path, err)
	}
	return data, nil
}

// OpenFile opens a file at a commit and returns its size. The stream must be closed.
func (r *Repo) OpenFile(ctx context.Context, rev, path string) (io.ReadCloser, int64, error) {
	e, err := r.findEntry(ctx, rev, path)
	if err == nil && e.Kind() != "blob" {
		err = fmt.Errorf("it is a %s, not a file: %w",
			map[string]string{"tree": "folder", "commit": "submodule"}[e.Kind()], ErrInvalid)
	}
	var in io.ReadCloser
	var size int64
	if err == nil {
		in, size, err = r.objects.Stream(ctx, e.Hash)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("cannot open %.200q at %.200q in %s: %w", path, rev, r.name, err)
	}
	return in, size, nil
}

// Blob returns the content of a blob by its name, for callers that have compared trees. Returns [ErrTooLarge] if
// it has more than max bytes.
func (r *Repo) Blob(ctx context.Context, blob Hash, max int64) ([]byte, error) {
	in, size, err := r.objects.Stream(ctx, blob)
	if err != nil {
		return nil, fmt.Errorf("cannot read blob %.80s in %s: %w", blob, r.name, err)
	}
	defer in.Close()
	if size > max {
		return nil, fmt.Errorf("cannot read blob %s in %s: it has %d bytes, allowed are %d: %w", blob, r.name, size,
			max, ErrTooLarge)
	}
	data := make([]byte, size)
	if _, err := io.ReadFull(in, data); err != nil {
		return nil, fmt.Errorf("cannot read blob %s in %s: %w", blob, r.name, err)
	}
	return data, nil
}

// Entry returns the entry at a path, without its size. Returns [ErrNotFound] if there is none.
func (r *Repo) Entry(ctx context.Context, rev, path string) (TreeEntry, error) {
	e, err := r.findEntry(ctx, rev, path)
	if err != nil {
		return TreeEntry{}, fmt.Errorf("cannot find %.200q at %.200q in %s: %w", path, rev, r.name, err)
	}
	return TreeEntry{Path: path, Mode: fmt.Sprintf("%06o", e.Mode), Type: e.Kind(), Hash: e.Hash}, nil
}

// Tree lists the folder path at a commit. The path "" means the root. With recursive it lists the files of all
// folders below, without the folders themselves. Returns [ErrTooLarge] if there are more than [object.MaxEntries] entries
// or, with recursive, more than [object.MaxFolders] folders.
func (r *Repo) Tree(ctx context.Context, rev, path string, recursive bool) ([]TreeEntry, error) {
	list, err := r.listTree(ctx, rev, path, recursive)
	if err != nil {
		return nil, fmt.Errorf("cannot list the folder %.200q at %.200q in %s: %w", path, rev, r.name, err)
	}
	return list, nil
}

func (r *Repo) listTree(ctx context.Context, rev, folder string, recursive bool) ([]TreeEntry, error) {
	top, err := r.findEntry(ctx, rev, folder)
	if err != nil {
		return nil, err
	}
	var list []TreeEntry
	folders := 0
	var walk func(h Hash, at string, depth int) error
	walk = func(h Hash, at string, depth int) error {
		if depth > 1000 {
			return fmt.Errorf("folders are nested more than 1000 deep: %w", ErrTooLarge)
		}
		if folders++; folders > object.MaxFolders {
			return fmt.Errorf("more than %d folders: %w", object.MaxFolders, ErrTooLarge)
		}
		entries, err := r.objects.ReadTree(ctx, h)
		if err != nil {
			return err
		}
		for _, e := range entries {
			p := path.Join(at, e.Name)
			if recursive && e.Mode == object.ModeFolder {
				if err := walk(e.Hash, p, depth+1); err != nil {
					return err
				}
				continue
			}
			if len(list) == object.MaxEntries {
				return fmt.Errorf("more than %d entries: %w", object.MaxEntries, ErrTooLarge)
			}
			list = append(list, TreeEntry{Path: p, Mode: fmt.Sprintf("%06o", e.Mode), Type: e.Kind(), Hash: e.Hash})
		}
		return nil
	}
	if err := walk(top.Hash, folder, 0); err != nil {
		return nil, err
	}
	return list, r.fillSizes(ctx, list)
}

// fillSizes sets the sizes of the blobs.
func (r *Repo) fillSizes(ctx context.Context, list []TreeEntry) error {
	missed := false
	for i, e := range list {
		if e.Type != "blob" {
			continue
		}
		n, err := r.objects.Size(e.Hash)
		if missed = err != nil; missed {
			break
		}
		list[i].Size = n
	}
	if !missed {
		return nil
	}

	var in bytes.Buffer
	for _, e := range list {
		in.WriteString(string(e.Hash) + "\n")
	}
	out, err := r.server.git.Output(ctx,
		gitcmd.Command{Repo: r.dir, Args: []string{"cat-file", "--batch-check=%(objecttype) %(objectsize)"}, In: &in})
	if err != nil {
		return fmt.Errorf("cannot read the sizes: %w", err)
	}
	lines := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
	if len(lines) != len(list) {
		return fmt.Errorf("cannot read the sizes: %d answers for %d objects", len(lines), len(list))
	}

	for i, line := range lines {
		if n, ok := strings.CutPrefix(line, "blob "); ok {
			if list[i].Size, err = strconv.ParseInt(n, 10, 64); err != nil {
				return fmt.Errorf("cannot read the sizes: %w", err)
			}
		}
	}
	return nil
}
