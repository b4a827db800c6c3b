package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
)

// slowest is how long a reader of a stream may leave one write unread before
// it is taken for dead.
const slowest = 30 * time.Second

// streams counts open streams. mu guards by, which holds the number of each subject.
type streams struct {
	max int

	mu    sync.Mutex
	total int
	by    map[string]int
}

// open claims a place; the function gives it back.
func (s *streams) open(who Who) (func(), error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.total >= s.max {
		return nil, problem(KindUnavailable, "the server has no free stream: all %d are in use", s.max)
	}
	if most := max(1, s.max/4); s.by[who.Subject] >= most && !who.Local {
		return nil, problem(KindStreams, "%s follows %d streams already, which is the most one caller may", who.Subject, most)
	}
	s.total++
	s.by[who.Subject]++
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.total--
		if s.by[who.Subject]--; s.by[who.Subject] == 0 {
			delete(s.by, who.Subject)
		}
	}), nil
}

// writer writes one stream, each piece at once and with a deadline of its own.
// It belongs to one goroutine.
type writer struct {
	w  http.ResponseWriter
	rc *http.ResponseController
}

func (c *call) stream(media string) writer {
	h := c.W.Header()
	h.Set("Content-Type", media)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // a proxy that collects a stream hides it
	c.W.WriteHeader(http.StatusOK)
	w := writer{c.W, http.NewResponseController(c.W)}
	_ = w.rc.Flush() // a reader who is gone shows at the first write
	return w
}

// errReaderGone wraps why nothing can be written to a stream: its reader closed or reset the
// connection, or does not read. It is no fault of the server.
var errReaderGone = errors.New("the reader of the stream is gone")

// write sends b. The error is errReaderGone where the connection takes nothing more.
func (w writer) write(b []byte) error {
	if err := w.rc.SetWriteDeadline(time.Now().Add(slowest)); err != nil {
		return fmt.Errorf("%w: %w", errReaderGone, err)
	}
	if _, err := w.w.Write(b); err != nil {
		return fmt.Errorf("%w: %w", errReaderGone, err)
	}
	if err := w.rc.Flush(); err != nil {
		return fmt.Errorf("%w: %w", errReaderGone, err)
	}
	// The connection may serve another request, which must not inherit it.
	return w.rc.SetWriteDeadline(time.Time{})
}

func (w writer) line(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return w.write(append(b, '\n'))
}

// sse writes one server-sent event. Events without a number of their own (live
// output) have no id, so that a reader who resumes does so at a journalled one.
func (w writer) sse(id int64, name string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	var head string
	if id > 0 {
		head = "id: " + strconv.FormatInt(id, 10) + "\n"
	}
	return w.write(fmt.Appendf(nil, "%sevent: %s\ndata: %s\n\n", head, name, b))
}

// Names of the frames that end a stream of events. "end" carries the run as it
// ended; after "drain" the reader comes back in a moment; "error" carries a Problem.
const (
	frameEnd   = "end"
	frameDrain = "drain"
	frameError = "error"
)

// follow writes events as server-sent events until they end, the reader goes
// or the server drains. keep filters; nil keeps all. last, when set, makes the
// data of the closing "end" frame.
func (c *call) follow(events func(context.Context) iter.Seq2[record.Event, error], numbered bool,
	keep func(record.Event) bool, last func() (any, error)) error {
	done, err := c.streams.open(c.Who)
	if err != nil {
		return err
	}
	defer done()
	if c.draining.Err() != nil {
		return record.ErrClosed
	}
	ctx, cancel := context.WithCancel(c.R.Context())
	type item struct {
		event record.Event
		err   error
	}
	items := make(chan item)
	var feeder sync.WaitGroup
	defer feeder.Wait()
	defer cancel()
	feeder.Go(func() {
		defer close(items)
		for e, err := range events(ctx) {
			select {
			case items <- item{e, err}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	})

	w := c.sseStream()
	beat := time.NewTicker(c.Heartbeat)
	defer beat.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-c.draining.Done():
			return w.sse(0, frameDrain, struct{}{})
		case <-beat.C:
			if err := w.write([]byte(": \n\n")); err != nil {
				return err
			}
		case it, ok := <-items:
			switch {
			case !ok:
				if ctx.Err() != nil || last == nil {
					return ctx.Err()
				}
				v, err := last()
				if err != nil {
					return c.frameError(w, err)
				}
				return w.sse(0, frameEnd, v)
			case it.err != nil:
				return c.frameError(w, it.err)
			case keep != nil && !keep(it.event):
			default:
				id := it.event.Seq
				if !numbered {
					id = 0 // numbers of several runs are no order to resume by
				}
				if err := w.sse(id, it.event.Type, it.event); err != nil {
					return err
				}
			}
		}
	}
}

func (c *call) sseStream() writer {
	w := c.stream("text/event-stream")
	_ = w.write([]byte("retry: 2000\n\n")) // as for Flush
	return w
}

// frameError tells the reader of a stream that has begun what went wrong, and
// returns the error for the log.
func (c *call) frameError(w writer, err error) error {
	if c.R.Context().Err() != nil {
		return c.R.Context().Err()
	}
	p := asProblem(err, c.Who)
	p.Request = c.ID
	if werr := w.sse(0, frameError, p); werr != nil {
		return werr
	}
	return err
}
