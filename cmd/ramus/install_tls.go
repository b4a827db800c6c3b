package main

import (
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"

	"github.com/ramus-dev/ramus/gateway/cert"
)

// newCertificates returns the source of certificates of a configuration. Returns nil if the server speaks no TLS.
func newCertificates(c Config, secret *secrets, log *slog.Logger) (cert.Source, error) {
	files, asked := c.TLSCert+c.TLSKey != "", len(c.ACME.Hosts) > 0
	switch {
	case !files && !asked:
		if c.RedirectListen != "" {
			return nil, errors.New("redirect_listen needs tls_cert and tls_key, or acme.hosts")
		}
		return nil, nil
	case c.Listen == "":
		return nil, errors.New("tls_cert and acme.hosts need listen, the address with TLS")
	case files && asked:
		return nil, errors.New("tls_cert and acme.hosts are both set: want one")
	case files && (c.TLSCert == "" || c.TLSKey == ""):
		return nil, errors.New("tls_cert and tls_key belong together: want both")
	case c.URL != "" && !strings.HasPrefix(c.URL, "https://"):
		return nil, fmt.Errorf("with TLS, url must begin with https://, not %.200q", c.URL)
	}
	if asked {
		a := &cert.ACME{Hosts: c.ACME.Hosts, Email: c.ACME.Email, Directory: c.ACME.Directory,
			Folder: filepath.Join(c.Data, "keys", "acme")}
		var err error
		if a.Roots, err = readRoots(c.ACME.CAFile); err != nil {
			return nil, err
		}
		return a, a.Open()
	}
	chain, err := folder(c.TLSCert)
	if err != nil {
		return nil, err
	}
	key, err := folder(c.TLSKey)
	if err != nil {
		return nil, err
	}
	if err := secret.file("tls_key", key); err != nil {
		return nil, err
	}
	f := &cert.Files{Cert: chain, Key: key, Log: log}
	return f, f.Open()
}

// readRoots returns the certificates of a file, or nil if name is empty.
func readRoots(name string) (*x509.CertPool, error) {
	if name == "" {
		return nil, nil
	}
	name, err := folder(name)
	if err != nil {
		return nil, err
	}
	text, err := readSecret(name)
	if err != nil {
		return nil, fmt.Errorf("cannot read acme.ca: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("acme.ca: %s has no certificate in PEM", name)
	}
	return roots, nil
}
