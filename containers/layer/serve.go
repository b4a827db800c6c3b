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
	// awaitHolder bounds the wait of [Serve] for the first Helper.
	awaitHolder = 30 * time.Second
	// readWait bounds the reading of a request.
	readWait = 10 * time.Minute
	// atOnce is the number of requests that are handled at once. Further requests wait.
	atOnce = 64
)

// Serve does the work for a [Helper] that needs the rights of this process. It answers at a socket below root, for uid
// alone. It returns when the Helper closes, dies or never connects, or when ctx ends. No work continues after it has
// returned.
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
	late := time.AfterFunc(awaitHolder, func() { stop(fmt.Errorf("no Helper connected within %v", awaitHolder)) })
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

// errLeft is the regular end of [Serve].
var errLeft = errors.New("the Helper has closed")

func dismiss(err error) error {
	if errors.Is(err, errLeft) || errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// socket is a listener and the identity of its file.
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
		ln.SetUnlinkOnClose(false) // the path goes through a descriptor that is closed by then
		s.UnixListener = ln
		if err := unix.Lstat(path, &s.file); err != nil {
			ln.Close()
			return err
		}
		// The kernel reports the user of each connection, which serve checks. The mode only keeps others out of the
		// queue. The folder belongs to ramus alone, so no other process renames files in it.
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

// removeSocket removes the socket file, unless another listener has replaced it.
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
	turn    chan struct{} // its capacity is the number of requests handled at once
	serving sync.WaitGroup
}

// serve handles one connection.
func (s *server) serve(ctx context.Context, conn *net.UnixConn) {
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if uid, err := peer(conn); err != nil || uid != s.uid {
		return // no answer, because only ramus has a reason to connect
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
		s.keepRunning(conn, in)
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
		// All of the request was read, so the end of the connection means that the Helper stopped waiting.
		conn.SetReadDeadline(time.Time{})
		watching.Go(func() { in.ReadByte(); cancel() })
	}
	a, f, err := s.do(ctx, &r, body)
	io.Copy(io.Discard, body) // a Helper that still sends does not read yet
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
	send(conn, b, f) // an error means that the Helper is gone
}

// keepRunning keeps the server running as long as the connection.
func (s *server) keepRunning(conn *net.UnixConn, in io.Reader) {
	s.held()
	conn.SetReadDeadline(time.Time{})
	s.answer(conn, answer{}, nil)
	io.Copy(io.Discard, in)
	s.stop(errLeft)
}

// do performs a request.
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
		err = fmt.Errorf("the request %q is unknown", r.Op)
	}
	return a, f, err
}

// arrive returns the files of a request, and a function that opens their content. The content is read from the
// connection when the files are written, in the order in which it was sent.
func arrive(list []wireFile, body io.Reader) ([]File, contents) {
	files := make([]File, len(list))
	for i, w := range list {
		files[i] = File{Path: string(w.Path), Kind: w.Kind, Exec: w.Exec, Time: w.Time}
	}
	return files, func(i int) (io.ReadCloser, error) {
		return io.NopCloser(&whole{body, list[i].Size}), nil
	}
}

// whole reads exactly n bytes. Read returns io.ErrUnexpectedEOF if there are fewer.
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
