package slack

import "context"

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
