package store

import (
	"context"
	"fmt"
	"io"
	"iter"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
)

// Bucket holds objects by key. A key is a relative path with slashes and without "." and "..", such as "sha256/ab/abcdef". No key
// is a folder of another, and none ends in ".tmp". Methods are safe for concurrent use, and return when their context ends. The
// error of a key that the bucket does not have is [io/fs.ErrNotExist].
type Bucket interface {
	// Put writes an object, and replaces one with the same key. When it returns nil the object is durable. On an
	// error the bucket has its old content, or the whole object if only the durability of the object is in doubt. An
	// error of from is returned.
	Put(ctx context.Context, key string, from io.Reader) error
	// Open opens an object. Its reads end with ctx.
	Open(ctx context.Context, key string) (Object, error)
	// Exists reports whether there is an object.
	Exists(ctx context.Context, key string) (bool, error)
	// List returns the objects whose keys begin with prefix, in no order. An error ends it.
	List(ctx context.Context, prefix string) iter.Seq2[Entry, error]
	// Delete removes an object. It returns nil if the object does not exist.
	Delete(ctx context.Context, key string) error
	// Close releases the resources of the bucket. No other method may be called afterwards.
	Close() error
}

// Object is an open object. It is not safe for concurrent use.
type Object interface {
	io.ReadSeekCloser
	// Size is the length in bytes.
	Size() int64
}

// Entry is one object of a list.
type Entry struct {
	Key  string
	Size int64     // in bytes
	Time time.Time // of the Put
}

// unfinished ends the names of files that are being written.
const unfinished = ".tmp"

// checkKey returns [record.ErrInvalid] for a key that a bucket does not take.
func checkKey(key string) error {
	if !filepath.IsLocal(key) || path.Clean(key) != key || key == "." || strings.HasSuffix(key, unfinished) ||
		strings.ContainsAny(key, "\\\x00") {
		return fmt.Errorf("%w key %q of an object", record.ErrInvalid, key)
	}
	return nil
}

// contextReader is a reader that ends with a context.
type contextReader struct {
	ctx context.Context
	io.Reader
}

func (r contextReader) Read(p []byte) (int, error) {
	if r.ctx.Err() != nil {
		return 0, context.Cause(r.ctx)
	}
	return r.Reader.Read(p)
}
