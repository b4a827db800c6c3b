package lfs

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/gitd/object"
	"github.com/ramus-dev/ramus/internal/netaddr"
)

const (
	dialTime   = 15 * time.Second
	headerTime = 2 * time.Minute // until an answer begins
	redirects  = 5
)

// newClient returns a client for one conversation. It keeps no connections.
func (r *Remote) newClient() *http.Client {
	d := &dialer{allowed: map[string]bool{}}
	for _, host := range r.Private {
		d.allowed[strings.ToLower(host)] = true
	}
	return &http.Client{
		Transport: &http.Transport{
			Proxy: d.proxy, DialContext: d.dial, DisableKeepAlives: true, ForceAttemptHTTP2: true,
			TLSHandshakeTimeout: dialTime, ResponseHeaderTimeout: headerTime, MaxResponseHeaderBytes: 64 << 10,
		},
		CheckRedirect: func(req *http.Request, via []*http.Request) error {
			if len(via) > redirects {
				return fmt.Errorf("it redirects more than %d times", redirects)
			}
			if via[0].URL.Scheme == "https" && req.URL.Scheme != "https" {
				return fmt.Errorf("it redirects to an address without TLS")
			}
			return nil
		},
	}
}

// dialer connects to public addresses, and to hosts that are allowed.
type dialer struct {
	mu      sync.Mutex // guards allowed
	allowed map[string]bool
}

// proxy returns the proxy of the environment. The proxy resolves names itself, so only a public address or a name
// with a dot passes.
func (d *dialer) proxy(req *http.Request) (*url.URL, error) {
	u, err := http.ProxyFromEnvironment(req)
	if u == nil || err != nil {
		return u, err
	}
	host := req.URL.Hostname()
	if ip, err := netip.ParseAddr(host); !d.allows(host, portOf(req.URL)) &&
		(err == nil && !netaddr.Public(ip.Unmap()) || err != nil && !strings.Contains(host, ".")) {
		return nil, notPublic(host, host)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.allowed[strings.ToLower(net.JoinHostPort(u.Hostname(), portOf(u)))] = true
	return u, nil
}

func portOf(u *url.URL) string {
	if p := u.Port(); p != "" {
		return p
	}
	return map[string]string{"https": "443", "socks5": "1080"}[u.Scheme] + map[string]string{"http": "80"}[u.Scheme]
}

// allows reports whether a host may have any address.
func (d *dialer) allows(host, port string) bool {
	host = strings.ToLower(host)
	d.mu.Lock()
	defer d.mu.Unlock()
	usual := port == "80" || port == "443"
	return usual && d.allowed[host] || usual && d.allowed["["+host+"]"] || d.allowed[net.JoinHostPort(host, port)]
}

// dial resolves a name, and connects to the address that it has checked.
func (d *dialer) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	var plain net.Dialer
	if d.allows(host, port) {
		return plain.DialContext(ctx, network, addr)
	}
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, err
	}
	err = fmt.Errorf("%s has no address", host)
	for _, ip := range ips {
		ip = ip.Unmap()
		if !netaddr.Public(ip) {
			err = notPublic(host, ip.String())
			continue
		}
		var c net.Conn
		if c, err = plain.DialContext(ctx, "tcp", net.JoinHostPort(ip.String(), port)); err == nil {
			return c, nil
		}
	}
	return nil, err
}

func notPublic(host, ip string) error {
	return fmt.Errorf("it names the host %.100q, whose address %.60s is not public; `repos.NAME.lfs_hosts` in the configuration allows it: %w", host, ip, object.ErrDenied)
}
