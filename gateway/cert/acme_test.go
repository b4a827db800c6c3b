package cert

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/letsencrypt/pebble/v2/ca"
	"github.com/letsencrypt/pebble/v2/db"
	"github.com/letsencrypt/pebble/v2/va"
	"github.com/letsencrypt/pebble/v2/wfe"
	"github.com/miekg/dns"
)

// authority is Pebble, the test authority of Let's Encrypt, in this process. Each name leads to this machine.
type authority struct {
	server *httptest.Server
	roots  *x509.CertPool // of the certificates that it gives
	asked  atomic.Int32   // orders
}

func newAuthority(t *testing.T, httpPort, tlsPort int) *authority {
	t.Helper()
	t.Setenv("PEBBLE_VA_NOSLEEP", "1")
	t.Setenv("PEBBLE_WFE_NONCEREJECT", "0")
	names := newNames(t)
	discard := log.New(io.Discard, "", 0)
	store := db.NewMemoryStore()
	issuer := ca.New(discard, store, "", "ecdsa", 0, 1,
		map[string]ca.Profile{"default": {Description: "default", ValidityPeriod: 90 * 24 * 3600}})
	front := wfe.New(discard, store, va.New(discard, httpPort, tlsPort, true, names, store), issuer,
		[]string{"ca.example.org"}, true, false, 0, 0)
	a := &authority{roots: x509.NewCertPool()}
	handler := front.Handler()
	a.server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/order-plz" {
			a.asked.Add(1)
		}
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(a.server.Close)
	a.roots.AddCert(issuer.GetRootCert(0).Cert)
	return a
}

// newNames starts a server of names at which each name is that of the loopback address.
func newNames(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &dns.Server{Listener: l, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg)
		m.SetReply(q)
		if q.Question[0].Qtype == dns.TypeA {
			m.Answer = append(m.Answer, &dns.A{Hdr: dns.RR_Header{Name: q.Question[0].Name, Rrtype: dns.TypeA,
				Class: dns.ClassINET, Ttl: 1}, A: net.IPv4(127, 0, 0, 1)})
		}
		_ = w.WriteMsg(m)
	})}
	ended := make(chan error, 1)
	go func() { ended <- s.ActivateAndServe() }()
	t.Cleanup(func() {
		_ = s.Shutdown()
		<-ended
	})
	return l.Addr().String()
}

// TestACME gets a certificate of a real authority at the first handshake, and keeps it. Names that are not configured get
// none, and the authority is not asked for them.
func TestACME(t *testing.T) {
	secure, tlsPort := freePort(t)
	plain, httpPort := freePort(t)
	authority := newAuthority(t, httpPort, tlsPort)
	roots := x509.NewCertPool()
	roots.AddCert(authority.server.Certificate())
	a := &ACME{Hosts: []string{"ramus.example.org"}, Email: "ada@example.org", Directory: authority.server.URL + "/dir",
		Folder: filepath.Join(t.TempDir(), "acme"), Roots: roots}
	if err := a.Open(); err != nil {
		t.Fatal(err)
	}
	hello := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") })
	quiet := log.New(io.Discard, "", 0)
	servers := []*http.Server{{Handler: Strict(hello), TLSConfig: a.Config(), ErrorLog: quiet,
		ReadHeaderTimeout: time.Minute},
		{Handler: a.Challenge(Redirect("", "")), ErrorLog: quiet, ReadHeaderTimeout: time.Minute}}
	ended := make(chan error, 2)
	go func() { ended <- servers[0].ServeTLS(secure, "", "") }()
	go func() { ended <- servers[1].Serve(plain) }()
	defer func() {
		for _, s := range servers {
			s.Close()
			<-ended
		}
	}()
	get := func(name string) (*http.Response, error) {
		c := &http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true,
			TLSClientConfig: &tls.Config{RootCAs: authority.roots, ServerName: name}}}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+secure.Addr().String(), nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = name
		return c.Do(r)
	}
	for range 2 {
		resp, err := get("ramus.example.org")
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || string(text) != "hello" || resp.Header.Get("Strict-Transport-Security") == "" {
			t.Errorf("%q, %v, %v", text, resp.Header, err)
		}
	}
	if resp, err := get("other.example.org"); err == nil {
		resp.Body.Close()
		t.Error("there is a certificate of a name that is not configured")
	}
	if n := authority.asked.Load(); n != 1 {
		t.Errorf("the authority was asked for %d certificates, want 1", n)
	}
	entries, err := os.ReadDir(a.Folder)
	if err != nil || len(entries) == 0 {
		t.Errorf("nothing is kept: %v", err)
	}
	for _, e := range entries {
		if info, err := e.Info(); err != nil || info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s can be read by others: %v, %v", e.Name(), info, err)
		}
	}
}
