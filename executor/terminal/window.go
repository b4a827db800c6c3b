package terminal

// window keeps the end of a stream. Its zero value keeps nothing.
type window struct {
	limit int
	buf   []byte // a ring; the byte at offset n is at n modulo its length
	base  int64  // the offset of the first byte that is kept
	next  int64  // the offset after the last one
}

// write appends bytes.
func (w *window) write(p []byte) {
	if skip := len(p) - w.limit; skip > 0 {
		w.next += int64(skip)
		w.base, p = w.next, p[skip:]
	}
	w.grow(int(w.next-w.base) + len(p))
	for len(p) > 0 {
		n := copy(w.buf[int(w.next%int64(len(w.buf))):], p)
		w.next += int64(n)
		p = p[n:]
	}
	w.base = max(w.base, w.next-int64(len(w.buf)))
}

// grow makes room for n bytes, up to the limit.
func (w *window) grow(n int) {
	n = min(n, w.limit)
	if n <= len(w.buf) {
		return
	}
	size := max(len(w.buf), 8<<10)
	for size < n {
		size *= 2
	}
	buf := make([]byte, min(size, w.limit))
	for at := w.base; at < w.next; {
		p := w.read(at, int(w.next-at))
		for len(p) > 0 {
			c := copy(buf[int(at%int64(len(buf))):], p)
			at += int64(c)
			p = p[c:]
		}
	}
	w.buf = buf
}

// read returns at most n bytes from an offset that is kept, as a copy.
func (w *window) read(at int64, n int) []byte {
	n = int(min(int64(n), w.next-at))
	if n <= 0 || len(w.buf) == 0 {
		return nil
	}
	p := make([]byte, n)
	c := copy(p, w.buf[int(at%int64(len(w.buf))):])
	copy(p[c:], w.buf)
	return p
}

// skip drops everything, and goes on at an offset.
func (w *window) skip(to int64) { w.base, w.next = to, to }
