// Package fallback hands threads over to a runner elsewhere: one signed HTTP
// request with the whole thread, answered with a text to post.
//
// # The protocol
//
// The request is a POST of a [Packet] as JSON with the headers
//
//	Content-Type: application/json
//	Idempotency-Key: the packet's key, the same in every attempt
//	X-Ramus-Timestamp: seconds since 1970, of this attempt
//	X-Ramus-Signature: v0= and the hexadecimal HMAC-SHA256, under the shared
//	    secret, of "v0:" TIMESTAMP ":" BODY
//
// The runner checks the signature over the raw body in constant time, refuses a
// timestamp that is more than five minutes off, and answers
//
//	200 {"text": "…"}      posted in the thread
//	202                    accepted: the runner posts by itself later
//	409 {"text": "…"}      the key was answered before, with this
//	409                    the key is being worked on: asked again later
//	408, 425, 429, 5xx     asked again, after Retry-After where that is given
//
// Any other answer is final. The body is the same, byte for byte, in all
// attempts, and whenever the same thread is handed over again.
package fallback

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/gateway/retry"
	"github.com/ramus-dev/ramus/gateway/slack"
	"github.com/ramus-dev/ramus/internal/text"
)

// The headers of a request.
const (
	HeaderKey       = "Idempotency-Key"
	HeaderTimestamp = "X-Ramus-Timestamp"
	HeaderSignature = "X-Ramus-Signature"
)

// Skew is how far a request's timestamp may be off, either way.
const Skew = 5 * time.Minute

// Bounds of an exchange.
const (
	maxAnswer = 256 << 10
	maxPause  = time.Minute // between attempts
	maxAsked  = time.Hour   // the same, where the runner asks for it
	maxSaid   = 500         // of an error text of the runner's
)

// ErrRefused: the runner does not take the thread, or gave an answer that is
// none; asking again does not help.
var ErrRefused = errors.New("the fallback runner refuses")

// Client hands over. Its fields are its options and may be changed until the
// first Send. Send is safe for concurrent use.
type Client struct {
	URL    string // where the runner takes threads
	Secret string // signs each request
	// Timeout of one attempt; default 2 min: a runner may answer only when it has done the work.
	Timeout time.Duration
	// HTTP makes the requests; nil means one of its own. Redirects are never
	// followed: they would carry the thread to who knows whom.
	HTTP *http.Client
	// Now is the clock of timestamps; nil means time.Now.
	Now func() time.Time
	// Sleep pauses between attempts; nil means real time. For tests.
	Sleep func(ctx context.Context, d time.Duration) error
}

// Packet is what is handed over. It says nothing about ramus's own runner or
// gate: a thread that is not let through looks the same as when there is no gate.
type Packet struct {
	Session string          `json:"session"`
	Key     string          `json:"key"`
	Mention slack.Mention   `json:"mention"`
	Text    string          `json:"text"`
	Thread  slack.Thread    `json:"thread"`
	Tools   json.RawMessage `json:"tools"` // the catalog: the fallback alone
}

// Answer is what the runner says. Accepted without Text: it posts by itself later.
type Answer struct {
	Text     string `json:"text"`
	Accepted bool   `json:"-"`
}

// Check tells what is wrong with the options.
func (c *Client) Check() error {
	u, err := url.Parse(c.URL)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		// The URL itself is not quoted: it may hold a token.
		return errors.New("cannot use the fallback runner: its URL must be like https://runner.example.org/threads")
	case u.User != nil || u.Fragment != "":
		return errors.New("cannot use the fallback runner: its URL must have no user and no fragment")
	case c.Secret == "":
		return errors.New("cannot use the fallback runner: there is no secret to sign requests with")
	}
	return nil
}

// Body is the packet as it is sent: the same bytes for the same packet, whatever
// time zone its times are in and whether its empty lists are nil.
func (p Packet) Body() ([]byte, error) {
	p.Mention.Time = p.Mention.Time.UTC().Round(0)
	if p.Thread.Replies == nil {
		p.Thread.Replies = []slack.Post{}
	}
	if len(p.Tools) == 0 {
		p.Tools = json.RawMessage("[]")
	}
	b, err := json.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("cannot write the thread %s down: %w", p.Session, err)
	}
	return b, nil
}

