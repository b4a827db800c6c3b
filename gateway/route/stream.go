package route

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// SlowestRead is how long a reader of a stream may leave one write unread before it counts as gone.
const SlowestRead = 30 * time.Second

// Streams counts open streams. Max may be set until the first call of Acquire.
type Streams struct {
	// Max limits how many streams are open at once. One caller may have a quarter of them.
	Max int

	mu        sync.Mutex // guards all below
	total     int
	bySubject map[string]int
}

// Acquire counts one more stream of a caller. It refuses the stream if there are too many, except that a local caller
// may have all of them. release gives the stream back; it may be called more than once.
func (s *Streams) Acquire(who Who) (release func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.total >= s.Max {
		return nil, NewProblem(KindUnavailable, "the server has no free stream: all %d are in use", s.Max)
	}
	if most := max(1, s.Max/4); s.bySubject[who.Subject] >= most && !who.Local {
		return nil, NewProblem(KindStreams, "%s follows %d streams already, which is the most one caller may",
			who.Subject, most)
	}

	if s.bySubject == nil {
		s.bySubject = map[string]int{}
	}
	s.total++
	s.bySubject[who.Subject]++
	return sync.OnceFunc(func() { s.release(who.Subject) }), nil
}

func (s *Streams) release(subject string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.total--
	if s.bySubject[subject]--; s.bySubject[subject] == 0 {
		delete(s.bySubject, subject)
	}
}

// StreamWriter writes one stream. It sends each piece at once, with a deadline of its own. It is not safe for
// concurrent use.
type StreamWriter struct {
	w  http.ResponseWriter
	rc *http.ResponseController
}

// BeginStream begins an answer that is a stream of a media type.
func (c *Call) BeginStream(media string) StreamWriter {
	h := c.W.Header()
	h.Set("Content-Type", media)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // a proxy that buffers a stream hides it
	c.W.WriteHeader(http.StatusOK)
	w := StreamWriter{c.W, http.NewResponseController(c.W)}
	_ = w.rc.Flush() // the first write returns the error of a reader that is gone
	return w
}

// errReaderGone wraps why nothing can be written to a stream. Its reader has closed or reset the connection, or does
// not read. It is not a fault of the server.
var errReaderGone = errors.New("the reader of the stream is gone")

// Write sends b. The error wraps errReaderGone if the connection takes nothing more.
func (w StreamWriter) Write(b []byte) error {
	if err := w.rc.SetWriteDeadline(time.Now().Add(SlowestRead)); err != nil {
		return fmt.Errorf("%w: %w", errReaderGone, err)
	}
	if _, err := w.w.Write(b); err != nil {
		return fmt.Errorf("%w: %w", errReaderGone, err)
	}
	if err := w.rc.Flush(); err != nil {
		return fmt.Errorf("%w: %w", errReaderGone, err)
	}
	// The connection may serve another request, which must not inherit the deadline.
	return w.rc.SetWriteDeadline(time.Time{})
}

// WriteLine sends v as one line of JSON.
func (w StreamWriter) WriteLine(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return w.Write(append(b, '\n'))
}

// writeEvent sends one server-sent event. An event without a number, such as live output, has no id, so that a reader
// that resumes does so at a journalled event.
func (w StreamWriter) writeEvent(id int64, name string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	var head string
	if id > 0 {
		head = "id: " + strconv.FormatInt(id, 10) + "\n"
	}
	return w.Write(fmt.Appendf(nil, "%sevent: %s\ndata: %s\n\n", head, name, b))
}
