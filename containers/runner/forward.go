package runner

import (
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"sync"

	"github.com/gliderlabs/ssh"
	gossh "golang.org/x/crypto/ssh"
)

// maxForwards bounds the addresses, apart from the door, at which the runner listens for hosts.
const maxForwards = 256

// forwards are the addresses at which the runner listens for hosts. Each behaves like the door, which is one of them. The others are
// addresses of the loopback that programs of the container do not use by themselves.
type forwards struct {
	door *door
	log  *slog.Logger

	mu   sync.Mutex // guards more
	more map[string]*door
}

// serve serves "tcpip-forward" and "cancel-tcpip-forward".
func (f *forwards) serve(ctx ssh.Context, srv *ssh.Server, req *gossh.Request) (bool, []byte) {
	var p struct {
		Addr string
		Port uint32
	}
	if gossh.Unmarshal(req.Payload, &p) != nil || p.Port == 0 || p.Port > 65535 {
		return false, nil
	}
	addr := net.JoinHostPort(p.Addr, strconv.Itoa(int(p.Port)))
	if addr == f.door.addr {
		return f.door.forward(ctx, srv, req)
	}
	if !forwardable(p.Addr) {
		return false, nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	d := f.more[addr]
	if req.Type == "cancel-tcpip-forward" {
		if d != nil {
			delete(f.more, addr)
			d.give(nil)
			_ = d.ln.Close()
		}
		return true, nil
	}
	if d == nil {
		if len(f.more) >= maxForwards {
			f.log.Warn("too many forwards", "address", addr)
			return false, nil
		}
		var err error
		if d, err = openDoor(addr, f.log); err != nil {
			f.log.Warn("cannot forward", "address", addr, "error", err)
			return false, nil
		}
		if f.more == nil {
			f.more = make(map[string]*door)
		}
		f.more[addr] = d
	}
	return d.forward(ctx, srv, req)
}

// forwardable reports whether hosts may have the runner listen at an address of the loopback. 127.0.0.1 belongs to commands.
func forwardable(addr string) bool {
	a, err := netip.ParseAddr(addr)
	return err == nil && a.Is4() && a.IsLoopback() && a != netip.AddrFrom4([4]byte{127, 0, 0, 1})
}
