// Package fallback sends threads to a runner elsewhere. One signed HTTP request has the whole thread, and its answer a
// text to post.
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
// The runner checks the signature over the raw body in constant time, refuses a timestamp that is more than five
// minutes off, and answers
//
//	200 {"text": "…"}      posted in the thread
//	202                    accepted; the runner posts by itself later
//	409 {"text": "…"}      the key was answered before, with this
//	409                    the key is in progress; retried later
//	408, 425, 429, 5xx     retried, after Retry-After if it is given
//
// Any other answer is final. The body is the same, byte for byte, in all attempts, and each time the same thread is
// sent again.
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

// Headers of a request.
const (
	HeaderKey       = "Idempotency-Key"
	HeaderTimestamp = "X-Ramus-Timestamp"
	HeaderSignature = "X-Ramus-Signature"
)

// Skew bounds the difference of a request's timestamp, in both directions.
const Skew = 5 * time.Minute

// Bounds on an exchange.
const (
	maxAnswer = 256 << 10
	maxPause  = time.Minute // between attempts
	maxAsked  = time.Hour   // between attempts if the runner asks for it
	maxSaid   = 500         // bytes of an error text of the runner
)

// ErrRefused means that the runner refuses the thread or gave an invalid answer. A retry does not help.
var ErrRefused = errors.New("the fallback runner refuses")

// Client sends threads to a runner. Its fields are its options and may be changed until the first Send. Send is safe
// for concurrent use.
type Client struct {
	URL    string // the runner's address for threads
	Secret string // for the signatures of requests
	// Timeout bounds one attempt. The default is 2 min, because a runner may do the work before it answers.
	Timeout time.Duration
	// HTTP makes the requests. If it is nil, the client makes its own. Redirects are never followed, because they would
	// send the thread to unknown servers.
	HTTP *http.Client
	// Now is the clock of timestamps. If it is nil, it is time.Now.
	Now func() time.Time
	// Sleep pauses between attempts, for tests. If it is nil, it uses real time.
	Sleep func(ctx context.Context, d time.Duration) error
}

// Packet is the content of a request. It has nothing about ramus's own runner or gate. So a thread that the gate
// rejects looks the same as one without a gate.
type Packet struct {
	Session string          `json:"session"`
	Key     string          `json:"key"`
	Mention slack.Mention   `json:"mention"`
	Text    string          `json:"text"`
	Thread  slack.Thread    `json:"thread"`
	Tools   json.RawMessage `json:"tools"` // the catalog, with the fallback alone
}

// Answer is the answer of the runner. If it is accepted without Text, the runner posts by itself later.
type Answer struct {
	Text     string `json:"text"`
	Accepted bool   `json:"-"`
}

// Check returns an error if an option is wrong.
func (c *Client) Check() error {
	u, err := url.Parse(c.URL)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		// The URL itself is not quoted, because it may have a token.
		return errors.New("cannot use the fallback runner: its URL must be like https://runner.example.org/threads")
	case u.User != nil || u.Fragment != "":
		return errors.New("cannot use the fallback runner: its URL must have no user and no fragment")
	case c.Secret == "":
		return errors.New("cannot use the fallback runner: there is no secret to sign requests with")
	}
	return nil
}

// Body returns the bytes of the packet. They are the same for the same packet, independent of the time zone of its
// times and of nil lists.
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

// Sign returns the value of [HeaderSignature] for a body and a [HeaderTimestamp].
func Sign(secret, timestamp string, body []byte) string {
	mac := hmac.New(sha256.New, []byte(secret))
	io.WriteString(mac, "v0:"+timestamp+":")
	mac.Write(body)
	return "v0=" + hex.EncodeToString(mac.Sum(nil))
}

// Send sends a packet. It retries temporary failures until ctx ends. The packet's key is the Idempotency-Key. The error
// wraps [ErrRefused], or that of the context together with the last failure.
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

// once makes one attempt. An error other than ErrRefused is temporary. wait is the pause that the runner asked for, or
// 0.
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
			err = u.Err // without the URL, which may have a token
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

// read interprets an answer.
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
	case status == http.StatusRequestTimeout, status == http.StatusTooEarly, status == http.StatusTooManyRequests,
		status >= 500:
		return Answer{}, retry.After(resp.Header.Get("Retry-After"), c.now(), maxAsked),
			fmt.Errorf("the fallback runner is busy: status %d%s", status, c.errorText(b))
	}
	return Answer{}, 0, fmt.Errorf("%w: status %d%s", ErrRefused, status, c.errorText(b))
}

// errorText returns the beginning of the runner's text about an error, without the secret, which a careless runner may
// repeat.
func (c *Client) errorText(b []byte) string {
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
