package terminal

import (
	"errors"
	"fmt"
	"sync"

	"github.com/ramus-dev/ramus/gitd"
)

// Bounds of a terminal.
const (
	// Window is the number of bytes of output that are kept for viewers.
	Window = 4 << 20
	// MaxViewers is the number of viewers of one terminal.
	MaxViewers = 16
	// MaxInput is the number of bytes of one input.
	MaxInput = 64 << 10
	// Hold is the number of bytes that a viewer gets before it acknowledges any, and by which a program may be ahead of
	// the owner. A viewer goes on when no more than Resume of them are left. A key that ends a program takes effect on
	// the screen after so many bytes, so Hold is small.
	Hold   = 128 << 10
	Resume = 64 << 10

	inputQueue = 256 << 10 // bytes of input that wait for the program
	ackEvery   = 32 << 10
	pointEvery = 4 << 10 // bytes between two safe points
	doneQueue  = 256     // commands that a viewer has not heard of yet
	maxSide    = 1000    // rows, and columns
)

// Kinds of error.
var (
	// ErrAway means that the program cannot be reached at the moment. Its input is dropped.
	ErrAway = errors.New("the terminal is not connected at the moment")
	// ErrEnded means that the program has ended.
	ErrEnded = errors.New("the program has ended")
	// ErrWatching means that a viewer may only watch.
	ErrWatching = errors.New("this viewer may only watch")
	// ErrFull means that a terminal has too many viewers.
	ErrFull = errors.New("too many viewers")
)

// Size is the size of a terminal. The zero value is no size.
type Size struct {
	Rows int `json:"rows"`
	Cols int `json:"cols"`
}

// Clip returns a size that a terminal can have, or the zero value for the zero value.
func (s Size) Clip() Size {
	if s.Rows <= 0 || s.Cols <= 0 {
		return Size{}
	}
	return Size{min(s.Rows, maxSide), max(2, min(s.Cols, maxSide))}
}

// Process leads to a program. Its methods may wait.
type Process interface {
	Input(p []byte) error
	Resize(Size) error
	// Ack lets the program print up to [Hold] bytes after an offset.
	Ack(upto int64) error
}

// State describes a terminal to one viewer.
type State struct {
	Name     string `json:"id"`
	Title    string `json:"title,omitempty"`
	Owner    string `json:"owner,omitempty"` // the name of the person who typed last and is still there
	Mine     bool   `json:"mine"`            // this viewer is the owner
	Size     Size   `json:"size"`
	Watchers int    `json:"watchers"` // viewers but this one
	Running  bool   `json:"running"`
	Offset   int64  `json:"offset"` // the end of the output so far
	// Away is set while the program cannot be reached. Input is dropped then.
	Away bool   `json:"away,omitempty"`
	Exit *int   `json:"exit,omitempty"` // nil while it runs, and if it is unknown
	End  string `json:"end,omitempty"`  // why it ended, if it did not end by itself
	// Stopped is set if a person ended the terminal, or if it was ended because nobody used it.
	Stopped bool `json:"stopped,omitempty"`
}

// Done is a command that has ended and is committed.
type Done struct {
	Command string `json:"command"`
	Exit    int    `json:"exit"` // -1 if it is unknown
	Commit  string `json:"commit,omitempty"`
	Offset  int64  `json:"offset"`
	Problem string `json:"problem,omitempty"` // why its changes are not on the branch
}

// Terminal is a terminal. Its methods are safe for concurrent use.
type Terminal struct {
	Name string
	// OnMark is called with each mark, in order, by the goroutine that writes. It must not wait, and must not call
	// methods. Nil means that nothing is called. It must not change after the first Attach.
	OnMark func(Mark)

	mu      sync.Mutex // guards all below
	out     window
	scan    Scanner
	points  []point
	viewers map[*Viewer]struct{}
	owner   *Viewer
	typist  gitd.Person // who typed last
	size    Size
	line    *line         // nil while there is no process
	upto    int64         // bytes that the program is known to have printed
	begun   chan struct{} // closed at the first Attach, and at the end
	ended   bool
	exit    *int
	why     string
	stopped bool
	moved   chan struct{} // closed at the next output or input; nil if nobody waits
	count   int64         // of outputs and inputs
}

// point is an offset at which the output may be cut.
type point struct {
	at      int64
	restore string
	full    bool
}

// New returns a terminal whose program has printed nothing.
func New(name string, size Size) *Terminal {
	return &Terminal{Name: name, size: size.Clip(), out: window{limit: Window}, viewers: map[*Viewer]struct{}{},
		points: []point{{}}, begun: make(chan struct{})}
}

// Next returns the offset of the next byte of output.
func (t *Terminal) Next() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.out.next
}

// Size returns the terminal's size.
func (t *Terminal) Size() Size {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.size
}

// Title returns the title that the program has set.
func (t *Terminal) Title() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.scan.Title()
}

// Typist returns the person who typed last. Its Name is empty if nobody has.
func (t *Terminal) Typist() gitd.Person {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.typist
}

// Viewers returns the number of viewers.
func (t *Terminal) Viewers() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.viewers)
}

// Activity returns a number that grows with each output and input, and a channel that is closed when it grows.
func (t *Terminal) Activity() (int64, <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.moved == nil {
		t.moved = make(chan struct{})
	}
	return t.count, t.moved
}

