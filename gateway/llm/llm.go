// Package llm asks a model endpoint for the answers of llm nodes. Each request over HTTP is one question with one
// answer.
//
// It supports two protocols: Chat Completions, which most servers and proxies offer, and Messages. It retries a busy
// endpoint with the requested pauses, and does not retry one that refuses. The key is sent in one header of one
// request. It is never in errors, logs or redirects.
package llm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/gateway/retry"
)

// Kind is the protocol of an endpoint.
type Kind string

// Protocols.
const (
	OpenAI    Kind = "openai"    // POST BASE/chat/completions
	Anthropic Kind = "anthropic" // POST BASE/v1/messages
)

// Kinds of error of this package. Every error wraps one of them or that of the context.
var (
	// ErrBusy means that the endpoint was busy or unreachable in every attempt.
	ErrBusy = errors.New("model endpoint is busy or away")
	// ErrRefused means that the endpoint does not accept the question (key, model, size).
	ErrRefused = errors.New("model endpoint refused")
	// ErrAnswer means that the answer cannot be used, because it was cut off, withheld, or not in the protocol.
	ErrAnswer = errors.New("unusable answer of the model endpoint")
)

// Client asks one endpoint. It is safe for concurrent use after New.
type Client struct {
	Kind    Kind
	BaseURL string // "https://llm.example.org/v1"
	Model   string // for questions without a model
	Key     string // empty if the endpoint needs none
	// Timeout bounds one question, including all attempts and pauses. The default is 5 min.
	Timeout time.Duration
	// Attempts is the number of attempts for a busy endpoint. The default is 5.
	Attempts int
	// HTTP makes the requests. If it is nil, the client makes its own. Redirects are never followed, because they would
	// send the question to unknown servers.
	HTTP *http.Client
	// Sleep pauses between attempts, for tests. If it is nil, it uses real time.
	Sleep func(ctx context.Context, d time.Duration) error

	endpoint string
}

// Bounds on an exchange.
const (
	largestAnswer = 16 << 20
	largestSaid   = 500 // bytes of an endpoint's error text
	longestPause  = time.Minute
	maxTokens     = 4096 // default of the protocols without one of their own
)

// New checks an endpoint's options and sets their defaults.
func New(c Client) (*Client, error) {
	u, err := url.Parse(c.BaseURL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("cannot use the model endpoint %q: want a URL such as https://llm.example.org/v1", c.BaseURL)
	}
	if u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, errors.New("cannot use the model endpoint: its URL must have no user, query or fragment")
	}
	base := strings.TrimRight(c.BaseURL, "/")
	switch c.Kind {
	case OpenAI:
		c.endpoint = base + "/chat/completions"
	case Anthropic:
		c.endpoint = strings.TrimSuffix(base, "/v1") + "/v1/messages"
	default:
		return nil, fmt.Errorf("cannot use a model endpoint of kind %q: want %s or %s", c.Kind, OpenAI, Anthropic)
	}
	if c.Timeout == 0 {
		c.Timeout = 5 * time.Minute
	}
	if c.Attempts == 0 {
		c.Attempts = 5
	}
	if c.HTTP == nil {
		c.HTTP = &http.Client{}
	}
	own := *c.HTTP
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	c.HTTP = &own
	if c.Sleep == nil {
		c.Sleep = retry.Sleep
	}
	return &c, nil
}

// Ask sends one question. With a schema the answer is JSON text. The caller has to check it against the schema.
func (c *Client) Ask(ctx context.Context, call executor.LLMCall) (string, error) {
	if call.Model == "" {
		call.Model = c.Model
	}
	if call.Model == "" {
		return "", fmt.Errorf("cannot ask a model: %w: neither the node nor the configuration names one", ErrRefused)
	}
	body, err := c.encode(call)
	if err != nil {
		return "", fmt.Errorf("cannot write the question to the model: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	for attempt := 1; ; attempt++ {
		answer, pause, err := c.once(ctx, body)
		if err == nil {
			text, err := c.decode(answer, call)
			if err != nil {
				return "", fmt.Errorf("cannot use the answer of %s: %w", call.Model, err)
			}
			return text, nil
		}
		err = fmt.Errorf("cannot ask %s: %w", call.Model, err)
		if !errors.Is(err, ErrBusy) || attempt >= c.Attempts {
			return "", err
		}
		if pause == 0 {
			pause = retry.Backoff(attempt, 20*time.Second)
		}
		if serr := c.Sleep(ctx, pause); serr != nil {
			return "", errors.Join(serr, err)
		}
	}
}

// once makes one attempt. With ErrBusy, pause is the wait that the endpoint asked for, or 0.
func (c *Client) once(ctx context.Context, body []byte) (answer []byte, pause time.Duration, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.endpoint, bytes.NewReader(body))
	if err != nil {
		return nil, 0, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json")
	c.authorise(r)
	resp, err := c.HTTP.Do(r)
	if err != nil {
		if ctx.Err() != nil {
			return nil, 0, ctx.Err()
		}
		return nil, 0, fmt.Errorf("%w: %w", ErrBusy, err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, largestAnswer+1))
	switch {
	case ctx.Err() != nil:
		return nil, 0, ctx.Err()
	case err != nil:
		return nil, 0, fmt.Errorf("%w: the answer broke off: %w", ErrBusy, err)
	case len(b) > largestAnswer:
		return nil, 0, fmt.Errorf("%w: it is larger than %d bytes", ErrAnswer, largestAnswer)
	case resp.StatusCode == http.StatusOK:
		return b, 0, nil
	}
	said := c.errorText(b)
	if resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode == http.StatusRequestTimeout || resp.StatusCode >= 500 {
		return nil, retry.After(resp.Header.Get("Retry-After"), time.Now(), longestPause),
			fmt.Errorf("%w: status %d: %s", ErrBusy, resp.StatusCode, said)
	}
	return nil, 0, fmt.Errorf("%w: status %d: %s", ErrRefused, resp.StatusCode, said)
}

// errorText returns the endpoint's own error text, without the key, which some endpoints repeat.
func (c *Client) errorText(b []byte) string {
	var e struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	text := string(b)
	if json.Unmarshal(b, &e) == nil && e.Error.Message != "" {
		text = e.Error.Message
	}
	if c.Key != "" {
		text = strings.ReplaceAll(text, c.Key, "[key]")
	}
	text = strings.ToValidUTF8(strings.TrimSpace(text), "\uFFFD")
	if len(text) > largestSaid {
		text = strings.ToValidUTF8(text[:largestSaid], "") + "…"
	}
	return text
}

func (c *Client) authorise(r *http.Request) {
	if c.Kind == Anthropic {
		r.Header.Set("Anthropic-Version", "2023-06-01")
	}
	switch {
	case c.Key == "":
	case c.Kind == Anthropic:
		r.Header.Set("X-Api-Key", c.Key)
	default:
		r.Header.Set("Authorization", "Bearer "+c.Key)
	}
}
