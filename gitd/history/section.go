package history

import (
	"bytes"
	"compress/zlib"
	"crypto/sha1"
	"encoding/hex"
	"slices"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/ramus-dev/ramus/gitd/pack"
)

const (
	// sectionObjects bounds the objects of a [Section].
	sectionObjects = 2000
	// sectionBytes is the default of [Section.MaxBytes].
	sectionBytes = 8 << 20
)

// Section is a run of objects as a pack has them between its header and its checksum, whole and compressed.
type Section struct {
	// MaxBytes bounds the objects before compression. Zero means 8 MiB.
	MaxBytes int64

	buf   bytes.Buffer
	index []pack.IndexEntry // At counts from the beginning of buf
	bytes int64             // before compression
}

// Len returns the number of objects.
func (s *Section) Len() int { return len(s.index) }

// Size returns the size of the objects in bytes before compression.
func (s *Section) Size() int64 { return s.bytes }

// Bytes returns the section as it is in a pack.
func (s *Section) Bytes() []byte { return s.buf.Bytes() }

// add appends an object. Returns [ErrLarge] if the section is full.
func (s *Section) add(kind string, name pack.ObjectName, data []byte) error {
	k, err := plumbing.ParseObjectType(kind)
	if err != nil {
		return err
	}
	most := s.MaxBytes
	if most == 0 {
		most = sectionBytes
	}
	if s.bytes += int64(len(data)); s.bytes > most || len(s.index) == sectionObjects {
		return ErrLarge
	}

	at := int64(s.buf.Len())
	entry := &pack.EntryWriter{Out: &s.buf}
	zip := pack.Deflaters.Get().(*zlib.Writer)
	defer pack.Deflaters.Put(zip)
	zip.Reset(entry)
	if _, err := entry.Write(pack.EntryHeader(byte(k), int64(len(data)))); err != nil {
		return err
	}
	if _, err := zip.Write(data); err != nil {
		return err
	}
	if err := zip.Close(); err != nil {
		return err
	}
	s.index = append(s.index, pack.IndexEntry{Name: name, CRC: entry.CRC, At: at})
	return nil
}

// WritePack writes a pack of the section alone into files in dir that have no names.
func (s *Section) WritePack(dir string) (_ *pack.Pack, err error) {
	head := pack.Header(uint32(len(s.index)))
	sum := sha1.New()
	sum.Write(head)
	sum.Write(s.buf.Bytes())
	end := sum.Sum(nil)
	index := slices.Clone(s.index)
	for i := range index {
		index[i].At += pack.HeaderLength
	}

	p := &pack.Pack{Name: hex.EncodeToString(end), Objects: len(index)}
	if p.Pack, err = pack.UnnamedFile(dir, head, s.buf.Bytes(), end); err != nil {
		return nil, err
	}
	if p.Index, err = pack.UnnamedFile(dir, pack.EncodeIndex(index, end)); err != nil {
		p.Pack.Close()
		return nil, err
	}
	return p, nil
}
