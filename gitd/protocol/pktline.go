package protocol

import (
	"errors"
	"fmt"
	"io"

	"github.com/ramus-dev/ramus/gitd/object"
)

// MaxLine is the length in bytes of the longest pkt-line, including its four digits of length
// (gitprotocol-common).
const MaxLine = 65520

// Kind is the kind of a pkt-line. A line has data or is one of the special lines that have only a
// length.
type Kind int

const (
	Data  Kind = iota
	Flush      // 0000, end of a section
	Delim      // 0001, end of a part of a section (protocol v2)
	End        // 0002, end of a response (protocol v2)
)

// errLine means that a pkt-line is not well-formed.
var errLine = fmt.Errorf("malformed pkt-line: %w", object.ErrInvalid)

// Reader reads pkt-lines. It never reads beyond the requested line, so that a pack that follows can be
// read from the same source.
type Reader struct {
	r   io.Reader
	buf []byte // as long as the longest line so far, because most lines are short and readers many
}

// NewReader returns a reader of the pkt-lines of r.
func NewReader(r io.Reader) *Reader { return &Reader{r: r} }

// Next returns the payload of the next line, which is valid until the next call. Returns io.EOF if the
// source ends between two lines, and io.ErrUnexpectedEOF if it ends within one.
func (p *Reader) Next() ([]byte, Kind, error) {
	raw, kind, err := p.NextRaw()
	if err != nil || kind != Data {
		return nil, kind, err
	}
	return raw[4:], kind, nil
}

// NextRaw is Next with the four digits of length before the payload.
func (p *Reader) NextRaw() ([]byte, Kind, error) {
	if p.buf == nil {
		p.buf = make([]byte, 256)
	}
	head := p.buf[:4]
	if _, err := io.ReadFull(p.r, head); err != nil {
		return nil, Data, err
	}
	n := 0
	for _, c := range head {
		d, ok := hexDigit(c)
		if !ok {
			return nil, Data, errLine
		}
		n = n<<4 | d
	}
	switch {
	case n == 0:
		return head, Flush, nil
	case n == 1:
		return head, Delim, nil
	case n == 2:
		return head, End, nil
	case n < 4 || n > MaxLine:
		return nil, Data, errLine
	}
	if n > len(p.buf) {
		p.buf = append(make([]byte, 0, min(2*n, MaxLine)), head...)
		p.buf = p.buf[:cap(p.buf)]
	}
	if _, err := io.ReadFull(p.r, p.buf[4:n]); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, Data, err
	}
	return p.buf[:n], Data, nil
}

// hexDigit returns the value of a hexadecimal digit in either case.
func hexDigit(c byte) (int, bool) {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0'), true
	case 'a' <= c && c <= 'f':
		return int(c-'a') + 10, true
	case 'A' <= c && c <= 'F':
		return int(c-'A') + 10, true
	}
	return 0, false
}

// The special lines.
const (
	FlushLine = "0000"
	DelimLine = "0001"
)

// AppendLine appends one pkt-line that consists of parts. They must fit into one line.
func AppendLine(dst []byte, parts ...string) []byte {
	n := 4
	for _, s := range parts {
		n += len(s)
	}
	dst = fmt.Appendf(dst, "%04x", n)
	for _, s := range parts {
		dst = append(dst, s...)
	}
	return dst
}

// The side bands of a multiplexed response.
const (
	BandData     = 1
	BandProgress = 2 // shown by the client as "remote: …"
	bandFatal    = 3
)

// AppendBand appends data on a side band, in as many pkt-lines of at most limit bytes as needed.
func AppendBand(dst []byte, band byte, data []byte, limit int) []byte {
	for len(data) > 0 {
		n := min(len(data), limit-5)
		dst = fmt.Appendf(dst, "%04x", n+5)
		dst = append(dst, band)
		dst = append(dst, data[:n]...)
		data = data[n:]
	}
	return dst
}
