package runner

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path"
	"runtime"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A guarded command and all of its descendants stop in the kernel when they start a program, until the runner has said
// that they may (seccomp user notification, Linux 5.5). The runner reads the path and the arguments from the memory of the
// process. If the name of the program is one of [Request.Guard], it asks the host at the door.
//
// The arguments are in memory that a hostile program can change after they were read, from another thread. So a guard
// holds for programs that do not try to evade it.

// RulePath is the path of the door that decides whether a guarded program may start. The method is POST, and the body a
// [RuleCall]. The status is 200 if it may, and otherwise the answer has the reason.
const RulePath = "/ramus-rule"

// RuleCall is a program that a guarded command is about to start.
type RuleCall struct {
	Command string   `json:"command"` // the id of the guarded command
	Args    []string `json:"args"`    // with the path in place of the first argument
}

const (
	maxGuard     = 10000     // names
	maxCallArgs  = 1000      // arguments that are read
	maxCallBytes = 128 << 10 // bytes of them
	maxAsking    = 16        // processes of a command that wait for the host at a time
	guardAnswer  = 4 << 10
	// guardTries and guardPause bound the time in which a host has to come back.
	guardTries = 120
	guardPause = time.Second
	// guardBegin bounds the time in which a guarded command has to begin.
	guardBegin = time.Minute
)

// guard is `ramus runner guard PROGRAM ARG…`, which becomes the program. It gives the descriptor of its filter to the
// runner by descriptor 3.
func guard(program string, argv []string) error {
	runtime.LockOSThread() // the filter is that of this thread, which becomes the program
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("cannot guard the command: no_new_privs: %w", err)
	}
	arch, ok := architectures[runtime.GOARCH]
	if !ok {
		return errors.New("cannot guard the command: not on this architecture")
	}
	p := guardFilter(arch)
	prog := unix.SockFprog{Len: uint16(len(p)), Filter: &p[0]}
	fd, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_NEW_LISTENER,
		uintptr(unsafe.Pointer(&prog)))
	runtime.KeepAlive(p)
	if e != 0 {
		return fmt.Errorf("cannot guard the command: seccomp: %w", e)
	}
	if err := unix.Sendmsg(3, []byte{0}, unix.UnixRights(int(fd)), nil, 0); err != nil {
		return fmt.Errorf("cannot guard the command: %w", err)
	}
	unix.Close(int(fd))
	unix.Close(3)
	err := unix.Exec(program, argv, os.Environ())
	if errors.Is(err, unix.ENOEXEC) {
		err = unix.Exec("/bin/sh", append([]string{"sh", program}, argv[1:]...), os.Environ())
	}
	return fmt.Errorf("cannot run %s: %w", argv[0], err)
}

// guardFilter notifies of each start of a program. Other architectures and x32 have no system calls.
func guardFilter(arch uint32) []unix.SockFilter {
	const (
		load    = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		equal   = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		atLeast = unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K
		ret     = unix.BPF_RET | unix.BPF_K
	)
	absent := unix.SockFilter{Code: ret, K: unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)}
	return []unix.SockFilter{
		{Code: load, K: 4},
		{Code: equal, K: arch, Jt: 1},
		absent,
		{Code: load, K: 0},
		{Code: atLeast, K: 1 << 30, Jf: 1},
		absent,
		{Code: equal, K: unix.SYS_EXECVE, Jt: 2},
		{Code: equal, K: unix.SYS_EXECVEAT, Jt: 1},
		{Code: ret, K: unix.SECCOMP_RET_ALLOW},
		{Code: ret, K: unix.SECCOMP_RET_USER_NOTIF},
	}
}

// notification is struct seccomp_notif.
type notification struct {
	id    uint64
	pid   uint32
	flags uint32
	nr    int32
	arch  uint32
	ip    uint64
	args  [6]uint64
}

// reply is struct seccomp_notif_resp.
type reply struct {
	id    uint64
	val   int64
	err   int32
	flags uint32
}

// guarded is the runner's side of a guarded command.
type guarded struct {
	s      *server
	c      *command
	names  []string
	files  *os.File // the listener
	asking chan struct{}
	ctx    context.Context
	host   *http.Client
	door   string
}

