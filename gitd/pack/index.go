package pack

import (
	"bytes"
	"crypto/sha1"
	"encoding/binary"
	"slices"
)

// IndexEntry is one object in the index of a pack.
type IndexEntry struct {
	Name ObjectName
	CRC  uint32 // of its header and its compressed data
	At   int64
}

// EncodeIndex returns the index of a pack with these objects and the checksum sum.
func EncodeIndex(objs []IndexEntry, sum []byte) []byte {
	objs = slices.Clone(objs)
	slices.SortFunc(objs, func(a, b IndexEntry) int { return bytes.Compare(a.Name[:], b.Name[:]) })
	b := make([]byte, 0, 8+256*4+len(objs)*(sha1.Size+4+4)+2*sha1.Size)
	b = append(b, "\xfftOc\x00\x00\x00\x02"...)
	next := 0
	for first := range 256 {
		for next < len(objs) && int(objs[next].Name[0]) <= first {
			next++
		}
		b = binary.BigEndian.AppendUint32(b, uint32(next))
	}
	for _, o := range objs {
		b = append(b, o.Name[:]...)
	}
	for _, o := range objs {
		b = binary.BigEndian.AppendUint32(b, o.CRC)
	}
	// Offsets from 2 GiB on are in a second table.
	var far []byte
	for _, o := range objs {
		if o.At < 1<<31 {
			b = binary.BigEndian.AppendUint32(b, uint32(o.At))
			continue
		}
		b = binary.BigEndian.AppendUint32(b, 1<<31|uint32(len(far)/8))
		far = binary.BigEndian.AppendUint64(far, uint64(o.At))
	}
	b = append(b, far...)
	b = append(b, sum...)
	own := sha1.Sum(b)
	return append(b, own[:]...)
}
