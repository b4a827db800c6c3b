package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"golang.org/x/term"

	"github.com/ramus-dev/ramus/gateway/client"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gateway/terminal"
	"github.com/ramus-dev/ramus/gitd"
)

// tty connects this process's terminal, or its standard streams, with a terminal of a caller.
type tty struct {
	env          *env
	client       *client.Client
	caller, name string
	watch        bool
	asker        gitd.Person
	file         *os.File // standard input, if it is a terminal

	have  int64 // the offset of the next byte of output
	keys  chan typedKeys
	ended chan struct{} // closed at the end of the input

	first sync.Once
	ready chan struct{} // closed at the first connection

	mu     sync.Mutex // guards socket
	socket *client.TerminalConn
}

// typedKeys is a piece of input. sent is closed when it is sent, or dropped.
type typedKeys struct {
	data []byte
	sent chan struct{}
}

// newTTY returns a tty for the streams of e.
func newTTY(e *env) *tty {
	t := &tty{env: e, keys: make(chan typedKeys), ended: make(chan struct{}), ready: make(chan struct{})}
	if f, ok := e.in.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		t.file = f
	}
	return t
}

// size returns the size of this process's terminal, or zeros.
func (t *tty) size() (rows, cols int) {
	if t.file == nil {
		return 0, 0
	}
	cols, rows, err := term.GetSize(int(t.file.Fd()))
	if err != nil {
		return 0, 0
	}
	return rows, cols
}

// errLeft is the end of a tty whose person leaves the terminal open.
var errLeft = errors.New("left")

// run shows the terminal until its program ends. Returns nil if it is still running.
func (t *tty) run(ctx context.Context) (exit *int, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if t.file != nil && !t.watch {
		was, err := term.MakeRaw(int(t.file.Fd()))
		if err != nil {
			return nil, fmt.Errorf("cannot use this terminal: %w", err)
		}
		defer term.Restore(int(t.file.Fd()), was)
	}
	// A goroutine may wait in a read of standard input until this process ends.
	go t.read(ctx, cancel)
	resized := make(chan os.Signal, 1)
	signal.Notify(resized, syscall.SIGWINCH)
	defer signal.Stop(resized)
	var work sync.WaitGroup
	defer work.Wait()
	defer cancel(nil)
	work.Go(func() { t.send(ctx, resized) })

	for tries := 0; ; tries++ {
		begun := time.Now()
		exit, err = t.follow(ctx)
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		var p *route.Problem
		var own *terminal.Problem
		switch {
		case err == nil:
			return exit, nil
		case errors.Is(err, errLeft):
			fmt.Fprintf(t.env.err, "\r\nramus: left the terminal %s of %s; `ramus shell` goes on\r\n", t.name, t.caller)
			return nil, nil
		case ctx.Err() != nil:
			return nil, err
		case errors.As(err, &own) && own.Final:
			return nil, fmt.Errorf("cannot show the terminal %s of %s: %s", t.name, t.caller, own.Detail)
		case errors.As(err, &p) && p.Status < 500 && p.Kind != route.KindStreams:
			return nil, err
		}
		if time.Since(begun) > maxPause {
			tries = 0
		}
		if tries > 0 && t.file != nil {
			fmt.Fprint(t.env.out, "\x1b]2;ramus: connecting again\x07")
		}
		select {
		case <-time.After(reconnectPause(tries)):
		case <-ctx.Done():
		}
	}
}

const (
	firstPause = 200 * time.Millisecond
	maxPause   = 5 * time.Second
)

// reconnectPause returns the wait before another try to connect.
func reconnectPause(tries int) time.Duration {
	return rand.N(min(maxPause, firstPause<<min(tries, 10))) + 10*time.Millisecond
}

// read reads the input of the terminal.
func (t *tty) read(ctx context.Context, cancel context.CancelCauseFunc) {
	defer close(t.ended)
	keys := escapes{atStart: true, off: t.file == nil}
	buf := make([]byte, 4<<10)
	for {
		n, err := t.env.in.Read(buf)
		typed, leave := keys.filter(buf[:n])
		if len(typed) > 0 && !t.watch {
			k := typedKeys{typed, make(chan struct{})}
			select {
			case t.keys <- k:
				<-k.sent
			case <-ctx.Done():
				return
			}
		}
		if leave {
			cancel(errLeft)
			return
		}
		if err != nil {
			return
		}
	}
}

