package gateway

import (
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

// Links makes and checks links that open without a token: method, path and
// expiry are signed (HMAC-SHA256 over length-prefixed fields), nothing is stored.
// Whoever has such a link may read what it names until it expires, so it is
// shown only where the run itself is.
//
// A signed link is PATH?expires=SECONDS&signature=BASE64URL, the expiry in
// seconds since 1970. Other parameters are not signed: they may choose how a
// thing is shown, never which. All methods are safe for concurrent use.
type Links struct {
	Key []byte           // 32 bytes
	URL string           // where people reach the server; empty: links have only a path
	TTL time.Duration    // default 7 days
	Now func() time.Time // nil: time.Now
}

// DefaultLinkTTL is how long a link opens when nothing else is said.
const DefaultLinkTTL = 7 * 24 * time.Hour

// The parameters of a signed link.
const (
	linkExpires   = "expires"
	linkSignature = "signature"
)

// Why a link does not open.
var (
	errLinkUnsigned = errors.New("it is not signed")
	errLinkForged   = errors.New("its signature does not fit")
	errLinkExpired  = errors.New("it has expired")
)

// Sign returns the URL of a path ("/evidence/…", not escaped) with expiry and signature.
func (l *Links) Sign(path string) string {
	return strings.TrimSuffix(l.URL, "/") + l.until(path, l.expiry())
}

// expiry is when a link that is made now ends.
func (l *Links) expiry() time.Time {
	ttl := l.TTL
	if ttl <= 0 {
		ttl = DefaultLinkTTL
	}
	return l.now().Add(ttl)
}

// until is Sign for a given expiry, without the server's URL: for links from one page to another.
func (l *Links) until(path string, expires time.Time) string {
	seconds := strconv.FormatInt(expires.Unix(), 10)
	u := url.URL{Path: path, RawQuery: linkExpires + "=" + seconds + "&" + linkSignature + "=" +
		base64.RawURLEncoding.EncodeToString(l.sum(http.MethodGet, path, seconds))}
	return u.String()
}

// Check tells whether a request carries a signature for its method and path that has not expired.
func (l *Links) Check(r *http.Request) error {
	_, err := l.check(r)
	return err
}

// check is Check, and says until when the link opens.
func (l *Links) check(r *http.Request) (expires time.Time, err error) {
	q := r.URL.Query()
	if !q.Has(linkSignature) {
		return expires, errLinkUnsigned
	}
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet // what may be read may be asked about
	}
	got, err := base64.RawURLEncoding.Strict().DecodeString(q.Get(linkSignature))
	if err != nil || !hmac.Equal(got, l.sum(method, r.URL.Path, q.Get(linkExpires))) {
		return expires, errLinkForged
	}
	// The path was signed unescaped. An escaped slash would let it be cut into other names than it was signed with.
	if strings.Contains(strings.ToLower(r.URL.EscapedPath()), "%2f") {
		return expires, errLinkForged
	}
	seconds, err := strconv.ParseInt(q.Get(linkExpires), 10, 64)
	if err != nil {
		return expires, errLinkForged
	}
	if expires = time.Unix(seconds, 0); !l.now().Before(expires) {
		return expires, fmt.Errorf("%w at %s", errLinkExpired, expires.UTC().Format("2006-01-02 15:04 MST"))
	}
	return expires, nil
}

// sum is the signature. Each field stands behind its length: no two different
// requests have the same bytes. The first field keeps the key's other uses apart.
func (l *Links) sum(method, path, expires string) []byte {
	h := hmac.New(sha256.New, l.Key)
	for _, field := range []string{"ramus link 1", method, path, expires} {
		var length [8]byte
		binary.BigEndian.PutUint64(length[:], uint64(len(field)))
		h.Write(length[:])
		h.Write([]byte(field))
	}
	return h.Sum(nil)
}

func (l *Links) now() time.Time {
	if l.Now == nil {
		return time.Now()
	}
	return l.Now()
}

// Run is a link to the page of a run's evidence, Named the same by the run's
// name, File to one file of it by its name in the manifest.
func (l *Links) Run(r record.Run) string               { return l.Named(r.Name()) }
func (l *Links) Named(run string) string               { return l.Sign("/evidence/" + run) }
func (l *Links) File(r record.Run, name string) string { return l.Sign(filePath(r, name)) }

// View is a link that shows a picture of a run where File has it saved, Trace one that
// opens a trace in its viewer.
func (l *Links) View(run, name string) string { return l.named(run, name) + "&view=1" }
func (l *Links) Trace(run, name string) string {
	return strings.TrimSuffix(l.URL, "/") + tracePath + "index.html?trace=" + url.QueryEscape(l.named(run, name))
}

func (l *Links) named(run, name string) string { return l.Sign("/evidence/" + run + "/files/" + name) }

func runPath(r record.Run) string { return "/evidence/" + r.Name() }

func filePath(r record.Run, name string) string { return runPath(r) + "/files/" + name }
