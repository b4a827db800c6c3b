package live

import (
	"context"
	"iter"
	"slices"
	"sync"

	"github.com/ramus-dev/ramus/executor/record"
)

// Follow attaches a reader. The reader gets all events after a sequence number. Then it gets the end of the output of
// those steps at work whose start is among these events, because no journal holds output. Of the step that began with have.Seq it gets the
// output from the byte have.To on, as far as it is kept in memory. Then it gets everything that follows.
func (l *Run) Follow(after int64, have record.Span) *Follower {
	f := newFollower()
	l.mu.Lock()
	defer l.mu.Unlock()
	var atWork []string
	for _, e := range l.events[:len(l.events)-len(l.deferred)] {
		if e.Seq <= after {
			continue
		}
		f.push(e)
		switch e.Type {
		case record.EventStepStarted:
			if !slices.Contains(atWork, e.Step) { // it may have begun again
				atWork = append(atWork, e.Step)
			}
		case record.EventStepFinished:
			atWork = slices.DeleteFunc(atWork, func(step string) bool { return step == e.Step })
		}
	}
	for _, step := range atWork {
		if o := l.printing[step]; o != nil {
			for _, c := range []*Capture{o.Stdout, o.Stderr} {
				if kept, before := c.tail.Bytes(); len(kept) > len(c.part) {
					f.push(l.said(c, kept[:len(kept)-len(c.part)], before))
				}
			}
		}
	}
	for _, o := range l.printing {
		if c := o.Stdout; c.seq == have.Seq && have.Seq <= after {
			kept, before := c.tail.Bytes()
			if skip := have.To - before; skip > 0 {
				kept, before = kept[min(skip, int64(len(kept))):], have.To
			}
			if len(kept) > len(c.part) {
				f.push(l.said(c, kept[:len(kept)-len(c.part)], before))
			}
		}
	}
	if l.over {
		f.end()
	} else {
		l.followed[f] = struct{}{}
	}
	return f
}

// Unfollow ends a Follow.
func (l *Run) Unfollow(f *Follower) {
	l.mu.Lock()
	delete(l.followed, f)
	l.mu.Unlock()
}

// backlogBytes is how much live output a follower may have unread before chunks are dropped for it. The whole output is kept
// elsewhere.
const backlogBytes = 1 << 20

// Follower is a queue between a run and one reader. Journalled events are never dropped from it. Live output is, if the reader is
// too slow.
type Follower struct {
	mu     sync.Mutex // guards all below
	queue  []record.Event
	output int // bytes of live output in queue
	ended  bool
	wake   chan struct{} // holds one token if there is a change
}

func newFollower() *Follower { return &Follower{wake: make(chan struct{}, 1)} }

func (f *Follower) push(e record.Event) {
	f.mu.Lock()
	if e.Type == record.EventOutput {
		if f.output += len(e.Message); f.output > backlogBytes {
			f.output -= len(e.Message)
			f.mu.Unlock()
			return
		}
	}
	f.queue = append(f.queue, e)
	f.mu.Unlock()
	f.signal()
}

func (f *Follower) end() {
	f.mu.Lock()
	f.ended = true
	f.mu.Unlock()
	f.signal()
}

func (f *Follower) signal() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// Events yields the queue until its end, or until ctx ends.
func (f *Follower) Events(ctx context.Context) iter.Seq[record.Event] {
	return func(yield func(record.Event) bool) {
		for {
			f.mu.Lock()
			queue, ended := f.queue, f.ended
			f.queue, f.output = nil, 0
			f.mu.Unlock()
			for _, e := range queue {
				if !yield(e) {
					return
				}
			}
			if ended && len(queue) == 0 {
				return
			}
			if len(queue) > 0 {
				continue
			}
			select {
			case <-f.wake:
			case <-ctx.Done():
				return
			}
		}
	}
}
