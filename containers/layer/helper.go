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
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Lift starts and ends a process of [Serve] that is root on the engine's machine and sees the folders by the same
// paths.
type Lift interface {
	// Up starts `ramus layers` with args, and ends the remains of an earlier Up. It returns when ready returns nil. An
	// error of ready means that the process does not answer yet.
	Up(ctx context.Context, root string, args []string, ready func(context.Context) error) error
	// Down ends the process. It is no error if there is none.
	Down(ctx context.Context) error
}

// Helper is the [Keeper] of a process that is not root but may start containers that are. `ramus layers` runs in such a
// container and does the work of [Local]. The Helper sends it requests over a unix socket below root. The container is
// started when it is first needed, and again after it died. It ends when this process closes the Helper or dies.
type Helper struct {
	root string
	lift Lift
	// Now is the clock. If it is nil, it is time.Now. It must not change after the first call.
	Now func() time.Time

	base  context.Context // ends with Close
	stop  context.CancelCauseFunc
	tasks sync.WaitGroup // goroutines that start the other side and watch it

	mu       sync.Mutex // guards the fields below
	holder   *holder    // nil if none was started, or if it has ended
	starting chan struct{}
	broken   error // the error of the last start; no other start is tried before until
	until    time.Time
	closed   bool
}

// holder is the connection that keeps the other side running.
type holder struct {
	conn  *net.UnixConn
	ended chan struct{} // closed when the other side has ended
}

var _ Keeper = (*Helper)(nil)

const (
	// upWait bounds a start together with the check after it.
	upWait = 2 * time.Minute
	// downWait bounds the end of the container.
	downWait = time.Minute
	// brokenFor is the time after a failed start during which no other is tried. Callers meanwhile use the portable way
	// without waiting.
	brokenFor = time.Minute
	// noticeWait bounds the time until the end of the other side is noticed here. It is generous for a busy machine.
	noticeWait = 10 * time.Second
)

var errClosed = errors.New("the Helper is closed")

// NewHelper returns a Keeper for the folders below root, the absolute path of an existing folder.
func NewHelper(root string, lift Lift) *Helper {
	h := &Helper{root: filepath.Clean(root), lift: lift}
	h.base, h.stop = context.WithCancelCause(context.Background())
	return h
}

// Name returns "helper".
func (h *Helper) Name() string { return "helper" }

func (h *Helper) now() time.Time {
	if h.Now != nil {
		return h.Now()
	}
	return time.Now()
}

// up returns when the other side is running. It starts the other side if necessary.
func (h *Helper) up(ctx context.Context) (*holder, error) {
	for {
		h.mu.Lock()
		switch {
		case h.closed:
			h.mu.Unlock()
			return nil, errClosed
		case h.holder != nil:
			held := h.holder
			h.mu.Unlock()
			return held, nil
		case h.starting == nil && h.broken != nil && h.now().Before(h.until):
			err := h.broken
			h.mu.Unlock()
			return nil, err
		case h.starting == nil:
			h.starting = make(chan struct{})
			// The start does not use the context of the first caller, because others wait for it too.
			h.tasks.Go(h.start)
		}
		starting := h.starting
		h.mu.Unlock()
		select {
		case <-starting:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// start starts the other side and records the result.
func (h *Helper) start() {
	ctx, cancel := context.WithTimeout(h.base, upWait)
	defer cancel()
	held, err := h.tryStart(ctx)
	h.mu.Lock()
	defer h.mu.Unlock()
	close(h.starting)
	h.starting, h.holder, h.broken = nil, held, nil
	if err != nil {
		h.broken, h.until = fmt.Errorf("%w: cannot start a container with root's rights: %w", ErrUnable, err),
			h.now().Add(brokenFor)
		return
	}
	h.tasks.Go(func() { h.watch(held) })
}

func (h *Helper) tryStart(ctx context.Context) (_ *holder, err error) {
	var held *holder
	err = h.lift.Up(ctx, h.root, []string{strconv.Itoa(os.Getuid()), h.root}, func(ctx context.Context) (err error) {
		if held == nil {
			held, err = h.openHolder(ctx)
		}
		return err
	})
	if err == nil && held == nil {
		err = errors.New("it does not answer")
	}
	if err == nil {
		var conn *net.UnixConn
		if conn, err = h.dial(ctx); err == nil {
			_, _, err = h.exchange(ctx, conn, request{Op: opCheck}, nil)
		}
	}
	if err == nil {
		return held, nil
	}
	if held != nil {
		held.conn.Close()
	}
	return nil, errors.Join(err, h.down(ctx))
}

// openHolder opens the connection that keeps the other side running.
func (h *Helper) openHolder(ctx context.Context) (_ *holder, err error) {
	conn, err := h.dial(ctx)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			conn.Close()
		}
	}()
	defer context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })()
	message, err := encode(request{Op: opHold}, maxRequest)
	if err == nil {
		err = send(conn, message, nil)
	}
	if err == nil {
		_, _, err = receive(conn)
	}
	if err != nil {
		return nil, err
	}
	return &holder{conn: conn, ended: make(chan struct{})}, nil
}

