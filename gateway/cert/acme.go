package cert

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"golang.org/x/crypto/acme"
	"golang.org/x/crypto/acme/autocert"
)

// LetsEncrypt is the default directory.
const LetsEncrypt = acme.LetsEncryptURL

// ACME gets certificates from a certificate authority by ACME (RFC 8555), and renews them 30 days before they end. The
// authority proves the names by TLS-ALPN-01 at the listener, or by HTTP-01 at Challenge. The exported fields are its
// options and may be changed until Open.
type ACME struct {
	// Hosts are the names for which certificates are asked. Required.
	Hosts []string
	// Email is sent to the authority, which may write to it. It may be empty.
	Email string
	// Directory is the URL of the authority. Empty means LetsEncrypt.
	Directory string
	// Folder keeps the account's key and the certificates, readable by their owner alone. Required.
	Folder string
	// Roots are the roots of the authority's own certificate. Nil means those of the machine.
	Roots *x509.CertPool

	manager *autocert.Manager
}

// Open checks the options. Certificates are asked for by the first handshakes.
func (a *ACME) Open() error {
	if len(a.Hosts) == 0 {
		return errors.New("cannot ask for certificates: no host is named")
	}
	for _, h := range a.Hosts {
		if strings.HasPrefix(h, "*.") {
			return fmt.Errorf("cannot ask for a certificate of %.300s: an authority proves a wildcard by the "+
				"challenge DNS-01 alone, which changes a record in DNS, and ramus does not; get it with another "+
				"client of ACME that does, and name its files in tls_cert and tls_key", h)
		}
		if h == "" || strings.ContainsAny(h, "*/: ") || !strings.Contains(h, ".") {
			return fmt.Errorf("cannot ask for a certificate of %.100q: want the name of one host, such as ramus.example.org; for all names of a domain use tls_cert", h)
		}
	}
	directory := a.Directory
	if directory == "" {
		directory = LetsEncrypt
	}
	if !strings.HasPrefix(directory, "https://") {
		return fmt.Errorf("cannot use the ACME directory %.200q: want an https URL", directory)
	}
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment,
		TLSClientConfig: &tls.Config{RootCAs: a.Roots, MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true}
	a.manager = &autocert.Manager{
		Prompt:     autocert.AcceptTOS,
		Cache:      autocert.DirCache(a.Folder),
		HostPolicy: a.policy,
		Email:      a.Email,
		Client: &acme.Client{DirectoryURL: directory, UserAgent: "ramus",
			HTTPClient: &http.Client{Transport: transport, Timeout: time.Minute}},
	}
	return nil
}

// policy refuses names for which no certificate is asked.
func (a *ACME) policy(_ context.Context, host string) error {
	for _, h := range a.Hosts {
		if strings.EqualFold(h, host) {
			return nil
		}
	}
	return fmt.Errorf("%.100q is not among the hosts of acme", host)
}

// Config implements [Source].
func (a *ACME) Config() *tls.Config {
	c := a.manager.TLSConfig()
	c.MinVersion = tls.VersionTLS12
	return c
}

// Challenge implements [Source].
func (a *ACME) Challenge(next http.Handler) http.Handler { return a.manager.HTTPHandler(next) }
