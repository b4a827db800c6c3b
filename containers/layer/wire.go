package layer

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ramus-dev/ramus/internal/shortpath"
)

// This file has the protocol between a [Helper] and the [Serve] that it started. Each connection of a unix stream
// socket carries one request. A request is a message, followed by the content of its files in order. The answer is a
// message, with a descriptor if a file was opened. A message is its length in 4 bytes, big-endian, and JSON. Both sides
// are the same program. Paths are bytes, because JSON text cannot hold every name.

// socketName is the name of the socket below the Keeper's root.
const socketName = "layers.sock"

// Bounds on messages from the other side.
const (
	maxRequest = 64 << 20 // bytes of a request's message
	maxAnswer  = 1 << 30  // bytes of an answer's message
	maxFiles   = 500_000  // files of one request
	maxContent = 16 << 30 // bytes of the content of one request's files
	maxLink    = 4096     // bytes of a link's target
	maxEntries = 5_000_000
	maxInside  = 100 // folders that are reached through a process
)

// Operations.
const (
	opHold    = "hold" // no answer follows the first one, and the server ends with the connection
	opCheck   = "check"
	opBind    = "bind"
	opPut     = "put"
	opChanges = "changes"
	opOpen    = "open"
	opFill    = "fill"
	opOwn     = "own"
	opRemove  = "remove"
	opUsage   = "usage"
)

type request struct {
	Op      string       `json:"op"`
	Binding *wireBinding `json:"binding,omitempty"` // bind, put
	Files   []wireFile   `json:"files,omitempty"`   // bind, put, fill
	Dir     []byte       `json:"dir,omitempty"`     // changes, open, fill, own, remove, usage
	Path    []byte       `json:"path,omitempty"`    // open
	UID     int          `json:"uid,omitempty"`     // fill, own
	Max     int          `json:"max,omitempty"`     // changes
	Inside  [][]byte     `json:"inside,omitempty"`  // usage, like the fields below
	PID     int          `json:"pid,omitempty"`
	Start   uint64       `json:"start,omitempty"`
	Most    int64        `json:"most,omitempty"`
}

type wireBinding struct {
	PID      int      `json:"pid"`
	Start    uint64   `json:"start"`
	Lowers   [][]byte `json:"lowers"`
	Dir      []byte   `json:"dir"`
	Target   []byte   `json:"target"`
	UID      int      `json:"uid"`
	ReadOnly bool     `json:"read_only"`
}

type wireFile struct {
	Path []byte    `json:"path"`
	Kind Kind      `json:"kind"`
	Exec bool      `json:"exec,omitempty"`
	Size int64     `json:"size,omitempty"` // of the content, which follows the message
	Time time.Time `json:"time,omitzero"`
}

type answer struct {
	Failure *failure     `json:"failure,omitempty"`
	Changes []wireChange `json:"changes,omitempty"`
	Usage   Usage        `json:"usage,omitzero"`
}

type wireChange struct {
	Path     []byte `json:"p"`
	Kind     Kind   `json:"k"`
	Exec     bool   `json:"x,omitempty"`
	Size     int64  `json:"s,omitempty"`
	Inode    uint64 `json:"i"`
	MTime    int64  `json:"m"`
	CTime    int64  `json:"c"`
	Link     []byte `json:"l,omitempty"`
	Closed   bool   `json:"d,omitempty"`
	Opaque   bool   `json:"o,omitempty"`
	Redirect []byte `json:"r,omitempty"`
}

// failure is an error of the other side. It matches the same kinds of error as there.
type failure struct {
	Text  string        `json:"text"`
	Kinds []string      `json:"kinds,omitempty"`
	Errno syscall.Errno `json:"errno,omitempty"`
}

var kinds = map[string]error{"unable": ErrUnable, "gone": ErrGone, "many": ErrTooMany}

func failed(err error) *failure {
	f := &failure{Text: err.Error()}
	for name, kind := range kinds {
		if errors.Is(err, kind) {
			f.Kinds = append(f.Kinds, name)
		}
	}
	errors.As(err, &f.Errno)
	return f
}

func (f *failure) Error() string { return f.Text }

func (f *failure) Unwrap() []error {
	var list []error
	for _, name := range f.Kinds {
		if kind := kinds[name]; kind != nil {
			list = append(list, kind)
		}
	}
	if f.Errno != 0 {
		list = append(list, f.Errno)
	}
	return list
}

func toWire(b Binding) *wireBinding {
	w := &wireBinding{PID: b.PID, Start: b.Start, Dir: []byte(b.Dir), Target: []byte(b.Target), UID: b.UID,
		ReadOnly: b.ReadOnly}
	for _, l := range b.Lowers {
		w.Lowers = append(w.Lowers, []byte(l))
	}
	return w
}

func (w *wireBinding) binding() Binding {
	b := Binding{PID: w.PID, Start: w.Start, Dir: string(w.Dir), Target: string(w.Target), UID: w.UID, ReadOnly: w.ReadOnly}
	for _, l := range w.Lowers {
		b.Lowers = append(b.Lowers, string(l))
	}
	return b
}

