package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/durable"
	"golang.org/x/sys/unix"
)

// Request asks for a snapshot.
type Request struct {
	// Dir is the folder of the backup, an absolute path on the server's machine. It is made if it is missing.
	Dir string `json:"dir"`
	// Keys includes the keys of the server. The keys sign tokens, links and manifests of bases.
	Keys bool `json:"keys,omitempty"`
	// Full copies everything again, and shares no file with an earlier snapshot.
	Full bool `json:"full,omitempty"`
	// Version is the version of ramus that makes the snapshot, for people.
	Version string `json:"-"`
}

// Snapshot is a finished snapshot.
type Snapshot struct {
	Path   string    `json:"path"`
	MadeAt time.Time `json:"made_at"`
	Repos  int       `json:"repos"`
	Refs   int       `json:"refs"`
	Files  int       `json:"files"`
	Bytes  int64     `json:"bytes"`
	// Copied are the bytes that are not shared with the snapshot before.
	Copied int64 `json:"copied"`
	Keys   bool  `json:"keys"`
	// Elsewhere reports whether artifacts are in a store outside of the data folder, and so not in the snapshot.
	Elsewhere bool `json:"artifacts_elsewhere,omitempty"`
}

// Maker makes snapshots of a data folder that this process uses.
type Maker struct {
	Data string // the data folder
	Git  *gitd.Server
	// Elsewhere means that new artifacts are not in the folder artifacts of Data.
	Elsewhere bool
	// Now is the clock. Nil means time.Now.
	Now func() time.Time
}

const (
	partial = ".partial" // the end of the name of an unfinished snapshot
	// nameLayout is the layout of names, so that the names are in the order of time.
	nameLayout = "20060102-150405.000"
	// packsMax is the number of packs after which the next snapshot of a repository is one pack again.
	packsMax = 32
	// smallFiles bounds the files of runs at work, which are open at the same time.
	smallFiles = 100_000
)

// Make makes a snapshot. It returns when the snapshot is on disk.
func (m *Maker) Make(ctx context.Context, r Request) (Snapshot, error) {
	s, err := m.make(ctx, r)
	if err != nil {
		return s, fmt.Errorf("cannot back up to %s: %w", r.Dir, err)
	}
	return s, nil
}

func (m *Maker) make(ctx context.Context, r Request) (s Snapshot, err error) {
	if !filepath.IsAbs(r.Dir) {
		return s, fmt.Errorf("%w folder: it is not an absolute path", record.ErrInvalid)
	}
	if within(r.Dir, m.Data) || within(m.Data, r.Dir) {
		return s, fmt.Errorf("%w folder: neither may the backup be inside the data folder nor the data folder inside the backup", record.ErrInvalid)
	}
	lock, err := openDir(r.Dir)
	if err != nil {
		return s, err
	}
	defer lock.Close()
	last, err := lastSnapshot(r.Dir)
	if err != nil {
		return s, err
	}
	if r.Full {
		last = ""
	}
	now := time.Now()
	if m.Now != nil {
		now = m.Now()
	}
	name := now.UTC().Format(nameLayout)
	if name <= filepath.Base(last) {
		return s, fmt.Errorf("%w: the newest snapshot %s is not older than this one; is the clock right?",
			record.ErrConflict, filepath.Base(last))
	}
	w := &writer{m: m, dir: filepath.Join(r.Dir, name+partial), keys: r.Keys}
	if err := os.Mkdir(w.dir, 0o700); err != nil {
		return s, err
	}
	defer func() {
		if err != nil {
			os.RemoveAll(w.dir)
		}
	}()
	if last != "" {
		if err := w.shareWith(last); err != nil {
			return s, err
		}
	}
	w.manifest = Manifest{Format: Format, Version: r.Version, MadeAt: now.UTC(), Keys: r.Keys, Elsewhere: m.Elsewhere,
		Repos: []RepoInfo{}}
	if err := w.all(ctx); err != nil {
		return s, err
	}
	if err := w.manifest.write(w.dir); err != nil {
		return s, err
	}
	if err := unix.Syncfs(int(lock.Fd())); err != nil {
		return s, fmt.Errorf("cannot wait for the disk: %w", err)
	}
	whole := filepath.Join(r.Dir, name)
	if err := os.Rename(w.dir, whole); err != nil {
		return s, err
	}
	return w.summary(whole), durable.Folder(r.Dir)
}

// openDir makes the folder of a backup, locks it, and removes the leftovers of a backup that was interrupted.
func openDir(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, fmt.Errorf("%w: another backup to this folder is at work", record.ErrConflict)
	}
	entries, err := f.ReadDir(-1)
	for _, e := range entries {
		name, unfinished := strings.CutSuffix(e.Name(), partial)
		if _, terr := time.Parse(nameLayout, name); unfinished && terr == nil {
			err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
		}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// lastSnapshot returns the path of the newest snapshot of a backup. Returns "" if there is none.
func lastSnapshot(dir string) (string, error) {
	entries, err := os.ReadDir(dir) // sorted by name
	if err != nil {
		return "", err
	}
	for _, e := range slices.Backward(entries) {
		if _, err := time.Parse(nameLayout, e.Name()); err == nil && e.IsDir() {
			return filepath.Join(dir, e.Name()), nil
		}
	}
	return "", nil
}

func within(path, dir string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rel)
}

// writer makes one snapshot.
type writer struct {
	m        *Maker
	dir      string
	keys     bool
	manifest Manifest
	copied   int64

	// shared is the snapshot before, and has are its files by path. They are empty if there is none.
	shared string
	has    map[string]File
}

