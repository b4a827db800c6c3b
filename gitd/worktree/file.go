package worktree

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

var (
	// errGone means that a file was deleted after it was listed. It is treated as if it had been deleted before.
	errGone = errors.New("it is gone")
	// errChanged means that the parts of a large file do not belong together.
	errChanged = fmt.Errorf("it changed while it was read: %w", object.ErrConflict)
)

// hashLower returns the blob that git makes of the lower file from, if it shows at another path or the index has
// another blob.
func (w *walk) hashLower(p *folder, b object.Entry, from string, indexed object.Entry) (object.Hash, error) {
	path, state := joinPath(p.path, b.Name), fileState{lower: b.Hash}
	if isTracked(indexed) && w.overlay.Cache.isKnown(path, state, indexed.Hash, w.round) {
		return indexed.Hash, nil
	}
	in, err := w.conversionOf(p, b.Name)
	if err != nil {
		return "", err
	}
	up, name := splitName(from)
	was, err := w.lowerFolder(up)
	if err != nil {
		return "", err
	}
	out, err := w.conversionOf(was, name)
	if err != nil {
		return "", err
	}
	if in.Large {
		if err := w.checkPointer(b.Hash); err != nil {
			return "", fmt.Errorf("%.200q: %w", from, err)
		}
	}
	if in.Lines == pathspec.LinesKept && !out.CRLF {
		return b.Hash, nil
	}

	obj, _, err := w.repo.Objects.Small(w.ctx, b.Hash)
	if errors.Is(err, object.ErrTooLarge) {
		err = fmt.Errorf("%.200q is too large to convert: %w", from, ErrNeedsGit)
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
	if data, err = w.convert(data, in, indexed); err != nil {
		return "", err
	}
	h, err := w.writeBlob(path, data, b.Hash)
	if err == nil {
		w.seen = append(w.seen, seenFile{path, state, h})
	}
	return h, err
}

// convert converts a file on its way into the repository.
func (w *walk) convert(data []byte, c pathspec.Conversion, indexed object.Entry) ([]byte, error) {
	if c.Lines == pathspec.LinesKept {
		return data, nil
	}
	s := pathspec.CountText(data)
	if yes, err := w.needsConversion(&s, c, indexed); !yes || err != nil {
		return data, err
	}
	return pathspec.ToLF(data), nil
}

// needsConversion reports whether a file with these statistics gets other line ends.
func (w *walk) needsConversion(s *pathspec.TextStats, c pathspec.Conversion, indexed object.Entry) (bool, error) {
	if c.Lines == pathspec.LinesKept || s.CRLF == 0 {
		return false, nil
	}
	if c.Lines == pathspec.LinesText {
		return true, nil
	}
	if s.Binary() {
		return false, nil
	}
	had, err := w.hadCRLF(indexed)
	return !had, err
}

// hadCRLF reports whether the index has the file as text with CRLF. Then git keeps them.
func (w *walk) hadCRLF(indexed object.Entry) (bool, error) {
	if !isTracked(indexed) {
		return false, nil
	}
	in, size, err := w.repo.Objects.Stream(w.ctx, indexed.Hash)
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

// hashUpper returns the blob of an upper file.
func (w *walk) hashUpper(p *folder, n *upperNode, indexed object.Entry) (object.Hash, error) {
	state := stateOf(n.OverlayEntry)
	if isTracked(indexed) && w.overlay.Cache.isKnown(n.Path, state, indexed.Hash, w.round) {
		return indexed.Hash, nil
	}
	c, err := w.conversionOf(p, n.name)
	if err != nil {
		return "", err
	}
	most := w.repo.MaxObject
	if c.Large {
		most = w.repo.Large.MaxSize()
	}
	if n.Size < 0 || n.Size > most {
		return "", fmt.Errorf("%.200q has %d bytes, allowed are %d: %w", n.Path, n.Size, most, object.ErrTooLarge)
	}
	w.hashed++
	var h object.Hash
	switch {
	case c.Large && n.name != ".gitattributes":
		h, err = w.writePointer(n, c, indexed)
	case n.Size <= pack.MaxInMemory:
		h, err = w.writeSmall(n, c, indexed)
	default:
		h, err = w.writeLarge(n, c, indexed)
	}
	if err != nil {
		return "", fmt.Errorf("%.200q: %w", n.Path, err)
	}
	w.seen = append(w.seen, seenFile{n.Path, state, h})
	return h, nil
}

// openUpper opens an upper file with the length that it had when it was listed. Data that were appended since
// belong to the next snapshot.
func (w *walk) openUpper(n *upperNode) (io.Reader, io.Closer, error) {
	in, err := w.overlay.Open(w.ctx, n.Path)
	if errors.Is(err, fs.ErrNotExist) {
		err = errGone
	}
	if err != nil {
		return nil, nil, err
	}
	return io.LimitReader(pack.NewContextReader(w.ctx, in), n.Size), in, nil
}

// writeSmall reads an upper file as a whole and writes its blob.
func (w *walk) writeSmall(n *upperNode, c pathspec.Conversion, indexed object.Entry) (object.Hash, error) {
	in, closer, err := w.openUpper(n)
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
		// Git ignores here rules that it refuses in a push.
		if _, err := pathspec.ParseAttributes(data, true); err != nil {
			return "", fmt.Errorf("%w: %w", err, ErrNeedsGit)
		}
	}
	if data, err = w.convert(data, c, indexed); err != nil {
		return "", err
	}
	return w.writeBlob(n.Path, data, indexed.Hash)
}

// writeLarge writes the blob of an upper file. It reads the file several times to hold none of it in memory.
func (w *walk) writeLarge(n *upperNode, c pathspec.Conversion, indexed object.Entry) (object.Hash, error) {
	if n.name == ".gitattributes" {
		return "", fmt.Errorf("it has %d bytes: %w", n.Size, ErrNeedsGit)
	}
	size, convert, err := w.convertedSize(n, c, indexed)
	if err != nil {
		return "", err
	}
	var h object.Hash
	if indexed.Hash != "" {
		// If it is the blob of the index, nothing is written.
		err := w.readUpper(n, convert, func(in io.Reader) (err error) {
			h, err = hashBlob(in, size)
			return err
		})
		if h == indexed.Hash || err != nil {
			return h, err
		}
	}

	if err := w.charge(size); err != nil {
		return "", err
	}
	finder := w.repo.Secrets.Finder()
	err = w.readUpper(n, convert, func(in io.Reader) (err error) {
		h, err = w.pack.Stream("blob", size, io.TeeReader(in, finder))
		if err == nil && !atEnd(in) {
			err = errChanged
		}
		return err
	})
	if err != nil {
		return "", err
	}
	return h, w.addLeaks(finder.Names(), "blob", n.Path, h)
}

// convertedSize returns the size of the blob of an upper file, and whether its line ends are converted.
func (w *walk) convertedSize(n *upperNode, c pathspec.Conversion, indexed object.Entry) (size int64, convert bool, err error) {
	if c.Lines == pathspec.LinesKept {
		return n.Size, false, nil
	}
	var s pathspec.TextStats
	if err := w.readUpper(n, false, func(in io.Reader) error {
		_, err := io.Copy(&s, in)
		return err
	}); err != nil {
		return 0, false, err
	}
	s.Finish()
	if convert, err = w.needsConversion(&s, c, indexed); convert {
		return n.Size - int64(s.CRLF), true, err
	}
	return n.Size, false, err
}

// readUpper passes an upper file to read, as it is or with its line ends converted.
func (w *walk) readUpper(n *upperNode, convert bool, read func(io.Reader) error) error {
	in, closer, err := w.openUpper(n)
	if err != nil {
		return err
	}
	defer closer.Close()
	if convert {
		in = pathspec.NewLFReader(bufio.NewReaderSize(in, 64<<10))
	}
	return read(in)
}

// atEnd reports whether r has no more bytes.
func atEnd(r io.Reader) bool {
	n, err := io.ReadFull(r, make([]byte, 1))
	return n == 0 && err == io.EOF
}

// hashBlob returns the name of a blob that is not held in memory.
func hashBlob(r io.Reader, size int64) (object.Hash, error) {
	sum := sha1.New()
	fmt.Fprintf(sum, "blob %d\x00", size)
	n, err := io.Copy(sum, io.LimitReader(r, size))
	if err != nil {
		return "", err
	}
	if n < size || !atEnd(r) {
		return "", errChanged
	}
	return object.Hash(hex.EncodeToString(sum.Sum(nil))), nil
}

// writeBlob writes a blob, unless it is the one that was there before.
func (w *walk) writeBlob(path string, data []byte, was object.Hash) (object.Hash, error) {
	if h := object.Hash(plumbing.ComputeHash(plumbing.BlobObject, data).String()); h == was {
		return h, nil
	}
	return w.write("blob", path, data)
}
