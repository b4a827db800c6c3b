package executor

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/internal/durable"
	"gocloud.dev/blob"
	"gocloud.dev/blob/fileblob"
	"gocloud.dev/gcerrors"
)

// The artifact store keeps what is too large for git: a bucket with one object
// a content, named by its SHA-256. An object is written once and never changed,
// so runs share them, and what is read is compared with its name.

// artifactDir is the folder of the data folder that is the store when no other
// is given, and that is still read when another is.
func (x *Executor) artifactDir() string { return filepath.Join(x.Data, "artifacts") }

// storeKey is where a content lies; in a folder it is the path of its file.
func storeKey(sum string) string { return storePrefix + sum[:min(2, len(sum))] + "/" + sum }

const storePrefix = "sha256/"

// openStore opens the folder, unless there is a store and nothing in the folder.
func (x *Executor) openStore() (err error) {
	x.checked.sums = make(map[string]struct{})
	x.bucket = x.Store
	if _, err := os.Stat(x.artifactDir()); x.Store != nil && errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	// Files that a dead process had not finished; whole ones were renamed.
	if err := removeUnfinished(x.artifactDir()); err != nil {
		return fmt.Errorf("cannot open the artifact store: %w", err)
	}
	x.folder, err = fileblob.OpenBucket(x.artifactDir(), &fileblob.Options{CreateDir: true, DirFileMode: 0o700, NoTempDir: true, Metadata: fileblob.MetadataDontWrite})
	if err != nil {
		return fmt.Errorf("cannot open the artifact store: %w", err)
	}
	if x.bucket == nil {
		x.bucket = x.folder
	}
	return nil
}

func removeUnfinished(dir string) error {
	return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil && !entry.IsDir() && strings.HasSuffix(path, ".tmp") {
			return os.Remove(path)
		}
		return err
	})
}

func (x *Executor) closeStore() error {
	if x.folder == nil {
		return nil
	}
	return x.folder.Close()
}

// store puts a file into the store. What is there already is compared first: an
// object that a crash or a full disk left damaged is written again.
func (x *Executor) store(ctx context.Context, path, sum string, size int64) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// A store that hangs must not keep the executor from closing: the next process seals the run.
	defer context.AfterFunc(x.ctx, cancel)()
	x.rely(sum)
	err := x.stored(ctx, sum, size)
	if errors.Is(err, record.ErrDamaged) || gcerrors.Code(err) == gcerrors.NotFound {
		err = x.upload(ctx, path, sum, size)
	}
	if err != nil {
		return fmt.Errorf("cannot keep %s in the artifact store: %w", filepath.Base(path), err)
	}
	return nil
}

// upload writes an object and makes sure that it is there to stay: the seal
// that names it is durable, so it must be, too. A broken upload is aborted: an
// object appears whole or not at all.
func (x *Executor) upload(ctx context.Context, path, sum string, size int64) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := x.bucket.Upload(ctx, storeKey(sum), f, &blob.WriterOptions{ContentType: "application/octet-stream"}); err != nil {
		return err
	}
	r, err := x.bucket.NewReader(ctx, storeKey(sum), nil)
	if err != nil {
		return err
	}
	defer r.Close()
	if r.Size() != size {
		return fmt.Errorf("%w: %d bytes of %d arrived", record.ErrDamaged, r.Size(), size)
	}
	var in io.Reader
	if r.As(&in) {
		if f, ok := in.(*os.File); ok { // the store is a folder: its file, that one's name and its folder's
			return errors.Join(f.Sync(), durable.Folder(filepath.Dir(f.Name())), durable.Folder(filepath.Dir(filepath.Dir(f.Name()))))
		}
	}
	return nil
}

// stored reads an object and compares it with its name.
func (x *Executor) stored(ctx context.Context, sum string, size int64) error {
	r, err := x.bucket.NewReader(ctx, storeKey(sum), nil)
	if err != nil {
		return err
	}
	f := &File{ManifestFile: record.ManifestFile{Name: sum, Size: size, SHA256: sum}, from: r, hash: sha256.New()} // not checked: it is read whatever was known
	_, err = io.Copy(io.Discard, f)
	return errors.Join(err, f.Close())
}

