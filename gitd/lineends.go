package gitd

import (
	"bufio"
	"bytes"
	"io"
)

// textStats count what git decides by whether a file is text.
type textStats struct {
	nul, cr, lf, crlf, printable, other int
	held                                bool // the last byte was a CR
	last                                byte
}

// Write never fails.
func (s *textStats) Write(p []byte) (int, error) {
	for _, c := range p {
		if s.held {
			s.held = false
			if c == '\n' {
				s.crlf++
				s.last = c
				continue
			}
			s.cr++
		}
		switch {
		case c == '\r':
			s.held = true
		case c == '\n':
			s.lf++
		case c == 0:
			s.nul++
			s.other++
		case c == '\b', c == '\t', c == '\f', c == 0x1b:
			s.printable++
		case c < ' ', c == 0x7f:
			s.other++
		default:
			s.printable++
		}
		s.last = c
	}
	return len(p), nil
}

// end must be called behind the last byte.
func (s *textStats) end() {
	if s.held {
		s.held = false
		s.cr++
	}
	if s.last == 0x1a { // how DOS ended a file
		s.other--
	}
}

// binary is git's guess.
func (s *textStats) binary() bool {
	return s.cr > 0 || s.nul > 0 || s.printable>>7 < s.other
}

func statsOf(data []byte) textStats {
	var s textStats
	s.Write(data) // never fails
	s.end()
	return s
}

// toLF makes LF of each CRLF.
func toLF(data []byte) []byte { return bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n")) }

// toCRLF is what a checkout makes of a file whose lines shall end with CRLF.
func toCRLF(data []byte, lines lineEnds) []byte {
	s := statsOf(data)
	if s.lf == 0 || lines == linesAuto && (s.cr > 0 || s.crlf > 0 || s.binary()) {
		return data
	}
	out := make([]byte, 0, len(data)+s.lf)
	for i, c := range data {
		if c == '\n' && (i == 0 || data[i-1] != '\r') {
			out = append(out, '\r')
		}
		out = append(out, c)
	}
	return out
}

// lfReader is toLF for a stream.
type lfReader struct{ in *bufio.Reader }

func (r lfReader) Read(p []byte) (int, error) {
	n := 0
	for n < len(p) {
		c, err := r.in.ReadByte()
		if err != nil {
			if n > 0 && err == io.EOF {
				return n, nil
			}
			return n, err
		}
		if c == '\r' {
			if next, err := r.in.Peek(1); err == nil && next[0] == '\n' {
				continue
			} else if err != nil && err != io.EOF {
				return n, err
			}
		}
		p[n] = c
		n++
	}
	return n, nil
}
