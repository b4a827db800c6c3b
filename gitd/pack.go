package gitd

import (
	"bytes"
	"cmp"
	"compress/flate"
	"compress/zlib"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"sort"

	"github.com/ramus-dev/ramus/gitd/object"
	"github.com/ramus-dev/ramus/internal/bytesize"
)

// A pack from outside is read once, in process, before git may see it: git
// allocates what an object's header declares and only then looks at the data,
// and it builds every delta a pack asks for. Some KiB of deltas can so cost
// half a minute of CPU and gigabytes of memory. The scanner keeps counters, and
// 16 bytes for each delta.

const (
	// expandFree and expandRatio bound the sum of all declared sizes of a pack
	// of n bytes to expandFree + n×expandRatio. Histories of large files reach
	// ratios of some 70; a bomb of deltas starts at thousands.
	expandFree  = 1 << 30
	expandRatio = 256

	// growFree and expandRatio bound by how much the deltas of a pack of n bytes may
	// make objects larger than their bases and their own data, to growFree + n×expandRatio.
	// An edit, of a file of any size, adds nothing to the sum; a delta that copies its base
	// again and again adds all that it makes.
	growFree = 64 << 20
	// workFree and workRatio bound the bytes that git makes if it takes each delta's
	// bases for each delta, the sum of size × depth.
	workFree  = 8 << 30
	workRatio = 4096
	// depthMax is the longest chain of deltas that git makes. refDepth is what is taken for
	// the depth of a delta that names its base, which may be in the repository.
	depthMax = 4095
	refDepth = 8

	// spoolMemory is how much of a request is kept in memory; what is longer
	// goes to an unlinked file.
	spoolMemory = 1 << 20
	// tapBuffer is what is read at once. Each client that is slow to send has one.
	tapBuffer = 16 << 10
)

// packLimits bound one pack.
type packLimits struct {
	bytes   int64 // of the pack itself
	objects int64
	object  int64 // largest declared size of one object, and of what a delta makes
}

// packStats is what a scan has counted.
type packStats struct {
	objects  int64
	declared int64 // sum of declared sizes
	grown    int64 // bytes by which deltas make objects larger than base and delta
	work     int64 // sum of size × depth of what deltas make
	peak     int64 // most bytes that git holds of one object with its base and delta
}

// memory estimates, in bytes, what git needs at most to index the pack.
func (st packStats) memory() int64 {
	const process, object = 8 << 20, 128
	return process + st.objects*object + st.peak + min(st.declared, deltaCache)
}

// chains knows the depths of the deltas of a pack.
type chains []struct {
	at    int64 // where the delta begins
	depth int
}

// depth returns that of the object at a place; 0 if it is no delta.
func (c chains) depth(at int64) int {
	n, ok := sort.Find(len(c), func(i int) int { return cmp.Compare(at, c[i].at) })
	if !ok {
		return 0
	}
	return c[n].depth
}

// tap reads from a client and copies what was consumed, and nothing of what
// was only buffered, to sink: the sink ends exactly where the pack does.
type tap struct {
	src      io.Reader
	sink     io.Writer
	buf      []byte
	off, end int   // unread part of buf
	mark     int   // buf[mark:off] is read but not yet in sink
	passed   int64 // bytes consumed before buf[0]
	limit    int64 // most bytes to consume
	err      error // of src, given once the buffer is empty
	over     bool  // there was more than limit
}

func newTap(src io.Reader, sink io.Writer, limit int64) *tap {
	return &tap{src: src, sink: sink, buf: make([]byte, tapBuffer), limit: limit}
}

// consumed is how many bytes were read from the tap.
func (t *tap) consumed() int64 { return t.passed + int64(t.off) }

// flush writes what was consumed to the sink.
func (t *tap) flush() error {
	if t.off > t.mark {
		if _, err := t.sink.Write(t.buf[t.mark:t.off]); err != nil {
			return fmt.Errorf("cannot store a request: %w", err)
		}
		t.mark = t.off
	}
	return nil
}

