package runner

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/gliderlabs/ssh"
	gossh "golang.org/x/crypto/ssh"
)

const (
	// doorWait bounds the wait of a connection to the door for the host to return. So a push during a restart of the
	// host is delayed and not lost.
	doorWait = 30 * time.Second
	// doorConns bounds the open connections to the door. Further ones wait in the kernel's queue.
	doorConns = 256
)

// door listens at an address at which commands reach the host. The door of a container is one, and each of its forwards.
type door struct {
	addr string
	port int
	ln   net.Listener // of the address
	log  *slog.Logger

	mu      sync.Mutex          // guards the fields below
	hosts   []*gossh.ServerConn // connections that requested the door, the latest last
	shut    bool                // the host cancelled the door
	changed chan struct{}       // closed and replaced when hosts or shut changes
}

// openDoor listens at the address before any command can.
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
	go d.serve(ln)
	return d, nil
}

// addSocket makes a folder for programs that reach the host by a unix socket. See [Config].DoorFolder.
func (d *door) addSocket(folder string) error {
	if err := os.MkdirAll(filepath.Join(folder, "gh"), 0o755); err != nil {
		return fmt.Errorf("cannot open the socket of the door: %w", err)
	}
	socket := filepath.Join(folder, "door.sock")
	ln, err := net.Listen("unix", socket)
	if err != nil {
		return fmt.Errorf("cannot open the socket of the door: %w", err)
	}
	if err := os.Chmod(socket, 0o666); err != nil {
		return fmt.Errorf("cannot open the socket of the door: %w", err)
	}
	text := "http_unix_socket: " + socket + "\n"
	if err := os.WriteFile(filepath.Join(folder, "gh", "config.yml"), []byte(text), 0o644); err != nil {
		return fmt.Errorf("cannot write the configuration of the door: %w", err)
	}
	go d.serve(ln)
	return nil
}

// serve accepts connections at one listener.
func (d *door) serve(ln net.Listener) {
	places := make(chan struct{}, doorConns)
	for {
		places <- struct{}{}
		conn, err := ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return // not the door, but a forward that its host gave up
		}
		if err != nil {
			<-places
			// No descriptor is free.
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

// pass connects conn with the host that has the door, and waits for one if necessary.
func (d *door) pass(conn net.Conn) {
	late := time.After(doorWait)
	host, _, _ := net.SplitHostPort(d.addr)
	from := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} // of a unix socket, whose clients have no address
	if tcp, ok := conn.RemoteAddr().(*net.TCPAddr); ok {
		from = tcp
	}
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
				splice(conn.(stream), ch, reqs)
				return
			}
			if _, refused := err.(*gossh.OpenChannelError); refused {
				return
			}
			// The connection broke meanwhile, so wait for the next host.
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

// stream is a connection whose directions end one by one, of TCP or a unix socket.
type stream interface {
	net.Conn
	CloseRead() error
	CloseWrite() error
}

// splice copies in both directions until both have ended. It passes on the end of each direction.
func splice(conn stream, ch gossh.Channel, reqs <-chan *gossh.Request) {
	var wg sync.WaitGroup
	wg.Go(func() {
		gossh.DiscardRequests(reqs)
		// The other side has closed the channel, so nothing can be sent or received any more.
		_ = conn.CloseRead()
	})
	wg.Go(func() {
		_, _ = io.Copy(conn, ch)
		_ = conn.CloseWrite()
	})
	_, err := io.Copy(ch, conn)
	if err != nil {
		ch.Close()
	} else {
		_ = ch.CloseWrite()
	}
	// Data may still come from the channel until the other side ends too.
	wg.Wait()
	ch.Close()
}

// give gives the door to a host. A nil host shuts the door.
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

// leave removes a host that is gone. The host that requested the door before it, if it is still connected, gets the
// door again. The last of a server's connections to ask does not have to be the last to stay.
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

// dial serves "direct-tcpip". It connects to ports of this container, except the door's.
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
		addr = "127.0.0.1" // independent of the container's own /etc/hosts
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
