package forge

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// MaxDelivery bounds a delivery, in bytes. GitHub sends no more.
const MaxDelivery = 25 << 20

// Delivery has the relevant parts of a webhook: that an event happened, and to which object.
type Delivery struct {
	ID     string `json:"id"`    // the same for a repeated delivery
	Event  string `json:"event"` // the forge's name of it
	Action string `json:"action,omitempty"`
	// Digest is the hash of the content. A delivery with another ID and the same Digest is the same event, such as one
	// that both a repository's webhook and the App's send.
	Digest string `json:"digest"`
	Repo   Name   `json:"repo"`
	Number int    `json:"number,omitempty"` // of the pull request or issue
	// Turned means that the pull request was closed, merged or reopened.
	Turned bool   `json:"turned,omitempty"`
	Check  *Check `json:"check,omitempty"`
	Pushes []Push `json:"pushes,omitempty"`
	Issue  *Issue `json:"issue,omitempty"` // of an event about the issue itself
}

// Push is the new tip of a branch or tag.
type Push struct {
	Ref     string `json:"ref"` // refs/heads/main
	Deleted bool   `json:"deleted,omitempty"`
}

// CheckSignature checks an HMAC-SHA256 of a raw body in hexadecimal digits, in constant time. header is the name of the
// header with the signature, for the error. The error is [ErrSignature].
func CheckSignature(secret, signature, header string, body []byte) error {
	if err := checkBody(secret, body); err != nil {
		return err
	}
	given, err := hex.DecodeString(signature)
	if signature == "" || err != nil {
		return fmt.Errorf("%w: %s is missing or no SHA-256: does the webhook have a secret?", ErrSignature, header)
	}
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(body)
	if !hmac.Equal(mac.Sum(nil), given) {
		return fmt.Errorf("%w: it does not fit: is the secret the webhook's?", ErrSignature)
	}
	return nil
}

// CheckToken checks the secret that a webhook has in a header, in constant time. The error is [ErrSignature].
func CheckToken(secret, token, header string, body []byte) error {
	if err := checkBody(secret, body); err != nil {
		return err
	}
	if token == "" {
		return fmt.Errorf("%w: %s is missing: does the webhook have a secret token?", ErrSignature, header)
	}
	// The hashes have equal lengths, so that the time tells nothing about the secret's.
	want, given := sha256.Sum256([]byte(secret)), sha256.Sum256([]byte(token))
	if subtle.ConstantTimeCompare(want[:], given[:]) != 1 {
		return fmt.Errorf("%w: it does not fit: is the secret the webhook's?", ErrSignature)
	}
	return nil
}

func checkBody(secret string, body []byte) error {
	if secret == "" {
		return fmt.Errorf("%w: no secret is configured", ErrSignature)
	}
	if len(body) > MaxDelivery {
		return fmt.Errorf("%w: the body has more than %d bytes", ErrSignature, MaxDelivery)
	}
	return nil
}

// CheckJSON reports an error if a delivery is not JSON by its headers, or if its id or event is missing or too long.
// The error is [ErrDelivery].
func (d Delivery) CheckJSON(contentType string) error {
	if d.ID == "" || len(d.ID) > 100 || d.Event == "" || len(d.Event) > 100 {
		return fmt.Errorf("%w: the header with its id or event is missing or too long", ErrDelivery)
	}
	if kind, _, _ := strings.Cut(contentType, ";"); kind != "application/json" {
		return fmt.Errorf("%w: its content type is %.100q; set the webhook's to application/json", ErrDelivery, kind)
	}
	return nil
}

// Digest returns the hash of the content of a body, independent of the order and spelling of its JSON, and without the
// top-level members without.
func Digest(event string, body []byte, without ...string) (string, error) {
	var fields map[string]any
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()
	if err := decoder.Decode(&fields); err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	for _, name := range without {
		delete(fields, name)
	}
	sum := sha256.New()
	fmt.Fprintf(sum, "%s\n", event)
	if err := json.NewEncoder(sum).Encode(fields); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}
