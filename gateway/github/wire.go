package github

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/google/go-github/v66/github"
	"github.com/ramus-dev/ramus/gateway/forge"
	"github.com/ramus-dev/ramus/gateway/retry"
	"github.com/ramus-dev/ramus/internal/text"
)

const (
	// maxAnswer bounds an answer, in bytes. It is a page of 100 comments of maximum length, escaped, with their
	// context.
	maxAnswer = 64 << 20
	// attemptTime bounds one attempt. GitHub ends its own after 10 s.
	attemptTime = 30 * time.Second
	// concurrency is the number of requests for one account at once. Requests that write are made one after another, as
	// GitHub demands.
	concurrency = 8
	redirects   = 5 // maximum
)

// request describes a call.
type request struct {
	what  string // for "cannot WHAT"
	repo  forge.Name
	free  bool // the request concerns no repository
	need  Access
	write bool
	// tokens returns the token. If it is nil, the Client's Tokens do.
	tokens func(context.Context) (string, error)
	// done, if not nil, is called before every attempt after one that may have been performed, and reports whether it
	// was.
	done func() (bool, error)
}

// call makes attempts until one succeeds, GitHub refuses, or ctx ends.
func (c *Client) call(ctx context.Context, r request, attempt func(context.Context, *github.Client) error) error {
	if err := c.setup(); err != nil {
		return fmt.Errorf("cannot %s: %w", r.what, err)
	}
	if !r.free && !isName(r.repo) {
		return fmt.Errorf("cannot %s: %w", r.what,
			&forge.RefusedError{Forge: site, Message: fmt.Sprintf("%.200q is no name of a repository", r.repo)})
	}
	if r.need == "" {
		r.need = AccessWrite
	}
	w := &wire{c: c, r: r}
	gh := w.client()
	renewed := false
	loop := retry.Loop{What: r.what, Server: site, Done: r.done, Refused: forge.Final, Patience: c.Patience,
		Sleep: c.Sleep, Log: c.Log}
	return loop.Run(ctx, func() error {
		err := w.attempt(ctx, gh, attempt)
		if forge.HasStatus(err, http.StatusUnauthorized) && !renewed && w.forget() {
			renewed = true
			err = w.attempt(ctx, gh, attempt)
		}
		return err
	})
}

// wire is the transport of one call below go-github. It adds the token, reads bounded answers, and distinguishes
// success, refusals and temporary failures.
type wire struct {
	c     *Client
	r     request
	token string // of the last attempt
}

func (w *wire) client() *github.Client {
	gh := github.NewClient(&http.Client{Transport: w, CheckRedirect: stay})
	gh.BaseURL, gh.UserAgent = w.c.base, "ramus"
	return gh
}

// stay leaves redirects to the wire, because net/http would turn a POST into a GET.
func stay(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// attempt makes one attempt in the lane of its account.
func (w *wire) attempt(ctx context.Context, gh *github.Client, f func(context.Context, *github.Client) error) error {
	lane := "account " + strings.ToLower(w.r.repo.Owner)
	if w.r.write {
		// This lane comes first, so that waiting writes do not block reads.
		alone, err := w.c.lanes.Enter(ctx, lane+" writes", 1)
		if err != nil {
			return err
		}
		defer alone(0)
	}
	leave, err := w.c.lanes.Enter(ctx, lane, concurrency)
	if err != nil {
		return err
	}
	short, cancel := context.WithTimeout(ctx, attemptTime)
	defer cancel()
	err = plain(f(short, gh))
	var pass *retry.Temporary
	if errors.As(err, &pass) && pass.Limited {
		leave(cmp.Or(pass.After, retry.LimitPause)) // other requests would fail too
	} else {
		leave(0)
	}
	return err
}

// forget reports whether another token is available in place of one that GitHub does not accept.
func (w *wire) forget() bool {
	t, ok := w.c.Tokens.(interface{ Forget(token string) })
	if ok {
		t.Forget(w.token)
	}
	return ok
}

// RoundTrip makes one request and follows its redirects at the same host.
func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	var err error
	switch {
	case w.r.tokens != nil:
		w.token, err = w.r.tokens(r.Context())
	case w.c.Tokens != nil:
		w.token, err = w.c.Tokens.Token(r.Context(), w.r.repo, w.r.need)
	default:
		err = &forge.RefusedError{Forge: site, Message: "there is no token"}
	}
	if err != nil {
		return nil, err
	}
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+w.token)
	before := w.c.kept.ask(r)
	resp, err := send(r, w.c.HTTP.Transport, w.c.Now)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode == http.StatusNotModified {
		if before == nil {
			return nil, &forge.RefusedError{Forge: site, Status: resp.StatusCode,
				Message: "nobody asked whether it has changed"}
		}
		return before.answer(resp), nil
	}
	w.c.kept.keep(r, resp)
	return resp, nil
}

// send makes a request. The answer is a success, or 304, and its body has been read. Everything else is an error,
// either a refusal or temporary.
func send(r *http.Request, next http.RoundTripper, now func() time.Time) (*http.Response, error) {
	if next == nil {
		next = http.DefaultTransport
	}
	for n := 0; ; n++ {
		resp, err := next.RoundTrip(r)
		if err != nil {
			// Without a connection the request had no effect, but checking before the next attempt costs little.
			return nil, &retry.Temporary{Err: err}
		}
		body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
		_ = resp.Body.Close()
		if err == nil && len(body) > maxAnswer {
			return nil, &forge.RefusedError{Forge: site, Status: resp.StatusCode,
				Message: fmt.Sprintf("the answer has more than %d bytes", maxAnswer)}
		}
		if err != nil {
			return nil, &retry.Temporary{Err: fmt.Errorf("cannot read the answer: %w", err)}
		}
		switch {
		case resp.StatusCode/100 == 2 || resp.StatusCode == http.StatusNotModified:
			resp.Body = io.NopCloser(bytes.NewReader(body))
			// go-github would obey them, by its own clock.
			for _, h := range [...]string{"Limit", "Remaining", "Reset", "Used", "Resource"} {
				resp.Header.Del("X-RateLimit-" + h)
			}
			return resp, nil
		case resp.StatusCode/100 != 3:
			return nil, classify(resp, body, now())
		}
		if r, err = follow(r, resp, n); err != nil {
			return nil, err
		}
	}
}

