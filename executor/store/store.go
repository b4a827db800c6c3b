package store

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
)

// Store holds contents by their SHA-256. Its fields are its options and are not changed after the first call of a method. Methods
// are safe for concurrent use.
type Store struct {
	// Bucket keeps the contents. The Store does not close it.
	Bucket Bucket
	// Earlier is the bucket that contents were put into before. They are still read from it. It may be nil.
	Earlier Bucket
	// Now is the clock. Nil means time.Now.
	Now func() time.Time

	checked checked

	mu     sync.Mutex           // guards relied; held during the removal of an artifact
	relied map[string]time.Time // when Rely was called last, by SHA-256
}

// Open returns the store of a data folder. dir is the folder in it that holds artifacts unless bucket is given. It is still read
// if it exists.
func Open(dir string, bucket Bucket) (*Store, error) {
	if bucket != nil {
		if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
			return &Store{Bucket: bucket}, nil
		}
	}
	folder, err := OpenFolder(dir)
	if err != nil {
		return nil, err
	}
	if bucket != nil {
		return &Store{Bucket: bucket, Earlier: folder}, nil
	}
	return &Store{Bucket: folder}, nil
}

// keys begins the keys of contents.
const keys = "sha256/"

func key(sum string) string { return keys + sum[:min(2, len(sum))] + "/" + sum }

// Put keeps a file with a certain SHA-256 and size. If the store has the content already, Put compares it first, and
// writes it again if a crash or a full disk damaged it. The content is relied on, see Rely.
func (s *Store) Put(ctx context.Context, path, sum string, size int64) error {
	s.Rely(sum)
	err := s.compare(ctx, sum, size)
	if errors.Is(err, record.ErrDamaged) || errors.Is(err, fs.ErrNotExist) {
		err = s.upload(ctx, path, sum, size)
	}
	if err != nil {
		return fmt.Errorf("cannot keep %s in the artifact store: %w", filepath.Base(path), err)
	}
	return nil
}

// compare reads a whole content, even if it was compared before.
func (s *Store) compare(ctx context.Context, sum string, size int64) error {
	in, err := s.Bucket.Open(ctx, key(sum))
	if err != nil {
		return err
	}
	f := &File{ManifestFile: record.ManifestFile{Name: sum, Size: size, SHA256: sum}, from: in, hash: sha256.New()}
	_, err = io.Copy(io.Discard, f)
	return errors.Join(err, f.Close())
}

func (s *Store) upload(ctx context.Context, path, sum string, size int64) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := s.Bucket.Put(ctx, key(sum), f); err != nil {
		return err
	}
	in, err := s.Bucket.Open(ctx, key(sum))
	if err != nil {
		return err
	}
	defer in.Close()
	if in.Size() != size {
		return fmt.Errorf("%w: %d bytes of %d arrived", record.ErrDamaged, in.Size(), size)
	}
	return nil
}

// Open opens a stored file of a manifest. The error is a [record.ErrDamaged] if the store does not have the content, or has one of
// another size, and a [record.ErrStoreAway] if the bucket fails.
func (s *Store) Open(ctx context.Context, m record.ManifestFile) (*File, error) {
	in, err := s.Bucket.Open(ctx, key(m.SHA256))
	if errors.Is(err, fs.ErrNotExist) && s.Earlier != nil {
		in, err = s.Earlier.Open(ctx, key(m.SHA256))
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("cannot open %q: %w: the artifact store has nothing named %s", m.Name,
			record.ErrDamaged, m.SHA256)
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		return nil, fmt.Errorf("cannot open %q: %w: %w", m.Name, record.ErrStoreAway, err)
	}
	f := &File{ManifestFile: m, from: in, hash: sha256.New(), checked: &s.checked}
	if in.Size() != m.Size {
		return nil, errors.Join(f.damaged(fmt.Sprintf("it has %d bytes, not %d", in.Size(), m.Size)), in.Close())
	}
	return f, nil
}

// List returns the contents of the bucket and the earlier one. The Key of an entry is a SHA-256. A content that both have is
// listed twice.
func (s *Store) List(ctx context.Context) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		for _, bucket := range s.buckets() {
			for o, err := range bucket.List(ctx, keys) {
				if err != nil {
					yield(Entry{}, fmt.Errorf("cannot list the artifact store: %w", err))
					return
				}
				sum := o.Key[strings.LastIndexByte(o.Key, '/')+1:]
				if key(sum) != o.Key {
					continue // it is not one of the store's
				}
				o.Key = sum
				if !yield(o, nil) {
					return
				}
			}
		}
	}
}

// reliedFor is how long a content counts as relied on, longer than sealing takes.
const reliedFor = 24 * time.Hour

// Rely marks a content as in use, so that it is not removed before the manifest of a run that is being sealed names it. It must be
// called before looking whether the content is there.
func (s *Store) Rely(sum string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.relied == nil {
		s.relied = make(map[string]time.Time)
	}
	s.relied[sum] = s.now()
}

// Remove removes a content, unless it was relied on within a day. It reports whether it did.
func (s *Store) Remove(ctx context.Context, sum string) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for sum, at := range s.relied {
		if s.now().Sub(at) > reliedFor {
			delete(s.relied, sum)
		}
	}
	if _, used := s.relied[sum]; used {
		return false, nil
	}
	for _, bucket := range s.buckets() {
		if err := bucket.Delete(ctx, key(sum)); err != nil {
			return false, fmt.Errorf("cannot remove an artifact: %w", err)
		}
	}
	return true, nil
}

func (s *Store) buckets() []Bucket {
	if s.Earlier == nil {
		return []Bucket{s.Bucket}
	}
	return []Bucket{s.Bucket, s.Earlier}
}

func (s *Store) now() time.Time {
	if s.Now != nil {
		return s.Now()
	}
	return time.Now()
}
