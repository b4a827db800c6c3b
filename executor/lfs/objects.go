// Package lfs keeps the Git LFS objects of repositories in the artifact store.
//
// # Nouns
//
// [Objects] are the objects of all repositories. The key of an object is lfs/MARK/XX/SHA256, with the mark of its
// repository ([gitd.Repo.Mark]). So a repository that gets another name keeps its objects, and a repository that is
// made later under an old name has none of them.
//
// # Invariants
//
// An object is in the store only with its size and its SHA-256, and it is durable when Put returns. An object that a
// client was told about stays for a day at least, because the pointer to it arrives later. [Objects.Prune] removes
// only objects that no pointer in the repository names, and that were not used for two weeks.
//
// # Untrusted input
//
// Contents come from clients, containers and upstreams. They are never interpreted.
package lfs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/executor/store"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/gitd/lfs"
)

// Objects keeps the objects of all repositories. Its exported fields are its options, which do not change after the
// first call of a method. Methods are safe for concurrent use. It implements [gitd.LargeFiles].
type Objects struct {
	// Bucket keeps the objects. Objects does not close it.
	Bucket store.Bucket
	// Earlier is the bucket that objects were put into before. They are still read from it. It may be nil.
	Earlier store.Bucket
	// Source returns the configured upstream of a repository, and the hosts that may send its objects although their
	// addresses are not public. Nil means that no upstream is configured.
	Source func(repo string) (up gitd.Upstream, private []string)
	// Log receives messages for the operator. Nil discards them.
	Log *slog.Logger
	// Now is the clock. Nil means time.Now.
	Now func() time.Time

	fetches fetches

	mu   sync.Mutex           // guards used; held during a removal
	used map[string]time.Time // by key, when an object was last promised to a client
}

const (
	keys = "lfs/"
	// usedFor is how long an object stays that a client was told about.
	usedFor = 24 * time.Hour
	// fresh is the age below which an object is not written again when a client is told that it is there. Together
	// with [Grace] it makes the promise last over a restart.
	fresh = 7 * 24 * time.Hour
	// Grace is the time without use after which Prune removes an object that no pointer names.
	Grace = 14 * 24 * time.Hour
)

// prefix returns the part of keys that all objects of a repository share.
func prefix(r *gitd.Repo) (string, error) {
	mark, err := r.Mark()
	return keys + mark + "/", err
}

func key(prefix, oid string) string { return prefix + oid[:2] + "/" + oid }

// Find implements [gitd.LargeFiles].
func (x *Objects) Find(ctx context.Context, r *gitd.Repo, objects []lfs.Object, upstream bool) (found []lfs.Object, err error) {
	at, err := prefix(r)
	if err != nil {
		return nil, err
	}
	var missing []lfs.Object
	for _, o := range objects {
		have, err := x.find(ctx, key(at, o.OID), o)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			missing = append(missing, o)
		case err != nil:
			return nil, fmt.Errorf("cannot look for an object of %s: %w", r.Name(), err)
		default:
			found = append(found, have)
		}
	}
	if len(missing) == 0 || !upstream {
		return found, nil
	}
	there, err := x.askUpstream(ctx, r, missing)
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		// The objects that are here can be sent all the same.
		x.log().Warn("cannot ask upstream for Git LFS objects", "repo", r.Name(), "err", err)
	}
	return append(found, there...), nil
}

// find returns the object at a key with its size. It promises that the object stays for a day.
func (x *Objects) find(ctx context.Context, key string, o lfs.Object) (lfs.Object, error) {
	x.use(key)
	entry, bucket, err := x.stat(ctx, key)
	if err != nil {
		return o, err
	}
	o.Size = entry.Size
	if x.now().Sub(entry.Time) < fresh {
		return o, nil
	}
	// An old object gets a new time, so that the promise outlives this process.
	in, err := bucket.Open(ctx, key)
	if err != nil {
		return o, err
	}
	defer in.Close()
	return o, x.Bucket.Put(ctx, key, lfs.NewContent(o, in))
}

// stat returns the entry of a key, and the bucket that has it.
func (x *Objects) stat(ctx context.Context, key string) (store.Entry, store.Bucket, error) {
	for _, bucket := range x.buckets() {
		for entry, err := range bucket.List(ctx, key) {
			if err != nil {
				return entry, nil, err
			}
			if entry.Key == key {
				return entry, bucket, nil
			}
		}
	}
	return store.Entry{}, nil, fs.ErrNotExist
}

// use records that a client is told about an object. It must be called before looking whether the object is there.
func (x *Objects) use(key string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.used == nil {
		x.used = make(map[string]time.Time)
	}
	x.used[key] = x.now()
}

