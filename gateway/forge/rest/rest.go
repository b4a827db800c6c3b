package rest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/gateway/forge"
	"github.com/ramus-dev/ramus/gateway/retry"
	"github.com/ramus-dev/ramus/internal/text"
)

const (
	maxAnswer   = 64 << 20         // bytes of an answer
	attemptTime = 30 * time.Second // for one attempt
	concurrency = 8                // requests at once; those that write are made one after another
	redirects   = 5                // maximum
)

// Client makes requests to one forge. Its exported fields are its options and may be changed until the first call.
// Methods are safe for concurrent use.
type Client struct {
	// Site is the title of the forge, for errors.
	Site string
	// URL is the address of the API, such as https://gitlab.com/api/v4.
	URL string
	// Authorize adds the token to a request. Required.
	Authorize func(*http.Request)
	HTTP      *http.Client // if nil, the default one; each attempt ends after 30 s
	Log       *slog.Logger
	// Now and Sleep are the clock. A test replaces both or none.
	Now   func() time.Time
	Sleep func(ctx context.Context, d time.Duration) error
	// Patience is the longest pause that the client chooses itself. The default is 1 min.
	Patience time.Duration

	once  sync.Once
	base  *url.URL
	bad   error // the error of an invalid URL
	lanes retry.Lanes
}

// Request is a request to the API.
type Request struct {
	// What completes "cannot WHAT" in errors.
	What   string
	Method string // default GET
	// Path is below the URL, with escaped parts: "/projects/1/merge_requests".
	Path  string
	Query url.Values
	Body  any // is sent as JSON; nil means none
	// Done is called before every attempt after one that may have been performed, and reports whether it was. Nil means
	// that a second attempt does no harm.
	Done func() (bool, error)

	absolute string // an address of the forge in place of Path and Query
}

// Path returns a path of escaped parts.
func Path(parts ...string) string {
	var b strings.Builder
	for _, p := range parts {
		b.WriteString("/" + url.PathEscape(p))
	}
	return b.String()
}

// Refuse returns a refusal without a request.
func (c *Client) Refuse(format string, args ...any) error {
	return &forge.RefusedError{Forge: c.Site, Message: fmt.Sprintf(format, args...)}
}

// errEmpty means that a successful answer lacks the requested data, like the answers of systems between the forge and
// ramus.
var errEmpty = errors.New("the answer does not have what was asked for")

func (c *Client) setup() error {
	c.once.Do(func() {
		u, err := url.Parse(strings.TrimSuffix(c.URL, "/"))
		if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
			c.bad = c.Refuse("%.200q is no URL of an API", c.URL)
			return
		}
		c.base = u
		c.HTTP = cmp.Or(c.HTTP, http.DefaultClient)
		c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
		c.Patience = cmp.Or(c.Patience, time.Minute)
		if c.Now == nil {
			c.Now = time.Now
		}
		if c.Sleep == nil {
			c.Sleep = retry.Sleep
		}
		c.lanes.Now, c.lanes.Sleep = c.Now, c.Sleep
	})
	return c.bad
}

