package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestDiagnoseCertificate looks at a certificate long before, shortly before and after its end.
func TestDiagnoseCertificate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ends := time.Date(2040, 1, 31, 0, 0, 0, 0, time.UTC)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"ramus.example.org"},
		NotBefore: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), NotAfter: ends}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	c := Config{TLSCert: filepath.Join(dir, "cert.pem"), TLSKey: filepath.Join(dir, "key.pem")}
	for name, block := range map[string]*pem.Block{c.TLSCert: {Type: "CERTIFICATE", Bytes: der},
		c.TLSKey: {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(name, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, x := range map[string]struct {
		before time.Duration
		want   string
	}{"long": {365 * 24 * time.Hour, "until 2040-01-31"}, "soon": {73 * time.Hour, "in 3 days"},
		"after": {-time.Hour, "has ended"}} {
		says, err := diagnoseCertificate(c, ends.Add(-x.before))
		if err != nil {
			says = err.Error()
		}
		if (err != nil) != (name == "after") || !strings.Contains(says, x.want) {
			t.Errorf("%s: %q, %v", name, says, err)
		}
	}
}
