package github

import (
	"fmt"
	"net/http"
)

// Delivery is what a webhook said, as far as ramus cares. Nothing of it is
// believed beyond that something happened: see [Client] for how things stand.
type Delivery struct {
	ID     string `json:"id"`    // X-GitHub-Delivery; the same when it is delivered again
	Event  string `json:"event"` // X-GitHub-Event
	Action string `json:"action,omitempty"`
	// Digest is of the body: a delivery with another ID and the same content is the same news.
	Digest string `json:"digest"`
	Repo   Name   `json:"repo"`
	Sender string `json:"sender,omitempty"`
	Bot    bool   `json:"bot,omitempty"`    // the sender
	Number int    `json:"number,omitempty"` // of the pull request, or issue
	Pull   *Pull  `json:"pull,omitempty"`
	// IsPull: the issue of an issue_comment is a pull request.
	IsPull  bool     `json:"is_pull,omitempty"`
	Comment *Comment `json:"comment,omitempty"`
	Review  *Review  `json:"review,omitempty"`
	Check   *Check   `json:"check,omitempty"`
	Push    *Push    `json:"push,omitempty"`
	Ping    bool     `json:"ping,omitempty"`
}

// Push is what was pushed.
type Push struct {
	Ref     string `json:"ref"` // refs/heads/main
	Before  string `json:"before"`
	After   string `json:"after"`
	Forced  bool   `json:"forced,omitempty"`
	Deleted bool   `json:"deleted,omitempty"`
}

// ErrSignature: the delivery was not signed with the secret. It wraps ErrRefused.
var ErrSignature = fmt.Errorf("%w: wrong signature", ErrRefused)

// ParseDelivery checks the signature (X-Hub-Signature-256, HMAC-SHA256 over the
// body as it came, compared in constant time) and reads the delivery. Events and actions
// that ramus does not know are a Delivery with nothing but its head.
func ParseDelivery(h http.Header, body []byte, secret string) (Delivery, error) { panic("not built") }
