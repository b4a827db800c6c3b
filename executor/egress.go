package executor

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/internal/netaddr"
)

// Bounds of the egress proxy.
const (
	egressDial   = 15 * time.Second
	egressIdle   = 5 * time.Minute // a tunnel without a byte in either direction
	egressNotes  = 1000            // host names journalled per run
	egressTunnel = 128             // tunnels at once
)

// egress is the proxy behind a container's door: HTTP by absolute URL, anything
// else by CONNECT, to hosts on the allowlist only. Each host name asked for is
// journalled with the answer it got.
type egress struct {
	allow   []string // see Executor.Egress
	private []string // see Executor.PrivateEgress
	tell    func(record.Event)
	// lookUp resolves names; nil: the system's resolver.
	lookUp func(ctx context.Context, network, host string) ([]netip.Addr, error)
	at     func() string // names the run that works; nil: there is one at most

	mu   sync.Mutex
	of   string          // the run that seen is of; guarded by mu
	seen map[string]bool // guarded by mu
	open int             // guarded by mu
}

func (e *egress) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	host, port, err := splitHostPort(r)
	if err != nil {
		http.Error(w, "ramus: "+err.Error(), http.StatusBadRequest)
		return
	}
	if !e.allowed(host, port) {
		e.note(host, port, record.EgressRefused)
		http.Error(w, fmt.Sprintf("ramus: %s is not among the hosts that containers may reach; add it to `egress` in the configuration", host), http.StatusForbidden)
		return
	}
	e.note(host, port, "allowed")
	if r.Method == http.MethodConnect {
		e.tunnel(w, r, net.JoinHostPort(host, port))
		return
	}
	e.forward(w, r)
}

func splitHostPort(r *http.Request) (host, port string, err error) {
	target := r.URL.Host
	if r.Method == http.MethodConnect {
		target = r.Host
	} else if r.URL.Scheme != "http" {
		return "", "", fmt.Errorf("the proxy takes http:// addresses and CONNECT, not %q", r.URL.Scheme)
	}
	host, port, err = net.SplitHostPort(target)
	if err != nil {
		host, port = target, "80"
	}
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	if host == "" || len(host) > 253 || strings.ContainsAny(host, " \t\r\n/\\@%") {
		return "", "", fmt.Errorf("%q is no host name", target)
	}
	return host, port, nil
}

// allowed tells whether the proxy lets a host through.
func (e *egress) allowed(host, port string) bool { return fits(e.allow, host, port) }

// fits tells whether one of the entries means a host: NAME or *.NAME (any name below it),
// each with :PORT for a port other than 80 and 443.
func fits(entries []string, host, port string) bool {
	for _, entry := range entries {
		name, want, hasPort := cutPort(strings.ToLower(entry))
		if hasPort && want != port || !hasPort && port != "80" && port != "443" {
			continue
		}
		if host == name || strings.HasPrefix(name, "*.") && strings.HasSuffix(host, name[1:]) && len(host) > len(name)-1 {
			return true
		}
	}
	return false
}

// cutPort splits HOST:PORT. An address of IPv6 has a port behind brackets only.
func cutPort(entry string) (host, port string, ok bool) {
	if _, err := netip.ParseAddr(entry); err == nil {
		return entry, "", false
	}
	if host, port, err := net.SplitHostPort(entry); err == nil {
		return host, port, true
	}
	return strings.TrimSuffix(strings.TrimPrefix(entry, "["), "]"), "", false
}

func (e *egress) note(host, port, verdict string) {
	name := net.JoinHostPort(host, port)
	of := ""
	if e.at != nil {
		of = e.at()
	}
	e.mu.Lock()
	if e.seen == nil || e.of != of { // each run is told what it was refused
		e.of, e.seen = of, make(map[string]bool)
	}
	known := e.seen[name+verdict] || len(e.seen) >= egressNotes
	if !known {
		e.seen[name+verdict] = true
	}
	e.mu.Unlock()
	if !known {
		e.tell(record.Event{Type: record.EventEgress, Message: name, Reason: verdict})
	}
}

