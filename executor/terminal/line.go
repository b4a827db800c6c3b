package terminal

import "sync"

// line is the way to a process. One goroutine sends input and sizes in order, and another one acknowledges output, so
// that nobody waits for the process. A program that waits for its output to be read may take no input.
type line struct {
	process Process
	closed  chan struct{}
	stop    sync.Once
	work    sync.WaitGroup
	deeds   chan struct{} // holds one token if there is input or a size
	acks    chan struct{} // holds one token if there is output to acknowledge

	mu     sync.Mutex // guards all below
	queue  []deed
	bytes  int // of input in queue
	room   chan struct{}
	acked  int64 // as the process knows
	wanted int64
}

// deed is an input or, without one, a size.
type deed struct {
	input []byte
	size  Size
}

// newLine returns the line to a process that has printed up to an offset. The process gets the size first, unless it is
// the zero value.
func newLine(p Process, at int64, size Size) *line {
	l := &line{process: p, closed: make(chan struct{}), deeds: make(chan struct{}, 1), acks: make(chan struct{}, 1),
		acked: at, wanted: at, room: make(chan struct{})}
	if size != (Size{}) {
		l.queue = []deed{{size: size}}
		signal(l.deeds)
	}
	l.work.Go(l.send)
	l.work.Go(l.acknowledge)
	return l
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (l *line) close() { l.stop.Do(func() { close(l.closed) }) }
func (l *line) wait()  { l.work.Wait() }

// input queues input. If there is no room, it returns a channel that is closed when there is some.
func (l *line) input(p []byte) (room <-chan struct{}, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.bytes > 0 && l.bytes+len(p) > inputQueue {
		return l.room, false
	}
	l.bytes += len(p)
	if n := len(l.queue); n > 0 && l.queue[n-1].input != nil {
		l.queue[n-1].input = append(l.queue[n-1].input, p...)
	} else {
		l.queue = append(l.queue, deed{input: append([]byte{}, p...)})
	}
	signal(l.deeds)
	return nil, true
}

// resize queues a size. Only the last of several in a row counts.
func (l *line) resize(s Size) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.queue); n > 0 && l.queue[n-1].input == nil {
		l.queue = l.queue[:n-1]
	}
	l.queue = append(l.queue, deed{size: s})
	signal(l.deeds)
}

// nudge has the program draw its screen again, by another size for a moment.
func (l *line) nudge(s Size) {
	if s == (Size{}) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.queue = append(l.queue, deed{size: Size{s.Rows + 1, s.Cols}}, deed{size: s})
	signal(l.deeds)
}

// ack notes how far the program may print.
func (l *line) ack(upto int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wanted = max(l.wanted, upto)
	if l.wanted-l.acked >= ackEvery {
		signal(l.acks)
	}
}

// acknowledge sends acknowledgements until the line is closed or breaks.
func (l *line) acknowledge() {
	for {
		select {
		case <-l.acks:
		case <-l.closed:
			return
		}
		l.mu.Lock()
		l.acked = l.wanted
		upto := l.acked
		l.mu.Unlock()
		if l.process.Ack(upto) != nil {
			return
		}
	}
}

// send sends input and sizes until the line is closed or breaks. Then the output ends too, and somebody closes the line.
func (l *line) send() {
	for {
		select {
		case <-l.deeds:
		case <-l.closed:
			return
		}
		l.mu.Lock()
		queue := l.queue
		l.queue, l.bytes = nil, 0
		close(l.room)
		l.room = make(chan struct{})
		l.mu.Unlock()
		for _, d := range queue {
			select {
			case <-l.closed:
				return // no key that was typed before is sent later
			default:
			}
			var err error
			if d.input != nil {
				err = l.process.Input(d.input)
			} else {
				err = l.process.Resize(d.size)
			}
			if err != nil {
				return
			}
		}
	}
}