// Do makes a request and decodes the answer into out, which may be nil. Returns the header of the answer. check, if not
// nil, reports whether out has the requested object.
func (c *Client) Do(ctx context.Context, r Request, out any, check func() bool) (http.Header, error) {
	if err := c.setup(); err != nil {
		return nil, fmt.Errorf("cannot %s: %w", r.What, err)
	}
	var body []byte
	if r.Body != nil {
		var err error
		if body, err = json.Marshal(r.Body); err != nil {
			return nil, fmt.Errorf("cannot %s: %w", r.What, err)
		}
	}
	var header http.Header
	loop := retry.Loop{What: r.What, Server: c.Site, Done: r.Done, Refused: forge.Final, Patience: c.Patience,
		Sleep: c.Sleep, Log: c.Log}
	err := loop.Run(ctx, func() (err error) {
		header, err = c.attempt(ctx, r, body, out)
		if err == nil && check != nil && !check() {
			err = errEmpty
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return header, nil
}

// attempt makes one attempt in the lane of its kind.
func (c *Client) attempt(ctx context.Context, r Request, body []byte, out any) (http.Header, error) {
	method := cmp.Or(r.Method, http.MethodGet)
	if method != http.MethodGet {
		// This lane comes first, so that waiting writes do not block reads.
		alone, err := c.lanes.Enter(ctx, "writes", 1)
		if err != nil {
			return nil, err
		}
		defer alone(0)
	}
	leave, err := c.lanes.Enter(ctx, "all", concurrency)
	if err != nil {
		return nil, err
	}
	short, cancel := context.WithTimeout(ctx, attemptTime)
	defer cancel()
	header, err := c.send(short, method, r, body, out)
	var pass *retry.Temporary
	if errors.As(err, &pass) && pass.Limited {
		leave(cmp.Or(pass.After, retry.LimitPause)) // other requests would fail too
	} else {
		leave(0)
	}
	return header, err
}

func (c *Client) send(ctx context.Context, method string, r Request, body []byte, out any) (http.Header, error) {
	address := r.absolute
	if address == "" {
		address = c.base.String() + r.Path
		if len(r.Query) > 0 {
			address += "?" + r.Query.Encode()
		}
	}
	for n := 0; ; n++ {
		q, err := http.NewRequestWithContext(ctx, method, address, bytes.NewReader(body))
		if err != nil {
			return nil, c.Refuse("%.200q is no path", r.Path)
		}
		if q.URL.Scheme != c.base.Scheme || !strings.EqualFold(q.URL.Host, c.base.Host) || q.URL.User != nil {
			return nil, c.Refuse("it is sent on to another host, %.100q", q.URL.Host)
		}
		q.Header.Set("Accept", "application/json")
		q.Header.Set("User-Agent", "ramus")
		if len(body) > 0 {
			q.Header.Set("Content-Type", "application/json")
		}
		c.Authorize(q)
		transport := c.HTTP.Transport
		if transport == nil {
			transport = http.DefaultTransport
		}
		// Without http.Client, because that would turn a redirected POST into a GET.
		resp, err := transport.RoundTrip(q)
		if err != nil {
			return nil, &retry.Temporary{Err: err}
		}
		answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
		_ = resp.Body.Close()
		switch {
		case err != nil:
			return nil, &retry.Temporary{Err: fmt.Errorf("cannot read the answer: %w", err)}
		case len(answer) > maxAnswer:
			return nil, &forge.RefusedError{Forge: c.Site, Status: resp.StatusCode,
				Message: fmt.Sprintf("the answer has more than %d bytes", maxAnswer)}
		case resp.StatusCode/100 == 2:
			if out == nil {
				return resp.Header, nil
			}
			if err := json.Unmarshal(answer, out); err != nil {
				return nil, fmt.Errorf("cannot read the answer: %w", err)
			}
			return resp.Header, nil
		case resp.StatusCode/100 == 3 && n < redirects && resp.Header.Get("Location") != "":
			to, err := resp.Location()
			if err != nil {
				return nil, c.Refuse("it is sent nowhere")
			}
			address = to.String()
		default:
			return nil, c.classify(resp, answer)
		}
	}
}

// classify returns the error for an answer that is not a success.
func (c *Client) classify(resp *http.Response, body []byte) error {
	now := c.Now()
	refused := &forge.RefusedError{Forge: c.Site, Status: resp.StatusCode, Message: text.Clip(message(body), 1000),
		Request: text.Clip(cmp.Or(resp.Header.Get("X-Request-Id"), resp.Header.Get("X-Request-UUID")), 100)}
	after := retry.After(resp.Header.Get("Retry-After"), now, retry.MaxPause)
	switch code := resp.StatusCode; {
	case code == http.StatusTooManyRequests:
		reset, err := strconv.ParseInt(resp.Header.Get("RateLimit-Reset"), 10, 64)
		if left := time.Unix(reset, 0).Sub(now); err == nil && after == 0 && left > 0 {
			after = min(left, retry.MaxPause-time.Second) + time.Second // the reset has whole seconds
		}
		return &retry.Temporary{Err: fmt.Errorf("rate-limited: %s", refused.Message), After: after, Limited: true}
	case code == http.StatusRequestTimeout || code >= 500:
		return &retry.Temporary{Err: fmt.Errorf("status %d: %s", code, refused.Message), After: after}
	}
	return refused
}

// message returns the text of an error's answer. Forges have several forms of it.
func message(body []byte) string {
	var said struct {
		Message          json.RawMessage `json:"message"`
		Error            json.RawMessage `json:"error"`
		ErrorDescription string          `json:"error_description"`
	}
	_ = json.Unmarshal(body, &said) // the answer of a proxy has another form
	var parts []string
	for _, raw := range []json.RawMessage{said.Message, said.Error} {
		if words := flat(raw, 0); words != "" {
			parts = append(parts, words)
		}
	}
	if said.ErrorDescription != "" {
		parts = append(parts, said.ErrorDescription)
	}
	return strings.Join(parts, "; ")
}

// flat returns the texts of a JSON value in one line.
func flat(raw json.RawMessage, depth int) string {
	var line string
	if len(raw) == 0 || depth > 4 {
		return ""
	}
	if json.Unmarshal(raw, &line) == nil {
		return strings.Join(strings.Fields(line), " ")
	}
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) == nil {
		var parts []string
		for _, one := range list[:min(len(list), 10)] {
			parts = append(parts, flat(one, depth+1))
		}
		return strings.Join(parts, ", ")
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(raw, &fields) != nil {
		return ""
	}
	var parts []string
	for _, name := range sortedKeys(fields) {
		if words := flat(fields[name], depth+1); words != "" && len(parts) < 10 {
			parts = append(parts, text.Clip(name, 100)+": "+words)
		}
	}
	return strings.Join(parts, ", ")
}
