package pack

import (
	"fmt"
	"io"

	"github.com/ramus-dev/ramus/gitd/object"
	"github.com/ramus-dev/ramus/internal/bytesize"
)

// Tap reads from a client. It copies the consumed bytes to a sink, but not the bytes that are only
// buffered, so that the sink ends exactly at the end of the pack.
type Tap struct {
	src      io.Reader
	sink     io.Writer
	buf      []byte
	off, end int   // unread part of buf
	mark     int   // buf[mark:off] is consumed but not yet in sink
	passed   int64 // bytes consumed before buf[0]
	Limit    int64 // most bytes to consume
	err      error // of src, returned when the buffer is empty
	over     bool  // src has more than Limit bytes
}

// NewTap returns a tap that consumes at most limit bytes of src.
func NewTap(src io.Reader, sink io.Writer, limit int64) *Tap {
	return &Tap{src: src, sink: sink, buf: make([]byte, tapBuffer), Limit: limit}
}

// Consumed returns the number of consumed bytes.
func (t *Tap) Consumed() int64 { return t.passed + int64(t.off) }

// Flush writes the consumed bytes to the sink.
func (t *Tap) Flush() error {
	if t.off > t.mark {
		if _, err := t.sink.Write(t.buf[t.mark:t.off]); err != nil {
			return fmt.Errorf("cannot store a request: %w", err)
		}
		t.mark = t.off
	}
	return nil
}

// fill makes at least one byte readable.
func (t *Tap) fill() error {
	if t.off < t.end {
		return nil
	}
	if err := t.Flush(); err != nil {
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
	if t.passed >= t.Limit {
		return t.overLimit()
	}
	for t.end == 0 && t.err == nil {
		t.end, t.err = t.src.Read(t.buf)
	}
	// The limit is exact. Bytes beyond it are never returned.
	if rest := t.Limit - t.passed; int64(t.end) > rest {
		t.end = int(rest)
		t.over = true
	}
	if t.end == 0 {
		return t.err
	}
	return nil
}

func (t *Tap) overLimit() error {
	return object.Refuse(object.ErrTooLarge, "larger than the limit of %s", bytesize.Text(t.Limit))
}

func (t *Tap) Read(p []byte) (int, error) {
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

// ReadByte makes Tap a [flate.Reader], from which package flate reads no byte too many.
func (t *Tap) ReadByte() (byte, error) {
	if t.off == t.end {
		if err := t.fill(); err != nil {
			return 0, err
		}
	}
	c := t.buf[t.off]
	t.off++
	return c, nil
}

// buffered returns the number of bytes that are buffered and not consumed.
func (t *Tap) buffered() int { return t.end - t.off }

// Drain discards input until src ends, at most max bytes, because a client that is still sending does
// not read the answer.
func (t *Tap) Drain(max int64) {
	t.off, t.end, t.mark = 0, 0, 0
	if t.err == nil {
		io.CopyBuffer(WriterOnly{io.Discard}, io.LimitReader(t.src, max), t.buf)
	}
}

// AtEnd returns an [object.Refusal] if data follows the pack. known reports whether the transport
// marks the end of the input, so that AtEnd can read up to it. Otherwise AtEnd looks only at
// buffered data, because a read could block forever.
func (t *Tap) AtEnd(known bool) error {
	if known {
		t.Limit++
		switch err := t.fill(); {
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		}
	}
	if t.buffered() > 0 {
		return object.Refuse(object.ErrInvalid, "unexpected data after the end of the pack")
	}
	return nil
}

// WriterOnly hides ReaderFrom of a writer, so that io.CopyBuffer uses its own buffer.
type WriterOnly struct{ io.Writer }