// watchGuard answers for a guarded command until its last process has ended. conn is the other end of its descriptor 3.
func (s *server) watchGuard(c *command, names []string, conn *os.File) {
	listener, err := receiveListener(conn)
	conn.Close()
	if err != nil {
		return // it has not begun, and its stderr has the reason
	}
	defer listener.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	g := &guarded{s: s, c: c, names: names, files: listener, asking: make(chan struct{}, maxAsking), ctx: ctx, host: doorClient(),
		door: fmt.Sprintf("http://127.0.0.1:%d%s", s.door.port, RulePath)}
	raw, err := listener.SyscallConn()
	if err != nil {
		return
	}
	for first := true; ; {
		var n notification
		var e unix.Errno
		if err := raw.Read(func(fd uintptr) bool {
			poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
			if k, err := unix.Poll(poll, 0); err == nil && k == 0 {
				return false
			}
			if poll[0].Revents&unix.POLLIN == 0 {
				e = unix.ECHILD // all processes have ended
				return true
			}
			n = notification{}
			e = ioctl(fd, unix.SECCOMP_IOCTL_NOTIF_RECV, unsafe.Pointer(&n))
			return true
		}); err != nil {
			return
		}
		switch {
		case e == unix.ENOENT || e == unix.EINTR:
			continue // the process ended meanwhile
		case e != 0:
			return
		case first: // the command itself, on which the host decided
			first = false
			g.answer(n.id, 0)
			continue
		}
		args, err := g.read(n)
		switch {
		case errors.Is(err, errTooLong):
			s.user.do(func() { writeToStderr(int(n.pid), "ramus: "+err.Error()+"\n") })
			g.answer(n.id, unix.E2BIG)
		case err != nil:
			g.answer(n.id, unix.EPERM)
		case args == nil:
			g.answer(n.id, 0)
		default:
			select {
			case g.asking <- struct{}{}:
				go func() {
					defer func() { <-g.asking }()
					g.answer(n.id, g.ask(int(n.pid), args))
				}()
			default:
				g.answer(n.id, unix.EAGAIN)
			}
		}
	}
}

// receiveListener returns the descriptor that a guarded command sends when it begins.
func receiveListener(conn *os.File) (*os.File, error) {
	in, err := net.FileConn(conn)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	u, ok := in.(*net.UnixConn)
	if !ok {
		return nil, errors.New("no unix socket")
	}
	_ = u.SetReadDeadline(time.Now().Add(guardBegin))
	buf, oob := make([]byte, 1), make([]byte, unix.CmsgSpace(4))
	n, oobn, _, _, err := u.ReadMsgUnix(buf, oob)
	if err != nil || n == 0 {
		return nil, errors.Join(err, io.EOF)
	}
	messages, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil || len(messages) != 1 {
		return nil, errors.Join(err, errors.New("no descriptor"))
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return nil, errors.Join(err, errors.New("no descriptor"))
	}
	unix.CloseOnExec(fds[0])
	return pollable(fds[0], "guard"), nil
}

func ioctl(fd uintptr, request uintptr, p unsafe.Pointer) unix.Errno {
	_, _, e := unix.Syscall(unix.SYS_IOCTL, fd, request, uintptr(p))
	return e
}

// answer lets a process go on, or has its call fail with e.
func (g *guarded) answer(id uint64, e unix.Errno) {
	r := reply{id: id, err: -int32(e)}
	if e == 0 {
		r.flags = unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE
	}
	raw, err := g.files.SyscallConn()
	if err != nil {
		return
	}
	// An error means that the process has ended.
	_ = raw.Control(func(fd uintptr) { _ = ioctl(fd, unix.SECCOMP_IOCTL_NOTIF_SEND, unsafe.Pointer(&r)) })
}

// concerns reports whether the host decides on a program.
func (g *guarded) concerns(program string) bool {
	for _, pattern := range g.names {
		// A malformed pattern matches, so that the host decides.
		if ok, err := path.Match(pattern, path.Base(program)); ok || err != nil {
			return true
		}
	}
	return false
}

// ask has the host decide, and returns the error of the call, or 0. It asks again if the host is gone or does not know the
// command yet, as after a restart.
func (g *guarded) ask(pid int, args []string) unix.Errno {
	body, err := json.Marshal(RuleCall{Command: g.c.id, Args: args})
	if err != nil {
		return unix.EPERM
	}
	for try := 0; ; try++ {
		status, why := g.askOnce(body)
		switch {
		case status == http.StatusOK:
			return 0
		case (status == 0 || status == http.StatusServiceUnavailable) && try < guardTries && g.ctx.Err() == nil:
			select {
			case <-time.After(guardPause):
			case <-g.ctx.Done():
			}
			continue
		}
		g.s.user.do(func() { writeToStderr(pid, "ramus: "+why+"\n") })
		return unix.EACCES
	}
}

