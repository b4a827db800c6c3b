package slack

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"time"
)

// Client reads and writes through the Web API. Its exported fields are its
// options and may be changed until the first call. Methods are safe for
// concurrent use. They wait out rate limits (Retry-After) and Slack being
// down until ctx ends; an error means that Slack refused for good.
type Client struct {
	URL   string // of the Web API; default https://slack.com/api/
	Token string // xoxb-…
	// AppToken (xapp-…) is for Socket Mode alone.
	AppToken string
	HTTP     *http.Client
	Log      *slog.Logger
	Now      func() time.Time
	// Patience is the longest pause between two attempts; default 30 s.
	Patience time.Duration
}

// ErrRefused: Slack will not do it, whoever asks again (channel_not_found, not_in_channel, invalid_auth …).
var ErrRefused = errors.New("Slack refuses")

// Identity is whom the token belongs to.
type Identity struct{ Team, User, Bot string }

// Me asks auth.test; the answer is remembered.
func (c *Client) Me(ctx context.Context) (Identity, error) { panic("not built") }

// Mark makes a message of ours known again: it travels in the message's metadata.
type Mark struct {
	Run  string `json:"run"`  // Run.Name
	Key  string `json:"key"`  // of the event
	Part string `json:"part"` // "progress", "result", "answer" …
}

// Message is what is posted. Blocks are Block Kit blocks, already within Slack's limits.
type Message struct {
	Channel  string
	ThreadTS string
	Text     string // the fallback for notifications, and all there is without blocks
	Blocks   []Block
	Mark     Mark
}

// Block is one block of Block Kit as JSON.
type Block = json.RawMessage

// Post posts a message once: when an attempt's outcome is unknown (a time-out, a broken
// connection, a 5xx), the thread is read back and the message with the same
// Mark is taken for it. With look set that is done before the first attempt too.
func (c *Client) Post(ctx context.Context, m Message, look bool) (ts string, err error) {
	panic("not built")
}

// Find looks for a message of ours with this mark in a thread.
func (c *Client) Find(ctx context.Context, channel, threadTS string, mark Mark) (ts string, found bool, err error) {
	panic("not built")
}

// Update edits a message of ours.
func (c *Client) Update(ctx context.Context, m Message, ts string) error { panic("not built") }

// React adds a reaction (name without colons) to a message, Unreact removes
// one; there already, or gone already, is no error.
func (c *Client) React(ctx context.Context, channel, ts, name string) error   { panic("not built") }
func (c *Client) Unreact(ctx context.Context, channel, ts, name string) error { panic("not built") }

// Ephemeral shows a text to one user alone.
func (c *Client) Ephemeral(ctx context.Context, channel, threadTS, user, text string) error {
	panic("not built")
}

// Respond answers at a response_url, which must lie below one of Slack's hosts or the configured URL's.
func (c *Client) Respond(ctx context.Context, url, text string) error { panic("not built") }

// Download fetches a file that was shared, at most max bytes.
func (c *Client) Download(ctx context.Context, f File, max int64) ([]byte, error) {
	panic("not built")
}

// Socket receives deliveries by Socket Mode until ctx ends, reconnecting. Each is
// acknowledged after handle has returned nil; one that fails is not, so that Slack sends it again.
// The payload that handle's reply returns (may be nil) goes with the acknowledgement.
func (c *Client) Socket(ctx context.Context, handle func(context.Context, Delivery) (reply any, err error)) error {
	panic("not built")
}
