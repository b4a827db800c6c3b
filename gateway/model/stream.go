package model

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// maxEvent bounds one event of a stream, in bytes. The last one of a response contains the whole response.
const maxEvent = 16 << 20

var errEventTooLarge = errors.New("an event of the stream is too large")

// events splits a stream of server-sent events (WHATWG HTML, section 9.2) into events with their ends. A lone CR, which
// no provider sends, does not end a line.
type events struct {
	r   *bufio.Reader
	buf []byte
}

func newEvents(r io.Reader) *events { return &events{r: bufio.NewReaderSize(r, 32<<10)} }

// next returns the next event unchanged, valid until the next call. The last one may be incomplete. err is then the
// error that ended the stream.
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

// data returns the data of an event, its data lines joined.
func data(event []byte) []byte {
	var joined []byte
	found, own := false, false // own means that joined is not a part of event
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
