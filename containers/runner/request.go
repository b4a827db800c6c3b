package runner

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// Version is the version of the protocol. A runner refuses any other.
const Version = 1

// Names of the channel requests that RFC 4254 does not define.
const (
	StartedRequest = "started@ramus.dev"
	ExitRequest    = "exit@ramus.dev"
	ErrorRequest   = "error@ramus.dev"
	EOFRequest     = "eof@ramus.dev"
	OutputRequest  = "output@ramus.dev" // an [Output]
	AckRequest     = "ack@ramus.dev"    // an [Ack]
)

// Started is the payload of [StartedRequest] for a command with a window.
type Started struct {
	From uint64 // the offset at which the output of this attachment begins
	Upto uint64 // the number of bytes that the command has printed so far
}

// Ack lets a command with a window print further, see [Request.Hold].
type Ack struct {
	Upto uint64 // bytes of the output that the client is done with
}

// ServerVersion is the SSH version, after "SSH-2.0-", of a runner that can pass files.
const ServerVersion = "ramus-runner-files"

// Output reports that a stream continues in a file, and how much of the file is written. Upto never shrinks. No more of
// that stream comes by the channel. The file belongs to the runner. It outlives the command's record for a client that
// has it open.
type Output struct {
	Stream uint32 // 1 stdout, 2 stderr
	File   uint64 // its number in [Carrier]
	Before uint64 // bytes of the stream that were sent by this channel
	From   uint64 // where the stream continues in the file after those
	Upto   uint64 // bytes that the file has so far
}

// MaxRequest is the size of the largest request in bytes, as JSON. SSH packets have room for it.
const MaxRequest = 240 << 10

const maxMessage = 4 << 10 // bytes of the message of a kill

// Operations of a [Request].
const (
	OpStart  = "start"
	OpAttach = "attach"
	OpList   = "list"
	OpKill   = "kill"
	OpForget = "forget"
	OpPorts  = "ports"
)

