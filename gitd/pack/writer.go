package pack

import (
	"bufio"
	"bytes"
	"compress/zlib"
	"context"
	"crypto/rand"
	"crypto/sha1"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/ramus-dev/ramus/gitd/object"
	"github.com/ramus-dev/ramus/internal/durable"
)

// Writer writes objects into one pack, whole and compressed, and adds it with its index to a
// repository (gitformat-pack, version 2). One pack with an index is durable for two fsyncs, whereas
// loose objects need one each. A writer is used by one goroutine at a time. It ends with Place
// or Drop.
type Writer struct {
	packs *Files
	ctx   context.Context
	file  *os.File // nil before the first object
	out   *bufio.Writer
	zip   *zlib.Writer
	room  *writeBuffer // owns out
	at    int64        // the offset of the next object
	objs  []IndexEntry
	have  map[ObjectName]bool
}

// ObjectName is the name of an object in a repository with SHA-1 names.
type ObjectName = plumbing.Hash

// Folder is the folder of packs in a repository.
const Folder = "objects/pack"

// The patterns of temporary names. git prune removes such files.
const (
	TempName      = "tmp_pack_*"
	tempIndexName = "tmp_idx_*"
)

// Deflaters keeps unused compressors, each of nearly a megabyte and larger than most packs. They use
// the fastest level, because people wait for these objects, and a repack with deltas saves far more.
var Deflaters = sync.Pool{New: func() any {
	w, err := zlib.NewWriterLevel(io.Discard, zlib.BestSpeed)
	if err != nil {
		panic(err) // the level is one of the package's own
	}
	return w
}}

// writeBuffer is the memory that writing a pack of any size needs.
type writeBuffer struct {
	out  *bufio.Writer
	copy [32 << 10]byte
}

// writeBuffers keeps unused buffers.
var writeBuffers = sync.Pool{New: func() any { return &writeBuffer{out: bufio.NewWriterSize(nil, 64<<10)} }}

// NewWriter starts a pack in the folder of packs. Reading the input of [Writer.Stream] ends with ctx.
func NewWriter(ctx context.Context, packs *Files) *Writer {
	return &Writer{packs: packs, ctx: ctx, have: map[ObjectName]bool{}}
}

// Add writes an object and returns its name. kind is blob, tree, commit or tag. An object that the
// pack has already is not written again.
func (w *Writer) Add(kind string, data []byte) (object.Hash, error) {
	return w.addUnless(kind, data, func(object.Hash) bool { return false })
}

// AddNew is Add for objects that may be in another pack of the repository. Such an object is not
// written again.
func (w *Writer) AddNew(kind string, data []byte) (object.Hash, error) {
	return w.addUnless(kind, data, w.packs.has)
}

func (w *Writer) addUnless(kind string, data []byte, has func(object.Hash) bool) (object.Hash, error) {
	t, err := parseKind(kind)
	if err != nil {
		return "", err
	}
	name := plumbing.ComputeHash(t, data)
	h := object.Hash(name.String())
	if w.have[name] || has(h) {
		return h, nil
	}
	_, err = w.write(t, int64(len(data)), bytes.NewReader(data), &name)
	return h, err
}

// Stream writes an object of size bytes from in without holding it in memory. If in has fewer bytes,
// Stream returns [object.ErrConflict] and leaves the pack unchanged. It does not read more bytes.
func (w *Writer) Stream(kind string, size int64, in io.Reader) (object.Hash, error) {
	t, err := parseKind(kind)
	if err != nil {
		return "", err
	}
	name, err := w.write(t, size, in, nil)
	return object.Hash(name.String()), err
}

// parseKind returns the type of a kind of object.
func parseKind(kind string) (plumbing.ObjectType, error) {
	t, err := plumbing.ParseObjectType(kind)
	if err != nil || t > TypeTag {
		return 0, fmt.Errorf("object kind %.20q: %w", kind, object.ErrInvalid)
	}
	return t, nil
}

// write appends an object. known is its name, or nil if write has to compute it.
func (w *Writer) write(t plumbing.ObjectType, size int64, in io.Reader, known *ObjectName) (_ ObjectName, err error) {
	if err := w.open(); err != nil {
		return ObjectName{}, err
	}
	begin := w.at
	defer func() {
		if err != nil {
			err = errors.Join(err, w.truncate(begin))
		}
	}()
	entry := &EntryWriter{Out: w.out}
	if _, err := entry.Write(EntryHeader(byte(t), size)); err != nil {
		return ObjectName{}, err
	}
	w.zip.Reset(entry)
	var out io.Writer = w.zip
	name := plumbing.NewHasher(t, size)
	if known == nil {
		out = io.MultiWriter(w.zip, name)
	}
	n, err := io.CopyBuffer(out, NewContextReader(w.ctx, io.LimitReader(in, size)), w.room.copy[:])
	if err != nil {
		return ObjectName{}, err
	}
	if n != size {
		return ObjectName{}, ShrankError(size, n)
	}
	if err := w.zip.Close(); err != nil {
		return ObjectName{}, err
	}
	var h ObjectName
	if known != nil {
		h = *known
	} else if h = name.Sum(); w.have[h] {
		return h, w.truncate(begin)
	}
	w.at += entry.n
	w.have[h] = true
	w.objs = append(w.objs, IndexEntry{Name: h, CRC: entry.CRC, At: begin})
	return h, nil
}

// EntryWriter passes on the bytes of one object and counts them.
type EntryWriter struct {
	Out io.Writer
	CRC uint32
	n   int64
}

