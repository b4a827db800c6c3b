package gitd

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
	"slices"
	"sync"

	"github.com/go-git/go-git/v5/plumbing"
)

// packWriter writes objects into one pack, whole and compressed, and puts it with its
// index into the repository (gitformat-pack, versions 2). One file and one index are
// durable for the price of two fsyncs, where as many loose objects cost one each. A
// writer is used by one goroutine at a time and ends with place or drop.
type packWriter struct {
	repo *Repo
	ctx  context.Context
	file *os.File // nil: nothing was written yet
	out  *bufio.Writer
	zip  *zlib.Writer
	room *packRoom // where out is from
	at   int64     // where the next object begins
	objs []packEntry
	have map[objectName]bool
}

// packEntry is one object as the index tells of it.
type packEntry struct {
	name objectName
	crc  uint32 // of its header and data, compressed
	at   int64
}

// objectName is the name of an object in a repository of SHA-1 names.
type objectName = plumbing.Hash

// packFolder is where packs are, below the repository.
const packFolder = "objects/pack"

// The temporary names are of the kind that git's own prune sweeps.
const (
	newPackName  = "tmp_pack_*"
	newIndexName = "tmp_idx_*"
)

// deflaters are kept: one is nearly a megabyte, more than most packs. Objects that
// people wait for are compressed in haste; a repack that finds deltas saves far more.
var deflaters = sync.Pool{New: func() any {
	w, err := zlib.NewWriterLevel(io.Discard, zlib.BestSpeed)
	if err != nil {
		panic(err) // the level is one of the package's own
	}
	return w
}}

// packRoom is the memory that writing a pack takes, whatever its size.
type packRoom struct {
	out  *bufio.Writer
	copy [32 << 10]byte
}

var packRooms = sync.Pool{New: func() any { return &packRoom{out: bufio.NewWriterSize(nil, 64<<10)} }}

// newPack begins a pack. Reading the input of stream ends with ctx.
func (r *Repo) newPack(ctx context.Context) (*packWriter, error) {
	if err := r.needSHA1(ctx); err != nil {
		return nil, err
	}
	return &packWriter{repo: r, ctx: ctx, have: map[objectName]bool{}}, nil
}

// add writes an object (kind is blob, tree, commit or tag) and returns its name. One
// that the pack has already is not written again.
func (w *packWriter) add(kind string, data []byte) (Hash, error) {
	return w.addUnless(kind, data, func(Hash) bool { return false })
}

// addNew writes an object that the repository does not have, or not in a pack.
func (w *packWriter) addNew(kind string, data []byte) (Hash, error) {
	return w.addUnless(kind, data, w.repo.objects.packs.has)
}

func (w *packWriter) addUnless(kind string, data []byte, has func(Hash) bool) (Hash, error) {
	t, err := packKind(kind)
	if err != nil {
		return "", err
	}
	name := plumbing.ComputeHash(t, data)
	h := Hash(name.String())
	if w.have[name] || has(h) {
		return h, nil
	}
	_, err = w.write(t, int64(len(data)), bytes.NewReader(data), &name)
	return h, err
}

// stream writes an object of size bytes that in gives, and holds none of it in memory.
// Fewer bytes are [ErrConflict] and leave the pack as it was; more are not read.
func (w *packWriter) stream(kind string, size int64, in io.Reader) (Hash, error) {
	t, err := packKind(kind)
	if err != nil {
		return "", err
	}
	name, err := w.write(t, size, in, nil)
	return Hash(name.String()), err
}

func packKind(kind string) (plumbing.ObjectType, error) {
	t, err := plumbing.ParseObjectType(kind)
	if err != nil || t > packTag {
		return 0, fmt.Errorf("object kind %.20q: %w", kind, ErrInvalid)
	}
	return t, nil
}

// write appends an object, whose name may be known.
func (w *packWriter) write(t plumbing.ObjectType, size int64, in io.Reader, known *objectName) (_ objectName, err error) {
	if err := w.open(); err != nil {
		return objectName{}, err
	}
	begin := w.at
	defer func() {
		if err != nil {
			err = errors.Join(err, w.back(begin))
		}
	}()
	entry := &entryWriter{out: w.out}
	if _, err := entry.Write(packHeader(byte(t), size)); err != nil {
		return objectName{}, err
	}
	w.zip.Reset(entry)
	var out io.Writer = w.zip
	name := plumbing.NewHasher(t, size)
	if known == nil {
		out = io.MultiWriter(w.zip, name)
	}
	n, err := io.CopyBuffer(out, contextReader{w.ctx, io.LimitReader(in, size)}, w.room.copy[:])
	if err != nil {
		return objectName{}, err
	}
	if n != size {
		return objectName{}, errShrank(size, n)
	}
	if err := w.zip.Close(); err != nil {
		return objectName{}, err
	}
	var h objectName
	if known != nil {
		h = *known
	} else if h = name.Sum(); w.have[h] {
		return h, w.back(begin)
	}
	w.at += entry.n
	w.have[h] = true
	w.objs = append(w.objs, packEntry{name: h, crc: entry.crc, at: begin})
	return h, nil
}

// entryWriter passes the bytes of one object on and counts them.
type entryWriter struct {
	out io.Writer
	crc uint32
	n   int64
}

func (e *entryWriter) Write(p []byte) (int, error) {
	n, err := e.out.Write(p)
	e.crc = crc32.Update(e.crc, crc32.IEEETable, p[:n])
	e.n += int64(n)
	return n, err
}

