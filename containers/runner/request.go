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

// Version is the protocol's version; a runner refuses any other.
const Version = 1

// The names of the channel requests that are not RFC 4254's.
const (
	StartedRequest = "started@ramus.dev"
	ExitRequest    = "exit@ramus.dev"
	ErrorRequest   = "error@ramus.dev"
	EOFRequest     = "eof@ramus.dev"
	OutputRequest  = "output@ramus.dev" // an [Output]
)

// ServerVersion is what a runner that can hand files over calls itself, after "SSH-2.0-".
const ServerVersion = "ramus-runner-files"

// Output says that a stream goes on in a file, and how much of it is there: only ever
// more. Nothing more of that stream comes by the channel. The file is the runner's own,
// and outlives what the runner remembers for who has it open.
type Output struct {
	Stream uint32 // 1 stdout, 2 stderr
	File   uint64 // its number in [Carrier]
	Before uint64 // bytes of the stream that were sent by this channel
	From   uint64 // where in the file the stream goes on after those
	Upto   uint64 // bytes that the file holds by now
}

// MaxRequest is the largest request in bytes, as JSON; SSH packets leave room for it.
const MaxRequest = 240 << 10

const maxMessage = 4 << 10 // bytes of what is said of a kill

// The operations.
const (
	OpStart  = "start"
	OpAttach = "attach"
	OpList   = "list"
	OpKill   = "kill"
	OpForget = "forget"
	OpPorts  = "ports"
)

// Request is the command string of an "exec" request. What names files or
// holds arguments is bytes (base64 in JSON), since it need not be UTF-8.
type Request struct {
	Version int    `json:"v"`
	Op      string `json:"op"`
	ID      string `json:"id,omitempty"` // all but list and ports

	// Of start. Args is run as it is; Shell, when there are no Args, by /bin/sh -c.
	Args  [][]byte `json:"args,omitempty"`
	Shell []byte   `json:"shell,omitempty"`
	Dir   []byte   `json:"dir,omitempty"` // below the work tree, absolute or relative to it
	Env   [][]byte `json:"env,omitempty"`
	Stdin bool     `json:"stdin,omitempty"` // the channel's input is wanted; /dev/null otherwise
	TTY   *TTY     `json:"tty,omitempty"`
	// Timeout and Grace are nanoseconds; no Timeout is none, no Grace is 5 s.
	Timeout    time.Duration `json:"timeout,omitempty"`
	Grace      time.Duration `json:"grace,omitempty"`
	Background bool          `json:"background,omitempty"`

	// Of kill: why, and in words; no Reason is [ReasonKilled].
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`

	// Files: output may be handed over in files, of start and attach; see [Output].
	Files bool `json:"files,omitempty"`

	// Of attach: where to begin.
	Stdout int64 `json:"stdout,omitempty"`
	Stderr int64 `json:"stderr,omitempty"`
}

// TTY is a terminal's size and kind.
type TTY struct {
	Rows uint16 `json:"rows"`
	Cols uint16 `json:"cols"`
	Term string `json:"term,omitempty"`
}

// The kinds of Failure.
const (
	FailUnknown  = "unknown"  // no command of that id
	FailKnown    = "known"    // start: a command of that id is remembered
	FailRunning  = "running"  // forget: the command has not ended
	FailFull     = "full"     // start: too many commands are remembered
	FailBad      = "bad"      // the request itself
	FailInternal = "internal" // the runner could not do it
)

// Failure says why a request was refused.
type Failure struct {
	Kind    string `json:"kind"`
	Message string `json:"message"`
}

func (f *Failure) Error() string { return f.Message }

func failf(kind, format string, a ...any) *Failure {
	return &Failure{Kind: kind, Message: fmt.Sprintf(format, a...)}
}

// The Reasons of an Exit.
const (
	ReasonTimeout  = "timeout"
	ReasonKilled   = "killed"
	ReasonDiskFull = "disk_full"
	ReasonMemory   = "memory"
)

// Exit is how a command ended.
type Exit struct {
	Code     int           `json:"code"`
	Signal   string        `json:"signal,omitempty"` // without SIG
	Reason   string        `json:"reason,omitempty"`
	Message  string        `json:"message,omitempty"` // of who killed it, for people
	Duration time.Duration `json:"duration"`
	// Stdout and Stderr count what was written; no more than Config.Output was kept.
	Stdout int64 `json:"stdout"`
	Stderr int64 `json:"stderr"`
}

// State is one line of a list.
type State struct {
	ID         string    `json:"id"`
	Started    time.Time `json:"started"`
	Background bool      `json:"background,omitempty"`
	Running    bool      `json:"running"`
	Exit       Exit      `json:"exit"` // while Running only the counts, as they are so far
	Line       string    `json:"line"` // for people; not always UTF-8 in origin, always cut at 1 KiB
	// Cut: what sent the command's input was gone before the input had its end, while the
	// command ran. One that reads to the end waits for the rest for ever. Never of a
	// terminal, which takes more by attach.
	Cut bool `json:"cut,omitempty"`
}

// ValidID tells whether id can name a command.
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
		return nil, errors.New("cannot read the request: something follows it")
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
		return nil, fmt.Errorf("%q is no command id: 1 to 64 of A-Z a-z 0-9 . _ -", r.ID)
	}
	if r.Stdout < 0 || r.Stderr < 0 || r.Timeout < 0 || r.Grace < 0 {
		return nil, errors.New("offsets and times cannot be negative")
	}
	if r.Reason != "" && (r.Op != OpKill || r.Reason != ReasonDiskFull) {
		return nil, fmt.Errorf("cannot %s for the reason %q", r.Op, r.Reason)
	}
	if len(r.Message) > maxMessage {
		return nil, fmt.Errorf("a message of %d bytes; %d are possible", len(r.Message), maxMessage)
	}
	if r.Op == OpStart {
		return &r, r.checkStart()
	}
	return &r, nil
}

func (r *Request) checkStart() error {
	if len(r.Args) == 0 && len(r.Shell) == 0 {
		return errors.New("there is nothing to run: neither args nor shell")
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
	if t := r.TTY; t != nil {
		if strings.IndexByte(t.Term, 0) >= 0 || len(t.Term) > 64 {
			return errors.New("tty: bad term")
		}
	}
	return nil
}

// line is the command as people would read it.
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
