package worktree

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"

	"github.com/ramus-dev/ramus/gitd/lfs"
	"github.com/ramus-dev/ramus/gitd/object"
	"github.com/ramus-dev/ramus/gitd/pathspec"
	"github.com/ramus-dev/ramus/internal/largefile"
)

// LargeFiles keeps the contents of large files apart from the repository, as Git LFS does.
type LargeFiles interface {
	// MaxSize bounds the bytes of one file.
	MaxSize() int64
	// Keep keeps the content of an object that open opens, and returns when it is durable. It does not read a content that is
	// kept already. The error is [object.ErrInvalid] if the content is not the one that the object names.
	Keep(ctx context.Context, o lfs.Object, open func() (io.ReadCloser, error)) error
}

// writePointer keeps the content of an upper file, and writes the blob of its pointer. A file that is a pointer itself, or
// empty, is written as it is.
func (w *walk) writePointer(n *upperNode, c pathspec.Conversion, indexed object.Entry) (object.Hash, error) {
	if n.Size <= largefile.MaxSize {
		is, err := w.isPointer(n)
		if err != nil {
			return "", err
		}
		if is {
			return w.writeSmall(n, c, indexed)
		}
	}
	o, leaks, err := w.describe(n)
	if err != nil {
		return "", err
	}
	h, err := w.writeBlob(n.Path, o.Pointer(), indexed.Hash)
	if err != nil {
		return "", err
	}
	if err := w.addLeaks(leaks, "blob", n.Path, h); err != nil || len(w.leaks) > 0 {
		return h, err // nothing of the snapshot is kept
	}
	err = w.repo.Large.Keep(w.ctx, o, func() (io.ReadCloser, error) {
		in, closer, err := w.openUpper(n)
		return struct {
			io.Reader
			io.Closer
		}{in, closer}, err
	})
	if errors.Is(err, object.ErrInvalid) {
		err = errChanged
	}
	return h, err
}

// isPointer reports whether a short file is a pointer, or empty.
func (w *walk) isPointer(n *upperNode) (is bool, err error) {
	err = w.readUpper(n, false, func(in io.Reader) error {
		text, err := io.ReadAll(in)
		_, pointer := largefile.Parse(text)
		is = pointer || len(text) == 0
		return err
	})
	return is, err
}

// describe returns the object of an upper file, and the secrets in its content.
func (w *walk) describe(n *upperNode) (o lfs.Object, leaks []string, err error) {
	sum, finder := sha256.New(), w.repo.Secrets.Finder()
	err = w.readUpper(n, false, func(in io.Reader) (err error) {
		o.Size, err = io.Copy(io.MultiWriter(sum, finder), in)
		return err
	})
	if err == nil && o.Size != n.Size {
		err = errChanged
	}
	o.OID = hex.EncodeToString(sum.Sum(nil))
	return o, finder.Names(), err
}

// checkPointer returns [ErrNeedsGit] for a blob that is neither a pointer nor empty, in a place where git would make a pointer
// of it.
func (w *walk) checkPointer(blob object.Hash) error {
	obj, size, err := w.repo.Objects.Small(w.ctx, blob)
	if err != nil && !errors.Is(err, object.ErrTooLarge) {
		return err
	}
	if err == nil && size == 0 {
		return nil
	}
	if err == nil && size <= largefile.MaxSize {
		if _, ok := largefile.Parse(obj.Data); ok {
			return nil
		}
	}
	return fmt.Errorf("it is a large file, not a pointer to one: %w", ErrNeedsGit)
}
