package acp

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	sdk "github.com/coder/acp-go-sdk"
)

// MaxLine bounds a message, in bytes.
const MaxLine = 8 << 20

// Bounds of the agent's messages that wait for the client.
const (
	maxRequests = 64
	maxNotes    = 256
)

// ErrLine means that the agent sent a message longer than [MaxLine].
var ErrLine = fmt.Errorf("the agent sent a message of more than %d MiB", MaxLine>>20)

// envelope has the fields that the SDK decodes of a line. They must be the
// same, so that lines counts exactly the messages that the SDK handles.
type envelope struct {
	JSONRPC string            `json:"jsonrpc"`
	ID      *json.RawMessage  `json:"id,omitempty"`
	Method  string            `json:"method,omitempty"`
	Params  json.RawMessage   `json:"params,omitempty"`
	Result  json.RawMessage   `json:"result,omitempty"`
	Error   *sdk.RequestError `json:"error,omitempty"`
}

// lines passes on the messages in an agent's output, and no faster than they
// are handled. The SDK alone would start a goroutine for each request, and
// would end the connection after a burst of notifications.
type lines struct {
	from  *bufio.Reader
	stray io.Writer
	ready <-chan struct{} // closed before anything is read
	over  <-chan struct{} // closed when nothing waits any more

	requests, notes chan struct{} // a token for each message that is being handled

	mu      sync.Mutex    // guards the fields below
	updates int           // that are being handled
	settled chan struct{} // closed when there are none; nil while there are none
	passed  int64         // bytes of the lines that are handled or being handled

	rest  []byte // rest of the line that is being read
	taken int64  // bytes of the lines so far
	err   error

	tooLong atomic.Bool // a line was too long, which ended the connection
}

func (l *lines) Read(p []byte) (int, error) {
	<-l.ready
	for len(l.rest) == 0 {
		if l.err != nil {
			return 0, l.err
		}
		l.rest, l.err = l.next()
	}
	n := copy(p, l.rest)
	l.rest = l.rest[n:]
	return n, nil
}

// next returns the line of the next message. Returns nil if the next line is
// not a message.
func (l *lines) next() ([]byte, error) {
	line, err := l.line()
	if err != nil {
		return nil, err
	}
	var e envelope
	if json.Unmarshal(line, &e) != nil || e.ID == nil && e.Method == "" {
		_, _ = l.stray.Write(line) // nothing depends on it
		l.pass(false)
		return nil, nil
	}
	update := false
	switch {
	case e.Method == "": // an answer, which the SDK drops unless a request waits for it
	case e.ID != nil:
		if err = l.settle(); err == nil {
			err = l.takeLine(l.requests)
		}
	case e.Method == "$/cancel_request":
	case e.Method == sdk.ClientMethodSessionUpdate:
		update = true
		err = l.takeLine(l.notes)
	default:
		line = nil // a notification that this package does not know
	}
	if err != nil {
		return nil, err // a message that was not counted must not be handled
	}
	l.pass(update)
	return line, nil
}

func (l *lines) takeLine(slots chan struct{}) error {
	select {
	case slots <- struct{}{}:
		return nil
	case <-l.over:
		return io.EOF
	}
}

// settle waits until all updates that were passed on are handled. The SDK handles requests on goroutines of their own,
// so that a question could otherwise come before the words and the tool call that it is about.
func (l *lines) settle() error {
	l.mu.Lock()
	settled := l.settled
	l.mu.Unlock()
	if settled == nil {
		return nil
	}
	select {
	case <-settled:
		return nil
	case <-l.over:
		return io.EOF
	}
}

// pass notes that the last line is passed on, and counts it if it is an update.
func (l *lines) pass(update bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.passed = l.taken
	if !update {
		return
	}
	if l.updates++; l.updates == 1 {
		l.settled = make(chan struct{})
	}
}

// between calls f when no update is being handled, with the number of bytes of the lines so far. No line is passed on meanwhile.
// It returns an error if ctx ends first, or ended is closed.
func (l *lines) between(ctx context.Context, ended <-chan struct{}, f func(at int64)) error {
	for {
		l.mu.Lock()
		settled := l.settled
		if settled == nil {
			defer l.mu.Unlock()
			f(l.passed)
			return nil
		}
		l.mu.Unlock()
		select {
		case <-settled:
		case <-ended:
			return ErrEnded
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// handled takes back the token of a message that was handled.
func (l *lines) handled(update bool) {
	if !update {
		<-l.requests
		return
	}
	<-l.notes
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.updates--; l.updates == 0 {
		close(l.settled)
		l.settled = nil
	}
}

// line reads a line. The last line may lack its end.
func (l *lines) line() ([]byte, error) {
	var line []byte
	for {
		part, err := l.from.ReadSlice('\n')
		if len(line)+len(part) > MaxLine {
			l.tooLong.Store(true) // set before the SDK gets the end
			return nil, ErrLine
		}
		line = append(line, part...)
		l.taken += int64(len(part))
		switch {
		case err == nil:
			return line, nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && len(line) > 0:
			return append(line, '\n'), nil
		default:
			return nil, err
		}
	}
}
