package way

import (
	"encoding/binary"
	"fmt"
	"io"
	"sync"
)

// Kinds of frames between the host and a sidecar. A frame is its kind, the length of its data in four bytes, and the
// data.
const (
	FrameInput  = 0 // to the sidecar: stdin
	FrameEnd    = 1 // to the sidecar: the end of stdin
	FrameStdout = 2 // from the sidecar
	FrameStderr = 3 // from the sidecar
	FrameReport = 4 // from the sidecar: a [Report], the last frame
	FrameReady  = 5 // from the sidecar: it has the container, and its program begins; the first frame
)

// maxFrame bounds the data of a frame, in bytes.
const maxFrame = 64 << 10

const frameHead = 5

// FrameWriter writes frames. All methods may be called concurrently.
type FrameWriter struct {
	W io.Writer

	mu  sync.Mutex // one frame at a time; guards buf
	buf []byte
}

// Frame writes the data as frames of a kind, at least one.
func (w *FrameWriter) Frame(kind byte, data []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		k := min(len(data), maxFrame)
		w.buf = append(w.buf[:0], kind, 0, 0, 0, 0)
		binary.BigEndian.PutUint32(w.buf[1:], uint32(k))
		w.buf = append(w.buf, data[:k]...)
		if _, err := w.W.Write(w.buf); err != nil {
			return err
		}
		if data = data[k:]; len(data) == 0 {
			return nil
		}
	}
}

// Of returns a writer whose data become frames of a kind.
func (w *FrameWriter) Of(kind byte) io.Writer { return frameStream{w, kind} }

type frameStream struct {
	w    *FrameWriter
	kind byte
}

func (s frameStream) Write(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if err := s.w.Frame(s.kind, p); err != nil {
		return 0, err
	}
	return len(p), nil
}

// ReadFrame reads a frame. buf is used for the data if it is large enough. Returns [io.EOF] at an end between frames.
func ReadFrame(r io.Reader, buf []byte) (kind byte, data []byte, err error) {
	var head [frameHead]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint32(head[1:])
	if n > maxFrame {
		return 0, nil, fmt.Errorf("a frame has %d bytes; %d are possible", n, maxFrame)
	}
	if uint32(cap(buf)) < n {
		buf = make([]byte, n, maxFrame)
	}
	data = buf[:n]
	if _, err = io.ReadFull(r, data); err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return head[0], data, err
}
