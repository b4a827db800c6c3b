package slack

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/gateway/retry"
	"github.com/ramus-dev/ramus/internal/redact"
	"github.com/ramus-dev/ramus/internal/text"
	slackgo "github.com/slack-go/slack"
)

// DefaultURL is the address of Slack's Web API.
const DefaultURL = "https://slack.com/api/"

const (
	// maxAnswer bounds an answer of the Web API, in bytes. A page of 200 messages of maximum length comes near it.
	maxAnswer = 32 << 20
	// attemptTime bounds one attempt. Slack answers within some seconds or not at all.
	attemptTime = 30 * time.Second
	// maxRetryAfter bounds the pause in a Retry-After.
	maxRetryAfter = time.Hour
	// concurrency is the number of requests of one method at once. Slack counts requests by the minute, and a burst
	// would only cause a 429.
	concurrency = 8
)

// Client reads and writes through the Web API. Its exported fields are its options and may be changed until the first
// call. Methods are safe for concurrent use. They wait during rate limits (Retry-After) and outages of Slack until ctx
// ends. Any other error means that Slack refused for good.
type Client struct {
	URL      string // of the Web API; default [DefaultURL]
	Token    string // xoxb-…
	AppToken string // xapp-…, only for Socket Mode
	// Secrets are removed from all posts. It is nil if there are none.
	Secrets *redact.Secrets
	HTTP    *http.Client // default http.DefaultClient; each attempt has a time limit of its own
	Log     *slog.Logger // default slog.Default
	// Now and Sleep are the clock of pauses. A test replaces both or none. Sleep waits for d or until ctx ends, and
	// then returns its cause.
	Now   func() time.Time
	Sleep func(ctx context.Context, d time.Duration) error
	// Patience is the longest pause between two attempts that the client chooses itself. The default is 30 s. A longer
	// Retry-After is obeyed.
	Patience time.Duration

	once  sync.Once
	api   *slackgo.Client
	base  string      // URL with a slash at its end
	web   http.Client // HTTP for the Web API
	lanes retry.Lanes
	names names
	mails names // the addresses in users' profiles; "" for none

	mu sync.Mutex // guards me
	me Identity
}

// ErrRefused means that Slack refuses a request, and that a retry does not help (channel_not_found, not_in_channel,
// invalid_auth …). [RefusedError] has the code.
var ErrRefused = errors.New("refused by Slack")

// RefusedError is a refusal of Slack that a retry does not change.
type RefusedError struct {
	Method string // of the Web API, such as chat.postMessage
	Code   string // of Slack, such as channel_not_found
	Needed string // the scope that the token lacks, for missing_scope
	Detail string // Slack's explanation, as for invalid_blocks
}

func (e *RefusedError) Error() string {
	text := fmt.Sprintf("%v: %s: %s", ErrRefused, e.Method, e.Code)
	if e.Needed != "" {
		text += ": the app lacks the scope " + e.Needed
	}
	if e.Detail != "" {
		text += " (" + e.Detail + ")"
	}
	return text
}

func (e *RefusedError) Unwrap() error { return ErrRefused }

// ofApp are the codes that concern the app and its token.
var ofApp = map[string]bool{
	"invalid_auth": true, "not_authed": true, "account_inactive": true, "token_revoked": true, "token_expired": true,
	"no_permission": true, "missing_scope": true, "not_allowed_token_type": true, "access_denied": true,
	"ekm_access_denied":         true,
	"two_factor_setup_required": true, "accesslimited": true, "team_access_not_granted": true,
}

// OfApp reports whether Slack refuses the app or its token, and not the request. The administrator of the app can fix
// that, and a retry then helps.
func (e *RefusedError) OfApp() bool { return ofApp[e.Code] || e.Needed != "" }

// temporary is a failure that may be gone at the next attempt.
type temporary struct {
	err   error
	after time.Duration // the pause that Slack asks for; 0 if it names none
	// unknown means that the request may have been performed.
	unknown bool
}

func (e *temporary) Error() string { return e.err.Error() }
func (e *temporary) Unwrap() error { return e.err }

// temporaryCodes are Slack's codes of temporary failures. The value is true if the request may have been performed.
// Every other code is a refusal.
var temporaryCodes = map[string]bool{
	"ratelimited":                false,
	"rate_limited":               false,
	"service_unavailable":        false,
	"request_timeout":            false, // the body did not arrive completely
	"team_added_to_org":          false, // like the next two, a workspace is being moved
	"org_login_required":         false,
	"external_channel_migrating": false,
	"internal_error":             true,
	"fatal_error":                true, // "some aspect of the operation may have succeeded"
	"update_failed":              true,
	"file_update_failed":         true, // of completeUploadExternal, which is to be retried
}

func (c *Client) setup() {
	c.once.Do(func() {
		c.base = strings.TrimSuffix(cmp.Or(c.URL, DefaultURL), "/") + "/"
		c.HTTP = cmp.Or(c.HTTP, http.DefaultClient)
		// A redirect would send the token to any address.
		c.web = *c.HTTP
		c.web.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		c.Log = cmp.Or(c.Log, slog.Default())
		c.Patience = cmp.Or(c.Patience, 30*time.Second)
		if c.Now == nil {
			c.Now = time.Now
		}
		if c.Sleep == nil {
			c.Sleep = retry.Sleep
		}
		c.lanes.Now, c.lanes.Sleep = c.Now, c.Sleep
		c.api = slackgo.New(c.Token, slackgo.OptionAPIURL(c.base), slackgo.OptionHTTPClient((*wire)(c)),
			slackgo.OptionAppLevelToken(c.AppToken))
	})
}