// Sign is the value of [HeaderSignature] for a body and a [HeaderTimestamp].
func Sign(secret, timestamp string, body []byte) string {
	mac := hmac.New(sha256.New, []byte(secret))
	io.WriteString(mac, "v0:"+timestamp+":")
	mac.Write(body)
	return "v0=" + hex.EncodeToString(mac.Sum(nil))
}

// Send hands over and waits out failures that may pass until ctx ends. The
// packet's key goes along as Idempotency-Key. The error wraps [ErrRefused], or
// the context's together with the last failure.
func (c *Client) Send(ctx context.Context, p Packet) (Answer, error) {
	if err := c.Check(); err != nil {
		return Answer{}, err
	}
	body, err := p.Body()
	if err != nil {
		return Answer{}, err
	}
	pause := c.Sleep
	if pause == nil {
		pause = retry.Sleep
	}
	for failures := 1; ; failures++ {
		answer, wait, err := c.once(ctx, p.Key, body)
		if err == nil {
			return answer, nil
		}
		err = fmt.Errorf("cannot hand the thread %s over: %w", p.Session, err)
		if errors.Is(err, ErrRefused) {
			return Answer{}, err
		}
		if wait == 0 {
			wait = retry.Backoff(failures, maxPause)
		}
		if over := pause(ctx, wait); over != nil {
			return Answer{}, errors.Join(err, over)
		}
	}
}

// once makes one attempt; an error that is not ErrRefused may pass, and wait is
// how long the runner asked to wait, or 0.
func (c *Client) once(ctx context.Context, key string, body []byte) (_ Answer, wait time.Duration, err error) {
	timeout := c.Timeout
	if timeout <= 0 {
		timeout = 2 * time.Minute
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.URL, bytes.NewReader(body))
	if err != nil {
		return Answer{}, 0, fmt.Errorf("%w: its URL cannot be used", ErrRefused)
	}
	timestamp := strconv.FormatInt(c.now().Unix(), 10)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json")
	r.Header.Set("User-Agent", "ramus")
	r.Header.Set(HeaderKey, key)
	r.Header.Set(HeaderTimestamp, timestamp)
	r.Header.Set(HeaderSignature, Sign(c.Secret, timestamp, body))
	resp, err := c.client().Do(r)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err // without the URL, which may hold a token
		}
		return Answer{}, 0, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return Answer{}, 0, fmt.Errorf("the answer broke off: %w", err)
	}
	return c.read(resp, b)
}

// read makes sense of an answer.
func (c *Client) read(resp *http.Response, b []byte) (_ Answer, wait time.Duration, err error) {
	status := resp.StatusCode
	switch {
	case len(b) > maxAnswer:
		return Answer{}, 0, fmt.Errorf("%w: its answer is larger than %d bytes", ErrRefused, maxAnswer)
	case status == http.StatusAccepted:
		return Answer{Accepted: true}, 0, nil
	case status == http.StatusOK, status == http.StatusConflict:
		var a Answer
		if json.Unmarshal(b, &a) == nil && strings.TrimSpace(a.Text) != "" {
			return Answer{Text: a.Text}, 0, nil
		}
		if status == http.StatusOK {
			return Answer{}, 0, fmt.Errorf(`%w: its answer is not {"text": "…"}`, ErrRefused)
		}
		fallthrough
	case status == http.StatusRequestTimeout, status == http.StatusTooEarly, status == http.StatusTooManyRequests, status >= 500:
		return Answer{}, retry.After(resp.Header.Get("Retry-After"), c.now(), maxAsked),
			fmt.Errorf("the fallback runner is busy: status %d%s", status, c.said(b))
	}
	return Answer{}, 0, fmt.Errorf("%w: status %d%s", ErrRefused, status, c.said(b))
}

// said is the beginning of the runner's own words about an error, without the
// secret, which a careless one may repeat.
func (c *Client) said(b []byte) string {
	said := strings.ReplaceAll(string(b), c.Secret, "[secret]")
	said = strings.Join(strings.Fields(strings.ToValidUTF8(said, "\uFFFD")), " ")
	if said == "" {
		return ""
	}
	return ": " + text.Clip(said, maxSaid)
}

func (c *Client) now() time.Time {
	if c.Now == nil {
		return time.Now()
	}
	return c.Now()
}

func (c *Client) client() *http.Client {
	var own http.Client
	if c.HTTP != nil {
		own = *c.HTTP
	}
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &own
}