// follow returns the request for a redirect. It keeps method and body, and is at the same host, because it has a token.
func follow(r *http.Request, resp *http.Response, n int) (*http.Request, error) {
	to, err := resp.Location()
	if err != nil || n >= redirects {
		return nil, &forge.RefusedError{Forge: site, Status: resp.StatusCode, Message: "it is sent on and on, or nowhere"}
	}
	if to.Scheme != r.URL.Scheme || !strings.EqualFold(to.Host, r.URL.Host) || to.User != nil {
		return nil, &forge.RefusedError{Forge: site, Status: resp.StatusCode,
			Message: fmt.Sprintf("it is sent on to another host, %.100q", to.Host)}
	}
	r = r.Clone(r.Context())
	r.URL, r.Host = to, ""
	if r.GetBody != nil {
		if r.Body, err = r.GetBody(); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// classify returns the error for an answer that is not a success.
func classify(resp *http.Response, body []byte, now time.Time) error {
	var said struct {
		Message string `json:"message"`
		Errors  []struct {
			Resource string `json:"resource"`
			Field    string `json:"field"`
			Code     string `json:"code"`
			Message  string `json:"message"`
		} `json:"errors"`
		Documentation string `json:"documentation_url"`
	}
	_ = json.Unmarshal(body, &said) // the answer of a proxy has another form
	message := text.Clip(said.Message, 500)
	for i, e := range said.Errors {
		if i == 10 {
			break
		}
		detail := e.Message
		if detail == "" {
			detail = strings.TrimSpace(e.Resource + " " + e.Field + " " + e.Code)
		}
		message += "; " + text.Clip(detail, 500)
	}
	refused := &forge.RefusedError{Forge: site, Status: resp.StatusCode, Message: message,
		Needed:  text.Clip(resp.Header.Get("X-Accepted-GitHub-Permissions"), 200),
		Request: text.Clip(resp.Header.Get("X-GitHub-Request-Id"), 100)}
	after := retry.After(resp.Header.Get("Retry-After"), now, retry.MaxPause)
	switch code := resp.StatusCode; {
	case code == http.StatusTooManyRequests || code == http.StatusForbidden:
		spent := resp.Header.Get("X-RateLimit-Remaining") == "0"
		// Only the URL of the documentation distinguishes some secondary limits from missing permissions.
		secondary := strings.HasSuffix(said.Documentation, "secondary-rate-limits") ||
			strings.HasSuffix(said.Documentation, "#abuse-rate-limits")
		if code == http.StatusForbidden && !spent && !secondary && after == 0 {
			return refused
		}
		reset, err := strconv.ParseInt(resp.Header.Get("X-RateLimit-Reset"), 10, 64)
		// A reset in the past comes from a clock that is behind the local one, and is ignored.
		if left := time.Unix(reset, 0).Sub(now); err == nil && spent && after == 0 && left > 0 {
			after = min(left, retry.MaxPause-time.Second) + time.Second // the reset has whole seconds
		}
		return &retry.Temporary{Err: fmt.Errorf("rate-limited: %s", message), After: after, Limited: true}
	case code == http.StatusRequestTimeout || code >= 500:
		return &retry.Temporary{Err: fmt.Errorf("status %d: %s", code, message), After: after}
	}
	return refused
}

// errEmpty means that a successful answer lacks the requested data, like the answers of systems between GitHub and
// ramus.
var errEmpty = errors.New("the answer does not have what was asked for")

// plain returns an error of net/http without the URL that it repeats.
func plain(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

// pageSize and maxItems bound lists.
const (
	pageSize = 100
	maxItems = 5000
)

// getPage returns one page of a list.
type getPage[T any] func(context.Context, *github.Client, github.ListOptions) ([]T, *github.Response, error)

// items returns the items of all pages of a list, which are read as needed. An error comes last.
func items[T any](ctx context.Context, c *Client, r request, get getPage[T]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		options := github.ListOptions{Page: 1, PerPage: pageSize}
		for n := 0; ; { // items, and pages without items
			var page []T
			var next int
			err := c.call(ctx, r, func(ctx context.Context, gh *github.Client) error {
				got, resp, err := get(ctx, gh, options)
				if err == nil {
					page, next = got, resp.NextPage
				}
				return err
			})
			if n += max(len(page), 1); n > maxItems {
				err = fmt.Errorf("cannot %s: %w", r.what,
					&forge.RefusedError{Forge: site, Message: fmt.Sprintf("there are more than %d", maxItems)})
			}
			if err != nil {
				yield(none, err)
				return
			}
			for _, item := range page {
				if !yield(item, nil) {
					return
				}
			}
			if next <= options.Page {
				return
			}
			options.Page = next
		}
	}
}

// list returns all items of a list.
func list[T, U any](ctx context.Context, c *Client, r request, of func(T) U, get getPage[T]) ([]U, error) {
	var all []U
	for item, err := range items(ctx, c, r, get) {
		if err != nil {
			return nil, err
		}
		all = append(all, of(item))
	}
	return all, nil
}
