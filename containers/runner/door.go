package runner

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/gliderlabs/ssh"
	gossh "golang.org/x/crypto/ssh"
)

const (
	// doorWait is how long a connection to the door waits for the host to come
	// back, so that a push in mid-restart of the host is late, not lost.
	doorWait = 30 * time.Second
	// doorConns bounds what a command can open at the door; more wait in the kernel's queue.
	doorConns = 256
)

// door listens where commands find the host.
type door struct {
	addr string
	port int
	ln   net.Listener
	log  *slog.Logger

	mu      sync.Mutex          // guards what follows
	hosts   []*gossh.ServerConn // that asked for it, the latest last
	shut    bool                // the host said that there is no door
	changed chan struct{}       // closed when hosts get more, or shut changes
}

// openDoor takes the address before any command can.
func openDoor(addr string, log *slog.Logger) (*door, error) {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, fmt.Errorf("cannot open the door: %w", err)
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		return nil, fmt.Errorf("cannot open the door: %w", err)
	}
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("cannot open the door: %w", err)
	}
	d := &door{addr: addr, port: n, ln: ln, log: log, changed: make(chan struct{})}
	go d.serve()
	return d, nil
}

func (d *door) serve() {
	places := make(chan struct{}, doorConns)
	for {
		places <- struct{}{}
		conn, err := d.ln.Accept()
		if err != nil {
			<-places
			// Out of descriptors; the listener itself is never closed.
			d.log.Warn("cannot accept at the door", "error", err)
			time.Sleep(50 * time.Millisecond)
			continue
		}
		go func() {
			defer func() { <-places }()
			defer conn.Close()
			d.pass(conn)
		}()
	}
}

// pass connects conn with the host that has the door, waiting for one.
func (d *door) pass(conn net.Conn) {
	late := time.After(doorWait)
	from := conn.RemoteAddr().(*net.TCPAddr)
	host, _, _ := net.SplitHostPort(d.addr)
	for {
		d.mu.Lock()
		var at *gossh.ServerConn
		if n := len(d.hosts); n > 0 {
			at = d.hosts[n-1]
		}
		shut, changed := d.shut, d.changed
		d.mu.Unlock()
		if shut {
			return
		}
		if at != nil {
			ch, reqs, err := at.OpenChannel("forwarded-tcpip", gossh.Marshal(struct {
				Addr       string
				Port       uint32
				Origin     string
				OriginPort uint32
			}{host, uint32(d.port), from.IP.String(), uint32(from.Port)}))
			if err == nil {
				splice(conn.(*net.TCPConn), ch, reqs)
				return
			}
			if _, refused := err.(*gossh.OpenChannelError); refused {
				return
			}
			// The connection broke in between; wait for the next.
			d.leave(at)
			continue
		}
		select {
		case <-changed:
		case <-late:
			return
		}
	}
}

// splice copies both ways until both are done, half-closing in between.
func splice(conn *net.TCPConn, ch gossh.Channel, reqs <-chan *gossh.Request) {
	var wg sync.WaitGroup
	wg.Go(func() {
		gossh.DiscardRequests(reqs)
		// The other side closed the channel: nothing more can be said or heard.
		conn.CloseRead()
	})
	wg.Go(func() {
		_, _ = io.Copy(conn, ch)
		conn.CloseWrite()
	})
	_, err := io.Copy(ch, conn)
	if err != nil {
		ch.Close()
	} else {
		_ = ch.CloseWrite()
	}
	// Data still flows outward-in until the other side ends as well.
	wg.Wait()
	ch.Close()
}

// give gives the door to a host; nil shuts it.
func (d *door) give(host *gossh.ServerConn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.shut = host == nil
	if d.shut {
		d.hosts = nil
	} else {
		d.hosts = append(slices.DeleteFunc(d.hosts, func(h *gossh.ServerConn) bool { return h == host }), host)
	}
	close(d.changed)
	d.changed = make(chan struct{})
}

// leave takes a host that is gone from the list. One that asked before it, and
// is there, has the door again: of a server's connections the last to ask need
// not be the last to stay.
func (d *door) leave(host *gossh.ServerConn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hosts = slices.DeleteFunc(d.hosts, func(h *gossh.ServerConn) bool { return h == host })
	close(d.changed)
	d.changed = make(chan struct{})
}

// forward serves "tcpip-forward" and "cancel-tcpip-forward".
func (d *door) forward(ctx ssh.Context, _ *ssh.Server, req *gossh.Request) (bool, []byte) {
	var p struct {
		Addr string
		Port uint32
	}
	if gossh.Unmarshal(req.Payload, &p) != nil || net.JoinHostPort(p.Addr, strconv.Itoa(int(p.Port))) != d.addr {
		return false, nil
	}
	conn, ok := ctx.Value(ssh.ContextKeyConn).(*gossh.ServerConn)
	if !ok {
		return false, nil
	}
	if req.Type == "cancel-tcpip-forward" {
		d.give(nil)
		return true, nil
	}
	d.give(conn)
	go func() {
		_ = conn.Wait()
		d.leave(conn)
	}()
	return true, nil
}

// dial serves "direct-tcpip": ports of this container, the door's left out.
func (d *door) dial(_ *ssh.Server, _ *gossh.ServerConn, nc gossh.NewChannel, ctx ssh.Context) {
	var p struct {
		Addr       string
		Port       uint32
		Origin     string
		OriginPort uint32
	}
	if err := gossh.Unmarshal(nc.ExtraData(), &p); err != nil {
		_ = nc.Reject(gossh.ConnectionFailed, "cannot read the request")
		return
	}
	if p.Addr != "127.0.0.1" && p.Addr != "::1" && p.Addr != "localhost" || p.Port == 0 || p.Port > 65535 || int(p.Port) == d.port {
		_ = nc.Reject(gossh.Prohibited, "only ports of 127.0.0.1, and not the door")
		return
	}
	addr := p.Addr
	if addr == "localhost" {
		addr = "127.0.0.1" // without asking the container's own /etc/hosts
	}
	dialer := net.Dialer{Timeout: 10 * time.Second}
	conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(addr, strconv.Itoa(int(p.Port))))
	if err != nil {
		_ = nc.Reject(gossh.ConnectionFailed, err.Error())
		return
	}
	defer conn.Close()
	ch, reqs, err := nc.Accept()
	if err != nil {
		return
	}
	splice(conn.(*net.TCPConn), ch, reqs)
}
