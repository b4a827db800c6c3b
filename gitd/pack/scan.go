package pack

import (
	"bytes"
	"cmp"
	"compress/flate"
	"compress/zlib"
	"encoding/binary"
	"errors"
	"io"
	"sort"

	"github.com/ramus-dev/ramus/gitd/object"
	"github.com/ramus-dev/ramus/internal/bytesize"
)

// Git allocates memory for the declared size of an object before it looks at the data, and it
// applies every delta of a pack. Some KiB of deltas can therefore cost half a minute of CPU and
// gigabytes of memory. Scan reads a pack from outside once before git sees it. It keeps only
// counters and 16 bytes for each delta.

const (
	// expandFree and expandRatio bound the sum of all declared sizes of a pack
	// of n bytes to expandFree + n×expandRatio. Histories of large files reach ratios of about
	// 70. Bombs of deltas begin at thousands.
	expandFree  = 1 << 30
	expandRatio = 256

	// growFree and expandRatio bound the growth by deltas in a pack of n bytes to
	// growFree + n×expandRatio. The growth is the size of the results minus the sizes of the
	// bases and of the deltas. An edit of a file of any size adds nothing to it. A delta that
	// copies its base repeatedly adds its whole result.
	growFree = 64 << 20
	// workFree and workRatio bound the bytes that git produces if it rebuilds all bases for
	// each delta, the sum of size × depth.
	workFree  = 8 << 30
	workRatio = 4096
	// depthMax is the longest chain of deltas that git makes. refDepth is the assumed depth of
	// a delta that names its base, because that base may be in the repository.
	depthMax = 4095
	refDepth = 8

	// SpoolMemory is the size in bytes up to which a [Spool] stays in memory. A larger one goes
	// to an unlinked file.
	SpoolMemory = 1 << 20
	// tapBuffer is the size in bytes of the buffer of a [Tap]. Every slow client has one.
	tapBuffer = 16 << 10
)

const (
	// DeltaCache is the largest cache in bytes of bases of deltas while git indexes a pack.
	DeltaCache = 16 << 20
	// BigFile is the size in bytes from which on git reads a blob of a pack in pieces and does
	// not hold it in memory.
	BigFile = 32 << 20
)

// Limits bounds one pack.
type Limits struct {
	Bytes   int64 // of the pack itself
	Objects int64
	Object  int64 // the largest declared size of an object or of the result of a delta
}

// Stats holds the counts of a scan.
type Stats struct {
	Objects  int64
	Declared int64 // sum of declared sizes
	grown    int64 // bytes by which results of deltas exceed base and delta
	work     int64 // sum of size × depth of the results of deltas
	peak     int64 // the most bytes that git holds for one object with its base and delta
}

// Memory estimates the most bytes that git needs to index the pack.
func (st Stats) Memory() int64 {
	const process, object = 8 << 20, 128
	return process + st.Objects*object + st.peak + min(st.Declared, DeltaCache)
}

// chains holds the depths of the deltas of a pack, in the order of their offsets.
type chains []struct {
	at    int64 // the offset of the delta
	depth int
}

// depth returns the depth of the object at an offset, or 0 if it is not a delta.
func (c chains) depth(at int64) int {
	n, ok := sort.Find(len(c), func(i int) int { return cmp.Compare(at, c[i].at) })
	if !ok {
		return 0
	}
	return c[n].depth
}

// Object types of a pack (gitformat-pack).
const (
	TypeCommit   = 1
	typeBlob     = 3
	TypeTag      = 4
	typeOfsDelta = 6
	TypeRefDelta = 7
)

// Source is the input of a scan. A [Tap] is one.
type Source interface {
	io.Reader
	io.ByteReader
	Consumed() int64
}

