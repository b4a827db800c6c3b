// Package links signs and checks links that open without a token.
package links

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
)

// Signer signs and checks links that open without a token. It stores nothing. A link holds an HMAC-SHA256 over method, path and
// expiry. Its holder may read its target until it expires, so a link appears only where the run itself does.
//
// A link is PATH?expires=SECONDS&signature=BASE64URL, with the expiry in seconds since 1970. Other parameters are not signed. They may
// choose a view of the target, never another target. All methods may be called concurrently.
type Signer struct {
	Key []byte           // 32 bytes
	URL string           // of the server, as people reach it; if empty, links are paths
	TTL time.Duration    // default 7 days
	Now func() time.Time // nil means time.Now
}

// DefaultTTL is the default of TTL.
const DefaultTTL = 7 * 24 * time.Hour

// The parameters of a signed link.
const (
	expiresParameter = "expires"
	// SignatureParameter is the parameter that holds the secret of a link.
	SignatureParameter = "signature"
)

// Query is the query of a signed link, for tables of routes.
type Query struct {
	Expires   string `json:"expires,omitempty" jsonschema:"of a signed link: when it ends, in seconds since 1970"`
	Signature string `json:"signature,omitempty" jsonschema:"of a signed link"`
}

// Reasons for which a link does not open.
var (
	ErrUnsigned = errors.New("it is not signed")
	ErrForged   = errors.New("its signature does not fit")
	ErrExpired  = errors.New("it has expired")
)

// Sign returns the URL of path ("/evidence/…", not escaped) with expiry and signature.
func (l *Signer) Sign(path string) string {
	return strings.TrimSuffix(l.URL, "/") + l.SignUntil(path, l.Expiry())
}

// Expiry returns the expiry of a link that is signed now.
func (l *Signer) Expiry() time.Time {
	ttl := l.TTL
	if ttl <= 0 {
		ttl = DefaultTTL
	}
	return l.now().Add(ttl)
}

// SignUntil returns path with the given expiry and its signature, and without the server's URL.
func (l *Signer) SignUntil(path string, expires time.Time) string {
	seconds := strconv.FormatInt(expires.Unix(), 10)
	u := url.URL{Path: path, RawQuery: expiresParameter + "=" + seconds + "&" + SignatureParameter + "=" +
		base64.RawURLEncoding.EncodeToString(l.sum(http.MethodGet, path, seconds))}
	return u.String()
}

// ErrAddress is the error of [Signer.Address].
var ErrAddress = errors.New("this server does not know where people reach it")

// Address returns the first of the addresses at which people may reach the server that is known, without a slash at its end: the one of the
// request, the URL of the server, and the one for this machine. Returns [ErrAddress] if none is.
func (l *Signer) Address(ofRequest, loopback string) (string, error) {
	address := cmp.Or(ofRequest, l.URL, loopback)
	if address == "" {
		return "", ErrAddress
	}
	return strings.TrimSuffix(address, "/"), nil
}

// Check returns nil if the request has a signature for its method and path that has not expired. The error is [ErrUnsigned],
// [ErrForged] or [ErrExpired].
func (l *Signer) Check(r *http.Request) error {
	_, err := l.Expires(r)
	return err
}

// Expires returns the expiry of the request's signature. See [Signer.Check] for the error.
func (l *Signer) Expires(r *http.Request) (expires time.Time, err error) {
	q := r.URL.Query()
	if !q.Has(SignatureParameter) {
		return expires, ErrUnsigned
	}
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet // a link for GET is good for HEAD
	}
	got, err := base64.RawURLEncoding.Strict().DecodeString(q.Get(SignatureParameter))
	if err != nil || !hmac.Equal(got, l.sum(method, r.URL.Path, q.Get(expiresParameter))) {
		return expires, ErrForged
	}
	// The signed path is not escaped. An escaped slash would change where its names end.
	if strings.Contains(strings.ToLower(r.URL.EscapedPath()), "%2f") {
		return expires, ErrForged
	}
	seconds, err := strconv.ParseInt(q.Get(expiresParameter), 10, 64)
	if err != nil {
		return expires, ErrForged
	}
	if expires = time.Unix(seconds, 0); !l.now().Before(expires) {
		return expires, fmt.Errorf("%w at %s", ErrExpired, expires.UTC().Format("2006-01-02 15:04 MST"))
	}
	return expires, nil
}

