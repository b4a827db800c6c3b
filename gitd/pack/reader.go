package pack

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing/format/objfile"

	"github.com/ramus-dev/ramus/gitd/gitcmd"
	"github.com/ramus-dev/ramus/gitd/object"
)

const (
	// MaxInMemory is the size in bytes of the largest object that is read in process. Larger
	// objects stream from git.
	MaxInMemory = 8 << 20
	// readerIdle is the time without reads after which files are closed.
	readerIdle = time.Minute
)

// Reader reads the objects of a repository in process. It asks git for objects that it does not find
// there and for large ones. The fields must be set before the first use. Reader is safe for
// concurrent use.
type Reader struct {
	Dir   string         // the repository
	Git   *gitcmd.Runner // runs git where it is needed
	Packs Files          // its packs, which git reads if Dir is empty
}

// Close closes the open files. A later read opens them again.
func (o *Reader) Close() { o.Packs.Close() }

// Small returns an object and its size. Of an object larger than [MaxInMemory] it returns only kind
// and size, with [object.ErrTooLarge].
func (o *Reader) Small(ctx context.Context, h object.Hash) (object.Object, int64, error) {
	if err := object.CheckHash(h); err != nil {
		return object.Object{}, 0, err
	}
	if err := o.Git.Err(); err != nil {
		return object.Object{}, 0, err
	}
	obj, size, err := o.Packs.read(h, MaxInMemory)
	if err != nil {
		obj, size, err = o.loose(h, MaxInMemory)
	}
	if err == nil {
		if size > MaxInMemory {
			err = object.ErrTooLarge
		}
		return obj, size, err
	}
	kind, size, err := o.askGit(ctx, h)
	if err != nil {
		return object.Object{}, 0, err
	}
	if size > MaxInMemory {
		return object.Object{Kind: kind}, size, object.ErrTooLarge
	}
	data, err := o.Git.Output(ctx, gitcmd.Command{Repo: o.Dir, Args: []string{"cat-file", kind, string(h)}})
	if err != nil {
		return object.Object{}, 0, fmt.Errorf("cannot read object %s: %w", h, err)
	}
	return object.Object{Kind: kind, Data: data}, size, nil
}

// loose reads an object that has a file of its own. Of an object larger than max bytes it returns
// only kind and size.
func (o *Reader) loose(h object.Hash, max int64) (object.Object, int64, error) {
	f, err := os.Open(filepath.Join(o.Dir, "objects", string(h[:2]), string(h[2:])))
	if err != nil {
		return object.Object{}, 0, err
	}
	defer f.Close()
	in, err := objfile.NewReader(bufio.NewReader(f))
	if err != nil {
		return object.Object{}, 0, fmt.Errorf("cannot read object %s: %w", h, err)
	}
	defer in.Close()
	kind, size, err := in.Header()
	if err != nil {
		return object.Object{}, 0, fmt.Errorf("cannot read object %s: %w", h, err)
	}
	obj := object.Object{Kind: kind.String()}
	if size < 0 || size > max {
		return obj, size, nil
	}
	obj.Data = make([]byte, size)
	if _, err := io.ReadFull(in, obj.Data); err != nil {
		return object.Object{}, 0, fmt.Errorf("cannot read object %s: %w", h, err)
	}
	return obj, size, nil
}

// Size returns the size of an object. It never asks git, and returns an error where git would have
// to be asked.
func (o *Reader) Size(h object.Hash) (int64, error) {
	_, size, err := o.Packs.read(h, 0)
	if err != nil {
		_, size, err = o.loose(h, -1)
	}
	return size, err
}

// askGit asks git for the kind and the size of an object.
func (o *Reader) askGit(ctx context.Context, h object.Hash) (kind string, size int64, err error) {
	out, err := o.Git.Output(ctx, gitcmd.Command{
		Repo: o.Dir, Args: []string{"cat-file", "--batch-check=%(objecttype) %(objectsize)"},
		In: strings.NewReader(string(h) + "\n"),
	})
	if err != nil {
		return "", 0, fmt.Errorf("cannot read object %s: %w", h, err)
	}
	// For a missing object git prints its name instead of a type.
	kind, n, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
	if kind == string(h) {
		return "", 0, fmt.Errorf("object %s: %w", h, object.ErrNotFound)
	}
	size, err = strconv.ParseInt(n, 10, 64)
	if err != nil {
		return "", 0, fmt.Errorf("cannot read object %s: git answered %.100q", h, out)
	}
	return kind, size, nil
}

// Kind returns the kind of an object.
func (o *Reader) Kind(ctx context.Context, h object.Hash) (string, error) {
	obj, _, err := o.Small(ctx, h)
	if errors.Is(err, object.ErrTooLarge) && obj.Kind != "" {
		err = nil
	}
	return obj.Kind, err
}

// Commit follows annotated tags from h to a commit. Returns [object.ErrNotFound] if they lead to
// something else.
func (o *Reader) Commit(ctx context.Context, h object.Hash) (object.Hash, error) {
	for range 20 {
		obj, _, err := o.Small(ctx, h)
		if err != nil && (obj.Kind == "" || !errors.Is(err, object.ErrTooLarge)) {
			return "", err
		}
		switch obj.Kind {
		case "commit":
			return h, nil
		case "tag":
			target, ok := strings.CutPrefix(FirstLine(obj.Data), "object ")
			if !ok {
				return "", fmt.Errorf("tag %s is damaged", h)
			}
			h = object.Hash(target)
		default:
			return "", fmt.Errorf("object %s is a %s, not a commit: %w", h, obj.Kind, object.ErrNotFound)
		}
	}
	return "", fmt.Errorf("too many tags of tags: %w", object.ErrInvalid)
}

// FirstLine returns b up to its first line end.
func FirstLine(b []byte) string {
	line, _, _ := bytes.Cut(b, []byte("\n"))
	return string(line)
}

// Stream opens a blob of any size and returns its size. The stream must be closed.
func (o *Reader) Stream(ctx context.Context, h object.Hash) (io.ReadCloser, int64, error) {
	obj, size, err := o.Small(ctx, h)
	switch {
	case err == nil && obj.Kind != "blob":
		return nil, 0, fmt.Errorf("object %s is a %s, not a file: %w", h, obj.Kind, object.ErrInvalid)
	case err == nil:
		return io.NopCloser(bytes.NewReader(obj.Data)), size, nil
	case obj.Kind == "":
		return nil, 0, err
	}
	ctx, cancel := context.WithCancel(ctx)
	out, in, err := os.Pipe()
	if err != nil {
		cancel()
		return nil, 0, err
	}
	p, err := o.Git.Start(ctx, gitcmd.Command{Repo: o.Dir, Args: []string{"cat-file", "blob", string(h)}, Out: in})
	in.Close()
	if err != nil {
		out.Close()
		cancel()
		return nil, 0, err
	}
	return &blobStream{in: bufio.NewReaderSize(out, 64<<10), out: out, p: p, cancel: cancel, left: size}, size, nil
}
