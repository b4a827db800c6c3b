package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// writeCertificate writes a certificate of names that signs itself, and its key.
func writeCertificate(t *testing.T, names ...string) (chain, private string) {
	t.Helper()
	dir := t.TempDir()
	chain, private = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	if err := makeCertificate(chain, private, names...); err != nil {
		t.Fatal(err)
	}
	return chain, private
}

// makeCertificate writes a certificate of names that signs itself, which programs take for their only authority, and
// its key.
func makeCertificate(chain, private string, names ...string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: names[0]},
		DNSNames: names, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return err
	}
	bytes, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(chain, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600),
		os.WriteFile(private, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: bytes}), 0o600))
}

// TestDiagnoseDomain looks at the names of a domain in DNS and in the certificate.
func TestDiagnoseDomain(t *testing.T) {
	t.Parallel()
	all := []string{"app.d.example", "api.d.example", "content.d.example", "ws-run-example.d.example"}
	wild, wildKey := writeCertificate(t, "*.d.example")
	few, fewKey := writeCertificate(t, "app.d.example", "api.d.example")
	for name, x := range map[string]struct {
		config     Config
		known      []string
		says, fail string
	}{
		"none":  {},
		"proxy": {config: Config{Domain: "d.example"}, known: all, says: "workspaces at ws-ID.d.example"},
		"wildcard": {config: Config{Domain: "d.example", TLSCert: wild, TLSKey: wildKey}, known: all,
			says: "https://api.d.example"},
		"few": {config: Config{Domain: "d.example", TLSCert: few, TLSKey: fewKey}, known: all,
			fail: "not for content.d.example, ws-run-example.d.example; a certificate of *.d.example"},
		"no wildcard in DNS": {config: Config{Domain: "d.example"}, known: all[:3],
			fail: "DNS has no ws-run-example.d.example; a record of *.d.example"},
		"ACME": {config: Config{Domain: "d.example", ACME: ACMEConfig{Hosts: all[:3]}}, known: all[:3], says: "DNS-01"},
		"ACME without a name": {config: Config{Domain: "d.example", ACME: ACMEConfig{Hosts: all[:2]}},
			fail: "acme.hosts does not have content.d.example"},
		"ACME and DNS": {config: Config{Domain: "d.example", ACME: ACMEConfig{Hosts: all[:3]}}, known: all[:1],
			fail: "DNS has no api.d.example, content.d.example; each needs"},
		"loopback": {config: Config{Domain: "http://ramus.localhost:8080"}, says: "http://app.ramus.localhost:8080"},
		"another URL": {config: Config{Domain: "d.example", URL: "https://ramus.d.example"},
			fail: "domain and url do not match"},
		"its URL": {config: Config{Domain: "d.example", URL: "https://app.d.example"}, known: all, says: "pages at"},
		"content": {config: Config{Domain: "d.example", Web: WebConfig{ContentURL: "https://API.d.example"}},
			fail: "is a host of domain"},
		"redirect": {config: Config{Domain: "http://localhost:8080", RedirectListen: ":80"}, fail: "reached by http"},
		"no name":  {config: Config{Domain: "*.d.example"}, fail: "cannot use the domain"},
	} {
		t.Run(name, func(t *testing.T) {
			says, err := diagnoseDomain(t.Context(), x.config, func(_ context.Context, name string) ([]string, error) {
				if slices.Contains(x.known, name) {
					return []string{"192.0.2.1"}, nil
				}
				return nil, errors.New("no such host")
			})
			switch {
			case x.fail == "" && (err != nil || !strings.Contains(says, x.says) || x.says == "" && says != ""):
				t.Errorf("%q, %v, want %q", says, err, x.says)
			case x.fail != "" && (err == nil || !strings.Contains(err.Error(), x.fail)):
				t.Errorf("%q, %v, want an error with %q", says, err, x.fail)
			}
		})
	}
	look := func(ctx context.Context, _ string) ([]string, error) {
		ctx, cancel := context.WithCancel(ctx)
		cancel()
		return nil, ctx.Err()
	}
	_, err := diagnoseDomain(t.Context(), Config{Domain: "d.example"}, look)
	if err == nil || !strings.Contains(err.Error(), "DNS has no app.d.example") {
		t.Errorf("without DNS: %v", err)
	}
}

// TestSettleDomain checks the keys that follow from the domain.
func TestSettleDomain(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct{ text, url, programs, content string }{
		"none": {"{}", "", "", ""},
		"name": {"domain: Ramus.Example.org", "https://app.ramus.example.org", "https://api.ramus.example.org",
			"https://content.ramus.example.org"},
		"port": {"domain: https://d.example:8443", "https://app.d.example:8443", "https://api.d.example:8443",
			"https://content.d.example:8443"},
		"set": {"{domain: d.example, url: https://other.example}", "https://other.example", "https://api.d.example",
			"https://content.d.example"},
		"pages": {"{domain: d.example, url: https://App.d.example/}", "https://app.d.example", "https://api.d.example",
			"https://content.d.example"},
		"programs": {"{domain: d.example, url: https://api.d.example}", "https://app.d.example",
			"https://api.d.example", "https://content.d.example"},
		"elsewhere": {"{domain: d.example, web: {content_url: https://files.example}}", "https://app.d.example",
			"https://api.d.example", "https://files.example"},
	} {
		file := filepath.Join(t.TempDir(), "ramus.yaml")
		if err := os.WriteFile(file, []byte(x.text), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := LoadConfig(file, false, nil)
		if err != nil {
			t.Fatal(err)
		}
		content, err := contentURL(c, "")
		if err != nil || c.URL != x.url || programsURL(c) != x.programs || content != x.content {
			t.Errorf("%s: %q, %q, %q, %v", name, c.URL, programsURL(c), content, err)
		}
	}
	if _, err := LoadConfig(filepath.Join(t.TempDir(), "none"), true,
		[]string{"RAMUS_DOMAIN=http://d.example"}); err == nil ||
		!strings.Contains(err.Error(), "by https alone") {
		t.Errorf("a domain without TLS: %v", err)
	}
}