// shareWith reads the snapshot before.
func (w *writer) shareWith(last string) error {
	before, err := ReadManifest(last)
	if err != nil {
		return fmt.Errorf("%w; --full begins again without it", err)
	}
	w.shared, w.has = last, make(map[string]File, len(before.Files))
	for _, f := range before.Files {
		w.has[f.Path] = f
	}
	return nil
}

func (w *writer) all(ctx context.Context) error {
	var small []smallFile
	defer func() { closeAll(small) }()
	repos, err := w.m.Git.Freeze(ctx, func() (err error) {
		closeAll(small)
		small, err = w.openSmall()
		return err
	})
	if err != nil {
		return err
	}
	for _, f := range small {
		if err := w.copy(ctx, f.path, f.file, f.size, f.mode); err != nil {
			return err
		}
	}
	for _, r := range repos {
		if err := w.repo(ctx, r); err != nil {
			return err
		}
	}
	if err := w.artifacts(ctx); err != nil {
		return err
	}
	slices.SortFunc(w.manifest.Files, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	return nil
}

// smallFile is an open file with its size at the moment of the snapshot. Files that grow are copied up to that size,
// and files that were removed can still be read.
type smallFile struct {
	path string
	file *os.File
	size int64
	mode fs.FileMode
}

func closeAll(files []smallFile) {
	for _, f := range files {
		f.file.Close()
	}
}

// openSmall opens all files of the data folder that are neither repositories nor artifacts.
func (w *writer) openSmall() (list []smallFile, err error) {
	defer func() {
		if err != nil {
			closeAll(list)
			list = nil
		}
	}()
	err = EachSmall(w.m.Data, w.keys, func(path string) error {
		f, err := w.open(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		} else if err != nil {
			return err
		}
		if list = append(list, f); len(list) > smallFiles {
			return fmt.Errorf("%w: runs at work have more than %d files; try again when fewer are at work",
				record.ErrConflict, smallFiles)
		}
		return nil
	})
	return list, err
}

func (w *writer) open(path string) (smallFile, error) {
	rel, err := filepath.Rel(w.m.Data, path)
	if err != nil {
		return smallFile{}, err
	}
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return smallFile{}, err
	}
	info, err := file.Stat()
	if err != nil {
		return smallFile{}, errors.Join(err, file.Close())
	}
	return smallFile{filepath.ToSlash(rel), file, info.Size(), info.Mode().Perm()}, nil
}

// copy writes the first bytes of a file to the snapshot.
func (w *writer) copy(ctx context.Context, path string, from io.Reader, size int64, mode fs.FileMode) error {
	name := w.pathOf(path)
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return err
	}
	to, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode|0o600)
	if err != nil {
		return err
	}
	n, sum, err := sumOf(to, io.LimitReader(reader{ctx, from}, size))
	if err := errors.Join(err, to.Close()); err != nil {
		return fmt.Errorf("file %s: %w", path, err)
	}
	w.manifest.Files = append(w.manifest.Files, File{path, n, mode, sum})
	w.copied += n
	return nil
}

// reader ends with a context.
type reader struct {
	ctx  context.Context
	from io.Reader
}

func (r reader) Read(b []byte) (int, error) {
	if r.ctx.Err() != nil {
		return 0, context.Cause(r.ctx)
	}
	return r.from.Read(b)
}

// pathOf returns the path of a file in the snapshot.
func (w *writer) pathOf(path string) string {
	return filepath.Join(w.dir, dataName, filepath.FromSlash(path))
}

// share links a file of the snapshot before into this one. It copies the file if the file system has no links. Returns
// false if the snapshot before does not have the file.
func (w *writer) share(ctx context.Context, path string) (bool, error) {
	f, ok := w.has[path]
	if !ok {
		return false, nil
	}
	old, name := filepath.Join(w.shared, dataName, filepath.FromSlash(path)), w.pathOf(path)
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return false, err
	}
	if info, err := os.Lstat(old); err != nil || !info.Mode().IsRegular() || info.Size() != f.Size {
		return false, nil // lost or damaged, so it is copied again
	}
	if os.Link(old, name) == nil {
		w.manifest.Files = append(w.manifest.Files, f)
		return true, nil
	}
	in, err := os.Open(old)
	if err != nil {
		return false, err
	}
	defer in.Close()
	return true, w.copy(ctx, path, in, f.Size, f.Mode)
}

// artifacts copies the contents of the artifact store's folder, without the cache of dependencies. They are named by
// their SHA-256.
func (w *writer) artifacts(ctx context.Context) error {
	return EachArtifact(w.m.Data, func(path string) error {
		f, err := w.open(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		} else if err != nil {
			return err
		}
		defer f.file.Close()
		if before := w.has[f.path]; before.Size == f.size && before.SHA256 == filepath.Base(path) {
			if done, err := w.share(ctx, f.path); done || err != nil {
				return err
			}
		}
		return w.copy(ctx, f.path, f.file, f.size, f.mode)
	})
}

// summary describes the finished snapshot.
func (w *writer) summary(path string) Snapshot {
	m := &w.manifest
	s := Snapshot{Path: path, MadeAt: m.MadeAt, Repos: len(m.Repos), Files: len(m.Files), Copied: w.copied,
		Keys: m.Keys, Elsewhere: m.Elsewhere}
	for _, r := range m.Repos {
		s.Refs += r.Refs
	}
	for _, f := range m.Files {
		s.Bytes += f.Size
	}
	return s
}