// Scan reads one pack from r and stops directly after its checksum, which git verifies later.
// hashLen is 20 for SHA-1 and 32 for SHA-256. Returns an [object.Refusal] if the pack is not
// well-formed or exceeds lim.
func Scan(r Source, hashLen int, lim Limits) (Stats, error) {
	s := scanner{r: r, hashLen: hashLen, lim: lim, begin: r.Consumed(), scratch: make([]byte, 32<<10)}
	count, err := s.readHeader()
	for err == nil && s.st.Objects < count {
		err = s.scanObject()
	}
	if err == nil {
		_, err = io.ReadFull(r, s.scratch[:hashLen])
	}
	if err == nil && s.passed() > lim.Bytes {
		err = object.Refuse(object.ErrTooLarge, "the pack is larger than %s", bytesize.Text(lim.Bytes))
	}
	return s.st, s.explain(err)
}

// scanner is the state of one scan.
type scanner struct {
	r       Source
	hashLen int
	lim     Limits
	begin   int64 // offset in r
	st      Stats
	inflate io.ReadCloser // nil before the first object
	scratch []byte
	deltas  chains
}

// passed returns the number of bytes of the pack that were read.
func (s *scanner) passed() int64 { return s.r.Consumed() - s.begin }

// explain returns a refusal for an error that a malformed pack causes, and other errors as they are.
func (s *scanner) explain(err error) error {
	var corrupt flate.CorruptInputError
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return object.Refuse(object.ErrInvalid, "the pack ends early, after %d objects", s.st.Objects)
	case errors.Is(err, zlib.ErrHeader), errors.Is(err, zlib.ErrChecksum), errors.Is(err, zlib.ErrDictionary),
		errors.As(err, &corrupt):
		return object.Refuse(object.ErrInvalid, "object %d of the pack is corrupt", s.st.Objects+1)
	}
	return err
}

// readHeader returns the number of objects that the pack declares.
func (s *scanner) readHeader() (count int64, err error) {
	var head [HeaderLength]byte
	if _, err := io.ReadFull(s.r, head[:]); err != nil {
		return 0, err
	}
	version := binary.BigEndian.Uint32(head[4:])
	if string(head[:4]) != "PACK" || version != 2 && version != 3 {
		return 0, object.Refuse(object.ErrInvalid, "not a pack of version 2 or 3")
	}
	count = int64(binary.BigEndian.Uint32(head[8:]))
	if count > s.lim.Objects {
		return 0, object.Refuse(object.ErrTooLarge, "the pack declares %d objects; the limit is %d", count, s.lim.Objects)
	}
	return count, nil
}

// scanObject scans the next object.
func (s *scanner) scanObject() error {
	at := s.passed()
	typ, size, err := objectHeader(s.r)
	if err != nil {
		return err
	}
	if size > s.lim.Object {
		return object.Refuse(object.ErrTooLarge, "an object of the pack declares %s; the limit is %s",
			bytesize.Text(size), bytesize.Text(s.lim.Object))
	}
	depth, err := s.readBase(typ, at)
	if err != nil {
		return err
	}
	if s.inflate == nil {
		s.inflate, err = zlib.NewReader(s.r)
	} else {
		err = s.inflate.(zlib.Resetter).Reset(s.r, nil)
	}
	if err != nil {
		return err
	}

	total := size
	if typ >= typeOfsDelta {
		result, err := s.scanDelta(at, size, depth)
		if err != nil {
			return err
		}
		total += result
	} else if err := scanData(s.inflate, size, s.scratch); err != nil {
		return err
	}
	if typ != typeBlob || size <= BigFile {
		s.st.peak = max(s.st.peak, size)
	}
	s.st.Objects++
	// Sizes are below lim.Object and the count is below 2³², but the operator may
	// choose any limits. The scan stops before the sum can wrap.
	if s.st.Declared += total; s.st.Declared < 0 || s.st.Declared > expandFree+s.passed()*expandRatio {
		return object.Refuse(object.ErrTooLarge, "the pack's objects declare %s and more in %s of pack",
			bytesize.Text(s.st.Declared), bytesize.Text(s.passed()))
	}
	return nil
}

