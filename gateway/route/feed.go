package route

import (
	"context"
	"iter"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
)

// Names of the frames that end a stream of events. The data of "end" is the run as it ended. After "drain" the reader
// connects again in a moment. The data of "error" is a Problem.
const (
	frameEnd   = "end"
	frameDrain = "drain"
	frameError = "error"
)

// Feed is the source of a stream of events.
type Feed struct {
	// Events are the events, until ctx ends. An error is the last of them.
	Events func(ctx context.Context) iter.Seq2[record.Event, error]
	// Numbered gives each event the number of its journal as id, so that a reader can resume there. It is for the
	// events of one run: numbers of several runs have no order.
	Numbered bool
	// Keep leaves out the events for which it is false. Nil keeps all.
	Keep func(record.Event) bool
	// Last returns the data of the frame "end" after the last event. If it is nil, the stream ends without one.
	Last func() (any, error)
}

// feedItem is an event, or the error after the last one.
type feedItem struct {
	event record.Event
	err   error
}

// Follow answers with a feed as server-sent events, until the feed ends, the reader goes or the server drains.
func (c *Call) Follow(f Feed) error {
	done, err := c.OpenStream()
	if err != nil {
		return err
	}
	defer done()
	if c.mux.draining.Err() != nil {
		return record.ErrClosed
	}

	ctx, cancel := context.WithCancel(c.R.Context())
	items := make(chan feedItem)
	var feeder sync.WaitGroup
	defer feeder.Wait()
	defer cancel()
	feeder.Go(func() { f.send(ctx, items) })

	w := c.BeginStream(MediaSSE)
	_ = w.Write([]byte("retry: 2000\n\n")) // a later write returns the error of a reader that is gone
	beat := time.NewTicker(c.mux.Heartbeat)
	defer beat.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-c.mux.draining.Done():
			return w.writeEvent(0, frameDrain, struct{}{})
		case <-beat.C:
			if err := w.Write([]byte(": \n\n")); err != nil {
				return err
			}
		case it, ok := <-items:
			if !ok {
				return c.endFeed(ctx, w, f)
			}
			if it.err != nil {
				return c.writeErrorFrame(w, it.err)
			}
			if err := f.write(w, it.event); err != nil {
				return err
			}
		}
	}
}

// send sends the feed's events, and closes items.
func (f Feed) send(ctx context.Context, items chan<- feedItem) {
	defer close(items)
	for e, err := range f.Events(ctx) {
		select {
		case items <- feedItem{e, err}:
		case <-ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

// write writes an event that is kept.
func (f Feed) write(w StreamWriter, e record.Event) error {
	if f.Keep != nil && !f.Keep(e) {
		return nil
	}
	var id int64
	if f.Numbered {
		id = e.Seq
	}
	return w.writeEvent(id, e.Type, e)
}

// endFeed writes the frame after the last event.
func (c *Call) endFeed(ctx context.Context, w StreamWriter, f Feed) error {
	if ctx.Err() != nil || f.Last == nil {
		return ctx.Err()
	}
	v, err := f.Last()
	if err != nil {
		return c.writeErrorFrame(w, err)
	}
	return w.writeEvent(0, frameEnd, v)
}

// writeErrorFrame tells the reader of a stream that has begun about an error, and returns the error for the log.
func (c *Call) writeErrorFrame(w StreamWriter, err error) error {
	if c.R.Context().Err() != nil {
		return c.R.Context().Err()
	}
	p := AsProblem(err, c.Who)
	p.Request = c.ID
	if werr := w.writeEvent(0, frameError, p); werr != nil {
		return werr
	}
	return err
}
