package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/gliderlabs/ssh"
	gossh "golang.org/x/crypto/ssh"
	"golang.org/x/sys/unix"
)

// chunk is the number of bytes that are read from a spool at once. SSH splits them into packets.
const chunk = 128 << 10

// session serves one "session" channel.
func (s *server) session(_ *ssh.Server, _ *gossh.ServerConn, nc gossh.NewChannel, sctx ssh.Context) {
	ch, reqs, err := nc.Accept()
	if err != nil {
		return
	}
	ctx, cancel := context.WithCancel(sctx)
	v := &visit{server: s, ch: ch, meant: make(chan struct{}), gone: make(chan struct{})}
	v.carrier, _ = sctx.Value(carrierKey{}).(*Carrier)
	var work sync.WaitGroup
	begun, announced := false, false
	for req := range reqs {
		ok := false
		var job func()
		switch req.Type {
		case "exec":
			var p struct{ Command string }
			if ok = !begun && gossh.Unmarshal(req.Payload, &p) == nil; ok {
				begun = true
				job = func() { v.answer(ctx, p.Command) }
			}
		case "subsystem":
			var p struct{ Name string }
			if ok = !begun && gossh.Unmarshal(req.Payload, &p) == nil && p.Name == "sftp"; ok {
				begun = true
				job = func() { v.sftp(ctx) }
			}
		case "window-change":
			var p struct{ Cols, Rows, Width, Height uint32 }
			if c := v.command.Load(); c != nil && gossh.Unmarshal(req.Payload, &p) == nil {
				c.resize(uint16(min(p.Rows, 65535)), uint16(min(p.Cols, 65535)))
				ok = true
			}
		case "signal":
			var p struct{ Name string }
			if c := v.command.Load(); c != nil && gossh.Unmarshal(req.Payload, &p) == nil {
				if sig := unix.SignalNum("SIG" + p.Name); sig != 0 {
					s.forwardSignal(c, sig)
					ok = true
				}
			}
		case AckRequest:
			var p Ack
			if c := v.command.Load(); c != nil && gossh.Unmarshal(req.Payload, &p) == nil && v.hold > 0 {
				c.brake.raise(v, int64(min(p.Upto, 1<<62))+v.hold)
				ok = true
			}
		case EOFRequest:
			if ok = !announced; ok {
				announced = true
				close(v.meant)
			}
		}
		if req.WantReply {
			_ = req.Reply(ok, nil)
		}
		if job != nil {
			// The job starts after the reply, because it may close the channel.
			work.Go(job)
		}
	}
	// The channel is closed or the connection lost.
	cancel()
	close(v.gone)
	work.Wait()
	ch.Close()
}

// forwardSignal sends a signal to the process group of a command.
func (s *server) forwardSignal(c *command, sig syscall.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.running && c.pid > 0 {
		_ = syscall.Kill(-c.pid, sig)
	}
}

// visit is one channel and its request.
type visit struct {
	server  *server
	ch      gossh.Channel
	carrier *Carrier // nil if files cannot be passed
	command atomic.Pointer[command]
	hold    int64         // see Request.Hold; written before command
	meant   chan struct{} // closed when the client announces the end of its input
	gone    chan struct{} // closed when no more requests can arrive
}

func (v *visit) answer(ctx context.Context, text string) {
	r, err := ParseRequest([]byte(text))
	if err != nil {
		v.refuse(failf(FailBad, "%v", err))
		return
	}
	s := v.server
	var c *command
	switch r.Op {
	case OpList:
		v.data(s.list())
		return
	case OpPorts:
		v.data(listening(s.door.port))
		return
	case OpKill:
		err = s.killCommand(r)
	case OpForget:
		err = s.forget(r.ID)
	case OpStart:
		c, err = s.start(r)
	case OpAttach:
		c, err = s.find(r.ID)
	}
	if err != nil {
		v.refuse(err)
		return
	}
	if c == nil {
		v.close(0)
		return
	}
	if !r.Files {
		v.carrier = nil
	}
	var payload []byte
	if c.stdout.window > 0 {
		payload = v.beginAttachment(c, r)
		defer c.brake.remove(v)
	}
	v.command.Store(c)
	_, err = v.ch.SendRequest(StartedRequest, false, payload)
	// A client that no longer gets this request sends no input either, which noteCut notes.
	var input sync.WaitGroup
	if r.Op == OpStart && (r.Stdin || r.TTY != nil) {
		input.Go(func() { c.feed(v.ch, v.complete) })
	} else if r.Op == OpAttach && c.tty != nil {
		input.Go(func() { c.feed(v.ch, func() bool { return false }) })
	}
	if r.Op == OpStart && c.stdin != nil {
		// feed does not do this, because a command that does not read yet blocks it.
		input.Go(func() { v.noteCut(c) })
	}
	if err == nil {
		v.follow(ctx, c, r.Stdout, r.Stderr)
	}
	input.Wait()
}

// beginAttachment begins an attachment to a command with a window. It returns the [Started] of the attachment.
func (v *visit) beginAttachment(c *command, r *Request) []byte {
	r.Stdout = max(r.Stdout, c.stdout.firstOffset())
	if r.Hold > 0 {
		v.hold = r.Hold
		c.brake.set(v, r.Stdout+r.Hold)
	}
	return gossh.Marshal(Started{uint64(r.Stdout), uint64(max(r.Stdout, c.stdout.count()))})
}

