package egress

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/internal/pattern"
	"github.com/ramus-dev/ramus/internal/redact"
)

// Prefix is the path of hosts at the door: /egress/HOST/PATH is https://HOST/PATH.
const Prefix = "/egress/"

// Bounds of a Reverse.
const (
	reverseAtOnce  = 64
	reverseHeaders = 64 << 10
	reverseBody    = 1 << 30 // of a request
)

// Reverse sends requests of a container on to allowed hosts over TLS, and adds headers that the container must not know.
// A program of the container uses http://127.0.0.1:7070/egress/HOST/ as the address of https://HOST/. Values of secrets
// are removed from the answers, because a host may repeat what it gets. Its fields are set before the first request. Its
// methods may be called concurrently.
type Reverse struct {
	// Proxy has the allowlist, and journals hosts.
	Proxy *Proxy
	// Header returns the header to add for a host (NAME, or NAME:PORT if the port is not 443), or nil. In its values, and
	// in those of the request's own header, "secret:NAME" is replaced by a secret.
	Header func(host string) Header
	// Value returns the value of a secret that is sent to host. trusted is set for a Header that is Trusted.
	Value func(ctx context.Context, name, host string, trusted bool) (string, error)
	// Secrets are removed from answers.
	Secrets *redact.Secrets

	once      sync.Once
	transport *http.Transport
	open      chan struct{}
}

// Header is a header that is added to requests.
type Header struct {
	Values map[string]string
	// Trusted is set for a header of the server's configuration, which may have any secret.
	Trusted bool
}

// secretRef matches the place of a secret.
var secretRef = pattern.New(`\bsecret:([A-Z][A-Z0-9_]{0,99})\b`)

func (v *Reverse) setUp() {
	v.transport = &http.Transport{
		DialContext:            v.Proxy.dial,
		DisableCompression:     true,
		ForceAttemptHTTP2:      true,
		MaxIdleConns:           16,
		IdleConnTimeout:        30 * time.Second,
		TLSHandshakeTimeout:    egressDial,
		ResponseHeaderTimeout:  egressIdle,
		MaxResponseHeaderBytes: reverseHeaders,
	}
	v.open = make(chan struct{}, reverseAtOnce)
}

// ServeHTTP serves the requests below Prefix.
func (v *Reverse) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	v.once.Do(v.setUp)
	target, host, port, err := reverseTarget(r.URL)
	if err != nil {
		http.Error(w, "ramus: "+err.Error(), http.StatusBadRequest)
		return
	}
	if !v.Proxy.allowed(host, port) {
		v.Proxy.note(host, port, record.EgressRefused)
		http.Error(w, refusal(host), http.StatusForbidden)
		return
	}
	v.Proxy.note(host, port, "allowed")
	select {
	case v.open <- struct{}{}:
		defer func() { <-v.open }()
	default:
		http.Error(w, "ramus: too many requests through the door at once", http.StatusServiceUnavailable)
		return
	}
	out, err := v.request(w, r, target)
	if err != nil {
		http.Error(w, "ramus: cannot send the request to "+target.Host+": "+v.Secrets.String(err.Error()),
			http.StatusForbidden)
		return
	}
	answer, err := v.transport.RoundTrip(out)
	if err != nil {
		http.Error(w, "ramus: cannot reach "+target.Host+": "+v.Secrets.String(err.Error()), http.StatusBadGateway)
		return
	}
	defer answer.Body.Close()
	v.answer(w, answer, target)
}

// reverseTarget returns the address that a path below Prefix means.
func reverseTarget(at *url.URL) (target *url.URL, host, port string, err error) {
	rest := strings.TrimPrefix(at.EscapedPath(), Prefix)
	name, path, _ := strings.Cut(rest, "/")
	name = strings.TrimSuffix(strings.ToLower(name), ".")
	host, port, err = net.SplitHostPort(name)
	if err != nil {
		host, port = strings.Trim(name, "[]"), "443"
	}
	if host == "" || len(host) > 253 || strings.ContainsAny(name, " \t\r\n\\@%?#") ||
		strings.ContainsFunc(port, func(r rune) bool { return r < '0' || r > '9' }) || port == "80" {
		return nil, "", "", fmt.Errorf("want %sHOST/PATH, or HOST:PORT, for an address that speaks HTTPS; %.100q is none", Prefix, at.EscapedPath())
	}
	target, err = url.Parse("https://" + name + "/" + path)
	if err != nil {
		return nil, "", "", errors.New("the path cannot be read")
	}
	target.RawQuery = at.RawQuery
	return target, host, port, nil
}

