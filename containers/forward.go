package containers

import (
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"

	"golang.org/x/crypto/ssh"
)

// forward is an address inside whose connections the host answers.
type forward struct {
	dial   func(context.Context) (net.Conn, error)
	ctx    context.Context // ends with the forward
	cancel context.CancelFunc
	places chan struct{}  // holds a token for each open connection
	open   sync.WaitGroup // of the open connections
}

// forwardConns bounds the open connections of one forward. More are refused.
const forwardConns = 256

// Forward has the runner listen at an address of the loopback, as "127.0.1.1:5432", but not of 127.0.0.1, which belongs to commands.
// Each connection there is connected with one of dial. The host must have a door. The forward ends with the connection of the host,
// or when stop is called, which waits until the last of its connections is closed. A second forward of an address replaces the first.
func (h *Host) Forward(ctx context.Context, addr string, dial func(context.Context) (net.Conn, error)) (stop func(), err error) {
	wrap := func(err error) error { return fmt.Errorf("cannot listen at %s in the container: %w", addr, err) }
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, wrap(err)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return nil, wrap(err)
	}
	place := ssh.Marshal(struct {
		Addr string
		Port uint32
	}{host, uint32(n)})
	f := &forward{dial: dial, places: make(chan struct{}, forwardConns)}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	h.mu.Lock()
	if h.forwards == nil {
		h.forwards = make(map[string]*forward)
	}
	h.forwards[addr] = f
	h.mu.Unlock()
	stop = sync.OnceFunc(func() {
		h.mu.Lock()
		own := h.forwards[addr] == f
		if own {
			delete(h.forwards, addr)
		}
		h.mu.Unlock()
		f.cancel()
		if own {
			// A failure means that the connection is lost, and the runner then refuses the address's connections by itself.
			_, _ = h.globally(context.Background(), "cancel-tcpip-forward", place)
		}
		f.open.Wait()
	})
	ok, err := h.globally(ctx, "tcpip-forward", place)
	if err != nil || !ok {
		stop()
		return nil, wrap(h.why(ctx, err))
	}
	return stop, nil
}

// globally sends a global request and waits for its answer, or until ctx ends. The library's call cannot be interrupted.
func (h *Host) globally(ctx context.Context, name string, data []byte) (bool, error) {
	type answer struct {
		ok  bool
		err error
	}
	got := make(chan answer, 1)
	if !h.owned.Go(func() {
		ok, _, err := h.client.SendRequest(name, true, data)
		got <- answer{ok, err}
	}) {
		return false, ErrGone
	}
	select {
	case a := <-got:
		return a.ok, a.err
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
}

// forwardedFrom returns the address inside from which the runner forwards a connection.
func forwardedFrom(nc ssh.NewChannel) string {
	var p struct {
		Addr       string
		Port       uint32
		Origin     string
		OriginPort uint32
	}
	if ssh.Unmarshal(nc.ExtraData(), &p) != nil || p.Port > 65535 {
		return ""
	}
	return net.JoinHostPort(p.Addr, strconv.Itoa(int(p.Port)))
}

// forwarded connects a connection of the container with one of the forward of its address.
func (h *Host) forwarded(nc ssh.NewChannel, addr string) {
	refuse := func(reason ssh.RejectionReason, why string) { _ = nc.Reject(reason, why) }
	h.mu.Lock()
	f := h.forwards[addr]
	if f != nil {
		select {
		case f.places <- struct{}{}:
			f.open.Add(1)
		default:
			h.mu.Unlock()
			refuse(ssh.ResourceShortage, "too many connections")
			return
		}
	}
	h.mu.Unlock()
	if f == nil {
		refuse(ssh.Prohibited, "nothing is forwarded from there")
		return
	}
	leave := func() { <-f.places; f.open.Done() }
	if !h.owned.Go(func() { defer leave(); f.connect(nc, addr, h.done) }) {
		leave()
		refuse(ssh.ConnectionFailed, "closing")
	}
}

// connect dials, and copies in both directions until both have ended, the forward ends, or lost is closed.
func (f *forward) connect(nc ssh.NewChannel, addr string, lost <-chan struct{}) {
	ctx, cancel := context.WithCancel(f.ctx)
	var watch sync.WaitGroup
	watch.Go(func() {
		select {
		case <-lost:
			cancel()
		case <-ctx.Done():
		}
	})
	defer watch.Wait()
	defer cancel()
	to, err := f.dial(ctx)
	if err != nil {
		_ = nc.Reject(ssh.ConnectionFailed, "cannot connect")
		return
	}
	defer to.Close()
	ch, reqs, err := nc.Accept()
	if err != nil {
		return
	}
	from := newChannelConn(ch, reqs, addr)
	defer from.Close()
	defer context.AfterFunc(ctx, func() { from.Close(); to.Close() })()
	var back sync.WaitGroup
	back.Go(func() { pipe(from, to) })
	pipe(to, from)
	back.Wait()
}

// pipe copies until the source ends, and passes on the end. A broken copy ends both directions.
func pipe(to, from net.Conn) {
	if _, err := io.Copy(to, from); err != nil {
		to.Close()
		from.Close()
		return
	}
	if half, ok := to.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
		return
	}
	to.Close()
}