// Put implements [gitd.LargeFiles].
func (x *Objects) Put(ctx context.Context, r *gitd.Repo, o lfs.Object, from io.Reader) error {
	at, err := prefix(r)
	if err != nil {
		return err
	}
	x.use(key(at, o.OID))
	if err := x.Bucket.Put(ctx, key(at, o.OID), from); err != nil {
		return fmt.Errorf("cannot keep the object %s of %s: %w", o.OID, r.Name(), err)
	}
	return nil
}

// Open implements [gitd.LargeFiles].
func (x *Objects) Open(ctx context.Context, r *gitd.Repo, o lfs.Object) (io.ReadSeekCloser, error) {
	at, err := prefix(r)
	if err != nil {
		return nil, err
	}
	in, err := x.open(ctx, key(at, o.OID))
	if errors.Is(err, fs.ErrNotExist) {
		if err := x.fetch(ctx, r, key(at, o.OID), o); err != nil {
			return nil, err
		}
		in, err = x.open(ctx, key(at, o.OID))
	}
	if err != nil {
		return nil, fmt.Errorf("cannot open the object %s of %s: %w", o.OID, r.Name(), err)
	}
	if in.Size() != o.Size {
		return nil, errors.Join(fmt.Errorf("the object %s of %s has %d bytes, not %d: %w", o.OID, r.Name(), in.Size(),
			o.Size, gitd.ErrNotFound), in.Close())
	}
	return in, nil
}

func (x *Objects) open(ctx context.Context, key string) (in store.Object, err error) {
	for _, bucket := range x.buckets() {
		if in, err = bucket.Open(ctx, key); !errors.Is(err, fs.ErrNotExist) {
			return in, err
		}
	}
	return in, err
}

func (x *Objects) buckets() []store.Bucket {
	if x.Earlier == nil {
		return []store.Bucket{x.Bucket}
	}
	return []store.Bucket{x.Bucket, x.Earlier}
}

// Removed is an object that was removed, or would be.
type Removed struct {
	OID  string
	Size int64
	Time time.Time // of its last use
}

// Prune removes the objects of a repository that no pointer in it names, and that were not used for [Grace]. With
// dry it removes nothing. It returns the objects that it removed, or would remove.
func (x *Objects) Prune(ctx context.Context, r *gitd.Repo, dry bool) ([]Removed, error) {
	at, err := prefix(r)
	if err != nil {
		return nil, err
	}
	// They are listed before the pointers are read. A pointer that arrives later names an object that was used meanwhile.
	var old []store.Entry
	for entry, err := range x.list(ctx, at) {
		if err != nil {
			return nil, fmt.Errorf("cannot list the objects of %s: %w", r.Name(), err)
		}
		if x.now().Sub(entry.Time) >= Grace {
			old = append(old, entry)
		}
	}
	if len(old) == 0 {
		return nil, nil
	}
	named, err := r.LFSPointers(ctx)
	if err != nil {
		return nil, err
	}
	var removed []Removed
	for _, entry := range old {
		oid := entry.Key[strings.LastIndexByte(entry.Key, '/')+1:]
		if named[oid] || key(at, oid) != entry.Key {
			continue
		}
		if !dry {
			gone, err := x.remove(ctx, entry.Key)
			if err != nil {
				return removed, fmt.Errorf("cannot remove an object of %s: %w", r.Name(), err)
			}
			if !gone {
				continue
			}
		}
		removed = append(removed, Removed{oid, entry.Size, entry.Time})
	}
	return removed, nil
}

// list returns the objects of a repository. An object that two buckets have is listed twice.
func (x *Objects) list(ctx context.Context, prefix string) func(func(store.Entry, error) bool) {
	return func(yield func(store.Entry, error) bool) {
		for _, bucket := range x.buckets() {
			for entry, err := range bucket.List(ctx, prefix) {
				if !yield(entry, err) {
					return
				}
			}
		}
	}
}

// remove removes an object, unless a client was told about it within a day. It reports whether it did.
func (x *Objects) remove(ctx context.Context, key string) (bool, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for key, at := range x.used {
		if x.now().Sub(at) > usedFor {
			delete(x.used, key)
		}
	}
	if _, used := x.used[key]; used {
		return false, nil
	}
	for _, bucket := range x.buckets() {
		if err := bucket.Delete(ctx, key); err != nil {
			return false, err
		}
	}
	return true, nil
}

// Drop removes all objects of a repository that is gone, by its mark.
func (x *Objects) Drop(ctx context.Context, mark string) error {
	if mark == "" {
		return nil
	}
	for _, bucket := range x.buckets() {
		for entry, err := range bucket.List(ctx, keys+mark+"/") {
			if err == nil {
				err = bucket.Delete(ctx, entry.Key)
			}
			if err != nil {
				return fmt.Errorf("cannot remove the Git LFS objects of a repository: %w", err)
			}
		}
	}
	return nil
}

func (x *Objects) log() *slog.Logger {
	if x.Log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return x.Log
}

func (x *Objects) now() time.Time {
	if x.Now == nil {
		return time.Now()
	}
	return x.Now()
}