// call makes attempts until one succeeds, Slack refuses, or ctx ends. done, if not nil, is called before every attempt
// after one with an unknown outcome, and reports whether that one was performed.
func (c *Client) call(ctx context.Context, method string, attempt func(context.Context) error, done func() (bool, error)) error {
	c.setup()
	unknown := false
	for n := 1; ; n++ {
		if unknown && done != nil {
			if was, err := done(); was || err != nil {
				return err
			}
		}
		err := c.attempt(ctx, method, attempt)
		var pass *temporary
		if err == nil || !errors.As(err, &pass) {
			return err
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%s: %w (the last attempt: %v)", method, context.Cause(ctx), err)
		}
		// Even if this attempt surely had no effect, an earlier one may have.
		unknown = unknown || pass.unknown
		pause := c.pause(n, pass.after)
		c.Log.LogAttrs(ctx, slog.LevelWarn, "Slack did not answer; waiting", slog.String("method", method),
			slog.Int("attempt", n), slog.Duration("pause", pause), slog.Any("err", err))
		if err := c.Sleep(ctx, pause); err != nil {
			return fmt.Errorf("%s: %w (the last attempt: %v)", method, err, pass)
		}
	}
}

// attempt makes one request in the lane of its method.
func (c *Client) attempt(ctx context.Context, method string, f func(context.Context) error) error {
	leave, err := c.lanes.Enter(ctx, method, concurrency)
	if err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	limit := attemptTime
	if method == download || method == sendUpload {
		limit = downloadTime
	}
	short, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err = f(short)
	var pass *temporary
	if errors.As(err, &pass) && method != postMessage {
		// Slack limits postMessage by channel, whose lane the caller of call holds. It limits all others by method.
		leave(pass.after)
		return err
	}
	leave(0)
	return err
}

// pause returns the pause that Slack asks for, or else one that grows with each attempt up to Patience.
func (c *Client) pause(attempt int, after time.Duration) time.Duration {
	if after > 0 {
		return min(after, maxRetryAfter)
	}
	return retry.Backoff(attempt, c.Patience)
}

// wire is the Client as the HTTP client of slack-go. It reads bounded answers and distinguishes success, refusals and
// temporary failures.
type wire Client

func (w *wire) Do(req *http.Request) (*http.Response, error) {
	method := path.Base(req.URL.Path)
	resp, err := w.web.Do(req)
	if err != nil {
		// Without a connection no request was sent.
		var op *net.OpError
		dial := errors.As(err, &op) && op.Op == "dial"
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err
		}
		return nil, &temporary{err: fmt.Errorf("%s: %w", method, err), unknown: !dial}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err == nil && len(body) > maxAnswer {
		err = fmt.Errorf("the answer has more than %d bytes", maxAnswer)
	}
	if err != nil {
		return nil, &temporary{err: fmt.Errorf("%s: cannot read the answer: %w", method, err), unknown: true}
	}
	if resp.StatusCode == http.StatusTooManyRequests {
		return nil, &temporary{err: fmt.Errorf("%s: rate-limited", method), after: retryAfter(resp.Header)}
	}
	var answer struct {
		OK       bool   `json:"ok"`
		Error    string `json:"error"`
		Needed   string `json:"needed"`
		Metadata struct {
			Messages []string `json:"messages"`
		} `json:"response_metadata"`
	}
	err = json.Unmarshal(body, &answer)
	switch {
	case err == nil && answer.Error != "" && !answer.OK:
		if unknown, passes := temporaryCodes[answer.Error]; passes {
			return nil, &temporary{err: fmt.Errorf("%s: %s", method, answer.Error), after: retryAfter(resp.Header),
				unknown: unknown}
		}
		return nil, &RefusedError{Method: method, Code: answer.Error, Needed: answer.Needed,
			Detail: text.Clip(strings.Join(answer.Metadata.Messages, "; "), clipped)}
	case resp.StatusCode/100 != 2:
		return nil, &temporary{err: fmt.Errorf("%s: status %d", method, resp.StatusCode), unknown: true}
	case err != nil || !answer.OK:
		return nil, &temporary{err: fmt.Errorf("%s: the answer is not Slack's: %q", method,
			text.Clip(string(body), clipped)), unknown: true}
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	return resp, nil
}

func retryAfter(h http.Header) time.Duration {
	if seconds, err := strconv.Atoi(h.Get("Retry-After")); err == nil && seconds > 0 {
		return time.Duration(min(seconds, int(maxRetryAfter/time.Second))) * time.Second
	}
	return 0
}

// Identity has the owner of the token: ids of the workspace, of ramus as a user, and of its bot.
type Identity struct{ Team, User, Bot string }

// Me returns the answer of auth.test, which it caches.
func (c *Client) Me(ctx context.Context) (Identity, error) {
	c.mu.Lock()
	me := c.me
	c.mu.Unlock()
	if me != (Identity{}) {
		return me, nil
	}
	err := c.call(ctx, "auth.test", func(ctx context.Context) error {
		answer, err := c.api.AuthTestContext(ctx)
		if err != nil {
			return err
		}
		me = Identity{Team: answer.TeamID, User: answer.UserID, Bot: answer.BotID}
		return nil
	}, nil)
	if err == nil {
		err = check(idOf("team_id", me.Team), idOf("user_id", me.User))
	}
	if err != nil {
		return Identity{}, fmt.Errorf("cannot tell whom Slack's token belongs to: %w", err)
	}
	c.mu.Lock()
	c.me = me
	c.mu.Unlock()
	return me, nil
}