// hostOf returns the name of a host as secrets and headers name it.
func hostOf(target *url.URL) string {
	if p := target.Port(); p != "" && p != "443" {
		return net.JoinHostPort(target.Hostname(), p)
	}
	return target.Hostname()
}

// request returns the request that is sent on, with its secrets.
func (v *Reverse) request(w http.ResponseWriter, r *http.Request, target *url.URL) (*http.Request, error) {
	out, err := http.NewRequestWithContext(r.Context(), r.Method, target.String(), nil)
	if err != nil {
		return nil, err
	}
	if r.ContentLength != 0 {
		out.Body, out.ContentLength = http.MaxBytesReader(w, r.Body, reverseBody), r.ContentLength
	}
	out.Header = r.Header.Clone()
	for _, name := range strings.Split(r.Header.Get("Connection"), ",") {
		out.Header.Del(strings.TrimSpace(name))
	}
	for _, name := range hopHeaders {
		out.Header.Del(name)
	}
	out.Header.Set("Accept-Encoding", "identity") // an encoded answer cannot be searched for secrets
	at := hostOf(target)
	for name, values := range out.Header {
		for i, value := range values {
			if out.Header[name][i], err = v.fill(r.Context(), value, at, false); err != nil {
				return nil, err
			}
		}
	}
	add := v.Header(at)
	for name, value := range add.Values {
		if value, err = v.fill(r.Context(), value, at, add.Trusted); err != nil {
			return nil, err
		}
		out.Header.Set(name, value)
	}
	return out, nil
}

// fill puts secrets into a header's value, also into the credentials of Basic authentication.
func (v *Reverse) fill(ctx context.Context, value, host string, trusted bool) (string, error) {
	if scheme, coded, ok := strings.Cut(value, " "); ok && strings.EqualFold(scheme, "basic") {
		plain, err := base64.StdEncoding.DecodeString(coded)
		if err != nil {
			return value, nil
		}
		filled, err := v.fillPlain(ctx, string(plain), host, trusted)
		if err != nil || filled == string(plain) {
			return value, err
		}
		return scheme + " " + base64.StdEncoding.EncodeToString([]byte(filled)), nil
	}
	return v.fillPlain(ctx, value, host, trusted)
}

func (v *Reverse) fillPlain(ctx context.Context, value, host string, trusted bool) (string, error) {
	var b strings.Builder
	last := 0
	for _, m := range secretRef.FindAllStringSubmatchIndex(value, -1) {
		secret, err := v.Value(ctx, value[m[2]:m[3]], host, trusted)
		if err != nil {
			return "", err
		}
		if strings.ContainsAny(secret, "\r\n\x00") {
			return "", fmt.Errorf("the secret %s has several lines, which no header can have", value[m[2]:m[3]])
		}
		b.WriteString(value[last:m[0]])
		b.WriteString(secret)
		last = m[1]
	}
	if last == 0 {
		return value, nil
	}
	b.WriteString(value[last:])
	return b.String(), nil
}

// answer copies an answer without secrets.
func (v *Reverse) answer(w http.ResponseWriter, answer *http.Response, target *url.URL) {
	if coding := answer.Header.Get("Content-Encoding"); coding != "" && !strings.EqualFold(coding, "identity") {
		http.Error(w, fmt.Sprintf("ramus: %s answers in the encoding %.40q although it was asked not to", target.Host,
			coding), http.StatusBadGateway)
		return
	}
	for _, name := range append(hopHeaders, "Content-Length", "Alt-Svc") { // the length may change
		answer.Header.Del(name)
	}
	for name, values := range answer.Header {
		for i := range values {
			values[i] = v.Secrets.String(values[i])
		}
		w.Header()[name] = values
	}
	if to, err := url.Parse(answer.Header.Get("Location")); err == nil && to.Scheme == "https" && strings.EqualFold(to.Host, target.Host) {
		w.Header().Set("Location", Prefix+to.Host+to.RequestURI())
	}
	w.WriteHeader(answer.StatusCode)
	clean := v.Secrets.Writer(flushWriter{w})
	if _, err := io.Copy(clean, answer.Body); err != nil {
		panic(http.ErrAbortHandler) // the client must notice that the answer is not whole
	}
	_ = clean.Flush() // the client is gone, which is no fault of the answer
}