// escapes finds "~." at the beginning of a line.
type escapes struct {
	off     bool
	atStart bool
	tilde   bool
}

// filter returns the bytes for the program. It returns true for a person who leaves.
func (e *escapes) filter(p []byte) (typed []byte, leave bool) {
	if e.off {
		return append(typed, p...), false
	}
	for _, c := range p {
		switch {
		case e.tilde && c == '.':
			return typed, true
		case e.tilde && c == '~':
			e.tilde = false
		case e.tilde:
			e.tilde = false
			typed = append(typed, '~')
		case e.atStart && c == '~':
			e.tilde = true
			continue
		}
		e.atStart = c == '\r' || c == '\n' || c == 3 || c == 4
		typed = append(typed, c)
	}
	return typed, false
}

// send sends input and the size of the terminal. Without a connection they are dropped.
func (t *tty) send(ctx context.Context, resized <-chan os.Signal) {
	ended := t.ended
	select {
	case <-t.ready:
	case <-ctx.Done():
		return
	}
	for {
		var f terminal.Frame
		sent := func() {}
		select {
		case keys := <-t.keys:
			f = terminal.Frame{Type: terminal.FrameInput, Data: keys.data}
			sent = func() { close(keys.sent) }
		case <-resized:
			f.Type = terminal.FrameSize
			f.Size.Rows, f.Size.Cols = t.size()
		case <-ended:
			ended = nil
			if t.file != nil || t.watch {
				continue
			}
			f = terminal.Frame{Type: terminal.FrameInput,
				Data: []byte{4}} // the end of the input, for a program that reads lines
		case <-ctx.Done():
			return
		}
		t.mu.Lock()
		s := t.socket
		t.mu.Unlock()
		if s != nil {
			_ = s.Write(f) // the reader of the socket gets the same error
		}
		sent()
	}
}

// follow connects, and shows output until the program or the connection ends.
func (t *tty) follow(ctx context.Context) (exit *int, err error) {
	rows, cols := t.size()
	s, err := t.client.DialTerminal(ctx, t.caller,
		terminal.Hello{Terminal: t.name, Have: t.have, Rows: rows, Cols: cols, Watch: t.watch, Asker: t.asker})
	if err != nil {
		return nil, err
	}
	defer s.Close()
	defer context.AfterFunc(ctx, func() { s.Close() })()
	t.mu.Lock()
	t.socket = s
	t.mu.Unlock()
	t.first.Do(func() { close(t.ready) })
	defer func() {
		t.mu.Lock()
		t.socket = nil
		t.mu.Unlock()
	}()
	var last terminal.State
	known := false
	for {
		if known && !last.Running && t.have >= last.Offset {
			if last.Exit == nil {
				return nil, &terminal.Problem{Detail: "the program has ended: " + t.env.oneLine(last.End, 300), Final: true}
			}
			return last.Exit, nil
		}
		f, err := s.Read()
		if err != nil {
			return nil, err
		}
		switch f.Type {
		case terminal.FrameState:
			last, known = f.State, true
		case terminal.FrameReset:
			t.have = f.Offset
			if t.file != nil {
				_, err = io.WriteString(t.env.out, "\x1bc"+string(f.Data))
			}
		case terminal.FrameOutput:
			if f.Offset != t.have {
				return nil, fmt.Errorf("the server sent byte %d, not %d", f.Offset, t.have)
			}
			_, err = t.env.out.Write(f.Data)
			t.have += int64(len(f.Data))
			if err == nil {
				err = s.Write(terminal.Frame{Type: terminal.FrameAck, Offset: t.have})
			}
		case terminal.FrameProblem:
			if f.Fault.Kind != "dropped" {
				return nil, &f.Fault
			}
		}
		if err != nil {
			return nil, err
		}
	}
}
