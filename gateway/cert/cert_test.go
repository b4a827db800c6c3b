package cert

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// pair writes a certificate of a name that signs itself, and its key.
func pair(t *testing.T, dir, name string) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		DNSNames: []string{name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	text, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for file, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: text}} {
		if err := os.WriteFile(file+".new", pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

// TestFiles renews a certificate while it is served.
func TestFiles(t *testing.T) {
	dir := t.TempDir()
	cert, key := pair(t, dir, "one.example.org")
	now := time.Unix(1e9, 0)
	f := &Files{Cert: cert, Key: key, Now: func() time.Time { return now }}
	if err := f.Open(); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_,
			_ = io.WriteString(w, "hello")
	}))
	server.TLS = f.Config()
	server.StartTLS()
	defer server.Close()
	served := func() string {
		t.Helper()
		conn, err := tls.Dial("tcp", server.Listener.Addr().String(),
			&tls.Config{InsecureSkipVerify: true, ServerName: "any.example.org"})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		return conn.ConnectionState().PeerCertificates[0].Subject.CommonName
	}
	if got := served(); got != "one.example.org" {
		t.Errorf("the certificate is that of %s", got)
	}
	pair(t, dir, "two.example.org")
	if got := served(); got != "one.example.org" {
		t.Errorf("the files are read again at once: %s", got)
	}
	now = now.Add(2 * time.Second)
	if got := served(); got != "two.example.org" {
		t.Errorf("a new certificate is not read: %s", got)
	}
	// One without its key does not replace it, whichever of both comes first.
	if err := os.WriteFile(key, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	now = now.Add(2 * time.Second)
	if got := served(); got != "two.example.org" {
		t.Errorf("a half certificate: %s", got)
	}
	pair(t, dir, "three.example.org")
	now = now.Add(2 * time.Second)
	if got := served(); got != "three.example.org" {
		t.Errorf("the whole one is not read: %s", got)
	}
	for _, bad := range []*Files{{Cert: cert, Key: filepath.Join(dir, "none")}, {Cert: key, Key: key}, {}} {
		if err := bad.Open(); err == nil {
			t.Errorf("%+v is accepted", bad)
		}
	}
}

func TestRedirect(t *testing.T) {
	for _, c := range []struct {
		to, port, method, host, path string
		status                       int
		want                         string
	}{
		{"", "443", "GET", "ramus.example.org", "/a%2Fb?c=d", 308, "https://ramus.example.org/a%2Fb?c=d"},
		{"", "8443", "HEAD", "ramus.example.org:80", "/", 308, "https://ramus.example.org:8443/"},
		{"", "8443", "GET", "[::1]:80", "/", 308, "https://[::1]:8443/"},
		{"", "443", "GET", "[::1]", "/", 308, "https://[::1]/"},
		{"https://ramus.example.org/below", "443", "GET", "evil.example", "//evil.example/x", 308,
			"https://ramus.example.org//evil.example/x"},
		{"", "443", "POST", "ramus.example.org", "/api/tokens", 403, ""},
		{"", "443", "GET", "", "/", 400, ""},
	} {
		r := httptest.NewRequest(c.method, "http://host"+c.path, nil)
		r.Host = c.host
		w := httptest.NewRecorder()
		Redirect(c.to, c.port).ServeHTTP(w, r)
		if got := w.Header().Get("Location"); w.Code != c.status || got != c.want {
			t.Errorf("%+v: %d, %s", c, w.Code, got)
		}
	}
}

// TestRedirectOthers leads requests for another host to its origin, and passes all others on.
func TestRedirectOthers(t *testing.T) {
	lead := RedirectOthers(func(host string) string {
		if host == "content.example.net" {
			return "https://content.example.net:8443"
		}
		return ""
	}, Redirect("https://ramus.example.org", "443"))
	for host, want := range map[string]string{
		"content.example.net": "https://content.example.net:8443/a?b=c",
		"ramus.example.org":   "https://ramus.example.org/a?b=c",
	} {
		r := httptest.NewRequest("GET", "http://host/a?b=c", nil)
		r.Host = host
		w := httptest.NewRecorder()
		lead.ServeHTTP(w, r)
		if got := w.Header().Get("Location"); w.Code != 308 || got != want {
			t.Errorf("%s: %d, %s", host, w.Code, got)
		}
	}
}

func TestStrict(t *testing.T) {
	for _, c := range []struct {
		host string
		tls  bool
		want string
	}{
		{"ramus.example.org", true, "max-age=31536000"}, {"ramus.example.org:8443", true, "max-age=31536000"},
		{"ramus.example.org", false, ""},
		{"127.0.0.1:8080", true, ""}, {"[::1]:8080", true, ""},
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Host = c.host
		if c.tls {
			r.TLS = &tls.ConnectionState{}
		}
		w := httptest.NewRecorder()
		Strict(http.NotFoundHandler()).ServeHTTP(w, r)
		if got := w.Header().Get("Strict-Transport-Security"); got != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
}

// TestLacks finds the names for which a certificate is not.
func TestLacks(t *testing.T) {
	chain, key := pair(t, t.TempDir(), "*.example.org")
	missing, err := Lacks(chain, key, []string{"app.example.org", "a.b.example.org", "example.org", "APP.example.org"})
	if err != nil || !slices.Equal(missing, []string{"a.b.example.org", "example.org"}) {
		t.Errorf("%q, %v", missing, err)
	}
	if _, err := Lacks(chain, chain, nil); err == nil {
		t.Error("a certificate without its key is accepted")
	}
}

func TestACMEOptions(t *testing.T) {
	for _, bad := range []ACME{{}, {Hosts: []string{"*.example.org"}}, {Hosts: []string{"localhost"}},
		{Hosts: []string{"a.example.org:443"}},
		{Hosts: []string{"a.example.org"}, Directory: "http://ca.example.org"}} {
		if err := bad.Open(); err == nil {
			t.Errorf("%+v is accepted", bad)
		}
	}
	wildcard := ACME{Hosts: []string{"a.example.org", "*.example.org"}}
	if err := wildcard.Open(); err == nil || !strings.Contains(err.Error(), "DNS-01") ||
		!strings.Contains(err.Error(), "tls_cert") {
		t.Errorf("a wildcard: %v", err)
	}
	a := ACME{Hosts: []string{"a.example.org"}, Folder: t.TempDir()}
	if err := a.Open(); err != nil {
		t.Fatal(err)
	}
	for host, ok := range map[string]bool{"a.example.org": true, "A.example.org": true, "b.example.org": false, "": false} {
		if err := a.policy(t.Context(), host); (err == nil) != ok {
			t.Errorf("%q: %v", host, err)
		}
	}
}

// freePort returns a listener of the loopback address, and its port.
func freePort(t *testing.T) (net.Listener, int) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l, l.Addr().(*net.TCPAddr).Port
}
