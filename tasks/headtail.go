package tasks

import (
	"bytes"
	"fmt"
)

// HeadTail is a writer that keeps the first and the last half MiB written to it, because reports of tools are at the
// end. The zero value is ready to use.
type HeadTail struct {
	head, tail bytes.Buffer
	dropped    int64
}

func (h *HeadTail) Write(p []byte) (int, error) {
	n := len(p)
	if room := maxStream/2 - h.head.Len(); room > 0 {
		k := min(room, len(p))
		h.head.Write(p[:k])
		p = p[k:]
	}
	if over := len(p) - maxStream/2; over > 0 {
		h.dropped += int64(over)
		p = p[over:]
	}
	if over := h.tail.Len() + len(p) - maxStream/2; over > 0 {
		h.tail.Next(over)
		h.dropped += int64(over)
	}
	h.tail.Write(p)
	return n, nil
}

// Truncated reports whether a part was left out.
func (h *HeadTail) Truncated() bool { return h.dropped > 0 }

// String returns the kept text, with a note in place of the part left out. Bytes that are not UTF-8 are kept.
func (h *HeadTail) String() string {
	if h.dropped == 0 {
		return h.head.String() + h.tail.String()
	}
	return fmt.Sprintf("%s\n[… %d bytes left out …]\n%s", h.head.String(), h.dropped, h.tail.String())
}

const (
	// maxStream is the number of bytes of stdout, and of stderr, that stay in memory. Half of them are from the start,
	// which has causes, and half from the end, which has sums.
	maxStream = 1 << 20
)
