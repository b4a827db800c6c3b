package terminal

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/ramus-dev/ramus/executor/terminal"
	"github.com/ramus-dev/ramus/gitd"
)

// Subprotocol is the WebSocket protocol of terminals.
const Subprotocol = "ramus.term.1"

// Types of frames.
const (
	FrameHello byte = 0x01
	FrameInput byte = 0x02
	FrameSize  byte = 0x03
	FrameAck   byte = 0x04
	FrameTake  byte = 0x05
	FramePing  byte = 0x06

	FrameState   byte = 0x11
	FrameOutput  byte = 0x12
	FrameReset   byte = 0x13
	FrameMark    byte = 0x14
	FramePong    byte = 0x15
	FrameProblem byte = 0x1f
)

// MaxFrame bounds a message of a client, in bytes.
const MaxFrame = 64 << 10

// maxPing bounds the bytes of a ping.
const maxPing = 64

// Hello is the first frame of a client.
type Hello struct {
	// Ticket is the token of [Token]. It is not needed if the request itself has a token.
	Ticket string `json:"ticket,omitempty"`
	// Terminal is the name of a terminal. "new" opens one. Empty means that of the ticket, or the first.
	Terminal string `json:"terminal,omitempty"`
	// Have is the offset of the next byte that the client wants. -1 means that it has nothing.
	Have int64 `json:"have"`
	Cols int   `json:"cols,omitempty"`
	Rows int   `json:"rows,omitempty"`
	// Asker is the person who types, if the caller of the request may act for others.
	Asker gitd.Person `json:"asker,omitzero"`
	// Watch asks for a viewer that never types.
	Watch bool `json:"watch,omitempty"`
}

// State is a terminal as one viewer sees it.
type State = terminal.State

// Done is a command that was committed.
type Done = terminal.Done

// Problem says why the server ends a socket, or why it did not take a frame.
type Problem struct {
	Kind   string `json:"kind"`
	Detail string `json:"detail"`
	Hint   string `json:"hint,omitempty"`
	// RetryAfter is in seconds. 0 means that a client may try again at once, if Final is not set.
	RetryAfter int `json:"retry_after,omitempty"`
	// Final is set if it is of no use to connect again.
	Final bool `json:"final,omitempty"`
}

func (p *Problem) Error() string { return p.Detail }

// Frame is one frame in either direction. Only the fields of its type count.
type Frame struct {
	Type   byte
	Data   []byte // of input, output, reset, ping and pong
	Offset int64  // of ack, output and reset
	Size   terminal.Size
	Reason string // of reset, as that of terminal.Item
	Hello  Hello
	State  State
	Done   Done
	Fault  Problem // of problem
}

var errFrame = errors.New("not a frame of " + Subprotocol)

// Encode returns the message of a frame.
func (f Frame) Encode() ([]byte, error) {
	b := []byte{f.Type}
	switch f.Type {
	case FrameHello:
		return appendJSON(b, f.Hello)
	case FrameState:
		return appendJSON(b, f.State)
	case FrameMark:
		return appendJSON(b, f.Done)
	case FrameProblem:
		return appendJSON(b, f.Fault)
	case FrameInput, FramePing, FramePong:
		return append(b, f.Data...), nil
	case FrameSize:
		b = binary.BigEndian.AppendUint16(b, uint16(f.Size.Cols))
		return binary.BigEndian.AppendUint16(b, uint16(f.Size.Rows)), nil
	case FrameAck:
		return binary.BigEndian.AppendUint64(b, uint64(f.Offset)), nil
	case FrameOutput:
		return append(binary.BigEndian.AppendUint64(b, uint64(f.Offset)), f.Data...), nil
	case FrameReset:
		b = binary.BigEndian.AppendUint64(b, uint64(f.Offset))
		return append(append(append(b, f.Reason...), 0), f.Data...), nil
	case FrameTake:
		return b, nil
	}
	return nil, errFrame
}

func appendJSON(b []byte, v any) ([]byte, error) {
	text, err := json.Marshal(v)
	return append(b, text...), err
}

// Decode reads a message. The frame refers to its bytes.
func Decode(message []byte) (f Frame, err error) {
	if len(message) == 0 {
		return f, errFrame
	}
	f.Type = message[0]
	rest := message[1:]
	switch f.Type {
	case FrameHello:
		err = readJSON(rest, &f.Hello)
	case FrameState:
		err = readJSON(rest, &f.State)
	case FrameMark:
		err = readJSON(rest, &f.Done)
	case FrameProblem:
		err = readJSON(rest, &f.Fault)
	case FrameInput, FramePong:
		f.Data = rest
	case FramePing:
		if f.Data = rest; len(rest) > maxPing {
			err = errFrame
		}
	case FrameSize:
		if len(rest) != 4 {
			return f, errFrame
		}
		f.Size = terminal.Size{Cols: int(binary.BigEndian.Uint16(rest)), Rows: int(binary.BigEndian.Uint16(rest[2:]))}
	case FrameAck, FrameOutput, FrameReset:
		return f, f.readOffset(rest)
	case FrameTake:
		if len(rest) != 0 {
			err = errFrame
		}
	default:
		err = errFrame
	}
	return f, err
}

// readOffset reads the rest of a frame that begins with an offset.
func (f *Frame) readOffset(rest []byte) error {
	if len(rest) < 8 || rest[0] >= 0x80 {
		return errFrame
	}
	f.Offset, rest = int64(binary.BigEndian.Uint64(rest)), rest[8:]
	switch f.Type {
	case FrameAck:
		if len(rest) != 0 {
			return errFrame
		}
	case FrameOutput:
		f.Data = rest
	case FrameReset:
		reason, data, ok := bytes.Cut(rest, []byte{0})
		if !ok {
			return errFrame
		}
		f.Reason, f.Data = string(reason), data
	}
	return nil
}

func readJSON(b []byte, v any) error {
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("%w: %w", errFrame, err)
	}
	return nil
}
