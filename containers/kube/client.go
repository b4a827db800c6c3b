package kube

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"
)

// Client sends requests to one API server. All methods may be called concurrently.
type Client struct {
	config   Config
	base     *url.URL
	tls      *tls.Config
	http     *http.Client
	requests atomic.Int64
}

// maxAnswer bounds the answer to a request, in bytes. A list of 1000 pods has some megabytes.
const maxAnswer = 64 << 20

// New returns a client. It opens no connection.
func New(c Config) (*Client, error) {
	base, err := url.Parse(c.Server)
	if err != nil || base.Scheme != "https" && base.Scheme != "http" || base.Host == "" {
		return nil, fmt.Errorf("cannot use the API server's address %q: it is not https://HOST", c.Server)
	}
	client := &Client{config: c, base: base, tls: &tls.Config{ServerName: c.ServerName, MinVersion: tls.VersionTLS12}}
	if len(c.CA) > 0 {
		client.tls.RootCAs = x509.NewCertPool()
		if !client.tls.RootCAs.AppendCertsFromPEM(c.CA) {
			return nil, errors.New("cannot use the certificate of the API server's authority: it is not PEM")
		}
	}
	client.tls.GetClientCertificate = func(r *tls.CertificateRequestInfo) (*tls.Certificate, error) {
		if c.credential == nil {
			return &tls.Certificate{}, nil
		}
		found, err := c.credential(r.Context())
		if err != nil || found.certificate == nil {
			return &tls.Certificate{}, err
		}
		return found.certificate, nil
	}
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, DialContext: c.Dial,
		TLSClientConfig:   client.tls.Clone(),
		ForceAttemptHTTP2: true, MaxIdleConnsPerHost: 16, IdleConnTimeout: 90 * time.Second,
		TLSHandshakeTimeout: 10 * time.Second,
		// A connection whose other side is gone is found by its silence.
		HTTP2: &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second}}
	client.http = &http.Client{Transport: transport}
	return client, nil
}

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Server returns the address of the API server.
func (c *Client) Server() string { return c.config.Server }

// Requests returns the number of requests so far.
func (c *Client) Requests() int64 { return c.requests.Load() }

// StatusError is a refusal of the API server.
type StatusError struct {
	Code    int    // HTTP status
	Reason  string // one word, as NotFound
	Message string
	// RetryAfter is the time after which the server wants to be asked again. 0 means that it names none.
	RetryAfter time.Duration
}

func (e *StatusError) Error() string {
	if e.Message == "" {
		return fmt.Sprintf("the API server answers %d %s", e.Code, http.StatusText(e.Code))
	}
	return e.Message
}

// IsCode reports whether err is a [StatusError] with one of the HTTP statuses.
func IsCode(err error, codes ...int) bool {
	var status *StatusError
	if !errors.As(err, &status) {
		return false
	}
	for _, code := range codes {
		if status.Code == code {
			return true
		}
	}
	return false
}

// Types of the body of a PATCH.
const (
	MergePatch     = "application/merge-patch+json"
	StrategicPatch = "application/strategic-merge-patch+json"
)

// Do sends a request. body is encoded as JSON unless it is nil, and the answer is decoded into answer unless that is
// nil. The method PATCH sends a [MergePatch].
func (c *Client) Do(ctx context.Context, method, path string, query url.Values, body, answer any) error {
	var in io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return fmt.Errorf("cannot encode a request: %w", err)
		}
		in = bytes.NewReader(b)
	}
	r, err := c.request(ctx, method, path, query, in)
	if err != nil {
		return err
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if method == http.MethodPatch {
		r.Header.Set("Content-Type", MergePatch)
	}
	resp, err := c.http.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if resp.StatusCode/100 != 2 {
		return statusError(resp, text)
	}
	if err == nil && len(text) > maxAnswer {
		err = fmt.Errorf("the API server's answer has more than %d bytes", maxAnswer)
	}
	if err == nil && answer != nil {
		err = json.Unmarshal(text, answer)
	}
	if err != nil {
		return fmt.Errorf("cannot read the API server's answer: %w", err)
	}
	return nil
}

// request makes a request with the credential.
func (c *Client) request(ctx context.Context, method, path string, query url.Values,
	body io.Reader) (*http.Request, error) {
	c.requests.Add(1)
	u := *c.base
	u.Path += path
	u.RawQuery = query.Encode()
	r, err := http.NewRequestWithContext(ctx, method, u.String(), body)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", "application/json")
	r.Header.Set("User-Agent", "ramus")
	return r, c.authorize(ctx, r.Header)
}

func (c *Client) authorize(ctx context.Context, h http.Header) error {
	if c.config.credential == nil {
		return nil
	}
	found, err := c.config.credential(ctx)
	if err == nil && found.token != "" {
		h.Set("Authorization", "Bearer "+found.token)
	}
	return err
}

// statusError makes an error of a refusal. text is a Status object, or the text of a proxy.
func statusError(resp *http.Response, text []byte) error {
	e := &StatusError{Code: resp.StatusCode}
	if kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); kind == "application/json" {
		var s status
		if json.Unmarshal(text, &s) == nil {
			e.Reason, e.Message = s.Reason, s.Message
		}
	}
	if n, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && n > 0 {
		e.RetryAfter = time.Duration(min(n, 3600)) * time.Second
	}
	return e
}

// status is the object of that kind.
type status struct {
	Status  string `json:"status"`
	Message string `json:"message"`
	Reason  string `json:"reason"`
	Code    int    `json:"code"`
	Details struct {
		Causes []struct {
			Reason  string `json:"reason"`
			Message string `json:"message"`
		} `json:"causes"`
	} `json:"details"`
}
