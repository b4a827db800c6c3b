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
	"sync/atomic"
	"time"

	"github.com/go-git/go-billy/v5/osfs"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/cache"
	"github.com/go-git/go-git/v5/plumbing/format/objfile"
	"github.com/go-git/go-git/v5/storage/filesystem"
)

const (
	// inMemoryMax is the largest object that is read in process; what is
	// larger streams from native git.
	inMemoryMax = 8 << 20
	// fileMax is ReadFile's bound when none is given.
	fileMax = 64 << 20
	// readersMax handles of go-git are open for a repository at once.
	readersMax = 4
	// readerIdle is how long an unused handle keeps its files open.
	readerIdle = time.Minute
)

// object is one object's content, in memory.
type object struct {
	kind string // blob, tree, commit, tag
	data []byte
}

// objectReader reads packed objects with go-git, in process, and asks native git
// about whatever go-git does not find, does not stand, or would hold in memory
// as a whole. go-git's handles are not safe for concurrent use and do not see
// packs that came or went after they were opened: each is used by one
// goroutine at a time, and is thrown away when the folder of packs has changed.
type objectReader struct {
	repo *Repo
	// generation counts the packs that this server put in place or took away: two in
	// one tick of the file system's clock leave the folder's time as it was.
	generation atomic.Uint64

	mu    sync.Mutex // guards the fields below
	free  []*objectHandle
	open  int
	await chan struct{} // closed and replaced when a handle becomes free
	idle  *time.Timer
}

// objectHandle is one go-git storage and the state of the packs it knows.
type objectHandle struct {
	store *filesystem.Storage
	packs packsState
}

// packsState changes whenever a pack, or the list of alternates, does.
type packsState struct {
	generation        uint64
	packs, alternates time.Time
}

// changed tells that there are other packs than before.
func (o *objectReader) changed() { o.generation.Add(1) }

func (o *objectReader) state() packsState {
	s := packsState{generation: o.generation.Load()}
	if info, err := os.Stat(filepath.Join(o.repo.dir, "objects", "pack")); err == nil {
		s.packs = info.ModTime()
	}
	if info, err := os.Stat(filepath.Join(o.repo.dir, "objects", "info", "alternates")); err == nil {
		s.alternates = info.ModTime()
	}
	return s
}

// with lends a handle to use. Panics of go-git, which it has on damaged packs,
// become errors: the caller then asks native git.
func (o *objectReader) with(ctx context.Context, use func(*filesystem.Storage) error) (err error) {
	h, err := o.take(ctx)
	if err != nil {
		return err
	}
	broken := true
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("go-git failed: %v", p)
		}
		o.give(h, broken)
	}()
	err = use(h.store)
	broken = err != nil
	return err
}

