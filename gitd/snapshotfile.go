package gitd

import (
	"bufio"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/ramus-dev/ramus/gitd/object"
	"github.com/ramus-dev/ramus/gitd/pack"
	"github.com/ramus-dev/ramus/gitd/pathspec"
)

// moved is the blob that git makes of a file of Under that shows at another place, or where
// the index has another.
func (w *snapshotWalk) moved(p *place, b object.Entry, from string, known object.Entry) (Hash, error) {
	path, state := join(p.path, b.Name), cachedState{under: b.Hash}
	if tracked(known) && w.overlay.Cache.is(path, state, known.Hash, w.round) {
		return known.Hash, nil
	}
	to, err := w.conversion(p, b.Name)
	if err != nil {
		return "", err
	}
	folder, name := splitName(from)
	was, err := w.underPlace(folder)
	if err != nil {
		return "", err
	}
	out, err := w.conversion(was, name)
	if err != nil {
		return "", err
	}
	if to.Lines == pathspec.LinesKept && !out.CRLF {
		return b.Hash, nil
	}
	obj, _, err := w.repo.objects.Small(w.ctx, b.Hash)
	if errors.Is(err, ErrTooLarge) {
		err = fmt.Errorf("%.200q is too large to convert: %w", from, ErrPortable)
	}
	if err == nil {
		err = w.charge(int64(len(obj.Data)))
	}
	if err != nil {
		return "", err
	}
	data := obj.Data
	if out.CRLF {
		data = pathspec.ToCRLF(data, out.Lines)
	}
	if data, err = w.clean(data, to, known); err != nil {
		return "", err
	}
	h, err := w.blob(path, data, b.Hash)
	if err == nil {
		w.seen = append(w.seen, seenFile{path, state, h})
	}
	return h, err
}

// clean converts a file on its way into the repository.
func (w *snapshotWalk) clean(data []byte, c pathspec.Conversion, known object.Entry) ([]byte, error) {
	if c.Lines == pathspec.LinesKept {
		return data, nil
	}
	s := pathspec.CountText(data)
	if yes, err := w.converts(&s, c, known); !yes || err != nil {
		return data, err
	}
	return pathspec.ToLF(data), nil
}

// converts tells whether a file that looks like this gets other line ends.
func (w *snapshotWalk) converts(s *pathspec.TextStats, c pathspec.Conversion, known object.Entry) (bool, error) {
	if c.Lines == pathspec.LinesKept || s.CRLF == 0 {
		return false, nil
	}
	if c.Lines == pathspec.LinesText {
		return true, nil
	}
	if s.Binary() {
		return false, nil
	}
	was, err := w.hadCRLF(known)
	return !was, err
}

// hadCRLF tells whether the index has the file as text with CRLF: then it stays so.
func (w *snapshotWalk) hadCRLF(known object.Entry) (bool, error) {
	if !tracked(known) {
		return false, nil
	}
	in, size, err := w.repo.objects.Stream(w.ctx, known.Hash)
	if err != nil {
		return false, err
	}
	defer in.Close()
	if err := w.charge(size); err != nil {
		return false, err
	}
	var s pathspec.TextStats
	if _, err := io.Copy(&s, pack.NewContextReader(w.ctx, in)); err != nil {
		return false, err
	}
	s.Finish()
	return s.CRLF > 0 && !s.Binary(), nil
}

// file is the blob of a file of the overlay.
func (w *snapshotWalk) file(p *place, n *overlayNode, known object.Entry) (Hash, error) {
	state := stateOf(n.OverlayEntry)
	if tracked(known) && w.overlay.Cache.is(n.Path, state, known.Hash, w.round) {
		return known.Hash, nil
	}
	c, err := w.conversion(p, n.name)
	if err != nil {
		return "", err
	}
	if n.Size < 0 || n.Size > w.repo.server.limits.ObjectBytes {
		return "", fmt.Errorf("%.200q has %d bytes, allowed are %d: %w", n.Path, n.Size, w.repo.server.limits.ObjectBytes, ErrTooLarge)
	}
	w.hashed++
	var h Hash
	if n.Size <= pack.MaxInMemory {
		h, err = w.smallBlob(n, c, known)
	} else {
		h, err = w.largeBlob(n, c, known)
	}
	if err != nil {
		return "", fmt.Errorf("%.200q: %w", n.Path, err)
	}
	w.seen = append(w.seen, seenFile{n.Path, state, h})
	return h, nil
}

