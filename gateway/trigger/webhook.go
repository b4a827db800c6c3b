package trigger

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

// Scheme is the way in which a sender signs its webhooks.
type Scheme string

// The schemes. All are an HMAC-SHA256 with the shared secret, in hexadecimal digits.
const (
	// SchemeRamus signs "v0:TIMESTAMP:BODY". The headers are X-Ramus-Timestamp, in seconds since 1970, and
	// X-Ramus-Signature, which is "v0=" and the digest.
	SchemeRamus Scheme = "ramus"
	// SchemeSentry signs the body. The header is Sentry-Hook-Signature.
	SchemeSentry Scheme = "sentry"
	// SchemePagerDuty signs the body. The header is X-PagerDuty-Signature, a list of "v1=" and a digest each, for
	// secrets that are being replaced.
	SchemePagerDuty Scheme = "pagerduty"
	// SchemeGitHub signs the body. The header is X-Hub-Signature-256, which is "sha256=" and the digest.
	SchemeGitHub Scheme = "github"
)

// Schemes returns all schemes.
func Schemes() []Scheme { return []Scheme{SchemeRamus, SchemeSentry, SchemePagerDuty, SchemeGitHub} }

// Webhook receives signed requests at /hooks/NAME.
type Webhook struct {
	Scheme Scheme // the default is SchemeRamus
	Secret string
	// ID is the path of the event's id in the body. Two deliveries with the same id are the same event. If it is empty,
	// deliveries with the same body are, and for SchemeRamus also the same timestamp. The default of SchemePagerDuty is
	// event.id.
	ID string
	// Time is the path of the event's time in the body, in the notation of RFC 3339. An event that is older than three
	// days is refused. If it is empty, there is no such check. The default of SchemePagerDuty is event.occurred_at.
	Time string
	// Title is the path of a text that describes the event.
	Title string
}

// The headers of SchemeRamus.
const (
	HeaderTimestamp = "X-Ramus-Timestamp"
	HeaderSignature = "X-Ramus-Signature"
)

const (
	// maxBody bounds a webhook, in bytes.
	maxBody = 1 << 20
	// window bounds the difference between a signed timestamp and the clock of the server.
	window = 5 * time.Minute
	// oldest bounds the age of an event, which a sender may deliver late.
	oldest = 72 * time.Hour
	// minSecret is the least length of a secret, in bytes. A shorter one could be guessed from one webhook.
	minSecret = 16
	maxID     = 500
)

// ErrSignature means that a webhook is not signed with its trigger's secret, or was signed too long ago.
var ErrSignature = errors.New("the signature is refused")

// check fills in defaults, and returns an error if an option is wrong.
func (w *Webhook) check() error {
	switch w.Scheme {
	case "":
		w.Scheme = SchemeRamus
	case SchemePagerDuty:
		if w.ID == "" {
			w.ID = "event.id"
		}
		if w.Time == "" {
			w.Time = "event.occurred_at"
		}
	case SchemeRamus, SchemeSentry, SchemeGitHub:
	default:
		return fmt.Errorf("webhook.signature %.100q is not known: want one of %v", w.Scheme, Schemes())
	}
	if len(w.Secret) < minSecret {
		return fmt.Errorf("webhook has no secret of %d characters or more; webhook.secret_env names the variable", minSecret)
	}
	return nil
}

// Sign returns the value of [HeaderSignature] for a body and a [HeaderTimestamp].
func Sign(secret, timestamp string, body []byte) string {
	return "v0=" + hex.EncodeToString(sum(secret, "v0:"+timestamp+":", body))
}

func sum(secret, head string, body []byte) []byte {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(head))
	mac.Write(body)
	return mac.Sum(nil)
}

// verify checks the signature of the raw body, in constant time. signed is the signed timestamp, or "".
func (w *Webhook) verify(h http.Header, body []byte, now time.Time) (signed string, err error) {
	head, header, prefix := "", "", ""
	switch w.Scheme {
	case SchemeRamus:
		if signed, err = timestamp(h.Get(HeaderTimestamp), now); err != nil {
			return "", err
		}
		head, header, prefix = "v0:"+signed+":", HeaderSignature, "v0="
	case SchemeSentry:
		header = "Sentry-Hook-Signature"
	case SchemePagerDuty:
		header, prefix = "X-PagerDuty-Signature", "v1="
	case SchemeGitHub:
		header, prefix = "X-Hub-Signature-256", "sha256="
	}
	given := h.Get(header)
	if given == "" || len(given) > 2000 {
		return "", fmt.Errorf("%w: %s is missing or too long", ErrSignature, header)
	}
	want := sum(w.Secret, head, body)
	for one := range strings.SplitSeq(given, ",") {
		digits, ok := strings.CutPrefix(strings.TrimSpace(one), prefix)
		if got, err := hex.DecodeString(digits); ok && err == nil && hmac.Equal(got, want) {
			return signed, nil
		}
		if w.Scheme != SchemePagerDuty {
			break
		}
	}
	return "", fmt.Errorf("%w: %s does not fit the body", ErrSignature, header)
}

// timestamp checks the timestamp of SchemeRamus, and returns it.
func timestamp(stamp string, now time.Time) (string, error) {
	// Only digits are accepted. ParseInt also accepts "+1" and "-1".
	seconds, err := strconv.ParseInt(stamp, 10, 64)
	if err != nil || len(stamp) > 12 || strings.Trim(stamp, "0123456789") != "" {
		return "", fmt.Errorf("%w: %s is not a number of seconds since 1970", ErrSignature, HeaderTimestamp)
	}
	if off := now.Sub(time.Unix(seconds, 0)); off > window || off < -window {
		return "", fmt.Errorf("%w: it was signed at another time, and five minutes are allowed either way", ErrSignature)
	}
	return stamp, nil
}

// ErrEvent means that a signed webhook cannot be read.
var ErrEvent = errors.New("no event")

// parse reads a webhook. The signature is checked before the body is parsed. Returns false if the event does not fit
// the trigger's When.
func (t *Trigger) parse(h http.Header, body []byte, now time.Time) (e Event, fits bool, err error) {
	w := t.Webhook
	signed, err := w.verify(h, body, now)
	if err != nil {
		return e, false, err
	}
	f, err := parseFields(body)
	if err != nil {
		return e, false, fmt.Errorf("%w: %w", ErrEvent, err)
	}
	if !f.fits(t.When) {
		return e, false, nil
	}
	e = Event{Kind: KindWebhook, Time: now, Title: f.word(w.Title), Key: "body " + digest(signed, string(body))}
	if w.ID != "" {
		id := f.word(w.ID)
		if id == "" || len(id) > maxID {
			return e, false, fmt.Errorf("%w: it has no id at %s", ErrEvent, w.ID)
		}
		e.Key = "id " + id
	}
	if w.Time != "" {
		at, err := time.Parse(time.RFC3339Nano, f.word(w.Time))
		if err != nil {
			return e, false, fmt.Errorf("%w: it has no time at %s", ErrEvent, w.Time)
		}
		if age := now.Sub(at); age > oldest || age < -window {
			return e, false, fmt.Errorf("%w: its time is %s, and three days are allowed", ErrSignature,
				at.UTC().Format(time.RFC3339))
		}
		e.Time = at.UTC()
	}
	if e.Title == "" {
		e.Title = "webhook of " + string(w.Scheme)
	}
	return e.fill(t, f), true, nil
}
