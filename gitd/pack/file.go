package pack

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"sync"
	"time"
)

// File is one pack and its index, open for reading.
type File struct {
	name   string // the path without the extension
	fan    [256]uint32
	index  io.ReaderAt
	closer io.Closer // of the index, nil if the index is in memory
	size   int64     // of the index

	cruft bool // git intends to remove its objects

	mu    sync.Mutex // guards the fields below
	file  *os.File   // the pack, nil until its first use
	gone  bool       // it was closed and must not be opened again
	fresh time.Time  // the last time it was marked as in use
}

// OpenFile opens the index of a pack. The pack itself is opened when it is needed.
func OpenFile(dir, name string) (_ *File, err error) {
	f, err := os.Open(filepath.Join(dir, name+".idx"))
	if err != nil {
		return nil, err
	}
	pack := &File{name: filepath.Join(dir, name), index: f, closer: f}
	defer func() {
		if err != nil || pack.closer == nil {
			f.Close()
		}
	}()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if pack.size = info.Size(); pack.size <= indexMemory {
		data := make([]byte, pack.size)
		if _, err := io.ReadFull(f, data); err != nil {
			return nil, err
		}
		pack.index, pack.closer = bytes.NewReader(data), nil
	}
	head := make([]byte, idxHead)
	if _, err := pack.index.ReadAt(head, 0); err != nil {
		return nil, err
	}
	if string(head[:8]) != idxMagic {
		return nil, errors.New("an index of an unknown version")
	}
	for i := range pack.fan {
		pack.fan[i] = binary.BigEndian.Uint32(head[8+4*i:])
		if i > 0 && pack.fan[i] < pack.fan[i-1] {
			return nil, errors.New("a damaged index")
		}
	}
	// A table of objects with other names has another length.
	n := int64(pack.fan[255])
	far := pack.size - idxHead - n*(20+4+4) - 2*20
	if far < 0 || far%8 != 0 || far > 8*n {
		return nil, errors.New("a damaged index")
	}
	return pack, nil
}

const (
	idxMagic = "\xfftOc\x00\x00\x00\x02"
	idxHead  = 8 + 256*4
)

// findNames is how many names are read together, which costs as much as one. An object is
// looked for in every pack, so the buffers are kept.
const findNames = 32

var findWindows = sync.Pool{New: func() any { return new([findNames * 20]byte) }}

// Find returns the offset of an object in the pack. ok is false if the pack does not have it.
func (p *File) Find(name []byte) (at int64, ok bool, err error) {
	lo, hi := int64(0), int64(p.fan[name[0]])
	if name[0] > 0 {
		lo = int64(p.fan[name[0]-1])
	}
	window := findWindows.Get().(*[findNames * 20]byte)
	defer findWindows.Put(window)
	for lo < hi {
		n := min(hi-lo, findNames)
		from := lo + (hi-lo-n)/2
		b := window[:n*20]
		if _, err := p.index.ReadAt(b, idxHead+from*20); err != nil {
			return 0, false, err
		}
		i := int64(sort.Search(int(n), func(i int) bool { return bytes.Compare(b[i*20:(i+1)*20], name) >= 0 }))
		switch {
		case i < n && bytes.Equal(b[i*20:(i+1)*20], name):
			at, err := p.offset(from + i)
			return at, err == nil, err
		case i == 0:
			hi = from
		case i == n:
			lo = from + n
		default:
			return 0, false, nil
		}
	}
	return 0, false, nil
}

// offset returns the offset of the object that is the nth by name.
func (p *File) offset(nth int64) (int64, error) {
	n := int64(p.fan[255])
	var b [8]byte
	if _, err := p.index.ReadAt(b[:4], idxHead+n*(20+4)+nth*4); err != nil {
		return 0, err
	}
	at := binary.BigEndian.Uint32(b[:4])
	if at < 1<<31 {
		return int64(at), nil
	}
	if _, err := p.index.ReadAt(b[:], idxHead+n*(20+4+4)+int64(at&(1<<31-1))*8); err != nil {
		return 0, err
	}
	return int64(binary.BigEndian.Uint64(b[:]) &^ (1 << 63)), nil
}

// place is where an object is.
type place struct {
	at  int64
	nth uint32 // by name
}

// places returns the places of all objects by their offsets. Most bases of deltas are a short way before them.
func (p *File) places() ([]place, error) {
	all := make([]place, p.fan[255])
	for i := range all {
		at, err := p.offset(int64(i))
		if err != nil {
			return nil, err
		}
		all[i] = place{at, uint32(i)}
	}
	slices.SortFunc(all, func(a, b place) int { return cmp.Compare(a.at, b.at) })
	return all, nil
}

// freshEvery is the least time between two marks of a pack as in use. Git waits for weeks
// before it removes objects of a pack that is not marked.
const freshEvery = 10 * time.Minute

// freshen marks the pack as in use.
func (p *File) freshen() error {
	if p.cruft {
		return errNoObject
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if now.Sub(p.fresh) < freshEvery {
		return nil
	}
	if err := os.Chtimes(p.name+".pack", now, now); err != nil {
		return err
	}
	p.fresh = now
	return nil
}

// open returns the file of the pack. Returns [os.ErrClosed] after Close.
func (p *File) open() (*os.File, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gone {
		return nil, os.ErrClosed
	}
	if p.file == nil {
		f, err := os.Open(p.name + ".pack")
		if err != nil {
			return nil, err
		}
		p.file = f
	}
	return p.file, nil
}

// Close closes the files.
func (p *File) Close() {
	if p.closer != nil {
		p.closer.Close()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gone = true
	if p.file != nil {
		p.file.Close()
		p.file = nil
	}
}