// fill makes at least one byte readable.
func (t *tap) fill() error {
	if t.off < t.end {
		return nil
	}
	if err := t.flush(); err != nil {
		return err
	}
	if t.over {
		return t.overLimit()
	}
	if t.err != nil {
		return t.err
	}
	t.passed += int64(t.off)
	t.off, t.end, t.mark = 0, 0, 0
	if t.passed >= t.limit {
		return t.overLimit()
	}
	for t.end == 0 && t.err == nil {
		t.end, t.err = t.src.Read(t.buf)
	}
	// The limit is exact: what lies beyond it is never given out.
	if rest := t.limit - t.passed; int64(t.end) > rest {
		t.end = int(rest)
		t.over = true
	}
	if t.end == 0 {
		return t.err
	}
	return nil
}

func (t *tap) overLimit() error {
	return object.Refuse(ErrTooLarge, "larger than the limit of %s", bytesize.Text(t.limit))
}

func (t *tap) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if err := t.fill(); err != nil {
		return 0, err
	}
	n := copy(p, t.buf[t.off:t.end])
	t.off += n
	return n, nil
}

// ReadByte makes the tap a [flate.Reader], which reads no byte too many.
func (t *tap) ReadByte() (byte, error) {
	if t.off == t.end {
		if err := t.fill(); err != nil {
			return 0, err
		}
	}
	c := t.buf[t.off]
	t.off++
	return c, nil
}

// buffered is how many bytes lie read but unconsumed.
func (t *tap) buffered() int { return t.end - t.off }

// drain reads on until the source ends, at most max bytes, storing nothing: a
// client that is still sending does not read the answer.
func (t *tap) drain(max int64) {
	t.off, t.end, t.mark = 0, 0, 0
	if t.err == nil {
		io.CopyBuffer(onlyWriter{io.Discard}, io.LimitReader(t.src, max), t.buf)
	}
}

// onlyWriter hides ReaderFrom, whose own buffer io.CopyBuffer would prefer.
type onlyWriter struct{ io.Writer }

// Object types of a pack (gitformat-pack).
const (
	packCommit   = 1
	packBlob     = 3
	packTag      = 4
	packOfsDelta = 6
	packRefDelta = 7
)

// packReader is what a scan reads from.
type packReader interface {
	io.Reader
	io.ByteReader
	consumed() int64
}