// readBase reads the base of a delta at an offset of the pack and returns the depth of its chain. Other objects
// have depth 0.
func (s *scanner) readBase(typ byte, at int64) (depth int, err error) {
	switch {
	case typ >= TypeCommit && typ <= TypeTag:
		return 0, nil
	case typ == typeOfsDelta:
		back, err := deltaOffset(s.r)
		if err != nil {
			return 0, err
		}
		if back <= 0 || back > at-HeaderLength {
			return 0, object.Refuse(object.ErrInvalid, "object %d of the pack has its base outside of it", s.st.Objects+1)
		}
		if depth = s.deltas.depth(at-back) + 1; depth > depthMax {
			return 0, object.Refuse(object.ErrTooLarge, "the pack has a chain of more than %d deltas; %s",
				depthMax, plainPush)
		}
		return depth, nil
	case typ == TypeRefDelta:
		_, err := io.ReadFull(s.r, s.scratch[:s.hashLen])
		return refDepth, err
	}
	return 0, object.Refuse(object.ErrInvalid, "object %d of the pack has the unknown type %d", s.st.Objects+1, typ)
}

// scanDelta scans the data of a delta and returns the size of its result.
func (s *scanner) scanDelta(at, size int64, depth int) (result int64, err error) {
	base, result, err := scanDelta(s.inflate, size, s.scratch)
	if err != nil {
		return 0, err
	}
	if result > s.lim.Object {
		return 0, object.Refuse(object.ErrTooLarge, "a delta of the pack makes an object of %s; the limit is %s",
			bytesize.Text(result), bytesize.Text(s.lim.Object))
	}
	if base > s.lim.Object {
		return 0, object.Refuse(object.ErrTooLarge, "a delta of the pack has a base of %s; the limit is %s",
			bytesize.Text(base), bytesize.Text(s.lim.Object))
	}
	s.deltas = append(s.deltas, struct {
		at    int64
		depth int
	}{at, depth})

	passed := s.passed()
	if s.st.grown += max(0, result-base-size); s.st.grown > growFree+passed*expandRatio {
		return 0, object.Refuse(object.ErrTooLarge,
			"the deltas of the pack copy their bases too often, %s and more in %s of pack; %s",
			bytesize.Text(s.st.grown), bytesize.Text(passed), plainPush)
	}
	if s.st.work += result * int64(depth); s.st.work < 0 || s.st.work > workFree+passed*workRatio {
		return 0, object.Refuse(object.ErrTooLarge,
			"the deltas of the pack make %s and more through long chains in %s of pack; %s",
			bytesize.Text(s.st.work), bytesize.Text(passed), plainPush)
	}
	s.st.peak = max(s.st.peak, base+result+size)
	return result, nil
}

// objectHeader reads the type and the declared size of an object.
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
			return 0, 0, object.Refuse(object.ErrTooLarge, "an object of the pack declares a size beyond 2^60")
		}
		size |= int64(c&0x7f) << shift
	}
	return typ, size, nil
}

// deltaOffset reads the distance from a delta back to its base.
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
			return 0, object.Refuse(object.ErrInvalid, "a delta of the pack has its base beyond 2^60")
		}
		n = (n+1)<<7 | int64(c&0x7f)
	}
	return n, nil
}

// scanData inflates exactly size bytes. It stops at the first byte beyond them, so that a bomb is
// not inflated only to find its size.
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
	errShort = object.Refuse(object.ErrInvalid, "an object of the pack is shorter than it declares")
	errLong  = object.Refuse(object.ErrInvalid, "an object of the pack is longer than it declares")
)

// plainPush tells a person how to send objects without deltas.
const plainPush = "push without deltas: git -c pack.window=0 -c pack.depth=0 push, after git -c pack.window=0 repack -adF if it is refused again"

// scanDelta inflates a delta of size bytes and returns the declared sizes of its base and of its
// result.
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
		return 0, 0, object.Refuse(object.ErrInvalid, "a delta of the pack is corrupt")
	}
	return base, result, scanData(r, size-int64(len(head)), scratch)
}

// deltaSize reads one of the two sizes at the start of a delta.
func deltaSize(r io.ByteReader) (int64, error) {
	var n int64
	for shift := 0; ; shift += 7 {
		c, err := r.ReadByte()
		if err != nil {
			return 0, err
		}
		if shift > 56 {
			return 0, errDelta
		}
		n |= int64(c&0x7f) << shift
		if c&0x80 == 0 {
			return n, nil // at most 63 bits
		}
	}
}
