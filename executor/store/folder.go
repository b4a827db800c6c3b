package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"

	"github.com/ramus-dev/ramus/internal/durable"
	"github.com/ramus-dev/ramus/internal/pattern"
)

// Folder is a [Bucket] in a folder. The path of a file is its key. A file is written under a name of its own in the same folder,
// which ends in ".tmp", and renamed when it is whole and on disk.
type Folder struct {
	dir string
}

// OpenFolder opens a folder, or makes it, for its owner alone. It removes the files that a process which died had not finished. It
// touches no other files, since the folder may hold files of others.
func OpenFolder(dir string) (*Folder, error) {
	dir, err := filepath.Abs(dir)
	if err == nil {
		err = makeFolder(dir)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot open the artifact store: %w", err)
	}
	for _, kind := range keyFolders {
		removeUnfinished(filepath.Join(dir, kind))
	}
	return &Folder{dir: dir}, nil
}

// makeFolder makes a folder and the folders above it, durably, unless it exists.
func makeFolder(dir string) error {
	if info, err := os.Stat(dir); err == nil && info.IsDir() {
		return nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return durable.Folder(filepath.Dir(dir))
}

// keyFolders are the folders of all keys, of artifacts, cached dependencies and Git LFS objects.
var keyFolders = []string{strings.TrimSuffix(keys, "/"), "cache", "lfs"}

// unfinishedName matches the names that Put gives to unfinished files.
var unfinishedName = pattern.New(`\.[0-9]+` + regexp.QuoteMeta(unfinished) + `$`)

// removeUnfinished removes the unfinished files below dir that no process holds a lock of. Files that it cannot remove stay.
func removeUnfinished(dir string) {
	_ = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() || !unfinishedName.MatchString(entry.Name()) {
			return nil
		}
		f, err := os.Open(path)
		if err != nil {
			return nil
		}
		defer f.Close()
		// Another server may share the folder, and write the file now.
		if !errors.Is(syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB), syscall.EWOULDBLOCK) {
			_ = os.Remove(path)
		}
		return nil
	})
}

// Put implements [Bucket].
func (f *Folder) Put(ctx context.Context, key string, from io.Reader) error {
	if err := checkKey(key); err != nil {
		return err
	}
	name := f.path(key)
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(name), filepath.Base(name)+".*"+unfinished)
	if err != nil {
		return err
	}
	_ = syscall.Flock(int(tmp.Fd()), syscall.LOCK_EX) // not every file system has locks, see removeUnfinished
	_, err = io.Copy(tmp, contextReader{ctx, from})
	if err == nil {
		err = tmp.Sync()
	}
	if err == nil {
		err = os.Rename(tmp.Name(), name)
	}
	// The lock ends with Close, so the file has its own name by then.
	if err = errors.Join(err, tmp.Close()); err != nil {
		_ = os.Remove(tmp.Name()) // it may have been renamed
		return err
	}
	// Any of the folders may be new, or made by a process that died before it waited for them.
	for dir := filepath.Dir(name); ; dir = filepath.Dir(dir) {
		if err := durable.Folder(dir); err != nil {
			return err
		}
		if dir == f.dir {
			return nil
		}
	}
}

// Open implements [Bucket].
func (f *Folder) Open(ctx context.Context, key string) (Object, error) {
	if err := checkKey(key); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	in, err := os.Open(f.path(key))
	if err != nil {
		return nil, missing(err)
	}
	info, err := in.Stat()
	if err == nil && info.IsDir() {
		err = fs.ErrNotExist
	}
	if err != nil {
		return nil, errors.Join(err, in.Close())
	}
	return &folderObject{in: in, ctx: ctx, size: info.Size()}, nil
}

// Exists implements [Bucket].
func (f *Folder) Exists(_ context.Context, key string) (bool, error) {
	if err := checkKey(key); err != nil {
		return false, err
	}
	info, err := os.Stat(f.path(key))
	if err = missing(err); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && !info.IsDir(), err
}

// List implements [Bucket].
func (f *Folder) List(ctx context.Context, prefix string) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		// The folder that all of them are in.
		from := filepath.Join(f.dir, filepath.FromSlash(path.Dir("/"+prefix+"x")))
		err := filepath.WalkDir(from, func(name string, entry fs.DirEntry, err error) error {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err = missing(err); errors.Is(err, fs.ErrNotExist) {
				return nil // it was removed meanwhile
			}
			if err != nil || entry.IsDir() {
				return err
			}
			rest, err := filepath.Rel(f.dir, name)
			if err != nil {
				return err
			}
			key := filepath.ToSlash(rest)
			if !strings.HasPrefix(key, prefix) || strings.HasSuffix(key, unfinished) {
				return nil
			}
			info, err := entry.Info()
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err != nil {
				return err
			}
			if !yield(Entry{Key: key, Size: info.Size(), Time: info.ModTime()}, nil) {
				return fs.SkipAll
			}
			return nil
		})
		if err != nil {
			yield(Entry{}, err)
		}
	}
}

// Delete implements [Bucket]. The folders above the file stay.
func (f *Folder) Delete(_ context.Context, key string) error {
	if err := checkKey(key); err != nil {
		return err
	}
	if ok, err := f.Exists(context.Background(), key); err != nil || !ok {
		return err
	}
	if err := missing(os.Remove(f.path(key))); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Close implements [Bucket].
func (f *Folder) Close() error { return nil }

func (f *Folder) path(key string) string { return filepath.Join(f.dir, filepath.FromSlash(key)) }

// missing makes the error of a path below a file that of a file which does not exist.
func missing(err error) error {
	if errors.Is(err, syscall.ENOTDIR) {
		return fmt.Errorf("%w: %w", fs.ErrNotExist, err)
	}
	return err
}

// folderObject is an open file of a [Folder].
type folderObject struct {
	in   *os.File
	ctx  context.Context // of Open
	size int64
}

func (o *folderObject) Read(p []byte) (int, error) { return contextReader{o.ctx, o.in}.Read(p) }

func (o *folderObject) Seek(offset int64, whence int) (int64, error) {
	return o.in.Seek(offset, whence)
}

func (o *folderObject) Close() error { return o.in.Close() }

func (o *folderObject) Size() int64 { return o.size }
