package layer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// hall is a Lift that serves in this process.
type hall struct {
	mu    sync.Mutex // guards the below
	ups   int
	fail  error // of the next Up
	stop  context.CancelFunc
	ended chan error
}

func (h *hall) Up(ctx context.Context, root string, args []string, ready func(context.Context) error) error {
	h.Down(ctx)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ups++
	if h.fail != nil {
		return h.fail
	}
	uid, err := strconv.Atoi(args[0])
	if err != nil || args[1] != root || len(args) != 2 {
		return fmt.Errorf("arguments %q", args)
	}
	serving, stop := context.WithCancel(context.Background())
	h.stop, h.ended = stop, make(chan error, 1)
	ended := h.ended
	go func() { ended <- Serve(serving, root, uid) }()
	for {
		if err := ready(ctx); err == nil {
			return nil
		}
		select {
		case err := <-ended:
			return fmt.Errorf("it ended: %w", err)
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Millisecond):
		}
	}
}

func (h *hall) Down(context.Context) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stop == nil {
		return nil
	}
	h.stop()
	err := <-h.ended
	h.stop = nil
	return err
}

func (h *hall) started() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.ups
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("cannot run here: not root")
	}
}

// newHall makes a Helper, and an upper to ask it about. Nothing is left of it.
func newHall(t *testing.T) (*Helper, *hall, string) {
	t.Helper()
	needRoot(t)
	root := t.TempDir()
	before := runtime.NumGoroutine()
	up := &hall{}
	k := NewHelper(root, up)
	t.Cleanup(func() {
		if err := k.Close(); err != nil {
			t.Error(err)
		}
		if _, err := os.Lstat(filepath.Join(root, socketName)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the socket is left: %v", err)
		}
		if err := k.Check(context.Background()); err == nil {
			t.Error("a closed Helper works")
		}
		for deadline := time.Now().Add(time.Minute); runtime.NumGoroutine() > before; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				stacks := make([]byte, 64<<10)
				t.Fatalf("%d goroutines, before %d\n%s", runtime.NumGoroutine(), before,
					stacks[:runtime.Stack(stacks, true)])
			}
		}
	})
	upper := filepath.Join(root, "upper")
	if err := errors.Join(os.Mkdir(upper, 0o755), os.WriteFile(filepath.Join(upper, "file"), []byte("text"), 0o600)); err != nil {
		t.Fatal(err)
	}
	return k, up, upper
}

// It is started when it is needed first, once for all, and again after it died.
func TestHelperLives(t *testing.T) {
	k, up, upper := newHall(t)
	if err := k.Remove(t.Context(), filepath.Join(k.root, "none")); err != nil || up.started() != 0 {
		t.Errorf("nothing to do: %v, started %d times", err, up.started())
	}
	for round := 1; round <= 3; round++ {
		var group sync.WaitGroup
		for range 20 {
			group.Go(func() {
				if list, err := k.Changes(t.Context(), upper, 10); err != nil || len(list) != 1 {
					t.Errorf("%v, %v", list, err)
				}
				f, err := k.Open(t.Context(), upper, "file")
				if err != nil {
					t.Error(err)
					return
				}
				defer f.Close()
				if text, err := io.ReadAll(f); err != nil || string(text) != "text" {
					t.Errorf("%q, %v", text, err)
				}
			})
		}
		group.Wait()
		if got := up.started(); got != round {
			t.Errorf("round %d: started %d times", round, got)
		}
		if err := up.Down(t.Context()); err != nil {
			t.Errorf("it ended with: %v", err)
		}
	}
}

// A start that failed is not tried again for a while: who asks is told at once.
func TestHelperBroken(t *testing.T) {
	k, up, upper := newHall(t)
	now := time.Unix(1e9, 0)
	k.Now = func() time.Time { return now }
	up.fail = errors.New("no such engine")
	for range 5 {
		if _, err := k.Changes(t.Context(), upper, 10); !errors.Is(err, ErrUnable) || !errors.Is(err, up.fail) {
			t.Errorf("%v", err)
		}
	}
	if got := up.started(); got != 1 {
		t.Errorf("tried %d times", got)
	}
	up.fail = nil
	now = now.Add(brokenFor)
	if _, err := k.Changes(t.Context(), upper, 10); err != nil {
		t.Error(err)
	}
}

// The other side ends with the process that it was started for, and works for nobody else.
func TestServeEnds(t *testing.T) {
	k, up, upper := newHall(t)
	if err := k.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	k.mu.Lock()
	held := k.holder
	k.mu.Unlock()
	held.conn.Close() // as when the process dies
	<-held.ended
	up.mu.Lock()
	err := <-up.ended
	up.stop = nil
	up.mu.Unlock()
	if err != nil {
		t.Errorf("it ended with: %v", err)
	}
	if _, err := k.dial(t.Context()); err == nil {
		t.Error("it still answers")
	}
	if _, err := k.Changes(t.Context(), upper, 10); err != nil {
		t.Errorf("after that: %v", err)
	}
}

