package model

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// maxEvent bounds one event of a stream; the last one of a response holds all of it.
const maxEvent = 16 << 20

var errEventTooLarge = errors.New("an event of the stream is too large")

// events splits a stream of server-sent events (WHATWG HTML, section 9.2) into
// events with their ends. Lines that end with a lone CR, which no provider sends, are not told apart.
type events struct {
	r   *bufio.Reader
	buf []byte
}

func newEvents(r io.Reader) *events { return &events{r: bufio.NewReaderSize(r, 32<<10)} }

// next is the next event as it came, good until the next call. The last one may
// lack its end; then err is what ended the stream.
func (s *events) next() (event []byte, err error) {
	s.buf = s.buf[:0]
	start := 0 // of the current line
	for {
		part, err := s.r.ReadSlice('\n')
		s.buf = append(s.buf, part...)
		switch {
		case len(s.buf) > maxEvent:
			return nil, errEventTooLarge
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err != nil:
			return s.buf, err
		}
		if line := s.buf[start:]; len(bytes.TrimRight(line, "\r\n")) == 0 {
			return s.buf, nil
		}
		start = len(s.buf)
	}
}

// data is that of an event: its data lines, joined.
func data(event []byte) []byte {
	var joined []byte
	found, own := false, false // own: joined is no part of the event
	for line := range bytes.Lines(event) {
		rest, ok := bytes.CutPrefix(bytes.TrimRight(line, "\r\n"), []byte("data:"))
		if !ok {
			continue
		}
		rest = bytes.TrimPrefix(rest, []byte(" "))
		if !found {
			joined, found = rest, true
			continue
		}
		if !own {
			joined, own = append(make([]byte, 0, len(event)), joined...), true
		}
		joined = append(append(joined, '\n'), rest...)
	}
	return joined
}
