package cert

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"sync"
	"time"
)

// Source has the certificates of handshakes.
type Source interface {
	// Config returns the configuration of a listener.
	Config() *tls.Config
	// Challenge returns a handler for requests without TLS. It answers the questions of a certificate authority, and
	// leaves all others to next.
	Challenge(next http.Handler) http.Handler
}

// Bounds of a Files.
const (
	lookEvery = time.Second // between two looks at the files
	maxFile   = 1 << 20
)

// Files reads a certificate and its key from files, and reads them again when they have changed. Its exported fields are
// its options and may be changed until Open. Methods are safe for concurrent use.
type Files struct {
	// Cert has the certificate and those of its issuers, in PEM. Key has its private key.
	Cert, Key string
	// Now is the clock. Nil means time.Now.
	Now func() time.Time
	// Log gets the certificates that are read later. Nil discards them.
	Log *slog.Logger

	mu     sync.Mutex // guards all below
	have   *tls.Certificate
	looked time.Time
	stamps [2]stamp
}

// stamp is the state of a file, which differs after a change.
type stamp struct {
	size int64
	time time.Time
	sys  os.FileInfo // of the same file; renamed files differ
}

func (s stamp) same(o stamp) bool {
	return s.sys != nil && o.sys != nil && s.size == o.size && s.time.Equal(o.time) && os.SameFile(s.sys, o.sys)
}

// Open reads the files.
func (f *Files) Open() error {
	if f.Now == nil {
		f.Now = time.Now
	}
	if f.Log == nil {
		f.Log = slog.New(slog.DiscardHandler)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.read()
}

// read reads both files. mu is held.
func (f *Files) read() error {
	stamps := f.look()
	cert, err := readFile(f.Cert)
	if err != nil {
		return fmt.Errorf("cannot read the certificate: %w", err)
	}
	key, err := readFile(f.Key)
	if err != nil {
		return fmt.Errorf("cannot read the key of the certificate: %w", err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return fmt.Errorf("cannot use the certificate %s with the key %s: %w", f.Cert, f.Key, err)
	}
	f.have, f.stamps, f.looked = &pair, stamps, f.Now()
	return nil
}

// look returns the stamps of the files.
func (f *Files) look() (s [2]stamp) {
	for i, name := range []string{f.Cert, f.Key} {
		if info, err := os.Stat(name); err == nil {
			s[i] = stamp{info.Size(), info.ModTime(), info}
		}
	}
	return s
}

func readFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(b) > maxFile {
		err = fmt.Errorf("%s has more than %d bytes", name, maxFile)
	}
	return b, err
}

// get returns the certificate, as new as the files are. If they cannot be read, it is the one from before.
func (f *Files) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now := f.Now(); now.Sub(f.looked) >= lookEvery || now.Before(f.looked) {
		f.looked = now
		if s := f.look(); !s[0].same(f.stamps[0]) || !s[1].same(f.stamps[1]) {
			if err := f.read(); err != nil {
				f.Log.Warn("the certificate has changed and cannot be used; the one from before is", "err", err)
			} else {
				f.Log.Info("the certificate was read again", "file", f.Cert, "ends", f.ends())
			}
		}
	}
	return f.have, nil
}

// ends returns the end of the certificate. mu is held.
func (f *Files) ends() time.Time {
	if leaf, err := x509.ParseCertificate(f.have.Certificate[0]); err == nil {
		return leaf.NotAfter
	}
	return time.Time{}
}

// Ends returns the end of the certificate in a file. The error is that of a pair which no server can use.
func Ends(chain, key string) (time.Time, error) {
	f := &Files{Cert: chain, Key: key}
	if err := f.Open(); err != nil {
		return time.Time{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ends(), nil
}

// Lacks returns the names for which the certificate in a file is not. The error is that of a pair which no server can
// use.
func Lacks(chain, key string, names []string) (missing []string, err error) {
	f := &Files{Cert: chain, Key: key}
	if err := f.Open(); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	leaf, err := x509.ParseCertificate(f.have.Certificate[0])
	if err != nil {
		return nil, fmt.Errorf("cannot read the certificate %s: %w", chain, err)
	}
	for _, name := range names {
		if leaf.VerifyHostname(name) != nil {
			missing = append(missing, name)
		}
	}
	return missing, nil
}

// Config implements [Source].
func (f *Files) Config() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: f.get, NextProtos: []string{"h2", "http/1.1"}}
}

// Challenge implements [Source]. Nobody asks.
func (f *Files) Challenge(next http.Handler) http.Handler { return next }
