package pack

import (
	"bufio"
	"compress/zlib"
	"errors"
	"io"
	"sync"
)

// readerAt reads a pack from an offset on. Readers are reused, because the state of an inflater is
// larger than most objects.
type readerAt struct {
	*bufio.Reader
	zip io.ReadCloser
}

// readerPool keeps unused readers.
type readerPool struct{ pool sync.Pool }

// readersAt is the pool of all packs.
var readersAt readerPool

// get returns a reader of f from at on. It must be returned with put.
func (p *readerPool) get(f io.ReaderAt, at int64) *readerAt {
	in, ok := p.pool.Get().(*readerAt)
	if !ok {
		in = &readerAt{Reader: bufio.NewReaderSize(nil, 4096)}
	}
	in.Reset(io.NewSectionReader(f, at, 1<<62-at))
	return in
}

func (p *readerPool) put(in *readerAt) {
	in.Reset(nil)
	p.pool.Put(in)
}

// inflate returns the next size bytes of compressed data. Returns an error if the data has another
// length.
func (r *readerAt) inflate(size int64) ([]byte, error) {
	var err error
	if r.zip == nil {
		r.zip, err = zlib.NewReader(r)
	} else {
		err = r.zip.(zlib.Resetter).Reset(r, nil)
	}
	if err != nil {
		return nil, err
	}
	data := make([]byte, size)
	if _, err := io.ReadFull(r.zip, data); err != nil {
		return nil, err
	}
	// The checksum follows the data and is verified at the end.
	if n, err := r.zip.Read(make([]byte, 1)); n > 0 || err != io.EOF {
		return nil, errors.New("a damaged object")
	}
	return data, nil
}
