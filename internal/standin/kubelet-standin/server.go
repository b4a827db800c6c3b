package main

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"log"
	"math/big"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/moby/spdystream"
)

const (
	// execProtocol is the version of the protocol of exec. Later ones are those of WebSockets.
	execProtocol = "v4.channel.k8s.io"
	// streamsWait bounds the time until all streams of an exec are there.
	streamsWait = 30 * time.Second
	headerWait  = 10 * time.Second
	closeWait   = 2 * time.Second
)

// newServer returns the server of the nodes' port. Clients need a certificate that one of ca has signed.
func newServer(k *kubelet, ca []byte) (*http.Server, error) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca) {
		return nil, errors.New("cannot serve the nodes: the certificate of the cluster's authority is not PEM")
	}
	own, err := newCertificate(k.address)
	if err != nil {
		return nil, fmt.Errorf("cannot make a certificate: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/exec/{namespace}/{pod}/{container}", k.serveExec)
	mux.HandleFunc("/exec/{namespace}/{pod}/{uid}/{container}", k.serveExec)
	return &http.Server{Handler: mux, ReadHeaderTimeout: headerWait, ErrorLog: log.New(quiet{}, "", 0),
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{own}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool,
			MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}}, nil // an upgrade is one of HTTP/1.1
}

// quiet drops the lines about clients without a certificate.
type quiet struct{}

func (quiet) Write(p []byte) (int, error) { return len(p), nil }

// newCertificate makes a certificate for an address. API servers do not verify those of kubelets by default.
func newCertificate(address string) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	t := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "kubelet-standin"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(365 * 24 * time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	if ip := net.ParseIP(address); ip != nil {
		t.IPAddresses = []net.IP{ip}
	}
	der, err := x509.CreateCertificate(rand.Reader, t, t, &key.PublicKey, key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}

// serveExec serves a command in a container of a pod. It refuses what a kubelet refuses.
func (k *kubelet) serveExec(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	p := k.find(r.PathValue("namespace"), r.PathValue("pod"))
	if p == nil || r.PathValue("uid") != "" && r.PathValue("uid") != p.Metadata.UID {
		http.Error(w, "pod does not exist", http.StatusNotFound)
		return
	}
	in := r.PathValue("container")
	switch {
	case r.Method != http.MethodPost && r.Method != http.MethodGet:
		http.Error(w, "only GET and POST are possible", http.StatusMethodNotAllowed)
	case !p.runs(in):
		http.Error(w, fmt.Sprintf("unable to upgrade connection: container not found (%q)", in), http.StatusInternalServerError)
	case len(query["command"]) == 0:
		http.Error(w, "you must specify at least 1 of command", http.StatusBadRequest)
	case isTrue(query.Get("tty")):
		http.Error(w, "no terminals are simulated", http.StatusBadRequest)
	case !asks(r.Header, "Connection", "upgrade") || !asks(r.Header, "Upgrade", "spdy/3.1"):
		http.Error(w, "you must upgrade the connection to SPDY/3.1", http.StatusBadRequest)
	case !asks(r.Header, "X-Stream-Protocol-Version", execProtocol):
		w.Header().Set("X-Accepted-Stream-Protocol-Versions", execProtocol)
		http.Error(w, "no protocol of streams is known on both sides", http.StatusForbidden)
	default:
		s, err := openStream(w, isTrue(query.Get("input")), isTrue(query.Get("output")), isTrue(query.Get("error")))
		if err != nil {
			k.log.Warn("the streams of a command are not opened", "pod", p.name(), "err", err)
			return
		}
		p.perform(s, in, query["command"])
	}
}

func isTrue(text string) bool { return text == "1" || text == "true" }

// asks reports whether one of a header's values, which may be lists with commas, is wanted.
func asks(h http.Header, name, want string) bool {
	return slices.ContainsFunc(h.Values(name), func(v string) bool {
		return slices.ContainsFunc(strings.Split(v, ","), func(one string) bool { return strings.EqualFold(strings.TrimSpace(one), want) })
	})
}

// runs reports whether a container of the pod runs.
func (p *pod) runs(name string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.running[name]
}

// stream has the streams of one command. Read is stdin, and Write is stdout.
type stream struct {
	raw    net.Conn
	conn   *spdystream.Connection
	status *spdystream.Stream
	in     *spdystream.Stream // nil without a stdin, as the next two
	out    *spdystream.Stream
	errs   *spdystream.Stream
}

// openStream takes over the connection of a request, and returns when the client has opened all streams.
func openStream(w http.ResponseWriter, in, out, errs bool) (*stream, error) {
	h := w.Header()
	h.Set("Connection", "Upgrade")
	h.Set("Upgrade", "SPDY/3.1")
	h.Set("X-Stream-Protocol-Version", execProtocol)
	w.WriteHeader(http.StatusSwitchingProtocols)
	c, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil, err
	}
	_ = c.SetDeadline(time.Time{})
	s := &stream{raw: c}
	if s.conn, err = spdystream.NewConnection(&hijacked{c, buffered.Reader}, true); err != nil {
		c.Close()
		return nil, err
	}
	opened := make(chan *spdystream.Stream, 8)
	go s.conn.Serve(func(one *spdystream.Stream) { // ends with the connection
		if one.SendReply(http.Header{}, false) != nil {
			return
		}
		select {
		case opened <- one:
		default:
			_ = one.Reset() // no exec has as many
		}
	})
	ctx, cancel := context.WithTimeout(context.Background(), streamsWait)
	defer cancel()
	for s.status == nil || in && s.in == nil || out && s.out == nil || errs && s.errs == nil {
		select {
		case one := <-opened:
			switch one.Headers().Get("streamType") {
			case "error":
				s.status = one
			case "stdin":
				s.in = one
			case "stdout":
				s.out = one
			case "stderr":
				s.errs = one
			}
		case <-s.conn.CloseChan():
			return nil, errors.New("the client is gone")
		case <-ctx.Done():
			s.conn.Close()
			return nil, fmt.Errorf("not all streams were opened within %v", streamsWait)
		}
	}
	return s, nil
}

// hijacked is a connection whose first bytes may have been read.
type hijacked struct {
	net.Conn
	r *bufio.Reader
}

func (h *hijacked) Read(p []byte) (int, error) { return h.r.Read(p) }

func (s *stream) Read(p []byte) (int, error) {
	if s.in == nil {
		return 0, errors.New("the command has no stdin")
	}
	return s.in.Read(p)
}

func (s *stream) Write(p []byte) (int, error) {
	if s.out == nil {
		return len(p), nil
	}
	return s.out.Write(p)
}

// Close ends the streams at once. A client that reads nothing has a moment to take what was written.
func (s *stream) Close() error {
	_ = s.raw.SetDeadline(time.Now().Add(closeWait))
	for _, one := range []*spdystream.Stream{s.in, s.out, s.errs, s.status} {
		if one != nil {
			_ = one.Reset()
		}
	}
	return s.conn.Close()
}
