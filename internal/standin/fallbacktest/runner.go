// Package fallbacktest is a stand-in of a fallback runner. It is an HTTP server with state that accepts threads from
// package fallback, checks their signatures and remembers its responses. It can be busy, slow or down, and can omit
// responses.
package fallbacktest

import (
	"bytes"
	"crypto/hmac"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/gateway/fallback"
)

// Secret is the default secret of the signatures.
const Secret = "stand-in-of-the-fallback-runner"

// Runner is the stand-in, an http.Handler that accepts threads at any path. Its exported fields are its options and may
// change until the first request. It is safe for concurrent use.
type Runner struct {
	// Secret of the signatures; default [Secret].
	Secret string
	// Answer returns the text to post. If it is nil, the text is a line with the session and the request.
	Answer func(fallback.Packet) string
	// Accept responds with 202, as a runner that posts by itself later.
	Accept bool
	// Now is the clock for the check of timestamps. Nil means time.Now.
	Now func() time.Time

	mu       sync.Mutex // guards the fields below
	requests []Request
	faults   []Fault
	done     map[string]*work // by idempotency key
}

// work is an accepted thread.
type work struct {
	body []byte
	text string
}

// Request is a request as received.
type Request struct {
	Method string
	Header http.Header
	Body   []byte
	Status int // of the response; 0 means that there was none
}

// Fault is the failure of one request.
type Fault struct {
	Status     int    // respond with it, and do not accept the thread
	RetryAfter string // header
	Body       string
	// Lose accepts the thread, then breaks the connection instead of responding.
	Lose bool
	// Hold waits before the thread is accepted, until the channel is closed or the client has disconnected.
	Hold <-chan struct{}
	// Held, when set, is closed when the wait begins.
	Held chan<- struct{}
	// Location redirects the client to this URL.
	Location string
}

// New starts a stand-in on loopback. The caller closes the returned server.
func New() (*Runner, *httptest.Server) {
	r := &Runner{}
	return r, httptest.NewServer(r)
}

// Fail makes the next requests fail, one for each fault.
func (r *Runner) Fail(faults ...Fault) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.faults = append(r.faults, faults...)
}

// Requests returns all requests so far, including refused ones.
func (r *Runner) Requests() []Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.requests)
}

// Taken returns the number of accepted threads. Each key counts once.
func (r *Runner) Taken() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.done)
}

func (r *Runner) now() time.Time {
	if r.Now == nil {
		return time.Now()
	}
	return r.Now()
}

// answer is the response to a request.
type answer struct {
	status     int
	text       string // 200, 409
	said       string // any other
	retryAfter string
	location   string
}

// maxBody is larger than any thread.
const maxBody = 64 << 20

// ServeHTTP implements http.Handler.
func (r *Runner) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	body, err := io.ReadAll(io.LimitReader(q.Body, maxBody))
	if err != nil {
		return // the client has disconnected
	}
	r.mu.Lock()
	var f Fault
	if len(r.faults) > 0 {
		f, r.faults = r.faults[0], r.faults[1:]
	}
	r.requests = append(r.requests, Request{Method: q.Method, Header: q.Header.Clone(), Body: body})
	i := len(r.requests) - 1
	r.mu.Unlock()
	if f.Hold != nil {
		if f.Held != nil {
			close(f.Held)
		}
		select {
		case <-f.Hold:
		case <-q.Context().Done():
			return
		}
	}
	a := answer{status: f.Status, said: f.Body, retryAfter: f.RetryAfter, location: f.Location}
	if a.status == 0 {
		a = r.take(q, body)
	}
	if f.Lose {
		panic(http.ErrAbortHandler)
	}
	r.mu.Lock()
	r.requests[i].Status = a.status
	r.mu.Unlock()
	a.write(w)
}

func (a answer) write(w http.ResponseWriter) {
	h := w.Header()
	if a.retryAfter != "" {
		h.Set("Retry-After", a.retryAfter)
	}
	if a.location != "" {
		h.Set("Location", a.location)
	}
	b := []byte(a.said)
	if a.text != "" {
		h.Set("Content-Type", "application/json")
		b, _ = json.Marshal(fallback.Answer{Text: a.text}) // a string
	}
	w.WriteHeader(a.status)
	_, _ = w.Write(b) // the client need not read the response
}

// take checks a request and accepts its thread, once for each key.
func (r *Runner) take(q *http.Request, body []byte) answer {
	if no := r.check(q, body); no != nil {
		return *no
	}
	var p fallback.Packet
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	key := q.Header.Get(fallback.HeaderKey)
	if err := d.Decode(&p); err != nil || p.Key != key || p.Session == "" || p.Text == "" {
		return answer{status: http.StatusBadRequest,
			said: fmt.Sprintf("the body is no packet with the key %s: %v", key, err)}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if old := r.done[key]; old != nil {
		if !bytes.Equal(old.body, body) {
			return answer{status: http.StatusUnprocessableEntity, said: "this key came with another body before"}
		}
		if r.Accept {
			return answer{status: http.StatusAccepted}
		}
		return answer{status: http.StatusConflict, text: old.text}
	}
	n := &work{body: body}
	if r.done == nil {
		r.done = make(map[string]*work)
	}
	r.done[key] = n
	if r.Accept {
		return answer{status: http.StatusAccepted}
	}
	n.text = fmt.Sprintf("The fallback runner works on %s: %s", p.Session, p.Text)
	if r.Answer != nil {
		n.text = r.Answer(p)
	}
	return answer{status: http.StatusOK, text: n.text}
}

// check refuses a request that is not signed or too old.
func (r *Runner) check(q *http.Request, body []byte) *answer {
	secret := r.Secret
	if secret == "" {
		secret = Secret
	}
	timestamp := q.Header.Get(fallback.HeaderTimestamp)
	at, err := strconv.ParseInt(timestamp, 10, 64)
	off := r.now().Sub(time.Unix(at, 0)).Abs()
	switch {
	case q.Method != http.MethodPost:
		return &answer{status: http.StatusMethodNotAllowed, said: "want POST"}
	case q.Header.Get("Content-Type") != "application/json":
		return &answer{status: http.StatusUnsupportedMediaType, said: "want application/json"}
	case err != nil || off > fallback.Skew:
		return &answer{status: http.StatusUnauthorized, said: "the timestamp is missing or more than five minutes off"}
	case !hmac.Equal([]byte(q.Header.Get(fallback.HeaderSignature)), []byte(fallback.Sign(secret, timestamp, body))):
		return &answer{status: http.StatusUnauthorized, said: "the signature is wrong"}
	case q.Header.Get(fallback.HeaderKey) == "":
		return &answer{status: http.StatusBadRequest, said: fallback.HeaderKey + " is missing"}
	}
	return nil
}