// watch waits for the end of the other side.
func (h *Helper) watch(held *holder) {
	defer close(held.ended)
	defer held.conn.Close()
	defer context.AfterFunc(h.base, func() { held.conn.Close() })()
	io.Copy(io.Discard, held.conn)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.holder = nil
}

// dial connects to the other side and verifies that it runs as root.
func (h *Helper) dial(ctx context.Context) (*net.UnixConn, error) {
	var conn *net.UnixConn
	err := through(h.root, func(path string) error {
		c, err := new(net.Dialer).DialContext(ctx, "unix", path)
		if err == nil {
			conn = c.(*net.UnixConn)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	uid, err := peer(conn)
	if err == nil && uid != 0 {
		err = fmt.Errorf("it runs as user %d, not as root: the engine has users of its own", uid)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// down ends the other side, and removes a socket that it left.
func (h *Helper) down(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), downWait)
	defer cancel()
	err := h.lift.Down(ctx)
	if rerr := os.Remove(filepath.Join(h.root, socketName)); rerr != nil && !errors.Is(rerr, fs.ErrNotExist) {
		err = errors.Join(err, rerr)
	}
	return err
}

// Close ends the container, and returns when it is gone.
func (h *Helper) Close() error {
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		return nil
	}
	h.closed = true
	used := h.holder != nil || h.starting != nil || h.broken != nil
	h.mu.Unlock()
	h.stop(errClosed)
	h.tasks.Wait()
	if !used {
		return nil
	}
	if err := h.down(context.Background()); err != nil {
		return fmt.Errorf("cannot end the container with root's rights: %w", err)
	}
	return nil
}

// ask sends a request to the other side, which it starts if necessary.
func (h *Helper) ask(ctx context.Context, r request, files []File) (answer, *os.File, error) {
	for again := true; ; again = false {
		held, err := h.up(ctx)
		if err != nil {
			return answer{}, nil, err
		}
		conn, err := h.dial(ctx)
		if err == nil {
			return h.exchange(ctx, conn, r, files)
		}
		if !again || ctx.Err() != nil {
			return answer{}, nil, fmt.Errorf("cannot reach the container with root's rights: %w", err)
		}
		// No request was sent yet. If the other side has just died, a new one can answer.
		select {
		case <-held.ended:
		case <-time.After(noticeWait):
		case <-ctx.Done():
		}
	}
}

// exchange makes one request over conn, and closes it.
func (h *Helper) exchange(ctx context.Context, conn *net.UnixConn, r request, files []File) (answer, *os.File, error) {
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })()
	wrap := func(err error) error {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return fmt.Errorf("cannot ask the container with root's rights: %w", err)
	}
	for _, f := range files {
		w := wireFile{Path: []byte(f.Path), Kind: f.Kind, Exec: f.Exec, Time: f.Time}
		if f.Kind == KindFile && f.Source != "" {
			fi, err := os.Stat(f.Source)
			if err != nil {
				return answer{}, nil, fmt.Errorf("%q: %w", f.Path, err)
			}
			w.Size = fi.Size()
		} else if f.Kind == KindFile || f.Kind == KindLink {
			w.Size = int64(len(f.Data))
		}
		r.Files = append(r.Files, w)
	}
	message, err := encode(r, maxRequest)
	if err != nil {
		return answer{}, nil, wrap(err)
	}
	out := bufio.NewWriterSize(conn, 64<<10)
	_, err = out.Write(message)
	for i := 0; err == nil && i < len(files); i++ {
		if r.Files[i].Size > 0 {
			err = sendContent(out, files[i], r.Files[i].Size)
		}
	}
	if err == nil {
		err = out.Flush()
	}
	if err != nil {
		return answer{}, nil, wrap(err)
	}
	a, f, err := receive(conn)
	if failure := (*failure)(nil); err != nil && !errors.As(err, &failure) {
		err = wrap(err)
	}
	return a, f, err
}