// dial connects to an allowed name. A name that leads to an address that is not public
// is refused, unless its entry allows that or is the address itself: whoever controls the
// name's DNS would otherwise reach the host's own services.
func (e *egress) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, egressDial)
	defer cancel()
	var d net.Dialer
	if _, err := netip.ParseAddr(host); err == nil || host == "localhost" {
		return d.DialContext(ctx, "tcp", addr)
	}
	lookUp := net.DefaultResolver.LookupNetIP
	if e.lookUp != nil {
		lookUp = e.lookUp
	}
	ips, err := lookUp(ctx, "ip", host)
	if err != nil {
		return nil, err
	}
	private := fits(e.private, host, port)
	err = fmt.Errorf("%s has no address", host)
	for _, ip := range ips {
		ip = ip.Unmap()
		if !private && !netaddr.Public(ip) {
			err = fmt.Errorf("%s leads to the address %s, which is not public; `egress: [{host: %s, private: true}]` in the configuration allows it", host, ip, host)
			continue
		}
		var c net.Conn
		if c, err = d.DialContext(ctx, "tcp", net.JoinHostPort(ip.String(), port)); err == nil {
			return c, nil
		}
	}
	return nil, err
}

func (e *egress) tunnel(w http.ResponseWriter, r *http.Request, addr string) {
	e.mu.Lock()
	full := e.open >= egressTunnel
	if !full {
		e.open++
	}
	e.mu.Unlock()
	if full {
		http.Error(w, "ramus: too many connections through the proxy at once", http.StatusServiceUnavailable)
		return
	}
	defer func() {
		e.mu.Lock()
		e.open--
		e.mu.Unlock()
	}()
	out, err := e.dial(r.Context(), "tcp", addr)
	if err != nil {
		http.Error(w, "ramus: cannot reach "+addr+": "+err.Error(), http.StatusBadGateway)
		return
	}
	defer out.Close()
	in, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, "ramus: cannot tunnel here", http.StatusInternalServerError)
		return
	}
	defer in.Close()
	_ = in.SetDeadline(time.Time{})
	if _, err := io.WriteString(in, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		relay(out, buffered.Reader, in)
	}()
	relay(in, out, out)
	<-done
}

// relay copies until either side ends or is idle, then ends the other: a
// half-closed tunnel to a silent peer would stay for ever.
func relay(dst net.Conn, src io.Reader, conn net.Conn) {
	buf := make([]byte, 32<<10)
	for {
		_ = conn.SetReadDeadline(time.Now().Add(egressIdle))
		n, err := src.Read(buf)
		if n > 0 {
			_ = dst.SetWriteDeadline(time.Now().Add(egressIdle))
			if _, err := dst.Write(buf[:n]); err != nil {
				break
			}
		}
		if err != nil {
			break
		}
	}
	if c, ok := dst.(interface{ CloseWrite() error }); ok && c.CloseWrite() == nil {
		return
	}
	dst.Close()
}

// hopHeaders belong to one connection and are not forwarded (RFC 9110, 7.6.1).
var hopHeaders = []string{"Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate",
	"Proxy-Authorization", "Te", "Trailer", "Transfer-Encoding", "Upgrade"}

func (e *egress) forward(w http.ResponseWriter, r *http.Request) {
	out := r.Clone(r.Context())
	out.RequestURI = ""
	for _, name := range strings.Split(r.Header.Get("Connection"), ",") {
		out.Header.Del(strings.TrimSpace(name))
	}
	for _, name := range hopHeaders {
		out.Header.Del(name)
	}
	transport := &http.Transport{DialContext: e.dial, DisableKeepAlives: true, DisableCompression: true,
		ResponseHeaderTimeout: egressIdle, Proxy: nil}
	resp, err := transport.RoundTrip(out)
	if err != nil {
		http.Error(w, "ramus: cannot reach "+r.URL.Host+": "+err.Error(), http.StatusBadGateway)
		return
	}
	defer resp.Body.Close()
	for _, name := range hopHeaders {
		resp.Header.Del(name)
	}
	for name, values := range resp.Header {
		w.Header()[name] = values
	}
	w.WriteHeader(resp.StatusCode)
	_, _ = io.Copy(flushWriter{w}, resp.Body) // the client notices a short body by its length
}

type flushWriter struct{ w http.ResponseWriter }

func (f flushWriter) Write(p []byte) (int, error) {
	n, err := f.w.Write(p)
	if err == nil {
		err = http.NewResponseController(f.w).Flush()
	}
	return n, err
}
