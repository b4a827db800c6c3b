package kube

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// newPair returns a certificate and its key in PEM.
func newPair(t *testing.T) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	made, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: made}), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
}

// TestCertificate reads client certificates from the kubeconfig and from files.
func TestCertificate(t *testing.T) {
	cert, key := newPair(t)
	_, other := newPair(t)
	dir := t.TempDir()
	write(t, dir, "cert", string(cert), 0o600)
	write(t, dir, "key", string(key), 0o600)
	encoded := base64.StdEncoding.EncodeToString
	for about, x := range map[string]struct {
		user
		ok bool
	}{
		"data":             {user{CertData: encoded(cert), KeyData: encoded(key)}, true},
		"files":            {user{CertFile: "cert", KeyFile: filepath.Join(dir, "key")}, true},
		"no key":           {user{CertFile: "cert"}, false},
		"no certificate":   {user{KeyFile: "key"}, false},
		"another key":      {user{CertFile: "cert", KeyData: encoded(other)}, false},
		"a missing file":   {user{CertFile: "none", KeyFile: "key"}, false},
		"a missing key":    {user{CertFile: "cert", KeyFile: "none"}, false},
		"no base64":        {user{CertData: "?", KeyFile: "key"}, false},
		"nothing":          {user{}, false},
		"a token is first": {user{CertFile: "none", Token: "t"}, true},
	} {
		from, err := x.source(dir)
		if (err == nil) != x.ok {
			t.Errorf("%s: %v", about, err)
		}
		if err != nil {
			continue
		}
		if got, err := from(t.Context()); err != nil || (got.certificate == nil) == (got.token == "") {
			t.Errorf("%s: %+v, %v", about, got, err)
		}
	}
}

// TestPods finds the API server from a pod, whose service account may have no namespace.
func TestPods(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "token", "t", 0o600)
	both := map[string]string{"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
	find := func(without string) (*Config, error) {
		return inCluster(dir, func(name string) string {
			if name == without {
				return ""
			}
			return both[name]
		})
	}
	if _, err := find(""); err == nil || !strings.Contains(err.Error(), "authority") {
		t.Errorf("without a certificate: %v", err)
	}
	write(t, dir, "ca.crt", "ca", 0o600)
	if c, err := find(""); err != nil || c.Namespace != "" || string(c.CA) != "ca" {
		t.Errorf("without a namespace: %+v, %v", c, err)
	}
	for name := range both {
		if _, err := find(name); err == nil {
			t.Errorf("without %s there is an API server", name)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "namespace"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := find(""); err == nil {
		t.Error("a namespace that cannot be read is none")
	}
}

// TestMaxFile reads files up to their bound.
func TestMaxFile(t *testing.T) {
	dir := t.TempDir()
	for size, ok := range map[int]bool{maxFile: true, maxFile + 1: false} {
		path := write(t, dir, "file", strings.Repeat("x", size), 0o600)
		if got, err := readFile(path); (err == nil) != ok || ok && len(got) != size {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
	var b limitedBuffer
	for range 3 {
		if n, err := b.Write(make([]byte, maxFile/2+1)); n != maxFile/2+1 || err != nil {
			t.Error(n, err)
		}
	}
	if b.Len() != maxFile {
		t.Errorf("%d bytes are kept", b.Len())
	}
}