func (c wireChange) change() Change {
	return Change{Path: string(c.Path), Kind: c.Kind, Exec: c.Exec, Size: c.Size, Inode: c.Inode, MTime: c.MTime,
		CTime: c.CTime,
		Link:  string(c.Link), Closed: c.Closed, Opaque: c.Opaque, Redirect: string(c.Redirect)}
}

func wireOf(c Change) wireChange {
	return wireChange{Path: []byte(c.Path), Kind: c.Kind, Exec: c.Exec, Size: c.Size, Inode: c.Inode, MTime: c.MTime,
		CTime: c.CTime,
		Link:  []byte(c.Link), Closed: c.Closed, Opaque: c.Opaque, Redirect: []byte(c.Redirect)}
}

// check refuses a request that no Helper sends.
func (r *request) check() (content int64, err error) {
	if len(r.Files) > maxFiles || r.Max < 0 || r.Max > maxEntries || len(r.Inside) > maxInside {
		return 0, errors.New("the request asks for too much")
	}
	if (r.Op == opBind || r.Op == opPut) != (r.Binding != nil) || r.Binding == nil && r.Op != opFill && len(r.Files) > 0 {
		return 0, fmt.Errorf("a request %q of this form is unknown", r.Op)
	}
	for _, f := range r.Files {
		limit := int64(0)
		switch f.Kind {
		case KindFile:
			limit = maxContent
		case KindLink:
			limit = maxLink
		}
		if f.Size < 0 || f.Size > limit {
			return 0, fmt.Errorf("%q: %d bytes are more than an entry of kind %q can hold", f.Path, f.Size, f.Kind)
		}
		if content += f.Size; content > maxContent {
			return 0, fmt.Errorf("the request's files hold more than %d bytes", int64(maxContent))
		}
	}
	return content, nil
}

func encode(v any, limit int) ([]byte, error) {
	b, err := json.Marshal(v)
	if err == nil && len(b) > limit {
		err = fmt.Errorf("a message has %d bytes, and the limit is %d", len(b), limit)
	}
	if err != nil {
		return nil, err
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...), nil
}

func decode(length [4]byte, in io.Reader, limit int, v any) error {
	n := int(binary.BigEndian.Uint32(length[:]))
	if n > limit {
		return fmt.Errorf("a message has %d bytes, and the limit is %d", n, limit)
	}
	// The message is read as it arrives, so that a length alone reserves no memory.
	b, err := io.ReadAll(io.LimitReader(in, int64(n)))
	if err == nil && len(b) < n {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return err
	}
	return json.Unmarshal(b, v)
}

// send writes a message, with the descriptor of f if f is not nil.
func send(conn *net.UnixConn, message []byte, f *os.File) error {
	if f != nil {
		n, _, err := conn.WriteMsgUnix(message[:4], unix.UnixRights(int(f.Fd())), nil)
		if err != nil {
			return err
		}
		message = message[n:]
	}
	_, err := conn.Write(message)
	return err
}

// receive reads an answer, and the file that came with it.
func receive(conn *net.UnixConn) (_ answer, _ *os.File, err error) {
	var a answer
	var length [4]byte
	oob := make([]byte, unix.CmsgSpace(4))
	n, m, flags, _, err := conn.ReadMsgUnix(length[:], oob)
	if err == nil && n == 0 {
		err = io.EOF
	}
	if err != nil {
		return a, nil, err
	}
	f, err := received(oob[:m], flags)
	if err == nil {
		_, err = io.ReadFull(conn, length[n:])
	}
	if err == nil {
		err = decode(length, conn, maxAnswer, &a)
	}
	if err == nil && a.Failure != nil {
		err = a.Failure
	}
	if err != nil && f != nil {
		f.Close()
		f = nil
	}
	return a, f, err
}

// received returns the file in a control message. Returns nil if there is none.
func received(oob []byte, flags int) (*os.File, error) {
	if len(oob) == 0 {
		return nil, nil
	}
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, fmt.Errorf("cannot read the descriptors of an answer: %w", err)
	}
	var fds []int
	for _, m := range messages {
		if list, err := unix.ParseUnixRights(&m); err == nil {
			fds = append(fds, list...)
		}
	}
	if len(fds) != 1 || flags&unix.MSG_CTRUNC != 0 {
		for _, fd := range fds {
			unix.Close(fd)
		}
		return nil, fmt.Errorf("%d descriptors came with an answer", len(fds))
	}
	return os.NewFile(uintptr(fds[0]), "upper"), nil
}

// through calls f with a short path to the socket below root.
func through(root string, f func(path string) error) error {
	return shortpath.To(root, socketName, f)
}

// peer returns the user at the other side of a connection. For a client that is the user who listened.
func peer(conn *net.UnixConn) (uid int, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return -1, err
	}
	var cred *unix.Ucred
	var asked error
	if err := raw.Control(func(fd uintptr) { cred, asked = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil {
		return -1, err
	}
	if asked != nil {
		return -1, asked
	}
	return int(cred.Uid), nil
}
