package containers

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"
)

// doorServer answers the requests of a container at the door.
type doorServer struct {
	http     *http.Server
	conns    chan net.Conn
	closed   chan struct{}
	cancel   context.CancelFunc
	handlers group
	serving  sync.WaitGroup

	mu   sync.Mutex            // guards open
	open map[net.Conn]struct{} // includes hijacked connections, which the HTTP server forgets
}

// openDoor asks the runner for the connections to the door and serves them with handler. A nil handler closes the door.
func (h *Host) openDoor(handler http.Handler) error {
	host, port, err := net.SplitHostPort(DoorAddr)
	if err != nil {
		return fmt.Errorf("cannot open the door: %w", err)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return fmt.Errorf("cannot open the door: %w", err)
	}
	place := ssh.Marshal(struct {
		Addr string
		Port uint32
	}{host, uint32(n)})
	if handler == nil {
		_, _, err := h.client.SendRequest("cancel-tcpip-forward", true, place)
		if err != nil {
			return fmt.Errorf("cannot close the door: %w", h.why(context.Background(), err))
		}
		return nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	d := &doorServer{conns: make(chan net.Conn), closed: make(chan struct{}), cancel: cancel, open: map[net.Conn]struct{}{}}
	d.http = &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !d.handlers.Do(func() { handler.ServeHTTP(w, r) }) {
				http.Error(w, "closing", http.StatusServiceUnavailable)
			}
		}),
		// Everything that a container sends is hostile. Headers must be small and arrive soon. Bodies may be large and
		// slow, and the handlers bound them.
		ReadHeaderTimeout: 30 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		BaseContext:       func(net.Listener) context.Context { return ctx },
	}
	h.door = d
	incoming := h.client.HandleChannelOpen("forwarded-tcpip")
	d.serving.Go(func() { _ = d.http.Serve(d) })
	d.serving.Go(func() {
		for nc := range incoming {
			if addr := forwardedFrom(nc); addr != DoorAddr {
				h.forwarded(nc, addr)
				continue
			}
			d.accept(nc)
		}
	})
	ok, _, err := h.client.SendRequest("tcpip-forward", true, place)
	if err != nil || !ok {
		return fmt.Errorf("cannot open the door: %w", h.why(context.Background(), err))
	}
	return nil
}

func (d *doorServer) accept(nc ssh.NewChannel) {
	ch, reqs, err := nc.Accept()
	if err != nil {
		return
	}
	c := &doorConn{channelConn: newChannelConn(ch, reqs, DoorAddr), door: d}
	d.mu.Lock()
	d.open[c] = struct{}{}
	d.mu.Unlock()
	select {
	case d.conns <- c:
	case <-d.closed:
		c.Close()
	}
}

// doorConn removes itself from the open connections of door when it is closed.
type doorConn struct {
	*channelConn
	door *doorServer
}

func (c *doorConn) Close() error {
	c.door.mu.Lock()
	delete(c.door.open, c)
	c.door.mu.Unlock()
	return c.channelConn.Close()
}

// Accept implements [net.Listener].
func (d *doorServer) Accept() (net.Conn, error) {
	select {
	case c := <-d.conns:
		return c, nil
	case <-d.closed:
		return nil, net.ErrClosed
	}
}

// Close implements [net.Listener] for the HTTP server.
func (d *doorServer) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	select {
	case <-d.closed:
	default:
		close(d.closed)
	}
	return nil
}

// Addr implements [net.Listener].
func (d *doorServer) Addr() net.Addr { return channelAddr(DoorAddr) }

// close closes the door after the connection was closed, and waits for its handlers.
func (d *doorServer) close() {
	if d == nil {
		return
	}
	d.cancel()
	_ = d.Close()
	_ = d.http.Close()
	d.mu.Lock()
	var left []net.Conn
	for c := range d.open {
		left = append(left, c)
	}
	d.mu.Unlock()
	for _, c := range left {
		c.Close()
	}
	d.serving.Wait()
	d.handlers.Wait()
}

// door passes requests to the handler of the latest [Request]. So the connection outlives the requests of a caller.
type door struct {
	mu sync.Mutex
	h  http.Handler // guarded by mu
}

func (d *door) set(h http.Handler) {
	if h == nil {
		return
	}
	d.mu.Lock()
	d.h = h
	d.mu.Unlock()
}

func (d *door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	h := d.h
	d.mu.Unlock()
	if h == nil {
		http.Error(w, "the door is closed", http.StatusServiceUnavailable)
		return
	}
	h.ServeHTTP(w, r)
}
