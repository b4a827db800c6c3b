package forgetest

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"testing"

	"github.com/ramus-dev/ramus/gateway/forge"
)

// FuzzSecret is the secret of the webhooks of [FuzzDelivery].
const FuzzSecret = "0123456789abcdef0123456789abcdef"

// Sign returns the HMAC-SHA256 of a body by FuzzSecret, in hexadecimal digits.
func Sign(body string) string {
	mac := hmac.New(sha256.New, []byte(FuzzSecret))
	mac.Write([]byte(body))
	return hex.EncodeToString(mac.Sum(nil))
}

// FuzzDelivery checks that parse reads any signed body or refuses it with [forge.ErrDelivery], and that it refuses a body
// that another signature belongs to with [forge.ErrSignature]. head returns the headers for an event and the body that is
// signed. signed is false for a forge that sends its secret in place of a signature. Each of the bodies begins with each of
// the events.
func FuzzDelivery[T any](f *testing.F, parse func(h http.Header, body []byte) (T, error), head func(event, body string) http.Header, signed bool,
	events, bodies []string) {
	for _, event := range events {
		for _, body := range bodies {
			f.Add(event, body)
		}
	}
	f.Fuzz(func(t *testing.T, event, body string) {
		if _, err := parse(head(event, body), []byte(body)); err != nil && !errors.Is(err, forge.ErrDelivery) {
			t.Errorf("%q: %v", body, err)
		}
		if _, err := parse(head(event, body+" "), []byte(body)); signed && !errors.Is(err, forge.ErrSignature) {
			t.Errorf("%q with another signature: %v", body, err)
		}
		if _, err := parse(http.Header{"Content-Type": {"application/json"}}, []byte(body)); !errors.Is(err, forge.ErrSignature) {
			t.Errorf("%q without a signature: %v", body, err)
		}
	})
}
