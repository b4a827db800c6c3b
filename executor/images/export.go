package images

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/ramus-dev/ramus/gitd"
)

// file is a file of a base that a build needs.
type file struct {
	path string // in the repository
	mode string // as git has it
	hash gitd.Hash
	size int64
}

// Bounds on the files of a build.
const (
	maxFiles = 50_000
	maxBytes = 512 << 20
	maxLink  = 4 << 10
)

// list returns the files that a wish needs, in order: the folder of the file that describes the image, and the context.
func (b *Builder) list(ctx context.Context, w Wish) ([]file, error) {
	folders := []string{path.Dir(w.File.Path)}
	if w.File.Build != nil {
		folders = append(folders, w.File.Build.Context, path.Dir(w.File.Build.Dockerfile))
		if w.Dockerfile {
			folders = folders[1:]
		}
	}
	known := map[string]bool{}
	var list []file
	var bytes int64
	for _, folder := range folders {
		if folder == "." {
			folder = ""
		}
		entries, err := w.Repo.Tree(ctx, string(w.Commit), folder, true)
		if errors.Is(err, gitd.ErrNotFound) {
			return nil, &Failed{Path: w.File.Path, Why: "there is no folder " + folder}
		}
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if e.Type != "blob" || known[e.Path] {
				continue // folders, submodules
			}
			known[e.Path] = true
			list = append(list, file{e.Path, e.Mode, e.Hash, e.Size})
			if bytes += e.Size; bytes > maxBytes || len(list) > maxFiles {
				return nil, &Failed{Path: w.File.Path,
					Why: fmt.Sprintf("it needs more than %d files or %d MiB", maxFiles, maxBytes>>20)}
			}
		}
	}
	return list, nil
}

// export writes files to a folder. Links come last, so that no file is written through one. Links that lead out of the repository are
// left out.
func (b *Builder) export(ctx context.Context, w Wish, list []file, dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	for _, f := range list {
		if f.mode == "120000" || f.path == w.File.Path && !w.Dockerfile {
			continue
		}
		if err := b.write(ctx, w, root, f); err != nil {
			return fmt.Errorf("cannot write %s for a build: %w", f.path, err)
		}
	}
	if !w.Dockerfile {
		// In place of the file itself, of which other parts could start programs on the host.
		if err := root.MkdirAll(filepath.Dir(w.File.Path), 0o755); err != nil {
			return err
		}
		if err := root.WriteFile(w.File.Path, w.File.Config(), 0o644); err != nil {
			return err
		}
	}
	for _, f := range list {
		if f.mode != "120000" {
			continue
		}
		target, err := w.Repo.Blob(ctx, f.hash, maxLink)
		if err != nil {
			return err
		}
		to := path.Join(path.Dir(f.path), string(target))
		if path.IsAbs(string(target)) || to == ".." || strings.HasPrefix(to, "../") {
			continue
		}
		if err := root.MkdirAll(filepath.Dir(f.path), 0o755); err != nil {
			return err
		}
		if err := root.Symlink(string(target), f.path); err != nil {
			return err
		}
	}
	return nil
}

// write writes one file.
func (b *Builder) write(ctx context.Context, w Wish, root *os.Root, f file) error {
	if err := root.MkdirAll(filepath.Dir(f.path), 0o755); err != nil {
		return err
	}
	in, _, err := w.Repo.OpenFile(ctx, string(w.Commit), f.path)
	if err != nil {
		return err
	}
	defer in.Close()
	mode := os.FileMode(0o644)
	if f.mode == "100755" {
		mode = 0o755
	}
	out, err := root.OpenFile(f.path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, io.LimitReader(in, maxBytes))
	return errors.Join(err, out.Close())
}