// packHeader is what stands in front of an object: its kind and its size.
func packHeader(kind byte, size int64) []byte {
	b := []byte{kind<<4 | byte(size&15)}
	for size >>= 4; size > 0; size >>= 7 {
		b[len(b)-1] |= 0x80
		b = append(b, byte(size&0x7f))
	}
	return b
}

// open makes the file with the pack's header, whose count place fills in.
func (w *packWriter) open() error {
	if w.file != nil {
		return nil
	}
	dir := filepath.Join(w.repo.dir, packFolder)
	f, err := os.CreateTemp(dir, newPackName)
	if errors.Is(err, fs.ErrNotExist) && os.Mkdir(dir, 0o777) == nil {
		f, err = os.CreateTemp(dir, newPackName)
	}
	if err != nil {
		return err
	}
	w.file, w.zip, w.room = f, deflaters.Get().(*zlib.Writer), packRooms.Get().(*packRoom)
	w.out = w.room.out
	w.out.Reset(f)
	w.at = packHead
	_, err = w.out.Write(make([]byte, packHead))
	return err
}

// packHead is how long the header of a pack is.
const packHead = 12

// back takes away what was written from begin on.
func (w *packWriter) back(begin int64) error {
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

// drop removes what was written. After place it does nothing.
func (w *packWriter) drop() {
	if w.file == nil {
		return
	}
	os.Remove(w.file.Name())
	w.file.Close()
	w.end()
}

func (w *packWriter) end() {
	w.zip.Reset(io.Discard)
	deflaters.Put(w.zip)
	w.out.Reset(nil)
	packRooms.Put(w.room)
	w.file, w.out, w.zip, w.room = nil, nil, nil, nil
}

// place puts the pack and its index into the repository and returns them, to be read from
// their beginning, when what is in both is durable; nil when no object was added. Their names
// are when a ref has changed: until then nobody was promised anything (see packFiles.named).
// Whoever fails to place it need not call drop.
func (w *packWriter) place() (_ *Pack, err error) {
	if len(w.objs) == 0 {
		w.drop()
		return nil, nil
	}
	defer w.drop()
	sum, err := w.finish()
	if err != nil {
		return nil, err
	}
	index, err := os.CreateTemp(filepath.Join(w.repo.dir, packFolder), newIndexName)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			os.Remove(index.Name())
			index.Close()
		}
	}()
	if _, err := index.Write(packIndex(w.objs, sum)); err != nil {
		return nil, err
	}
	for _, f := range []*os.File{w.file, index} {
		if err := f.Chmod(0o444); err != nil {
			return nil, err
		}
	}
	p := &Pack{Name: newPackID(), Objects: len(w.objs), Pack: w.file, Index: index}
	if err := w.repo.adopt(p.Name, w.file, index); err != nil {
		return nil, err
	}
	w.end()
	for _, f := range []*os.File{p.Pack, p.Index} {
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			p.Close()
			return nil, err
		}
	}
	return p, nil
}

// newPackID is the name of a new pack. Not the checksum, as git has it: what is just being
// removed may have been a pack of the same objects, and would take this one along.
func newPackID() string {
	var b objectName
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// adopt renames a pack and its index to where they are looked for, when what they hold
// is on disk. Their names are when a ref has changed (see packFiles.named).
func (r *Repo) adopt(name string, pack, index *os.File) error {
	if err := syncAll(pack, index); err != nil {
		return err
	}
	place := filepath.Join(r.dir, packFolder, "pack-"+name)
	packs := &r.objects.packs
	packs.unnamed.Add(1) // who finds it before this is done waits for its name, too
	defer packs.unnamed.Add(1)
	// A pack is there for git when its index is: that comes last.
	if err := os.Rename(pack.Name(), place+".pack"); err != nil {
		return err
	}
	if err := os.Rename(index.Name(), place+".idx"); err != nil {
		return err
	}
	packs.changed()
	r.wrote()
	return nil
}

// finish writes the count of objects into the pack's header and the checksum behind the
// last one.
func (w *packWriter) finish() ([]byte, error) {
	if err := w.out.Flush(); err != nil {
		return nil, err
	}
	head := packPrefix(uint32(len(w.objs)))
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

// packIndex is the index of a pack with these objects and this checksum.
func packIndex(objs []packEntry, sum []byte) []byte {
	objs = slices.Clone(objs)
	slices.SortFunc(objs, func(a, b packEntry) int { return bytes.Compare(a.name[:], b.name[:]) })
	b := make([]byte, 0, 8+256*4+len(objs)*(sha1.Size+4+4)+2*sha1.Size)
	b = append(b, "\xfftOc\x00\x00\x00\x02"...)
	next := 0
	for first := range 256 {
		for next < len(objs) && int(objs[next].name[0]) <= first {
			next++
		}
		b = binary.BigEndian.AppendUint32(b, uint32(next))
	}
	for _, o := range objs {
		b = append(b, o.name[:]...)
	}
	for _, o := range objs {
		b = binary.BigEndian.AppendUint32(b, o.crc)
	}
	// What begins beyond 2 GiB has its place in a table of its own.
	var far []byte
	for _, o := range objs {
		if o.at < 1<<31 {
			b = binary.BigEndian.AppendUint32(b, uint32(o.at))
			continue
		}
		b = binary.BigEndian.AppendUint32(b, 1<<31|uint32(len(far)/8))
		far = binary.BigEndian.AppendUint64(far, uint64(o.at))
	}
	b = append(b, far...)
	b = append(b, sum...)
	own := sha1.Sum(b)
	return append(b, own[:]...)
}