func (o *objectReader) take(ctx context.Context) (*objectHandle, error) {
	if err := o.repo.server.family.err(); err != nil {
		return nil, err
	}
	state := o.state()
	for {
		o.mu.Lock()
		if n := len(o.free); n > 0 {
			h := o.free[n-1]
			o.free = o.free[:n-1]
			o.mu.Unlock()
			if h.packs == state {
				return h, nil
			}
			h.store.Close()
			o.mu.Lock()
			o.open--
		}
		if o.open < readersMax {
			o.open++
			o.mu.Unlock()
			return &objectHandle{packs: state, store: filesystem.NewStorageWithOptions(
				osfs.New(o.repo.dir), cache.NewObjectLRU(16*cache.MiByte),
				filesystem.Options{KeepDescriptors: true})}, nil
		}
		if o.await == nil {
			o.await = make(chan struct{})
		}
		await := o.await
		o.mu.Unlock()
		select {
		case <-await:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func (o *objectReader) give(h *objectHandle, broken bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if broken {
		h.store.Close()
		o.open--
	} else {
		o.free = append(o.free, h)
		if o.idle == nil {
			o.idle = time.AfterFunc(readerIdle, o.close)
		} else {
			o.idle.Reset(readerIdle)
		}
	}
	if o.await != nil {
		close(o.await)
		o.await = nil
	}
}

// close closes the handles that nobody uses.
func (o *objectReader) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, h := range o.free {
		h.store.Close()
		o.open--
	}
	o.free = nil
	if o.idle != nil {
		o.idle.Stop()
	}
}

// small reads an object of at most inMemoryMax bytes; a larger one is
// ErrTooLarge and comes with its kind and size.
func (o *objectReader) small(ctx context.Context, h Hash) (object, int64, error) {
	if err := CheckHash(h); err != nil {
		return object{}, 0, err
	}
	obj, size, err := o.loose(h, inMemoryMax)
	if err == nil {
		if size > inMemoryMax {
			err = ErrTooLarge
		}
		return obj, size, err
	}
	obj, size = object{}, -1
	// go-git is built for SHA-1.
	if len(h) == 40 {
		err := o.with(ctx, func(store *filesystem.Storage) error {
			name := plumbing.NewHash(string(h))
			n, err := store.EncodedObjectSize(name)
			if err != nil {
				return err
			}
			if size = n; size > inMemoryMax {
				return nil
			}
			enc, err := store.EncodedObject(plumbing.AnyObject, name)
			if err != nil {
				return err
			}
			in, err := enc.Reader()
			if err != nil {
				return err
			}
			defer in.Close()
			obj.kind = enc.Type().String()
			obj.data, err = io.ReadAll(io.LimitReader(in, inMemoryMax+1))
			if err == nil && int64(len(obj.data)) != size {
				err = fmt.Errorf("object %s has %d bytes instead of %d", h, len(obj.data), size)
			}
			return err
		})
		if err == nil && size <= inMemoryMax {
			return obj, size, nil
		}
		if ctx.Err() != nil {
			return object{}, 0, context.Cause(ctx)
		}
	}
	kind, size, err := o.look(ctx, h)
	if err != nil {
		return object{}, 0, err
	}
	if size > inMemoryMax {
		return object{kind: kind}, size, ErrTooLarge
	}
	data, err := o.repo.output(ctx, "cat-file", kind, string(h))
	if err != nil {
		return object{}, 0, fmt.Errorf("cannot read object %s: %w", h, err)
	}
	return object{kind: kind, data: data}, size, nil
}

// loose reads an object that has a file of its own, or only its kind and size
// when it is larger than max. go-git could do so too, but its question for a
// size leaves the file open.
func (o *objectReader) loose(h Hash, max int64) (object, int64, error) {
	f, err := os.Open(filepath.Join(o.repo.dir, "objects", string(h[:2]), string(h[2:])))
	if err != nil {
		return object{}, 0, err
	}
	defer f.Close()
	in, err := objfile.NewReader(bufio.NewReader(f))
	if err != nil {
		return object{}, 0, fmt.Errorf("cannot read object %s: %w", h, err)
	}
	defer in.Close()
	kind, size, err := in.Header()
	if err != nil {
		return object{}, 0, fmt.Errorf("cannot read object %s: %w", h, err)
	}
	obj := object{kind: kind.String()}
	if size < 0 || size > max {
		return obj, size, nil
	}
	obj.data = make([]byte, size)
	if _, err := io.ReadFull(in, obj.data); err != nil {
		return object{}, 0, fmt.Errorf("cannot read object %s: %w", h, err)
	}
	return obj, size, nil
}

// size returns an object's size as store knows it.
func (o *objectReader) size(store *filesystem.Storage, h Hash) (int64, error) {
	if _, size, err := o.loose(h, -1); err == nil {
		return size, nil
	}
	return store.EncodedObjectSize(plumbing.NewHash(string(h)))
}

// look asks native git for an object's kind and size.
func (o *objectReader) look(ctx context.Context, h Hash) (kind string, size int64, err error) {
	out, err := o.repo.server.output(ctx, child{
		repo: o.repo.dir, args: []string{"cat-file", "--batch-check=%(objecttype) %(objectsize)"},
		in: strings.NewReader(string(h) + "\n"),
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
	if errors.Is(err, ErrTooLarge) && obj.kind != "" {
		err = nil
	}
	return obj.kind, err
}

// commit follows annotated tags from h to a commit.
func (o *objectReader) commit(ctx context.Context, h Hash) (Hash, error) {
	for range 20 {
		obj, _, err := o.small(ctx, h)
		if err != nil && (obj.kind == "" || !errors.Is(err, ErrTooLarge)) {
			return "", err
		}
		switch obj.kind {
		case "commit":
			return h, nil
		case "tag":
			target, ok := strings.CutPrefix(firstLine(obj.data), "object ")
			if !ok {
				return "", fmt.Errorf("tag %s is damaged", h)
			}
			h = Hash(target)
		default:
			return "", fmt.Errorf("object %s is a %s, no commit: %w", h, obj.kind, ErrNotFound)
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
	case err == nil && obj.kind != "blob":
		return nil, 0, fmt.Errorf("object %s is a %s, no file: %w", h, obj.kind, ErrInvalid)
	case err == nil:
		return io.NopCloser(bytes.NewReader(obj.data)), size, nil
	case obj.kind == "":
		return nil, 0, err
	}
	ctx, cancel := context.WithCancel(ctx)
	out, in, err := os.Pipe()
	if err != nil {
		cancel()
		return nil, 0, err
	}
	p, err := o.repo.server.start(ctx, child{repo: o.repo.dir, args: []string{"cat-file", "blob", string(h)}, out: in})
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
	p      *process
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
		b.p.wait()
	})
	return nil
}
