package live

import (
	"io"
	"sync"

	"github.com/ramus-dev/ramus/executor/record"
)

// Attendance is a request that waits for a run's end. It has the request's input and outputs.
type Attendance struct {
	// Command is the request's, with an input that the attendance observes.
	Command        *record.Command
	stdin          *given // nil if there is none
	stdout, stderr outlet
	first          bool // the run belongs to this request; set before the run begins
}

// NewAttendance returns the attendance of a request with a command. Output to a nil writer is discarded.
func NewAttendance(c *record.Command, stdout, stderr io.Writer) *Attendance {
	a := &Attendance{stdout: outlet{w: stdout}, stderr: outlet{w: stderr}}
	command := *c
	if c.Stdin != nil {
		a.stdin = &given{in: c.Stdin}
		command.Stdin = a.stdin
	}
	a.Command = &command
	return a
}

// Attend has a request wait for the run's end. A request without an attendance needs the run itself. The run then
// continues even if nobody waits for it.
func (l *Run) Attend(a *Attendance) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a == nil {
		l.kept = true
		return
	}
	l.attended++
}

// BeginFor gives a run that has not begun to a request alone. The run ends when nobody waits for it any more.
func (l *Run) BeginFor(a *Attendance) {
	l.Stdout, l.Stderr = &a.stdout, &a.stderr
	l.mu.Lock()
	defer l.mu.Unlock()
	a.first, l.attended, l.kept = true, 1, false
}

// Attended returns the number of requests that wait for the run's end.
func (l *Run) Attended() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.attended
}

// Leave ends a request's wait. It returns the number of others that the run continues for. With 0 the run has to end.
// If the run continues, nothing more is written for the request.
func (l *Run) Leave(a *Attendance) int {
	l.mu.Lock()
	l.attended--
	others := l.attended
	if l.kept {
		others++
	}
	l.mu.Unlock()
	if a.first && a.stdin != nil && !a.stdin.ended() {
		return 0 // the command would never get the rest of its input
	}
	if others > 0 {
		a.stdout.close()
		a.stderr.close()
	}
	return others
}

// given is the standard input that a request gives to a command.
type given struct {
	in io.Reader

	mu   sync.Mutex // guards over
	over bool       // all of it was read
}

func (g *given) Read(p []byte) (int, error) {
	n, err := g.in.Read(p)
	if err == io.EOF {
		g.mu.Lock()
		g.over = true
		g.mu.Unlock()
	}
	return n, err
}

func (g *given) ended() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.over
}

// outlet is where a request wants output to be written, until the request leaves.
type outlet struct {
	mu sync.Mutex // guards w, and is held while it is written to
	w  io.Writer  // nil for none
}

func (o *outlet) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.w == nil {
		return len(p), nil
	}
	return o.w.Write(p)
}

func (o *outlet) close() {
	o.mu.Lock()
	o.w = nil
	o.mu.Unlock()
}
