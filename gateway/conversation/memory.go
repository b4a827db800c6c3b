package conversation

import (
	"container/list"
	"context"
	"html/template"
	"slices"
	"sync"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/markup"
	"github.com/ramus-dev/ramus/internal/text"
)

// maxRemembered bounds the runs that a Memory has. The journals of others are read again.
const maxRemembered = 200

// Memory remembers the folds of runs, so that a page that is made again reads only new events. Its zero value is empty. It is safe for
// concurrent use.
type Memory struct {
	mu    sync.Mutex // guards the fields below
	runs  map[string]*list.Element
	order list.List // of *remembered, the least recently used first
}

// remembered is the fold of one run.
type remembered struct {
	name string

	mu      sync.Mutex // guards the fields below; held while the journal is read
	fold    *Fold
	written map[string]*written // by the id of the entry
	colours markup.Colours      // of the code in all of them
}

// written is the HTML of an entry of words.
type written struct {
	stream markup.Stream
	bytes  int // of the text
	closed []template.HTML
	done   bool
}

func (m *Memory) of(r record.Run) *remembered {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.runs == nil {
		m.runs = make(map[string]*list.Element)
	}
	name := r.Repo + " " + r.Name()
	if e := m.runs[name]; e != nil {
		m.order.MoveToBack(e)
		return e.Value.(*remembered)
	}
	k := &remembered{name: name, fold: NewFold(r), written: map[string]*written{}}
	m.runs[name] = m.order.PushBack(k)
	for m.order.Len() > maxRemembered {
		oldest := m.order.Front()
		delete(m.runs, m.order.Remove(oldest).(*remembered).name)
	}
	return k
}

// read returns a copy of the fold of a run as it is now.
func (m *Memory) read(ctx context.Context, x Journals, r record.Run) (*Fold, error) {
	k := m.of(r)
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.fold.Run.Ended() {
		if err := Read(ctx, x, k.fold); err != nil {
			return nil, err
		}
	}
	return k.fold.clone(), nil
}

// Blocks returns the words of an entry as HTML. A block before the last never changes while words are added.
func (m *Memory) Blocks(r record.Run, e *Entry) (closed []template.HTML, open template.HTML) {
	k := m.of(r)
	k.mu.Lock()
	defer k.mu.Unlock()
	w := k.written[e.ID]
	if w == nil || w.bytes > len(e.Text) {
		w = &written{stream: markup.Stream{Colours: &k.colours}}
		k.written[e.ID] = w
	}
	if !w.done {
		more := e.Text[w.bytes:]
		if e.Open {
			more = more[:text.WholeRunes([]byte(more))]
		}
		w.closed = append(w.closed, w.stream.Write(more)...)
		w.bytes += len(more)
		if !e.Open {
			last, _ := w.stream.Close()
			w.closed, w.done = append(w.closed, last...), true
		}
	}
	if !w.done {
		open = w.stream.Open()
	}
	return slices.Clone(w.closed), open
}

// clone returns a fold with the same turns, which do not change with those of f.
func (f *Fold) clone() *Fold {
	c := &Fold{Run: f.Run, queue: record.Queue{Prompts: slices.Clone(f.queue.Prompts), Heard: f.queue.Heard},
		heard: f.heard, times: f.times, said: f.said, seq: f.seq}
	c.times = make(map[string]record.Event, len(f.times))
	for key, e := range f.times {
		c.times[key] = e
	}
	for _, t := range f.Turns {
		own := *t
		own.Entries = make([]*Entry, len(t.Entries))
		for i, e := range t.Entries {
			entry := *e
			if e.Span != nil { // the fold changes it in place
				span := *e.Span
				entry.Span = &span
			}
			own.Entries[i] = &entry
		}
		c.Turns = append(c.Turns, &own)
	}
	return c
}
