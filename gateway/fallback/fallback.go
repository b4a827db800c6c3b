// Package fallback hands threads over to a runner elsewhere: one signed HTTP
// request with the whole thread, answered with a text to post.
package fallback

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/ramus-dev/ramus/gateway/slack"
)

// Client hands over. Its fields are its options.
type Client struct {
	URL     string
	Secret  string // signs each request
	Timeout time.Duration
	HTTP    *http.Client
	Now     func() time.Time
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

// Send hands over and waits out failures that may pass until ctx ends. The
// packet's key goes along as Idempotency-Key.
func (c *Client) Send(ctx context.Context, p Packet) (Answer, error) { panic("not built") }
