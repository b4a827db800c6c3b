package slack

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// MaxBody bounds a body of Slack, in bytes. A route reads no more.
const MaxBody = 1 << 20

// ErrSignature means that a body is not signed by Slack, or was signed too long ago.
var ErrSignature = errors.New("not signed by Slack")

// window bounds the difference between Slack's clock and the local one. A recorded body cannot be replayed after it.
const window = 5 * time.Minute

// Verify checks Slack's v0 signature over the raw body (X-Slack-Signature, X-Slack-Request-Timestamp), in constant
// time, with a timestamp within five minutes. Its errors are [ErrSignature]. Within that time a body passes each time
// it is sent. The claim of [Mention.Key] makes it count once.
//
// See https://docs.slack.dev/authentication/verifying-requests-from-slack/.
func Verify(secret string, h http.Header, body []byte, now time.Time) error {
	if secret == "" {
		return fmt.Errorf("%w: no signing secret is configured", ErrSignature)
	}
	stamp := h.Get("X-Slack-Request-Timestamp")
	// Only digits are accepted. ParseInt also accepts "+1" and "-1", which Slack never sends.
	if stamp == "" || len(stamp) > 12 || strings.Trim(stamp, "0123456789") != "" {
		return fmt.Errorf("%w: X-Slack-Request-Timestamp is missing or no number", ErrSignature)
	}
	seconds, err := strconv.ParseInt(stamp, 10, 64)
	if err != nil {
		return fmt.Errorf("%w: X-Slack-Request-Timestamp is no number", ErrSignature)
	}
	if age := now.Sub(time.Unix(seconds, 0)); age > window || age < -window {
		return fmt.Errorf("%w: the time-stamp is more than %v away: are the clocks right?", ErrSignature, window)
	}
	digest, isV0 := strings.CutPrefix(h.Get("X-Slack-Signature"), "v0=")
	if !isV0 {
		return fmt.Errorf("%w: X-Slack-Signature is missing or not v0", ErrSignature)
	}
	given, err := hex.DecodeString(digest)
	if err != nil || len(given) != sha256.Size {
		return fmt.Errorf("%w: X-Slack-Signature is no SHA-256", ErrSignature)
	}
	mac := hmac.New(sha256.New, []byte(secret))
	fmt.Fprintf(mac, "v0:%s:", stamp)
	mac.Write(body)
	if !hmac.Equal(mac.Sum(nil), given) {
		return fmt.Errorf("%w: X-Slack-Signature does not fit: is the signing secret right?", ErrSignature)
	}
	return nil
}
