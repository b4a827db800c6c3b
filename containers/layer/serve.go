package layer

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// awaitHolder is how long [Serve] waits for a first Helper.
	awaitHolder = 30 * time.Second
	// readWait bounds the reading of a request.
	readWait = 10 * time.Minute
	// atOnce is how many requests are worked on at once; more wait.
	atOnce = 64
)

// Serve does for a [Helper] what needs the rights that this process has: it answers at a
// socket below root, for uid alone, and returns when that Helper closes, dies or never
// comes, or ctx ends. Nothing is done after it has returned.
func Serve(ctx context.Context, root string, uid int) (err error) {
	wrap := func(err error) error { return fmt.Errorf("cannot serve layers below %s: %w", root, err) }
	ln, err := listen(root, uid)
	if err != nil {
		return wrap(err)
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	defer context.AfterFunc(ctx, func() { ln.Close() })()
	s := &server{local: NewLocal(root), uid: uid, stop: stop, turn: make(chan struct{}, atOnce)}
	late := time.AfterFunc(awaitHolder, func() { stop(fmt.Errorf("nobody came within %v", awaitHolder)) })
	defer late.Stop()
	s.held = func() { late.Stop() }

	for {
		conn, aerr := ln.AcceptUnix()
		if aerr != nil {
			if err = aerr; ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			break
		}
		s.serving.Go(func() { s.serve(ctx, conn) })
	}
	stop(nil)
	ln.Close()
	s.serving.Wait()
	err = errors.Join(dismiss(err), removeSocket(root, ln))
	if err != nil {
		return wrap(err)
	}
	return nil
}

// errLeft ends [Serve] as it is meant to end.
var errLeft = errors.New("the Helper has closed")

func dismiss(err error) error {
	if errors.Is(err, errLeft) || errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// socket is a listener, and which file it is.
type socket struct {
	*net.UnixListener
	file unix.Stat_t
}

func listen(root string, uid int) (*socket, error) {
	s := new(socket)
	err := through(root, func(path string) error {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			return err
		}
		ln.SetUnlinkOnClose(false) // the path goes through a descriptor that is closed then
		s.UnixListener = ln
		if err := unix.Lstat(path, &s.file); err != nil {
			ln.Close()
			return err
		}
		// Who may connect is asked of the kernel, for each connection; this keeps others
		// from the queue. The folder is ramus's alone: nobody changes names in it.
		if err := errors.Join(os.Chmod(path, 0o600), os.Lchown(path, uid, uid)); err != nil {
			ln.Close()
			return err
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// removeSocket removes the listener's name, unless another one has taken it.
func removeSocket(root string, s *socket) error {
	return through(root, func(path string) error {
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil || st.Ino != s.file.Ino {
			return nil
		}
		return os.Remove(path)
	})
}

type server struct {
	local   *Local
	uid     int
	stop    context.CancelCauseFunc
	held    func()
	turn    chan struct{} // as many as may work at once
	serving sync.WaitGroup
}

// serve answers one connection.
func (s *server) serve(ctx context.Context, conn *net.UnixConn) {
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if uid, err := peer(conn); err != nil || uid != s.uid {
		return // it gets no word: nobody but ramus has anything to ask here
	}
	conn.SetReadDeadline(time.Now().Add(readWait))
	in := bufio.NewReaderSize(conn, 64<<10)
	var r request
	var length [4]byte
	_, err := io.ReadFull(in, length[:])
	if err == nil {
		err = decode(length, in, maxRequest, &r)
	}
	var size int64
	if err == nil {
		size, err = r.check()
	}
	if err != nil {
		s.answer(conn, answer{Failure: failed(fmt.Errorf("cannot read the request: %w", err))}, nil)
		return
	}
	if r.Op == opHold {
		s.hold(conn, in)
		return
	}
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return
	}
	body := &io.LimitedReader{R: in, N: size}
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer conn.Close()
	defer cancel()
	if size == 0 {
		// All of the request is read: the end of the connection is the end of who asks.
		conn.SetReadDeadline(time.Time{})
		watching.Go(func() { in.ReadByte(); cancel() })
	}
	a, f, err := s.do(ctx, &r, body)
	io.Copy(io.Discard, body) // who still sends does not listen yet
	if err != nil {
		a = answer{Failure: failed(err), Usage: a.Usage}
	}
	s.answer(conn, a, f)
	if f != nil {
		f.Close()
	}
}

func (s *server) answer(conn *net.UnixConn, a answer, f *os.File) {
	b, err := encode(a, maxAnswer)
	if err != nil {
		b, _ = encode(answer{Failure: failed(err)}, maxAnswer)
		f = nil
	}
	send(conn, b, f) // who does not get it is not there any more
}

// hold keeps the server up for as long as the connection lasts.
func (s *server) hold(conn *net.UnixConn, in io.Reader) {
	s.held()
	conn.SetReadDeadline(time.Time{})
	s.answer(conn, answer{}, nil)
	io.Copy(io.Discard, in)
	s.stop(errLeft)
}

// do does what a request asks.
func (s *server) do(ctx context.Context, r *request, body io.Reader) (a answer, f *os.File, err error) {
	dir := string(r.Dir)
	switch r.Op {
	case opCheck:
		err = s.local.Check(ctx)
	case opBind, opPut:
		b := r.Binding.binding()
		files, content := arrive(r.Files, body)
		if r.Op == opPut {
			err = s.local.put(ctx, b, files, content)
		} else {
			b.Fill = files
			err = s.local.bind(ctx, b, content)
		}
	case opChanges:
		var list []Change
		list, err = s.local.Changes(ctx, dir, r.Max)
		a.Changes = make([]wireChange, len(list))
		for i, c := range list {
			a.Changes[i] = wireOf(c)
		}
	case opOpen:
		f, err = s.local.Open(ctx, dir, string(r.Path))
	case opFill:
		files, content := arrive(r.Files, body)
		err = s.local.fill(ctx, dir, r.UID, files, content)
	case opOwn:
		err = s.local.Own(ctx, dir, r.UID)
	case opRemove:
		err = s.local.Remove(ctx, dir)
	case opUsage:
		from := Storage{Dir: dir, PID: r.PID, Start: r.Start}
		for _, path := range r.Inside {
			from.Inside = append(from.Inside, string(path))
		}
		a.Usage, err = s.local.usage(ctx, from, r.Most)
	default:
		err = fmt.Errorf("there is no request %q", r.Op)
	}
	return a, f, err
}

// arrive makes files of a request's. What they hold is read from the connection when they
// are written, which is in the order in which it was sent.
func arrive(list []wireFile, body io.Reader) ([]File, contents) {
	files := make([]File, len(list))
	for i, w := range list {
		files[i] = File{Path: string(w.Path), Kind: w.Kind, Exec: w.Exec, Time: w.Time}
	}
	return files, func(i int) (io.ReadCloser, error) {
		return io.NopCloser(&whole{body, list[i].Size}), nil
	}
}

// whole reads n bytes, and fails where there are fewer.
type whole struct {
	in io.Reader
	n  int64
}

func (w *whole) Read(b []byte) (int, error) {
	if w.n == 0 {
		return 0, io.EOF
	}
	n, err := w.in.Read(b[:min(int64(len(b)), w.n)])
	w.n -= int64(n)
	if errors.Is(err, io.EOF) && w.n > 0 {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}
