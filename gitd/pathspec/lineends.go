package pathspec

import (
	"bufio"
	"bytes"
	"io"
)

// TextStats counts the bytes by which git decides whether content is text. Write the content
// to it, then call Finish once. The zero value is ready for use.
type TextStats struct {
	CRLF                          int // lines that end with CRLF
	nul, cr, lf, printable, other int
	pendingCR                     bool // the last byte was a CR
	last                          byte
}

// Write counts p. It never fails.
func (s *TextStats) Write(p []byte) (int, error) {
	for _, c := range p {
		if s.pendingCR {
			s.pendingCR = false
			if c == '\n' {
				s.CRLF++
				s.last = c
				continue
			}
			s.cr++
		}
		switch {
		case c == '\r':
			s.pendingCR = true
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

// Finish completes the counts. It must be called after the last Write.
func (s *TextStats) Finish() {
	if s.pendingCR {
		s.pendingCR = false
		s.cr++
	}
	if s.last == 0x1a { // the end-of-file character of DOS
		s.other--
	}
}

// Binary reports whether git takes the content for binary.
func (s *TextStats) Binary() bool {
	return s.cr > 0 || s.nul > 0 || s.printable>>7 < s.other
}

// CountText returns the finished counts of data.
func CountText(data []byte) TextStats {
	var s TextStats
	s.Write(data) // never fails
	s.Finish()
	return s
}

// ToLF returns data with every CRLF replaced by LF.
func ToLF(data []byte) []byte { return bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n")) }

// ToCRLF returns the content that a checkout writes for data if the attributes ask for CRLF.
// With [LinesAuto] it returns data unchanged if data has a CR already or looks binary.
func ToCRLF(data []byte, lines LineEnds) []byte {
	s := CountText(data)
	if s.lf == 0 || lines == LinesAuto && (s.cr > 0 || s.CRLF > 0 || s.Binary()) {
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

// lfReader is [ToLF] for a stream.
type lfReader struct{ in *bufio.Reader }

// NewLFReader returns a reader of in with every CRLF replaced by LF. The buffer of in must
// hold at least two bytes.
func NewLFReader(in *bufio.Reader) io.Reader { return lfReader{in} }

func (r lfReader) Read(p []byte) (n int, err error) {
	for n < len(p) {
		// Only the byte after a CR is worth waiting for. Otherwise the buffered bytes suffice.
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
