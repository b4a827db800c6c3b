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

func (r lfReader) Read(p []byte) (n int, err error) {
	for n < len(p) {
		// What is buffered is taken without waiting for more, but for what follows a CR.
		b, err := r.in.Peek(max(1, min(r.in.Buffered(), len(p)-n)))
		if err != nil {
			if n > 0 && err == io.EOF {
				err = nil
			}
			return n, err
		}
		plain := bytes.IndexByte(b, '\r')
		if plain < 0 {
			plain = len(b)
		}
		if plain == 0 {
			next, err := r.in.Peek(2)
			if err != nil && err != io.EOF {
				return n, err
			}
			if len(next) == 2 && next[1] == '\n' {
				_, _ = r.in.Discard(1) // it is buffered
				continue
			}
			plain = 1
		}
		n += copy(p[n:], b[:plain])
		_, _ = r.in.Discard(plain)
	}
	return n, nil
}
