package gitcmd

import (
	"bytes"
	"strings"
	"sync"

	"github.com/ramus-dev/ramus/gitd/object"
)

// Buffer collects output. It calls full instead of growing beyond Max bytes.
type Buffer struct {
	Max  int
	Full func()
	buf  bytes.Buffer
}

// Bytes returns the collected output.
func (b *Buffer) Bytes() []byte { return b.buf.Bytes() }

func (b *Buffer) Write(p []byte) (int, error) {
	if b.buf.Len()+len(p) > b.Max {
		b.Full()
		return 0, object.ErrTooLarge
	}
	return b.buf.Write(p)
}

// Tail keeps the last Max bytes that are written to it. It is safe for concurrent use.
type Tail struct {
	mu  sync.Mutex // guards buf
	buf []byte
	Max int
}

func (t *Tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, p...)
	if extra := len(t.buf) - t.Max; extra > 0 {
		t.buf = append(t.buf[:0], t.buf[extra:]...)
	}
	return len(p), nil
}

// String returns the kept bytes as one line without control characters. The line appears in
// logs and terminals, and a client may have written part of it.
func (t *Tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var lines []string
	for _, l := range strings.FieldsFunc(string(t.buf), func(r rune) bool { return r == '\n' || r == '\r' }) {
		l = strings.TrimSpace(strings.Map(func(r rune) rune {
			if r < ' ' || r == 0x7f {
				return -1
			}
			return r
		}, l))
		if l != "" {
			lines = append(lines, l)
		}
	}
	return strings.ToValidUTF8(strings.Join(lines, "; "), "\ufffd")
}
