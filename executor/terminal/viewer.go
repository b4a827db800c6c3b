package terminal

import (
	"context"
	"errors"

	"github.com/ramus-dev/ramus/gitd"
)

// Viewer is one reader of a terminal. One goroutine calls Next. The other methods are safe for concurrent use.
type Viewer struct {
	t      *Terminal
	person gitd.Person
	watch  bool
	ready  chan struct{} // holds one token if there may be something

	// t.mu guards the fields below.
	size    Size
	cursor  int64 // the next byte
	acked   int64
	paused  bool
	reset   string // why the screen is to be cleared; empty for none
	restore string // the data of the reset
	changed bool
	done    []Done
	closed  bool
}

// ItemKind is the kind of an [Item].
type ItemKind int

// The kinds of items.
const (
	ItemState  ItemKind = iota
	ItemReset           // clear the screen; the next output begins at Offset, and Data restores the modes of the screen
	ItemOutput          // Data at Offset
	ItemDone
)

// Item is the next thing for a viewer.
type Item struct {
	Kind   ItemKind
	Offset int64
	Data   []byte
	Reason string // of ItemReset: "new", "skipped" or "unknown"
	State  State
	Done   Done
}

// ErrClosed is the error of a viewer that was closed.
var ErrClosed = errors.New("the viewer is closed")

// maxOutput bounds the data of one item, in bytes.
const maxOutput = 32 << 10

// setCursor sets the cursor. t.mu is held.
func (v *Viewer) setCursor(have int64) {
	t := v.t
	switch {
	case have >= t.out.base && have <= max(t.out.next, t.upto):
		v.cursor, v.acked, v.paused = have, have, false
	case have < 0 && t.out.base == 0:
		v.cursor, v.acked, v.paused = 0, 0, false
	case have < 0:
		v.rewind("new")
	case have > max(t.out.next, t.upto):
		v.rewind("unknown")
	default:
		v.rewind("skipped")
	}
}

// rewind has the viewer begin again at the first safe point that is kept. t.mu is held.
func (v *Viewer) rewind(reason string) {
	t := v.t
	from := point{at: t.out.next, restore: t.scan.Restore(), full: t.scan.FullScreen()}
	for _, p := range t.points {
		if p.at >= t.out.base {
			from = p
			break
		}
	}
	v.reset, v.restore = reason, from.restore
	v.cursor, v.acked, v.paused = from.at, from.at, false
	if t.scan.FullScreen() && t.line != nil {
		t.line.nudge(t.size) // the program draws its screen again
	}
}

func (v *Viewer) wake() {
	select {
	case v.ready <- struct{}{}:
	default:
	}
}

// Next returns the next item. It waits while there is none, and while the viewer has not acknowledged enough.
func (v *Viewer) Next(ctx context.Context) (Item, error) {
	for {
		item, ok, err := v.takeItem()
		if ok || err != nil {
			return item, err
		}
		select {
		case <-v.ready:
		case <-ctx.Done():
			return Item{}, context.Cause(ctx)
		}
	}
}

func (v *Viewer) takeItem() (Item, bool, error) {
	t := v.t
	t.mu.Lock()
	defer t.mu.Unlock()
	if v.closed {
		return Item{}, false, ErrClosed
	}
	if !t.hasBegun() {
		if !v.changed {
			return Item{}, false, nil
		}
		v.changed = false
		return Item{Kind: ItemState, State: t.state(v)}, true, nil
	}
	if v.reset == "" && v.cursor < t.out.base {
		v.rewind("skipped")
	}
	if v.cursor-v.acked >= Hold {
		v.paused = true
	}
	switch {
	case v.changed:
		v.changed = false
		return Item{Kind: ItemState, State: t.state(v)}, true, nil
	case v.reset != "":
		item := Item{Kind: ItemReset, Offset: v.cursor, Reason: v.reset, Data: []byte(v.restore)}
		v.reset, v.restore = "", ""
		return item, true, nil
	case v.cursor < t.out.next && !v.paused:
		item := Item{Kind: ItemOutput, Offset: v.cursor, Data: t.out.read(v.cursor, maxOutput)}
		v.cursor += int64(len(item.Data))
		return item, true, nil
	case len(v.done) > 0:
		item := Item{Kind: ItemDone, Done: v.done[0], Offset: v.done[0].Offset}
		v.done = v.done[1:]
		return item, true, nil
	}
	return Item{}, false, nil
}

// state returns the state for a viewer. t.mu is held.
func (t *Terminal) state(v *Viewer) State {
	s := State{Name: t.Name, Title: t.scan.Title(), Size: t.size, Mine: t.owner == v && v != nil,
		Watchers: len(t.viewers), Running: !t.ended, Offset: t.out.next,
		Away: t.line == nil && !t.ended, Exit: t.exit, End: t.why, Stopped: t.stopped}
	if v != nil {
		s.Watchers--
	}
	if t.owner != nil {
		s.Owner = t.owner.person.Name
	}
	return s
}

// State returns the state for somebody who is no viewer.
func (t *Terminal) State() State {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.state(nil)
}

// Ended reports whether the program has ended and the viewer has all of its output.
func (v *Viewer) Ended() bool {
	v.t.mu.Lock()
	defer v.t.mu.Unlock()
	return v.t.ended && v.cursor == v.t.out.next && len(v.done) == 0
}

// Ack notes that the viewer is done with the output up to an offset.
func (v *Viewer) Ack(upto int64) {
	t := v.t
	t.mu.Lock()
	defer t.mu.Unlock()
	v.acked = max(v.acked, min(upto, v.cursor))
	if v.paused && v.cursor-v.acked <= Resume {
		v.paused = false
		v.wake()
	}
	if t.owner == v {
		t.ack()
	}
}

// Input types for the viewer, which becomes the owner. It waits until the program has started, and while the program takes
// no input.
func (v *Viewer) Input(ctx context.Context, p []byte) error {
	t := v.t
	select {
	case <-t.begun:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	for {
		t.mu.Lock()
		l := t.line
		switch {
		case v.watch:
			t.mu.Unlock()
			return ErrWatching
		case t.ended:
			t.mu.Unlock()
			return ErrEnded
		case v.closed:
			t.mu.Unlock()
			return ErrClosed
		case l == nil:
			t.mu.Unlock()
			return ErrAway
		}
		t.makeOwner(v)
		t.typist = v.person
		room, ok := l.input(p)
		if ok {
			t.move()
		}
		t.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-room:
		case <-l.closed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Resize says how large the viewer's screen is. It is the terminal's size if the viewer is the owner.
func (v *Viewer) Resize(s Size) {
	t := v.t
	t.mu.Lock()
	defer t.mu.Unlock()
	if s = s.Clip(); s == (Size{}) {
		return
	}
	v.size = s
	if t.owner == nil && !v.watch {
		t.makeOwner(v)
	}
	if t.owner == v && t.size != s {
		t.resize(s)
	}
}

// Take makes the viewer the owner.
func (v *Viewer) Take() error {
	v.t.mu.Lock()
	defer v.t.mu.Unlock()
	if v.watch {
		return ErrWatching
	}
	v.t.makeOwner(v)
	return nil
}

// Close removes the viewer. The terminal keeps its size.
func (v *Viewer) Close() {
	t := v.t
	t.mu.Lock()
	defer t.mu.Unlock()
	if v.closed {
		return
	}
	v.closed = true
	delete(t.viewers, v)
	if t.owner == v {
		t.owner = nil
		t.ack()
	}
	t.changed()
	v.wake()
}