func sendContent(out io.Writer, f File, size int64) error {
	if f.Kind == KindLink || f.Source == "" {
		_, err := out.Write(f.Data)
		return err
	}
	in, err := os.Open(f.Source)
	if err != nil {
		return err
	}
	defer in.Close()
	if _, err := io.CopyN(out, in, size); err != nil {
		return fmt.Errorf("cannot read %s: %w", f.Source, err)
	}
	return nil
}

// Check starts the other side, which binds a tree for itself. See [Keeper].
func (h *Helper) Check(ctx context.Context) error {
	_, _, err := h.ask(ctx, request{Op: opCheck}, nil)
	if err != nil && !errors.Is(err, ErrUnable) && ctx.Err() == nil {
		err = fmt.Errorf("%w: %w", ErrUnable, err)
	}
	return err
}

// Bind gives a container its work tree. See [Keeper].
func (h *Helper) Bind(ctx context.Context, b Binding) error {
	_, _, err := h.ask(ctx, request{Op: opBind, Binding: toWire(b)}, b.Fill)
	return err
}

// Put writes through a mounted tree. See [Keeper].
func (h *Helper) Put(ctx context.Context, b Binding, files []File) error {
	_, _, err := h.ask(ctx, request{Op: opPut, Binding: toWire(b)}, files)
	return err
}

// Changes lists an upper. See [Keeper].
func (h *Helper) Changes(ctx context.Context, upper string, max int) ([]Change, error) {
	a, _, err := h.ask(ctx, request{Op: opChanges, Dir: []byte(upper), Max: min(max, maxEntries)}, nil)
	if err != nil {
		return nil, err
	}
	list := make([]Change, len(a.Changes))
	for i, c := range a.Changes {
		list[i] = c.change()
	}
	return list, nil
}

// Open opens a regular file of an upper. See [Keeper].
func (h *Helper) Open(ctx context.Context, upper, path string) (*os.File, error) {
	_, f, err := h.ask(ctx, request{Op: opOpen, Dir: []byte(upper), Path: []byte(path)}, nil)
	if err == nil && f == nil {
		err = errors.New("cannot ask the container with root's rights: no file came with the answer")
	}
	return f, err
}

// Fill writes the files of a future layer. See [Keeper].
func (h *Helper) Fill(ctx context.Context, dir string, uid int, files []File) error {
	_, _, err := h.ask(ctx, request{Op: opFill, Dir: []byte(dir), UID: uid}, files)
	return err
}

// Own gives a tree to uid. See [Keeper].
func (h *Helper) Own(ctx context.Context, dir string, uid int) error {
	_, _, err := h.ask(ctx, request{Op: opOwn, Dir: []byte(dir), UID: uid}, nil)
	return err
}

// Usage returns the disk space that a container takes. See [Keeper].
func (h *Helper) Usage(ctx context.Context, s Storage, most int64) (Usage, error) {
	r := request{Op: opUsage, Dir: []byte(s.Dir), PID: s.PID, Start: s.Start, Most: most}
	for _, path := range s.Inside {
		r.Inside = append(r.Inside, []byte(path))
	}
	a, _, err := h.ask(ctx, r, nil)
	return a.Usage, err
}

// Remove deletes a folder. See [Keeper]. This process first tries to delete it itself, because most folders were never
// bound.
func (h *Helper) Remove(ctx context.Context, dir string) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("cannot remove %s: %w", dir, err)
	}
	fd, err := below(h.root, dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return fmt.Errorf("cannot remove %s: %w", dir, err)
	}
	unix.Close(fd)
	if ClearAway(ctx, dir) == nil {
		return nil
	}
	_, _, err = h.ask(ctx, request{Op: opRemove, Dir: []byte(dir)}, nil)
	return err
}