// scanPack reads one pack from r and stops right behind its checksum, which it
// leaves to git to verify. hashLen is 20 for SHA-1 and 32 for SHA-256.
func scanPack(r packReader, hashLen int, lim packLimits) (packStats, error) {
	var st packStats
	begin := r.consumed()
	fail := func(err error) (packStats, error) {
		var corrupt flate.CorruptInputError
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return st, object.Refuse(ErrInvalid, "the pack ends early, after %d objects", st.objects)
		case errors.Is(err, zlib.ErrHeader), errors.Is(err, zlib.ErrChecksum), errors.Is(err, zlib.ErrDictionary), errors.As(err, &corrupt):
			return st, object.Refuse(ErrInvalid, "object %d of the pack is corrupt", st.objects+1)
		}
		return st, err
	}
	var head [12]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return fail(err)
	}
	version := binary.BigEndian.Uint32(head[4:])
	if string(head[:4]) != "PACK" || version != 2 && version != 3 {
		return st, object.Refuse(ErrInvalid, "not a pack of version 2 or 3")
	}
	count := int64(binary.BigEndian.Uint32(head[8:]))
	if count > lim.objects {
		return st, object.Refuse(ErrTooLarge, "the pack declares %d objects; the limit is %d", count, lim.objects)
	}
	var (
		inflate io.ReadCloser
		scratch = make([]byte, 32<<10)
		deltas  chains
		depth   int
		err     error
	)
	for st.objects < count {
		at := r.consumed() - begin
		typ, size, err2 := objectHeader(r)
		if err2 != nil {
			return fail(err2)
		}
		if size > lim.object {
			return st, object.Refuse(ErrTooLarge, "an object of the pack declares %s; the limit is %s", bytesize.Text(size), bytesize.Text(lim.object))
		}
		switch {
		case typ >= packCommit && typ <= packTag:
		case typ == packOfsDelta:
			back, err := deltaOffset(r)
			if err != nil {
				return fail(err)
			}
			if back <= 0 || back > at-int64(len(head)) {
				return st, object.Refuse(ErrInvalid, "object %d of the pack has its base outside of it", st.objects+1)
			}
			if depth = deltas.depth(at-back) + 1; depth > depthMax {
				return st, object.Refuse(ErrTooLarge, "the pack has a chain of more than %d deltas; %s", depthMax, plainPush)
			}
		case typ == packRefDelta:
			if _, err := io.ReadFull(r, scratch[:hashLen]); err != nil {
				return fail(err)
			}
			depth = refDepth
		default:
			return st, object.Refuse(ErrInvalid, "object %d of the pack has the unknown type %d", st.objects+1, typ)
		}
		if inflate == nil {
			inflate, err = zlib.NewReader(r)
		} else {
			err = inflate.(zlib.Resetter).Reset(r, nil)
		}
		if err != nil {
			return fail(err)
		}
		total := size
		if typ >= packOfsDelta {
			base, result, err := scanDelta(inflate, size, scratch)
			if err != nil {
				return fail(err)
			}
			if result > lim.object {
				return st, object.Refuse(ErrTooLarge, "a delta of the pack makes an object of %s; the limit is %s", bytesize.Text(result), bytesize.Text(lim.object))
			}
			if base > lim.object {
				return st, object.Refuse(ErrTooLarge, "a delta of the pack has a base of %s; the limit is %s", bytesize.Text(base), bytesize.Text(lim.object))
			}
			total += result
			deltas = append(deltas, struct {
				at    int64
				depth int
			}{at, depth})
			passed := r.consumed() - begin
			if st.grown += max(0, result-base-size); st.grown > growFree+passed*expandRatio {
				return st, object.Refuse(ErrTooLarge, "the deltas of the pack copy their bases too often, %s and more in %s of pack; %s",
					bytesize.Text(st.grown), bytesize.Text(passed), plainPush)
			}
			if st.work += result * int64(depth); st.work < 0 || st.work > workFree+passed*workRatio {
				return st, object.Refuse(ErrTooLarge, "the deltas of the pack make %s and more through long chains in %s of pack; %s",
					bytesize.Text(st.work), bytesize.Text(passed), plainPush)
			}
			st.peak = max(st.peak, base+result+size)
		} else if err := scanData(inflate, size, scratch); err != nil {
			return fail(err)
		}
		if typ != packBlob || size <= bigFile {
			st.peak = max(st.peak, size)
		}
		st.objects++
		// Sizes are below lim.object and the count below 2³², but the limits
		// are the operator's: stop before the sum can wrap.
		if st.declared += total; st.declared < 0 || st.declared > expandFree+(r.consumed()-begin)*expandRatio {
			return st, object.Refuse(ErrTooLarge, "the pack's objects declare %s and more in %s of pack", bytesize.Text(st.declared), bytesize.Text(r.consumed()-begin))
		}
	}
	if _, err := io.ReadFull(r, scratch[:hashLen]); err != nil {
		return fail(err)
	}
	if n := r.consumed() - begin; n > lim.bytes {
		return st, object.Refuse(ErrTooLarge, "the pack is larger than %s", bytesize.Text(lim.bytes))
	}
	return st, nil
}

// objectHeader reads an object's type and declared size.
func objectHeader(r io.ByteReader) (typ byte, size int64, err error) {
	c, err := r.ReadByte()
	if err != nil {
		return 0, 0, err
	}
	typ, size = c>>4&7, int64(c&15)
	for shift := 4; c&0x80 != 0; shift += 7 {
		if c, err = r.ReadByte(); err != nil {
			return 0, 0, err
		}
		if shift > 53 {
			return 0, 0, object.Refuse(ErrTooLarge, "an object of the pack declares a size beyond 2^60")
		}
		size |= int64(c&0x7f) << shift
	}
	return typ, size, nil
}