// noteCut notes whether the command's input broke off. A command that had ended by then missed nothing.
func (v *visit) noteCut(c *command) {
	if v.complete() {
		return
	}
	v.server.mu.Lock()
	c.cut = c.running
	v.server.mu.Unlock()
}

// complete reports whether the end of the input was announced. It waits until that is known.
func (v *visit) complete() bool {
	// The announcement arrived before the end, but another goroutine reads it.
	select {
	case <-v.meant:
		return true
	case <-v.gone:
	}
	select {
	case <-v.meant:
		return true
	default:
		return false
	}
}

// follow sends the command's output and then its exit.
func (v *visit) follow(ctx context.Context, c *command, stdout, stderr int64) {
	var wg sync.WaitGroup
	var broken atomic.Bool
	send := func(to io.Writer, from *spool, stream uint32, off int64) {
		buf := make([]byte, 4<<10)
		start := off
		for {
			if v.carrier != nil {
				over, err := v.handOver(ctx, from, Output{Stream: stream, Before: uint64(off - start), From: uint64(off)})
				if err != nil {
					broken.Store(true)
				}
				if over || err != nil {
					return
				}
			}
			n, err := from.readAt(ctx, buf, off)
			if n > 0 {
				if _, err := to.Write(buf[:n]); err != nil {
					broken.Store(true)
					return
				}
				off += int64(n)
			}
			if errors.Is(err, io.EOF) && n == 0 {
				return
			}
			if err != nil && n == 0 {
				broken.Store(true)
				return
			}
			if n == len(buf) && n < chunk {
				buf = make([]byte, chunk)
			}
		}
	}
	wg.Go(func() { send(v.ch, c.stdout, 1, stdout) })
	wg.Go(func() { send(v.ch.Stderr(), c.stderr, 2, stderr) })
	wg.Wait()
	if broken.Load() {
		v.ch.Close()
		return
	}
	select {
	case <-c.done:
	case <-ctx.Done():
		return
	}
	v.server.mu.Lock()
	exit := c.exit
	v.server.mu.Unlock()
	b, err := json.Marshal(exit)
	if err != nil {
		panic(err) // a struct of numbers and strings
	}
	_, _ = v.ch.SendRequest(ExitRequest, false, b)
	v.close(exit.Code)
}

// handOver sends the file of a stream if there is one, and reports its growth until the stream ends. It returns true if
// nothing more is to be sent.
func (v *visit) handOver(ctx context.Context, from *spool, o Output) (bool, error) {
	fd, err := from.share()
	if fd < 0 || err != nil {
		return false, err
	}
	if o.File, err = v.carrier.Send(fd); err != nil {
		return false, err
	}
	for upto, ended := int64(o.From), false; !ended; {
		if upto, ended, err = from.more(ctx, upto); err != nil {
			return true, err
		}
		o.Upto = uint64(upto)
		if _, err := v.ch.SendRequest(OutputRequest, false, gossh.Marshal(&o)); err != nil {
			return true, err
		}
	}
	return true, nil
}

// data answers with JSON.
func (v *visit) data(value any) {
	if err := json.NewEncoder(v.ch).Encode(value); err != nil {
		return
	}
	v.close(0)
}

func (v *visit) refuse(err error) {
	var f *Failure
	if !errors.As(err, &f) {
		f = failf(FailInternal, "%v", err)
	}
	b, err := json.Marshal(f)
	if err != nil {
		panic(err) // a struct of strings
	}
	_, _ = v.ch.SendRequest(ErrorRequest, false, b)
	v.close(255)
}

func (v *visit) close(status int) {
	_, _ = v.ch.SendRequest("exit-status", false, gossh.Marshal(struct{ Status uint32 }{uint32(status)}))
	v.ch.Close()
}

// sftp connects the channel with a server process of the commands' user.
func (v *visit) sftp(ctx context.Context) {
	s := v.server
	ours, theirs, err := socketPair()
	if err != nil {
		v.refuse(fmt.Errorf("cannot start the file server: %w", err))
		return
	}
	defer ours.Close()
	ended := make(chan struct{})
	var pid int
	s.mu.Lock()
	s.user.do(func() {
		fd := uintptr(theirs)
		c := &child{ended: func(syscall.WaitStatus) { close(ended) }}
		argv := []string{"ramus", "runner", "sftp", s.cfg.Work}
		pid, err = s.fork("/proc/self/exe", argv, s.env, "/", [3]uintptr{fd, fd, 2}, false, c)
	})
	s.mu.Unlock()
	unix.Close(theirs)
	if err != nil {
		v.refuse(fmt.Errorf("cannot start the file server: %w", err))
		return
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		_, _ = io.Copy(ours, v.ch)
		_ = ours.CloseWrite()
	})
	wg.Go(func() {
		_, _ = io.Copy(v.ch, ours)
		v.close(0)
	})
	select {
	case <-ended:
	case <-ctx.Done():
		s.mu.Lock()
		if s.children[pid] != nil {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		s.mu.Unlock()
		<-ended
	}
	wg.Wait()
}

func socketPair() (ours *net.UnixConn, theirs int, err error) {
	p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, 0, err
	}
	f := os.NewFile(uintptr(p[0]), "sftp")
	defer f.Close() // FileConn has a copy
	conn, err := net.FileConn(f)
	if err != nil {
		unix.Close(p[1])
		return nil, 0, err
	}
	return conn.(*net.UnixConn), p[1], nil
}
