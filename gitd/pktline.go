package gitd

import (
	"errors"
	"fmt"
	"io"
)

// pktMax is the longest pkt-line, its four length digits included
// (gitprotocol-common).
const pktMax = 65520

// A pkt-line is data, or one of the special lines that are only a length.
type pktKind int

const (
	pktData  pktKind = iota
	pktFlush         // 0000: end of a section
	pktDelim         // 0001: end of a part of a section (protocol v2)
	pktEnd           // 0002: end of a response (protocol v2)
)

var errPktLine = fmt.Errorf("malformed pkt-line: %w", ErrInvalid)

// pktReader reads pkt-lines. It never reads beyond the line it was asked for,
// so that what follows (a pack) can be read from the same source.
type pktReader struct {
	r   io.Reader
	buf []byte // as long as the longest line so far: most are short, and readers many
}

// next returns the next line's payload, valid until the call after it. The end
// of the source between two lines is io.EOF, within a line
// io.ErrUnexpectedEOF.
func (p *pktReader) next() ([]byte, pktKind, error) {
	raw, kind, err := p.nextRaw()
	if err != nil || kind != pktData {
		return nil, kind, err
	}
	return raw[4:], kind, nil
}

// nextRaw is next with the four length digits in front.
func (p *pktReader) nextRaw() ([]byte, pktKind, error) {
	if p.buf == nil {
		p.buf = make([]byte, 256)
	}
	head := p.buf[:4]
	if _, err := io.ReadFull(p.r, head); err != nil {
		return nil, pktData, err
	}
	n := 0
	for _, c := range head {
		d, ok := hexDigit(c)
		if !ok {
			return nil, pktData, errPktLine
		}
		n = n<<4 | d
	}
	switch {
	case n == 0:
		return head, pktFlush, nil
	case n == 1:
		return head, pktDelim, nil
	case n == 2:
		return head, pktEnd, nil
	case n < 4 || n > pktMax:
		return nil, pktData, errPktLine
	}
	if n > len(p.buf) {
		p.buf = append(make([]byte, 0, min(2*n, pktMax)), head...)
		p.buf = p.buf[:cap(p.buf)]
	}
	if _, err := io.ReadFull(p.r, p.buf[4:n]); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, pktData, err
	}
	return p.buf[:n], pktData, nil
}

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

const (
	flushPkt = "0000"
	delimPkt = "0001"
)

// appendPkt appends one pkt-line made of parts, which must fit into one.
func appendPkt(dst []byte, parts ...string) []byte {
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
	bandData     = 1
	bandProgress = 2 // shown by the client as "remote: …"
	bandFatal    = 3
)

// appendBand appends data on a side band, in as many pkt-lines of at most
// limit bytes as it takes.
func appendBand(dst []byte, band byte, data []byte, limit int) []byte {
	for len(data) > 0 {
		n := min(len(data), limit-5)
		dst = fmt.Appendf(dst, "%04x", n+5)
		dst = append(dst, band)
		dst = append(dst, data[:n]...)
		data = data[n:]
	}
	return dst
}
