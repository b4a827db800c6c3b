package acp

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync/atomic"

	sdk "github.com/coder/acp-go-sdk"
)

// MaxLine is the longest message, in bytes.
const MaxLine = 8 << 20

// How many messages of the agent may wait for the client.
const (
	maxRequests = 64
	maxNotes    = 256
)

// ErrLine: the agent sent a message longer than [MaxLine].
var ErrLine = fmt.Errorf("the agent sent a message of more than %d MiB", MaxLine>>20)

// envelope is what the SDK decodes a line into, field by field: a line is
// counted here exactly when it is handled there.
type envelope struct {
	JSONRPC string            `json:"jsonrpc"`
	ID      *json.RawMessage  `json:"id,omitempty"`
	Method  string            `json:"method,omitempty"`
	Params  json.RawMessage   `json:"params,omitempty"`
	Result  json.RawMessage   `json:"result,omitempty"`
	Error   *sdk.RequestError `json:"error,omitempty"`
}

// lines lets through what an agent prints as far as it is messages, and no
// faster than they are handled. The SDK alone would begin a goroutine for every
// request, and end the connection over a burst of notifications.
type lines struct {
	from  *bufio.Reader
	stray io.Writer
	ready <-chan struct{} // nothing is read before
	over  <-chan struct{} // nothing waits any more

	requests, notes chan struct{} // a token for each that is handled

	rest []byte // of the line that is being read
	err  error

	tooLong atomic.Bool // that is how it ended
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

// next returns the next message's line; nil for one that is none.
func (l *lines) next() ([]byte, error) {
	line, err := l.line()
	if err != nil {
		return nil, err
	}
	var e envelope
	if json.Unmarshal(line, &e) != nil || e.ID == nil && e.Method == "" {
		_, _ = l.stray.Write(line) // nothing depends on it
		return nil, nil
	}
	switch {
	case e.Method == "": // an answer; only those that are waited for are kept
	case e.ID != nil:
		err = l.take(l.requests)
	case e.Method == "$/cancel_request":
	case e.Method == sdk.ClientMethodSessionUpdate:
		err = l.take(l.notes)
	default:
		return nil, nil // a notification that nobody here understands
	}
	if err != nil {
		return nil, err // one that was not counted must not be handled
	}
	return line, nil
}

func (l *lines) take(slots chan struct{}) error {
	select {
	case slots <- struct{}{}:
		return nil
	case <-l.over:
		return io.EOF
	}
}

// line reads to the end of a line; the last one may lack it.
func (l *lines) line() ([]byte, error) {
	var line []byte
	for {
		part, err := l.from.ReadSlice('\n')
		if len(line)+len(part) > MaxLine {
			l.tooLong.Store(true) // before the SDK hears of the end
			return nil, ErrLine
		}
		line = append(line, part...)
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
