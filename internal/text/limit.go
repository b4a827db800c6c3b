package text

import "io"

// Limit is a writer that passes the first Left bytes on to W and drops the rest. It never fails because of the bytes that it drops.
type Limit struct {
	W    io.Writer
	Left int64
	Cut  bool // bytes were dropped
}

// Write passes on as much of b as may still pass. It returns len(b) unless W fails.
func (l *Limit) Write(b []byte) (int, error) {
	n := len(b)
	if int64(n) > l.Left {
		b, l.Cut = b[:l.Left], true
	}
	l.Left -= int64(len(b))
	if _, err := l.W.Write(b); err != nil {
		return 0, err
	}
	return n, nil
}
