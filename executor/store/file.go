package store

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"sync"

	"github.com/ramus-dev/ramus/executor/record"
)

// File is an open file of a run's evidence. Its bytes are compared with its SHA-256 before the last of them is returned, or before
// the first if they are not read in order. A damaged file is an error, never content. A File is not safe for concurrent use.
type File struct {
	record.ManifestFile
	from interface {
		io.ReadSeeker
		io.Closer
	}
	hash    hash.Hash // of the first hashed bytes
	hashed  int64
	at      int64 // where the next Read begins
	whole   bool  // all was compared
	checked *checked
}

// OpenFile opens the file m of a manifest that open reads from its beginning. A Read after a Seek to an earlier place calls open
// again, and one after a Seek to a later place reads the bytes before it.
func OpenFile(m record.ManifestFile, open func() (io.ReadCloser, error)) (*File, error) {
	in, err := open()
	if err != nil {
		return nil, err
	}
	return &File{ManifestFile: m, from: &reopened{open: open, in: in}, hash: sha256.New()}, nil
}

// Read reads the next bytes. The error of a file that does not have its hash is [record.ErrDamaged].
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

// compare reads the file once from its beginning, so that any part of it may be read afterwards.
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

// readOnly hides the other methods of a reader.
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

// reopened is a reader that seeks, made of a reader that can only be opened again.
type reopened struct {
	open func() (io.ReadCloser, error)
	in   io.ReadCloser
	at   int64 // of in
	want int64 // of the next Read
}

func (r *reopened) Read(p []byte) (int, error) {
	if r.want < r.at {
		in, err := r.open()
		if err != nil {
			return 0, err
		}
		_ = r.in.Close() // it was only read from
		r.in, r.at = in, 0
	}
	if n, err := io.CopyN(io.Discard, r.in, r.want-r.at); err != nil {
		r.at += n
		return 0, err
	}
	n, err := r.in.Read(p)
	r.at = r.want + int64(n)
	r.want = r.at
	return n, err
}

// Seek implements [io.Seeker] for offsets from the start, the only ones that File uses.
func (r *reopened) Seek(offset int64, _ int) (int64, error) {
	r.want = offset
	return offset, nil
}

func (r *reopened) Close() error { return r.in.Close() }

// checked remembers which objects were compared with their names, so that a reader that seeks in a large one waits for that once.
// The methods of a nil checked do nothing.
type checked struct {
	mu   sync.Mutex // guards sums
	sums map[string]struct{}
}

// maxChecked bounds the sums of a checked.
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
	if c.sums == nil || len(c.sums) >= maxChecked {
		c.sums = make(map[string]struct{}) // comparing again costs time only
	}
	c.sums[sum] = struct{}{}
}