// Request is the command string of an "exec" request. Names of files and arguments are bytes (base64 in JSON), because
// they may not be UTF-8.
type Request struct {
	Version int    `json:"v"`
	Op      string `json:"op"`
	ID      string `json:"id,omitempty"` // of all operations except list and ports

	// The fields up to Background are for start. Args is run without a shell. If Args is empty, Shell is run by /bin/sh
	// -c.
	Args  [][]byte `json:"args,omitempty"`
	Shell []byte   `json:"shell,omitempty"`
	Dir   []byte   `json:"dir,omitempty"` // below the work tree, absolute or relative to it
	Env   [][]byte `json:"env,omitempty"`
	Stdin bool     `json:"stdin,omitempty"` // the channel's input becomes stdin; otherwise stdin is /dev/null
	TTY   *TTY     `json:"tty,omitempty"`
	// Timeout and Grace are in nanoseconds. A Timeout of 0 means no limit, a Grace of 0 means 5 s.
	Timeout    time.Duration `json:"timeout,omitempty"`
	Grace      time.Duration `json:"grace,omitempty"`
	Background bool          `json:"background,omitempty"`
	// Guard lists names of programs, with * and ?. The host decides at [RulePath] whether the command and its descendants
	// may start such a program. It does not decide on the command itself. A kernel that cannot guard a command does not
	// run it. Empty means that nothing is guarded.
	Guard []string `json:"guard,omitempty"`
	// Window, if it is not 0, is the number of bytes of output that the runner keeps, which are the last ones. It needs
	// TTY and Background. At most [MaxWindow].
	Window int64 `json:"window,omitempty"`

	// Hold, if it is not 0, holds back a command with a window while it is more than Hold bytes ahead of the last [Ack]
	// of this attachment, for start and attach. The output waits in the terminal then, and the program that prints it.
	Hold int64 `json:"hold,omitempty"`

	// Reason and Message are for kill. An empty Reason means [ReasonKilled].
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`

	// Files allows the runner to pass output in files, for start and attach. See [Output].
	Files bool `json:"files,omitempty"`

	// Stdout and Stderr are the offsets at which attach begins. With a window, it begins later if the bytes are no
	// longer kept. [Started] has the offset.
	Stdout int64 `json:"stdout,omitempty"`
	Stderr int64 `json:"stderr,omitempty"`
}

// TTY is the size and kind of a terminal.
type TTY struct {
	Rows uint16 `json:"rows"`
	Cols uint16 `json:"cols"`
	Term string `json:"term,omitempty"`
}

// Kinds of Failure.
const (
	FailUnknown  = "unknown"  // no command of that id
	FailKnown    = "known"    // start: a command of that id is remembered
	FailRunning  = "running"  // forget: the command has not ended
	FailFull     = "full"     // start: too many commands are remembered
	FailBad      = "bad"      // the request is invalid
	FailInternal = "internal" // the runner failed
)

// Failure is the reason why a request was refused.
type Failure struct {
	Kind    string `json:"kind"`
	Message string `json:"message"`
}

func (f *Failure) Error() string { return f.Message }

func failf(kind, format string, a ...any) *Failure {
	return &Failure{Kind: kind, Message: fmt.Sprintf(format, a...)}
}

// Reasons of an Exit.
const (
	ReasonTimeout  = "timeout"
	ReasonKilled   = "killed"
	ReasonDiskFull = "disk_full"
	ReasonMemory   = "memory"
)

// Exit is the result of a command.
type Exit struct {
	Code     int           `json:"code"`
	Signal   string        `json:"signal,omitempty"` // without SIG
	Reason   string        `json:"reason,omitempty"`
	Message  string        `json:"message,omitempty"` // for people, set by the killer
	Duration time.Duration `json:"duration"`
	// Stdout and Stderr count all bytes written. At most Config.Output were kept.
	Stdout int64 `json:"stdout"`
	Stderr int64 `json:"stderr"`
}

// State is one entry of a list.
type State struct {
	ID         string    `json:"id"`
	Started    time.Time `json:"started"`
	Background bool      `json:"background,omitempty"`
	Running    bool      `json:"running"`
	Exit       Exit      `json:"exit"` // of a running command, only the sizes so far
	Line       string    `json:"line"` // for people; invalid UTF-8 replaced, and at most 1 KiB
	// Cut is true if the sender of the command's input disappeared before the end of the input, while the command ran.
	// A command that reads to the end waits forever for the rest. It is never true for a terminal, which takes more
	// input by attach.
	Cut bool `json:"cut,omitempty"`
}

// ValidID reports whether id can name a command.
func ValidID(id string) bool {
	if len(id) == 0 || len(id) > 64 {
		return false
	}
	for i := range len(id) {
		switch c := id[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '.', c == '_', c == '-':
		default:
			return false
		}
	}
	return true
}

// ParseRequest reads and checks a request.
func ParseRequest(b []byte) (*Request, error) {
	if len(b) > MaxRequest {
		return nil, fmt.Errorf("cannot take a request of %d bytes: the limit is %d", len(b), MaxRequest)
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	var r Request
	if err := d.Decode(&r); err != nil {
		return nil, fmt.Errorf("cannot read the request: %w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errors.New("cannot read the request: unexpected data after it")
	}
	if r.Version != Version {
		return nil, fmt.Errorf("cannot speak version %d of the protocol: this runner speaks %d", r.Version, Version)
	}
	switch r.Op {
	case OpList, OpPorts:
		return &r, nil
	case OpStart, OpAttach, OpKill, OpForget:
	default:
		return nil, fmt.Errorf("unknown operation %q", r.Op)
	}
	if !ValidID(r.ID) {
		return nil, fmt.Errorf("%q is not a command id, which has 1 to 64 characters of A-Z a-z 0-9 . _ -", r.ID)
	}
	if r.Stdout < 0 || r.Stderr < 0 || r.Timeout < 0 || r.Grace < 0 || r.Window < 0 || r.Hold < 0 {
		return nil, errors.New("offsets, sizes and times cannot be negative")
	}
	if r.Reason != "" && (r.Op != OpKill || r.Reason != ReasonDiskFull) {
		return nil, fmt.Errorf("cannot %s for the reason %q", r.Op, r.Reason)
	}
	if len(r.Message) > maxMessage {
		return nil, fmt.Errorf("the message has %d bytes, and the limit is %d", len(r.Message), maxMessage)
	}
	if r.Op == OpStart {
		return &r, r.checkStart()
	}
	return &r, nil
}

func (r *Request) checkStart() error {
	if len(r.Args) == 0 && len(r.Shell) == 0 {
		return errors.New("neither args nor shell is set")
	}
	if len(r.Args) > 0 && len(r.Args[0]) == 0 {
		return errors.New("the program's name is empty")
	}
	for _, a := range append(append([][]byte{r.Shell, r.Dir}, r.Args...), r.Env...) {
		if bytes.IndexByte(a, 0) >= 0 {
			return errors.New("arguments and variables cannot hold a NUL byte")
		}
	}
	for _, kv := range r.Env {
		if !validVariable(string(kv)) {
			return fmt.Errorf("env: %q is not K=V", kv)
		}
	}
	if len(r.Guard) > maxGuard {
		return fmt.Errorf("guard: at most %d names", maxGuard)
	}
	if r.Window > MaxWindow {
		return fmt.Errorf("window: at most %d bytes", MaxWindow)
	}
	if r.Window > 0 && (r.TTY == nil || !r.Background) {
		return errors.New("window: only for a background command with a terminal")
	}
	if t := r.TTY; t != nil {
		if strings.IndexByte(t.Term, 0) >= 0 || len(t.Term) > 64 {
			return errors.New("tty: bad term")
		}
	}
	return nil
}

// line returns the command for people.
func (r *Request) line() string {
	const limit = 1 << 10
	var b strings.Builder
	if len(r.Args) == 0 {
		b.Write(r.Shell[:min(len(r.Shell), limit)])
	}
	for i, a := range r.Args {
		if i > 0 {
			b.WriteByte(' ')
		}
		if len(a) == 0 || bytes.ContainsAny(a, " \t\r\n'\"\\$`*?[]{}()<>|&;~#!") {
			b.WriteString("'" + strings.ReplaceAll(string(a), "'", `'\''`) + "'")
		} else {
			b.Write(a)
		}
		if b.Len() > limit {
			break
		}
	}
	s := b.String()
	if len(s) > limit {
		s = s[:limit]
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}