// deltaOffset reads how far before a delta its base begins.
func deltaOffset(r io.ByteReader) (int64, error) {
	c, err := r.ReadByte()
	if err != nil {
		return 0, err
	}
	n := int64(c & 0x7f)
	for c&0x80 != 0 {
		if c, err = r.ReadByte(); err != nil {
			return 0, err
		}
		if n >= 1<<54 {
			return 0, object.Refuse(ErrInvalid, "a delta of the pack has its base beyond 2^60")
		}
		n = (n+1)<<7 | int64(c&0x7f)
	}
	return n, nil
}

// scanData inflates exactly size bytes: one more is a lie in the header, and
// the bomb is not inflated to find out how large it is.
func scanData(r io.Reader, size int64, scratch []byte) error {
	for size > 0 {
		n, err := r.Read(scratch[:min(size, int64(len(scratch)))])
		size -= int64(n)
		if err != nil && size > 0 {
			if err == io.EOF {
				return errShort
			}
			return err
		}
	}
	switch n, err := io.ReadFull(r, scratch[:1]); {
	case n > 0:
		return errLong
	case err == io.EOF:
		return nil
	default:
		return err
	}
}

var (
	errShort = object.Refuse(ErrInvalid, "an object of the pack is shorter than it declares")
	errLong  = object.Refuse(ErrInvalid, "an object of the pack is longer than it declares")
)

// plainPush tells a person how to send objects whole.
const plainPush = "push without deltas: git -c pack.window=0 -c pack.depth=0 push, after git -c pack.window=0 repack -adF if it is refused again"

// scanDelta inflates a delta of size bytes and returns the sizes of its base and of the object
// that it says it makes.
func scanDelta(r io.Reader, size int64, scratch []byte) (base, result int64, err error) {
	head := scratch[:min(size, 20)]
	if _, err := io.ReadFull(r, head); err != nil {
		if errors.Is(err, io.EOF) || err == io.ErrUnexpectedEOF {
			return 0, 0, errShort
		}
		return 0, 0, err
	}
	d := bytes.NewReader(head)
	base, err1 := deltaSize(d)
	result, err2 := deltaSize(d)
	if err := errors.Join(err1, err2); err != nil {
		return 0, 0, object.Refuse(ErrInvalid, "a delta of the pack is corrupt")
	}
	return base, result, scanData(r, size-int64(len(head)), scratch)
}

// deltaSize reads one of the two sizes that begin a delta.
func deltaSize(r io.ByteReader) (int64, error) {
	var n int64
	for shift := 0; ; shift += 7 {
		c, err := r.ReadByte()
		if err != nil {
			return 0, err
		}
		if shift > 56 {
			return 0, errPktLine
		}
		n |= int64(c&0x7f) << shift
		if c&0x80 == 0 {
			if n < 0 {
				return 0, errPktLine
			}
			return n, nil
		}
	}
}

// spool holds a request's body: in memory while it is small, then in a file
// that has no name and so cannot outlive the process. Only when all of it has
// arrived and was found good does git start: a slow client costs a file, not a
// process, and git never sees half of a pack.
type spool struct {
	dir  string // where the file is made: the file system the pack goes to
	mem  bytes.Buffer
	file *os.File
}

func (s *spool) Write(p []byte) (int, error) {
	if s.file == nil {
		if s.mem.Len()+len(p) <= spoolMemory {
			return s.mem.Write(p)
		}
		// The name is one that git's own prune sweeps, should the process die
		// between the two calls.
		f, err := os.CreateTemp(s.dir, "tmp_push_*")
		if err != nil {
			return 0, err
		}
		s.file = f
		if err := os.Remove(f.Name()); err != nil {
			return 0, err
		}
		if _, err := f.Write(s.mem.Bytes()); err != nil {
			return 0, err
		}
		s.mem = bytes.Buffer{}
	}
	return s.file.Write(p)
}

// reader gives what was written, from the beginning.
func (s *spool) reader() (io.Reader, error) {
	if s.file == nil {
		return bytes.NewReader(s.mem.Bytes()), nil
	}
	if _, err := s.file.Seek(0, io.SeekStart); err != nil {
		return nil, fmt.Errorf("cannot read a stored request: %w", err)
	}
	return s.file, nil
}

func (s *spool) close() {
	if s.file != nil {
		s.file.Close()
	}
}
