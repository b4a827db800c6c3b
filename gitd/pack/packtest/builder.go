// Package packtest writes packs for tests, also such as git would never write.
package packtest

import (
	"bytes"
	"compress/zlib"
	"crypto/sha1"
	"encoding/binary"
)

// ofsDelta is the type of a delta that names its base by an offset (gitformat-pack).
const ofsDelta = 6

// Builder writes packs, also such as git would never write. The zero value is an empty pack.
type Builder struct {
	Body  bytes.Buffer
	Count uint32 // objects so far
	z     *zlib.Writer
}

// Header appends the header of an object.
func (b *Builder) Header(typ byte, size uint64) {
	c := typ<<4 | byte(size&15)
	for size >>= 4; size > 0; size >>= 7 {
		b.Body.WriteByte(c | 0x80)
		c = byte(size & 0x7f)
	}
	b.Body.WriteByte(c)
}

// Object adds an object that declares size and holds data. typ is a type of gitformat-pack.
func (b *Builder) Object(typ byte, size uint64, data []byte) {
	b.Count++
	b.Header(typ, size)
	b.Deflate(data)
}

// Deflate appends data, compressed.
func (b *Builder) Deflate(data []byte) {
	if b.z == nil {
		b.z = zlib.NewWriter(&b.Body)
	}
	b.z.Reset(&b.Body)
	b.z.Write(data)
	b.z.Close()
}

// Delta adds a delta on the object that begins back bytes before it.
func (b *Builder) Delta(back int, data []byte) {
	b.Count++
	b.Header(ofsDelta, uint64(len(data)))
	enc := []byte{byte(back & 0x7f)}
	for back >>= 7; back > 0; back >>= 7 {
		back--
		enc = append([]byte{byte(back&0x7f) | 0x80}, enc...)
	}
	b.Body.Write(enc)
	b.Deflate(data)
}

// At returns the offset of the next object.
func (b *Builder) At() int { return 12 + b.Body.Len() }

// Pack returns the pack with its checksum.
func (b *Builder) Pack() []byte { return b.Declaring(b.Count) }

// Declaring returns the pack with a header that declares count objects.
func (b *Builder) Declaring(count uint32) []byte {
	out := binary.BigEndian.AppendUint32([]byte("PACK\x00\x00\x00\x02"), count)
	out = append(out, b.Body.Bytes()...)
	sum := sha1.Sum(out)
	return append(out, sum[:]...)
}

// Growing returns a delta that copies its whole base of size bytes n times.
func Growing(size, n int) []byte {
	d := binary.AppendUvarint(nil, uint64(size))
	d = binary.AppendUvarint(d, uint64(size)*uint64(n))
	for range n {
		// copy offset 0, three bytes of size
		d = append(d, 0x80|0x70, byte(size), byte(size>>8), byte(size>>16))
	}
	return d
}

// Copying returns a delta that makes size bytes of a repetitive base of n bytes.
func Copying(n, size int) []byte {
	d := binary.AppendUvarint(nil, uint64(n))
	d = binary.AppendUvarint(d, uint64(size))
	for size > 0 {
		piece := min(n, size, 8<<20)
		d = append(d, 0x80|0x70, byte(piece), byte(piece>>8), byte(piece>>16))
		size -= piece
	}
	return d
}
