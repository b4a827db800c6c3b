package gitd

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
	"sync"
	"time"

	"github.com/go-git/go-git/v5/plumbing/format/objfile"

	"github.com/ramus-dev/ramus/gitd/gitcmd"
	"github.com/ramus-dev/ramus/gitd/object"
)

const (
	// inMemoryMax is the largest object that is read in process; what is
	// larger streams from native git.
	inMemoryMax = 8 << 20
	// fileMax is ReadFile's bound when none is given.
	fileMax = 64 << 20
	// readerIdle is how long files that nobody reads stay open.
	readerIdle = time.Minute
)

// objectReader reads objects in process, and asks native git about whatever it does not
// find there or would hold in memory as a whole. It is safe for concurrent use.
type objectReader struct {
	repo  *Repo
	packs packFiles
}

// close closes the files that are kept open.
func (o *objectReader) close() { o.packs.close() }

// small reads an object of at most inMemoryMax bytes; a larger one is
// ErrTooLarge and comes with its kind and size.
func (o *objectReader) small(ctx context.Context, h Hash) (object.Object, int64, error) {
	if err := CheckHash(h); err != nil {
		return object.Object{}, 0, err
	}
	if err := o.repo.server.git.Err(); err != nil {
		return object.Object{}, 0, err
	}
	obj, size, err := o.packs.read(h, inMemoryMax)
	if err != nil {
		obj, size, err = o.loose(h, inMemoryMax)
	}
	if err == nil {
		if size > inMemoryMax {
			err = ErrTooLarge
		}
		return obj, size, err
	}
	kind, size, err := o.look(ctx, h)
	if err != nil {
		return object.Object{}, 0, err
	}
	if size > inMemoryMax {
		return object.Object{Kind: kind}, size, ErrTooLarge
	}
	data, err := o.repo.output(ctx, "cat-file", kind, string(h))
	if err != nil {
		return object.Object{}, 0, fmt.Errorf("cannot read object %s: %w", h, err)
	}
	return object.Object{Kind: kind, Data: data}, size, nil
}

// loose reads an object that has a file of its own, or only its kind and size
// when it is larger than max.
func (o *objectReader) loose(h Hash, max int64) (object.Object, int64, error) {
	f, err := os.Open(filepath.Join(o.repo.dir, "objects", string(h[:2]), string(h[2:])))
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

// size returns an object's size.
func (o *objectReader) size(h Hash) (int64, error) {
	_, size, err := o.packs.read(h, 0)
	if err != nil {
		_, size, err = o.loose(h, -1)
	}
	return size, err
}

// look asks native git for an object's kind and size.
func (o *objectReader) look(ctx context.Context, h Hash) (kind string, size int64, err error) {
	out, err := o.repo.server.git.Output(ctx, gitcmd.Command{
		Repo: o.repo.dir, Args: []string{"cat-file", "--batch-check=%(objecttype) %(objectsize)"},
		In: strings.NewReader(string(h) + "\n"),
	})
	if err != nil {
		return "", 0, fmt.Errorf("cannot read object %s: %w", h, err)
	}
	// Of a missing object git prints its name instead of a type.
	kind, n, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
	if kind == string(h) {
		return "", 0, fmt.Errorf("object %s: %w", h, ErrNotFound)
	}
	size, err = strconv.ParseInt(n, 10, 64)
	if err != nil {
		return "", 0, fmt.Errorf("cannot read object %s: git answered %.100q", h, out)
	}
	return kind, size, nil
}

// kind returns an object's kind.
func (o *objectReader) kind(ctx context.Context, h Hash) (string, error) {
	obj, _, err := o.small(ctx, h)
	if errors.Is(err, ErrTooLarge) && obj.Kind != "" {
		err = nil
	}
	return obj.Kind, err
}

// commit follows annotated tags from h to a commit.
func (o *objectReader) commit(ctx context.Context, h Hash) (Hash, error) {
	for range 20 {
		obj, _, err := o.small(ctx, h)
		if err != nil && (obj.Kind == "" || !errors.Is(err, ErrTooLarge)) {
			return "", err
		}
		switch obj.Kind {
		case "commit":
			return h, nil
		case "tag":
			target, ok := strings.CutPrefix(firstLine(obj.Data), "object ")
			if !ok {
				return "", fmt.Errorf("tag %s is damaged", h)
			}
			h = Hash(target)
		default:
			return "", fmt.Errorf("object %s is a %s, no commit: %w", h, obj.Kind, ErrNotFound)
		}
	}
	return "", fmt.Errorf("too many tags of tags: %w", ErrInvalid)
}

func firstLine(b []byte) string {
	line, _, _ := bytes.Cut(b, []byte("\n"))
	return string(line)
}

// stream opens a blob of any size.
func (o *objectReader) stream(ctx context.Context, h Hash) (io.ReadCloser, int64, error) {
	obj, size, err := o.small(ctx, h)
	switch {
	case err == nil && obj.Kind != "blob":
		return nil, 0, fmt.Errorf("object %s is a %s, no file: %w", h, obj.Kind, ErrInvalid)
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
	p, err := o.repo.server.git.Start(ctx, gitcmd.Command{Repo: o.repo.dir, Args: []string{"cat-file", "blob", string(h)}, Out: in})
	in.Close()
	if err != nil {
		out.Close()
		cancel()
		return nil, 0, err
	}
	return &blobStream{in: bufio.NewReaderSize(out, 64<<10), out: out, p: p, cancel: cancel, left: size}, size, nil
}

// blobStream is the output of a git cat-file. A read that ends before the
// whole blob was delivered is an error, not an EOF.
type blobStream struct {
	in     *bufio.Reader
	out    *os.File
	p      *gitcmd.Process
	cancel context.CancelFunc
	left   int64
	once   sync.Once
}

func (b *blobStream) Read(p []byte) (int, error) {
	n, err := b.in.Read(p)
	b.left -= int64(n)
	if err == io.EOF && b.left > 0 {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// Close ends git. What it failed to deliver, Read has told.
func (b *blobStream) Close() error {
	b.once.Do(func() {
		b.out.Close()
		b.cancel()
		b.p.Wait()
	})
	return nil
}