// Only its user is answered, and only in the protocol.
func TestServeStrangers(t *testing.T) {
	needRoot(t)
	root := t.TempDir()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Serve(ctx, root, 4321) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	k := NewHelper(root, &hall{})
	defer k.Close()
	var conn *net.UnixConn
	for conn == nil {
		conn, _ = k.dial(t.Context())
		runtime.Gosched()
	}
	defer conn.Close()
	message, err := encode(request{Op: opRemove, Dir: []byte(root + "/x")}, maxRequest)
	if err != nil {
		t.Fatal(err)
	}
	_ = send(conn, message, nil)
	if a, _, err := receive(conn); err == nil {
		t.Errorf("root, who is not its user, is answered: %+v", a)
	}
	var st syscall.Stat_t
	if err := syscall.Stat(filepath.Join(root, socketName), &st); err != nil || st.Uid != 4321 || st.Mode&0o777 != 0o600 {
		t.Errorf("the socket is %d's, mode %o, %v", st.Uid, st.Mode, err)
	}
}

// What is no request is told so, and ends nothing but its own connection.
func TestServeRefuses(t *testing.T) {
	k, _, upper := newHall(t)
	if err := k.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, sent := range map[string]string{
		"too long":        "\xff\xff\xff\xff{}",
		"no JSON":         "\x00\x00\x00\x02{x",
		"no operation":    "\x00\x00\x00\x02{}",
		"unknown":         "\x00\x00\x00\x0e" + `{"op":"sleep"}`,
		"bind of nothing": "\x00\x00\x00\x0d" + `{"op":"bind"}`,
	} {
		conn, err := k.dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write([]byte(sent)); err != nil {
			t.Error(err)
		}
		conn.CloseWrite()
		_, _, err = receive(conn)
		if f := (*failure)(nil); !errors.As(err, &f) {
			t.Errorf("%s: %v", name, err)
		}
		conn.Close()
	}
	if _, err := k.Changes(t.Context(), upper, 10); err != nil {
		t.Errorf("after that: %v", err)
	}
	r := request{Op: opBind, Binding: &wireBinding{}}
	for range 3 {
		r.Files = append(r.Files, wireFile{Kind: KindFile, Size: maxContent/2 + 1})
	}
	if _, err := r.check(); err == nil {
		t.Error("a request may hold more than there is room for")
	}
}

// Who gives up waits no longer, and what was asked stops.
func TestHelperCancelled(t *testing.T) {
	k, _, _ := newHall(t)
	wide := filepath.Join(k.root, "wide")
	if err := os.Mkdir(wide, 0o755); err != nil {
		t.Fatal(err)
	}
	for i := range 2000 {
		if err := os.WriteFile(filepath.Join(wide, strings.Repeat("n", 200)+strconv.Itoa(i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := k.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		ctx, cancel := context.WithCancel(t.Context())
		go cancel()
		if _, err := k.Changes(ctx, wide, 5000); err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		cancel()
	}
}

func FuzzRequest(f *testing.F) {
	for _, r := range []request{
		{Op: opHold}, {Op: opChanges, Dir: []byte("/x"), Max: 5}, {Op: opOpen, Dir: []byte("/x"), Path: []byte("\xff")},
		{Op: opBind, Binding: toWire(Binding{PID: 5, Dir: "/x", Lowers: []string{"/y"}}),
			Files: []wireFile{{Path: []byte("a/b"), Kind: KindFile, Size: 3}}},
	} {
		b, err := encode(r, maxRequest)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(append(b, "abc"...))
	}
	f.Add([]byte("\xff\xff\xff\xff"))
	f.Add([]byte("\x00\x00\x00\x04null"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < 4 {
			return
		}
		m := newMessage(b)
		var r request
		if decode(m.length, m, maxRequest, &r) != nil {
			return
		}
		size, err := r.check()
		if err != nil {
			return
		}
		if size < 0 || size > maxContent {
			t.Errorf("%d bytes may follow", size)
		}
		files, content := arrive(r.Files, m)
		for i := range files {
			in, err := content(i)
			if err != nil {
				t.Fatal(err)
			}
			if n, err := io.Copy(io.Discard, in); err == nil && n != r.Files[i].Size {
				t.Errorf("file %d of %d bytes: %d were read", i, r.Files[i].Size, n)
			}
		}
	})
}

func FuzzPath(f *testing.F) {
	for _, s := range []string{"a/b", "/a", "../a", "a//b", "", ".", "a/..", "\x00", "a/\xff"} {
		f.Add("under", s)
		f.Add("", s)
	}
	f.Fuzz(func(t *testing.T, under, value string) {
		if list, err := parts(value); err == nil &&
			(strings.Join(list, "/") != value || strings.HasPrefix(filepath.Clean(value)+"/", "../") ||
				filepath.Clean(value) != value || filepath.IsAbs(value)) {
			t.Errorf("%q is taken for a path below", value)
		}
		if path, err := redirected(under, value); err == nil && path != "" &&
			(filepath.Clean(path) != path || filepath.IsAbs(path) || strings.HasPrefix(path+"/", "../")) {
			t.Errorf("%q, %q leads to %q", under, value, path)
		}
	})
}