// openStored opens a file of a manifest that is in the store.
func (x *Executor) openStored(ctx context.Context, m record.ManifestFile) (*File, error) {
	r, err := x.bucket.NewReader(ctx, storeKey(m.SHA256), nil)
	if gcerrors.Code(err) == gcerrors.NotFound && x.folder != nil && x.folder != x.bucket {
		r, err = x.folder.NewReader(ctx, storeKey(m.SHA256), nil)
	}
	switch {
	case gcerrors.Code(err) == gcerrors.NotFound:
		return nil, fmt.Errorf("cannot open %q: %w: the artifact store has nothing named %s", m.Name, record.ErrDamaged, m.SHA256)
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		return nil, fmt.Errorf("cannot open %q: %w: %w", m.Name, record.ErrStoreAway, err)
	}
	f := &File{ManifestFile: m, from: r, hash: sha256.New(), checked: &x.checked}
	if r.Size() != m.Size {
		return nil, errors.Join(f.damaged(fmt.Sprintf("it has %d bytes, not %d", r.Size(), m.Size)), r.Close())
	}
	return f, nil
}

// File is an open file of a run's evidence. Its bytes are compared with its
// SHA-256 before the last of them is returned, or, when they are not read in
// order, before the first: a file that was damaged is an error, never content.
// It is not safe for concurrent use.
type File struct {
	record.ManifestFile
	from interface {
		io.ReadSeeker
		io.Closer
	}
	hash    hash.Hash // of the first hashed bytes
	hashed  int64
	at      int64
	whole   bool // all was compared
	checked *checked
}

// Read reads on. The error of a file that is not what its hash says is [record.ErrDamaged].
func (f *File) Read(p []byte) (int, error) {
	if !f.whole && (f.checked.has(f.SHA256) || f.at != f.hashed) {
		if err := f.compare(); err != nil {
			return 0, err
		}
	}
	n, err := f.from.Read(p)
	f.at += int64(n)
	if f.whole {
		return n, err
	}
	f.hash.Write(p[:n])
	f.hashed = f.at
	switch {
	case f.hashed > f.Size:
		return 0, f.damaged("it is longer than it was")
	case f.hashed == f.Size && (n > 0 || f.Size == 0):
		if got := hex.EncodeToString(f.hash.Sum(nil)); got != f.SHA256 {
			return 0, f.damaged("its SHA-256 is " + got)
		}
		f.whole = true
		f.checked.add(f.SHA256)
	case errors.Is(err, io.EOF):
		return 0, f.damaged(fmt.Sprintf("it ends after %d of %d bytes", f.hashed, f.Size))
	}
	return n, err
}

// Verify compares the whole file with its hash now.
func (f *File) Verify() error {
	if f.whole {
		return nil
	}
	return f.compare()
}

// compare reads the file from its beginning, once, so that any part of it may be read then.
func (f *File) compare() error {
	f.whole = f.checked.has(f.SHA256)
	if f.whole {
		return nil
	}
	at := f.at
	if _, err := f.from.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("cannot read %q: %w", f.Name, err)
	}
	f.hash.Reset()
	f.hashed, f.at = 0, 0
	if _, err := io.Copy(io.Discard, readOnly{f}); err != nil {
		return err
	}
	f.at = at
	if _, err := f.from.Seek(at, io.SeekStart); err != nil {
		return fmt.Errorf("cannot read %q: %w", f.Name, err)
	}
	return nil
}

// readOnly hides what else a reader can do.
type readOnly struct{ io.Reader }

// Seek sets where the next Read begins.
func (f *File) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += f.at
	case io.SeekEnd:
		offset += f.Size
	}
	if offset < 0 {
		return f.at, fmt.Errorf("cannot seek in %q: %w offset", f.Name, record.ErrInvalid)
	}
	if offset == f.at {
		return offset, nil
	}
	if _, err := f.from.Seek(min(offset, f.Size), io.SeekStart); err != nil {
		return f.at, fmt.Errorf("cannot read %q: %w", f.Name, err)
	}
	f.at = offset
	return offset, nil
}

// Close ends the reading.
func (f *File) Close() error { return f.from.Close() }

func (f *File) damaged(how string) error {
	return fmt.Errorf("cannot read %q: %w: %s", f.Name, record.ErrDamaged, how)
}

// checked remembers which objects were compared with their names, so that a
// reader who jumps about in a large one waits for that once.
type checked struct {
	mu   sync.Mutex // guards sums
	sums map[string]struct{}
}

const maxChecked = 10_000

func (c *checked) has(sum string) bool {
	if c == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.sums[sum]
	return ok
}

func (c *checked) add(sum string) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.sums) >= maxChecked {
		clear(c.sums) // comparing again costs time only
	}
	c.sums[sum] = struct{}{}
}