// sum returns the signature. Each field follows its length, so that different requests never have the same bytes. The first field
// separates links from other uses of the key.
func (l *Signer) sum(method, path, expires string) []byte {
	h := hmac.New(sha256.New, l.Key)
	for _, field := range []string{"ramus link 1", method, path, expires} {
		var length [8]byte
		binary.BigEndian.PutUint64(length[:], uint64(len(field)))
		h.Write(length[:])
		h.Write([]byte(field))
	}
	return h.Sum(nil)
}

func (l *Signer) now() time.Time {
	if l.Now == nil {
		return time.Now()
	}
	return l.Now()
}

// Run returns a link to the page of a run's evidence.
func (l *Signer) Run(r record.Run) string { return l.Named(r.Name()) }

// Named returns a link to the page of the evidence of a run, by the run's name.
func (l *Signer) Named(run string) string { return l.Sign("/evidence/" + run) }

// File returns a link to a file of a run's evidence, by its name in the manifest.
func (l *Signer) File(r record.Run, name string) string { return l.Sign(FilePath(r, name)) }

// View returns a link that shows a picture of a run in the browser. A link of [Signer.File] downloads it.
func (l *Signer) View(run, name string) string { return l.named(run, name) + "&view=1" }

// Trace returns a link that opens a trace of a run in the trace viewer.
func (l *Signer) Trace(run, name string) string {
	return strings.TrimSuffix(l.URL, "/") + TracePath + "index.html?trace=" + url.QueryEscape(l.named(run, name))
}

func (l *Signer) named(run, name string) string { return l.Sign("/evidence/" + run + "/files/" + name) }

// RunPath returns the path of the page of a run's evidence.
func RunPath(r record.Run) string { return "/evidence/" + r.Name() }

// PreviewPath returns the path that links to a port of a caller's container are signed for.
func PreviewPath(caller record.Caller, port int) string {
	return fmt.Sprintf("/preview/%s/%d/", caller, port)
}

// FilePath returns the path of a file of a run's evidence.
func FilePath(r record.Run, name string) string { return RunPath(r) + "/files/" + name }

// TracePath is the path of the trace viewer.
const TracePath = "/trace/"

// passMethod is signed instead of a request's method, since a pass is good for all methods.
const passMethod = "PREVIEW"

// Pass returns SECONDS.SIGNATURE, which opens a path for all methods until a time. It may be a part of a path or a cookie.
func (l *Signer) Pass(path string, until time.Time) string {
	seconds := strconv.FormatInt(until.Unix(), 10)
	return seconds + "." + base64.RawURLEncoding.EncodeToString(l.sum(passMethod, path, seconds))
}

// CheckPass returns the time until which a pass opens path. The error is [ErrForged] or [ErrExpired].
func (l *Signer) CheckPass(path, pass string) (until time.Time, err error) {
	seconds, signature, ok := strings.Cut(pass, ".")
	got, err := base64.RawURLEncoding.Strict().DecodeString(signature)
	if !ok || err != nil || !hmac.Equal(got, l.sum(passMethod, path, seconds)) {
		return until, ErrForged
	}
	n, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return until, ErrForged
	}
	if until = time.Unix(n, 0); !l.now().Before(until) {
		return until, fmt.Errorf("%w at %s", ErrExpired, until.UTC().Format("2006-01-02 15:04:05 UTC"))
	}
	return until, nil
}
