package background

import (
	"io"
	"sync"
)

// countdown ends a copy of two streams when a number of bytes of each has been copied.
type countdown struct {
	mu             sync.Mutex // guards the counts
	stdout, stderr int64
	done           func()
}

func (c *countdown) writer(w io.Writer, left *int64) io.Writer {
	if w == nil {
		w = io.Discard
	}
	return &countdownWriter{c, w, left}
}

type countdownWriter struct {
	c    *countdown
	w    io.Writer
	left *int64
}

func (w *countdownWriter) Write(p []byte) (int, error) {
	w.c.mu.Lock()
	take := min(int64(len(p)), *w.left)
	*w.left -= take
	over := w.c.stdout <= 0 && w.c.stderr <= 0
	w.c.mu.Unlock()
	_, err := w.w.Write(p[:take])
	if over {
		w.c.done()
	}
	return len(p), err
}