// askOnce returns the answer of the host. The status is 0 if there is none.
func (g *guarded) askOnce(body []byte) (status int, why string) {
	req, err := http.NewRequestWithContext(g.ctx, http.MethodPost, g.door, bytes.NewReader(body))
	if err != nil {
		return 0, err.Error()
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := g.host.Do(req)
	if err != nil {
		return 0, "the rules of the base could not be asked"
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, guardAnswer)) // a part of the reason is better than none
	return resp.StatusCode, strings.TrimSpace(string(text))
}

// writeToStderr writes a text to the stderr of a process, if that does not wait. It runs on the user thread, so that it opens nothing that
// the process could not.
func writeToStderr(pid int, text string) {
	fd, err := unix.Open(fmt.Sprintf("/proc/%d/fd/2", pid), unix.O_WRONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_APPEND|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	_, _ = unix.Write(fd, []byte(text))
}

// errTooLong is the error of a call with more arguments than the host is asked about.
var errTooLong = fmt.Errorf("cannot decide on a program with more than %d arguments or %d bytes of them", maxCallArgs, maxCallBytes)

// read returns the path and the arguments of a call, with the path in place of the first argument. It returns none if the
// host does not decide on the program. The arguments of such a program may be of any length.
func (g *guarded) read(n notification) (args []string, err error) {
	file, list := n.args[0], n.args[1]
	if n.nr == unix.SYS_EXECVEAT {
		file, list = n.args[1], n.args[2]
	}
	g.s.user.do(func() { args, err = g.readCall(int(n.pid), file, list) })
	if raw, rerr := g.files.SyscallConn(); rerr == nil {
		id := n.id
		_ = raw.Control(func(fd uintptr) {
			if ioctl(fd, unix.SECCOMP_IOCTL_NOTIF_ID_VALID, unsafe.Pointer(&id)) != 0 {
				args, err = nil, syscall.ESRCH // the memory may have been that of another process
			}
		})
	}
	return args, err
}

// readCall reads a path from the memory of a process, and a list of arguments if the host decides on the program. It runs
// on the user thread.
func (g *guarded) readCall(pid int, file, list uint64) ([]string, error) {
	fd, err := unix.Open(fmt.Sprintf("/proc/%d/mem", pid), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	m := &memory{fd: fd, left: maxCallBytes}
	name, err := m.text(file)
	if err != nil || !g.concerns(name) {
		return nil, err
	}
	args := []string{name}
	for i := uint64(0); list != 0; i++ {
		var p [8]byte
		if err := m.bytes(list+8*i, p[:]); err != nil {
			return nil, err
		}
		at := *(*uint64)(unsafe.Pointer(&p))
		switch {
		case at == 0:
			return args, nil
		case i == 0: // the path counts
			continue
		case len(args) >= maxCallArgs:
			return nil, errTooLong
		}
		a, err := m.text(at)
		if err != nil {
			return nil, err
		}
		args = append(args, a)
	}
	return args, nil
}

// memory is that of another process. Its file is opened with the rights of the user thread, which process_vm_readv would
// not use.
type memory struct {
	fd, left int
}

func (m *memory) bytes(at uint64, p []byte) error {
	n, err := unix.Pread(m.fd, p, int64(at))
	if err == nil && n != len(p) {
		err = unix.EFAULT
	}
	return err
}

// text reads a text that ends with a zero. It reads no byte of the page after it.
func (m *memory) text(at uint64) (string, error) {
	var b []byte
	for {
		p := make([]byte, 4096-at%4096)
		if err := m.bytes(at, p); err != nil {
			return "", err
		}
		if n := bytes.IndexByte(p, 0); n >= 0 {
			p = p[:n]
			b = append(b, p...)
			m.left -= len(b)
			if m.left < 0 {
				return "", errTooLong
			}
			return string(b), nil
		}
		if b = append(b, p...); len(b) > m.left {
			return "", errTooLong
		}
		at += uint64(len(p))
	}
}