// errGone is a file that was deleted after it was listed: as if it had been before.
var errGone = errors.New("it is gone")

// open opens a file of the overlay, as long as it was when it was listed: what has been
// appended since belongs to the next snapshot.
func (w *snapshotWalk) open(n *overlayNode) (io.Reader, io.Closer, error) {
	in, err := w.overlay.Open(w.ctx, n.Path)
	if errors.Is(err, fs.ErrNotExist) {
		err = errGone
	}
	if err != nil {
		return nil, nil, err
	}
	return io.LimitReader(pack.NewContextReader(w.ctx, in), n.Size), in, nil
}

// smallBlob reads a file as a whole.
func (w *snapshotWalk) smallBlob(n *overlayNode, c pathspec.Conversion, known object.Entry) (Hash, error) {
	in, closer, err := w.open(n)
	if err != nil {
		return "", err
	}
	defer closer.Close()
	data := make([]byte, n.Size)
	m, err := io.ReadFull(in, data)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && err != io.EOF {
		return "", err
	}
	data = data[:m]
	if n.name == ".gitattributes" {
		// Git refuses in a push what it would leave out here.
		if _, err := pathspec.ParseAttributes(data, true); err != nil {
			return "", fmt.Errorf("%w: %w", err, ErrPortable)
		}
	}
	if data, err = w.clean(data, c, known); err != nil {
		return "", err
	}
	return w.blob(n.Path, data, known.Hash)
}

// errChanged is a large file whose parts do not belong together.
var errChanged = fmt.Errorf("it changed while it was read: %w", ErrConflict)

// largeBlob reads a file as often as is needed to hold none of it in memory.
func (w *snapshotWalk) largeBlob(n *overlayNode, c pathspec.Conversion, known object.Entry) (Hash, error) {
	if n.name == ".gitattributes" {
		return "", fmt.Errorf("it has %d bytes: %w", n.Size, ErrPortable)
	}
	size, convert := n.Size, false
	if c.Lines != pathspec.LinesKept {
		var s pathspec.TextStats
		if err := w.pass(n, false, func(in io.Reader) error {
			_, err := io.Copy(&s, in)
			return err
		}); err != nil {
			return "", err
		}
		s.Finish()
		var err error
		if convert, err = w.converts(&s, c, known); err != nil {
			return "", err
		}
		if convert {
			size -= int64(s.CRLF)
		}
	}
	var h Hash
	if known.Hash != "" {
		// It may be what the index has: that is found out without writing it.
		err := w.pass(n, convert, func(in io.Reader) (err error) {
			h, err = hashBlob(in, size)
			return err
		})
		if h == known.Hash || err != nil {
			return h, err
		}
	}
	if err := w.charge(size); err != nil {
		return "", err
	}
	finder := w.secrets.Finder()
	err := w.pass(n, convert, func(in io.Reader) (err error) {
		h, err = w.pack.Stream("blob", size, io.TeeReader(in, finder))
		if err == nil && !ended(in) {
			err = errChanged
		}
		return err
	})
	if err != nil {
		return "", err
	}
	return h, w.found(finder.Names(), "blob", n.Path, h)
}

// pass reads a file of the overlay, as it is or with its line ends converted.
func (w *snapshotWalk) pass(n *overlayNode, convert bool, read func(io.Reader) error) error {
	in, closer, err := w.open(n)
	if err != nil {
		return err
	}
	defer closer.Close()
	if convert {
		in = pathspec.NewLFReader(bufio.NewReaderSize(in, 64<<10))
	}
	return read(in)
}

func ended(r io.Reader) bool {
	n, err := io.ReadFull(r, make([]byte, 1))
	return n == 0 && err == io.EOF
}

// hashBlob names a blob that is not held in memory.
func hashBlob(r io.Reader, size int64) (Hash, error) {
	sum := sha1.New()
	fmt.Fprintf(sum, "blob %d\x00", size)
	n, err := io.Copy(sum, io.LimitReader(r, size))
	if err != nil {
		return "", err
	}
	if n < size || !ended(r) {
		return "", errChanged
	}
	return Hash(hex.EncodeToString(sum.Sum(nil))), nil
}

// blob writes a blob, unless it is the one that was there before.
func (w *snapshotWalk) blob(path string, data []byte, was Hash) (Hash, error) {
	if h := Hash(plumbing.ComputeHash(plumbing.BlobObject, data).String()); h == was {
		return h, nil
	}
	return w.write("blob", path, data)
}
