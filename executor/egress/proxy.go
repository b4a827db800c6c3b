// Package egress is the way out of a container, an HTTP proxy to the hosts that the configuration allows.
//
// # Untrusted input
//
// Requests come from hostile containers. The proxy resolves names itself and refuses addresses that are not public, in every notation
// and form of embedding, unless the configuration allows them. Tunnels are bounded in number and idle time.
package egress

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

// Proxy is an HTTP proxy to the hosts of an allowlist. It takes HTTP by absolute URL, and everything else by CONNECT (RFC 9110).
// It reports each host name once for a run, with the verdict. Its fields are set before the first request. Its methods may be
// called concurrently.
type Proxy struct {
	// Allow lists the hosts, NAME or *.NAME for any name below it, with :PORT for a port other than 80 and 443.
	Allow []string
	// Private lists the entries of Allow whose names may lead to addresses that are not public.
	Private []string
	// Hosts returns Allow and Private as they are at the time of a request. Nil means that these fields count.
	Hosts func() (allow, private []string)
	// Tell receives an [record.EventEgress] for each host name.
	Tell func(record.Event)
	// LookUp resolves names. Nil means the system's resolver.
	LookUp func(ctx context.Context, network, host string) ([]netip.Addr, error)
	// Run returns the name of the run at work, so that each run records its hosts. Nil means that there is at most
	// one run.
	Run func() string

	mu   sync.Mutex
	run  string          // the run that seen belongs to; guarded by mu
	seen map[string]bool // guarded by mu
	open int             // guarded by mu
}

func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	host, port, err := splitHostPort(r)
	if err != nil {
		http.Error(w, "ramus: "+err.Error(), http.StatusBadRequest)
		return
	}
	if !p.allowed(host, port) {
		p.note(host, port, record.EgressRefused)
		http.Error(w, refusal(host), http.StatusForbidden)
		return
	}
	p.note(host, port, "allowed")
	if r.Method == http.MethodConnect {
		p.tunnel(w, r, net.JoinHostPort(host, port))
		return
	}
	p.forward(w, r)
}

// refusal tells that a host is not on the allowlist.
func refusal(host string) string {
	return fmt.Sprintf("ramus: %s is not among the hosts that containers may reach; add it to `egress` in the configuration", host)
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

// allowed reports whether the allowlist has a host.
func (p *Proxy) allowed(host, port string) bool {
	allow, _ := p.hosts()
	return matches(allow, host, port)
}

// hosts returns the allowlist of now.
func (p *Proxy) hosts() (allow, private []string) {
	if p.Hosts == nil {
		return p.Allow, p.Private
	}
	return p.Hosts()
}

// matches reports whether one of the entries means a host.
func matches(entries []string, host, port string) bool {
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

// cutPort splits HOST:PORT. An IPv6 address has a port only after brackets.
func cutPort(entry string) (host, port string, ok bool) {
	if _, err := netip.ParseAddr(entry); err == nil {
		return entry, "", false
	}
	if host, port, err := net.SplitHostPort(entry); err == nil {
		return host, port, true
	}
	return strings.TrimSuffix(strings.TrimPrefix(entry, "["), "]"), "", false
}

func (p *Proxy) note(host, port, verdict string) {
	name := net.JoinHostPort(host, port)
	run := ""
	if p.Run != nil {
		run = p.Run()
	}
	p.mu.Lock()
	if p.seen == nil || p.run != run { // each run is reported to
		p.run, p.seen = run, make(map[string]bool)
	}
	known := p.seen[name+verdict] || len(p.seen) >= egressNotes
	if !known {
		p.seen[name+verdict] = true
	}
	p.mu.Unlock()
	if !known {
		p.Tell(record.Event{Type: record.EventEgress, Message: name, Reason: verdict})
	}
}

// dial connects to an allowed name. It refuses a name that leads to an address that is not public, unless its entry allows that
// or is the address itself. Otherwise the owner of the name's DNS could reach services of the host.
func (p *Proxy) dial(ctx context.Context, network, addr string) (net.Conn, error) {
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
	if p.LookUp != nil {
		lookUp = p.LookUp
	}
	ips, err := lookUp(ctx, "ip", host)
	if err != nil {
		return nil, err
	}
	_, privates := p.hosts()
	private := matches(privates, host, port)
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

func (p *Proxy) tunnel(w http.ResponseWriter, r *http.Request, addr string) {
	p.mu.Lock()
	full := p.open >= egressTunnel
	if !full {
		p.open++
	}
	p.mu.Unlock()
	if full {
		http.Error(w, "ramus: too many connections through the proxy at once", http.StatusServiceUnavailable)
		return
	}
	defer func() {
		p.mu.Lock()
		p.open--
		p.mu.Unlock()
	}()
	out, err := p.dial(r.Context(), "tcp", addr)
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

// relay copies until either side ends or is idle, and then ends the other. A half-closed tunnel to a silent peer would stay open
// otherwise.
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

func (p *Proxy) forward(w http.ResponseWriter, r *http.Request) {
	out := r.Clone(r.Context())
	out.RequestURI = ""
	for _, name := range strings.Split(r.Header.Get("Connection"), ",") {
		out.Header.Del(strings.TrimSpace(name))
	}
	for _, name := range hopHeaders {
		out.Header.Del(name)
	}
	transport := &http.Transport{DialContext: p.dial, DisableKeepAlives: true, DisableCompression: true,
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