func (e *EntryWriter) Write(p []byte) (int, error) {
	n, err := e.Out.Write(p)
	e.CRC = crc32.Update(e.CRC, crc32.IEEETable, p[:n])
	e.n += int64(n)
	return n, err
}

// EntryHeader returns the header of an object, its kind and its size.
func EntryHeader(kind byte, size int64) []byte {
	b := []byte{kind<<4 | byte(size&15)}
	for size >>= 4; size > 0; size >>= 7 {
		b[len(b)-1] |= 0x80
		b = append(b, byte(size&0x7f))
	}
	return b
}

// open creates the file with an empty header, which Place completes.
func (w *Writer) open() error {
	if w.file != nil {
		return nil
	}
	dir := w.packs.Dir
	f, err := os.CreateTemp(dir, TempName)
	if errors.Is(err, fs.ErrNotExist) && os.Mkdir(dir, 0o777) == nil {
		f, err = os.CreateTemp(dir, TempName)
	}
	if err != nil {
		return err
	}
	w.file, w.zip, w.room = f, Deflaters.Get().(*zlib.Writer), writeBuffers.Get().(*writeBuffer)
	w.out = w.room.out
	w.out.Reset(f)
	w.at = HeaderLength
	_, err = w.out.Write(make([]byte, HeaderLength))
	return err
}

// HeaderLength is the length in bytes of the header of a pack.
const HeaderLength = 12

// truncate removes all that was written from begin on.
func (w *Writer) truncate(begin int64) error {
	if err := w.out.Flush(); err != nil {
		return err
	}
	if err := w.file.Truncate(begin); err != nil {
		return err
	}
	_, err := w.file.Seek(begin, io.SeekStart)
	w.at = begin
	return err
}

// Drop removes the unfinished pack. After Place it does nothing.
func (w *Writer) Drop() {
	if w.file == nil {
		return
	}
	os.Remove(w.file.Name())
	w.file.Close()
	w.release()
}

// release returns the memory of the writer.
func (w *Writer) release() {
	w.zip.Reset(io.Discard)
	Deflaters.Put(w.zip)
	w.out.Reset(nil)
	writeBuffers.Put(w.room)
	w.file, w.out, w.zip, w.room = nil, nil, nil, nil
}

// Place adds the pack and its index to the repository and returns them, positioned at their start.
// Their content is on disk then. Their names are on disk when a ref has changed. Nobody relies on
// them before (see [Files.SyncNames]). Returns nil if no object was added. After an error Drop need
// not be called.
func (w *Writer) Place() (_ *Pack, err error) {
	if len(w.objs) == 0 {
		w.Drop()
		return nil, nil
	}
	defer w.Drop()
	sum, err := w.finish()
	if err != nil {
		return nil, err
	}
	index, err := os.CreateTemp(w.packs.Dir, tempIndexName)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			os.Remove(index.Name())
			index.Close()
		}
	}()
	if _, err := index.Write(EncodeIndex(w.objs, sum)); err != nil {
		return nil, err
	}
	for _, f := range []*os.File{w.file, index} {
		if err := f.Chmod(0o444); err != nil {
			return nil, err
		}
	}
	p := &Pack{Name: NewName(), Objects: len(w.objs), Pack: w.file, Index: index}
	if err := w.packs.Adopt(p.Name, w.file, index); err != nil {
		return nil, err
	}
	w.release()
	for _, f := range []*os.File{p.Pack, p.Index} {
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			p.Close()
			return nil, err
		}
	}
	return p, nil
}

// NewName returns a random name for a pack. It is not the checksum that git uses, because an older
// pack with the same objects may just be being removed, which would remove this one with it.
func NewName() string {
	var b ObjectName
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// Adopt syncs a pack and its index and renames them into the folder. Their names are on disk when a
// ref has changed (see [Files.SyncNames]).
func (p *Files) Adopt(name string, pack, index *os.File) error {
	if err := durable.Files(pack, index); err != nil {
		return err
	}
	place := filepath.Join(p.Dir, "pack-"+name)
	p.unnamed.Add(1) // readers that find it before the end also wait for its name
	defer p.unnamed.Add(1)
	// Git sees a pack when it has an index, so the index comes last.
	if err := os.Rename(pack.Name(), place+".pack"); err != nil {
		return err
	}
	if err := os.Rename(index.Name(), place+".idx"); err != nil {
		return err
	}
	p.Changed()
	if p.OnAdopt != nil {
		p.OnAdopt()
	}
	return nil
}

// finish writes the count of objects into the header and the checksum after the last object. It
// returns the checksum.
func (w *Writer) finish() ([]byte, error) {
	if err := w.out.Flush(); err != nil {
		return nil, err
	}
	head := Header(uint32(len(w.objs)))
	if _, err := w.file.WriteAt(head, 0); err != nil {
		return nil, err
	}
	sum := sha1.New()
	if _, err := io.Copy(sum, io.NewSectionReader(w.file, 0, w.at)); err != nil {
		return nil, err
	}
	end := sum.Sum(nil)
	_, err := w.file.WriteAt(end, w.at)
	return end, err
}

// ShrankError returns the [object.ErrConflict] of an input of size bytes that ended after n.
func ShrankError(size, n int64) error {
	return fmt.Errorf("it shrank from %d to %d bytes while it was read: %w", size, n, object.ErrConflict)
}

// Header returns the header of a pack of n objects.
func Header(n uint32) []byte {
	return binary.BigEndian.AppendUint32([]byte("PACK\x00\x00\x00\x02"), n)
}