// Read returns the output between two offsets, as far as it is kept, and the offset at which it begins.
func (t *Terminal) Read(from, to int64) ([]byte, int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	from, to = max(from, t.out.base), min(to, t.out.next)
	if from >= to {
		return nil, to
	}
	return t.out.read(from, int(to-from)), from
}

// Attach connects the terminal to its program, whose output goes to [Terminal.Write] and begins at from. Bytes before
// from are lost if they did not come before. The program has printed upto bytes. The process is used until Detach.
func (t *Terminal) Attach(p Process, from, upto int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.upto = upto
	if from != t.out.next {
		t.out.skip(from)
		t.scan.Skip(from)
		t.points = []point{{at: from, restore: t.scan.Restore(), full: t.scan.FullScreen()}}
	}
	t.line = newLine(p, t.out.next, t.size)
	t.letIn()
	t.ack()
	t.changed()
}

// Detach disconnects the terminal from its program, and waits until the process is no longer used. hangUp ends calls of
// the process that wait.
func (t *Terminal) Detach(hangUp func()) {
	t.mu.Lock()
	l := t.line
	t.line = nil
	t.changed()
	t.mu.Unlock()
	if l == nil {
		hangUp()
		return
	}
	l.close()
	hangUp()
	l.wait()
}

// letIn lets input in, and viewers that came before. mu is held.
func (t *Terminal) letIn() {
	if t.hasBegun() {
		return
	}
	close(t.begun)
	for v := range t.viewers {
		v.setCursor(v.cursor)
		v.wake()
	}
}

func (t *Terminal) hasBegun() bool {
	select {
	case <-t.begun:
		return true
	default:
		return false
	}
}

// End notes that the program has ended. exit is nil if its exit code is unknown. why is empty if it ended by itself.
// stopped is [State].Stopped.
func (t *Terminal) End(exit *int, why string, stopped bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended, t.exit, t.why, t.stopped = true, exit, why, stopped
	t.letIn()
	t.changed()
}

// Write takes the program's output. It never fails and never waits.
func (t *Terminal) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	title := t.scan.Title()
	t.out.write(p)
	t.scan.Scan(p, t.OnMark)
	for len(t.points) > 1 && t.points[0].at < t.out.base {
		t.points = t.points[1:]
	}
	if last := t.points[len(t.points)-1]; t.scan.Safe() && (t.out.next-last.at >= pointEvery || last.at < t.out.base) {
		t.points = append(t.points, point{t.out.next, t.scan.Restore(), t.scan.FullScreen()})
	}
	if t.scan.Title() != title {
		t.changed()
	}
	for v := range t.viewers {
		v.wake()
	}
	t.move()
	t.ack()
	return len(p), nil
}

// move notes an output or an input. mu is held.
func (t *Terminal) move() {
	t.count++
	if t.moved != nil {
		close(t.moved)
		t.moved = nil
	}
}

// Announce sends viewers a command that has ended.
func (t *Terminal) Announce(d Done) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for v := range t.viewers {
		if len(v.done) >= doneQueue {
			v.done = v.done[1:]
		}
		v.done = append(v.done, d)
		v.wake()
	}
}

// changed sends all viewers the state. mu is held.
func (t *Terminal) changed() {
	for v := range t.viewers {
		v.changed = true
		v.wake()
	}
}

// ack lets the program go on as far as its owner has read, or without bound if it has no owner. mu is held.
func (t *Terminal) ack() {
	if t.line == nil {
		return
	}
	upto := t.out.next
	if t.owner != nil {
		upto = min(upto, t.owner.acked)
	}
	t.line.ack(upto)
}

// makeOwner makes a viewer the owner. The size becomes the owner's, before any input of it. mu is held.
func (t *Terminal) makeOwner(v *Viewer) {
	if t.owner == v {
		return
	}
	t.owner = v
	if v.size != (Size{}) && v.size != t.size {
		t.resize(v.size)
	}
	t.ack()
	t.changed()
}

// resize gives the terminal a size. mu is held.
func (t *Terminal) resize(s Size) {
	t.size = s
	if t.line != nil {
		t.line.resize(s)
	}
	t.changed()
}

// ViewOptions are the options of a viewer.
type ViewOptions struct {
	Person gitd.Person
	// Have is the offset of the next byte that the viewer wants. Below 0 it has nothing.
	Have int64
	Size Size
	// Watch is set for viewers that may not type.
	Watch bool
}

// View adds a viewer. It becomes the owner if there is none and it may type. The error is ErrFull.
func (t *Terminal) View(o ViewOptions) (*Viewer, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.viewers) >= MaxViewers {
		return nil, fmt.Errorf("cannot look at the terminal %s: %w, %d", t.Name, ErrFull, MaxViewers)
	}
	v := &Viewer{t: t, person: o.Person, size: o.Size.Clip(), watch: o.Watch, ready: make(chan struct{}, 1), changed: true}
	v.cursor = o.Have
	if t.hasBegun() {
		v.setCursor(o.Have)
	}
	t.viewers[v] = struct{}{}
	if t.owner == nil && !o.Watch {
		t.makeOwner(v)
	}
	t.changed()
	return v, nil
}
