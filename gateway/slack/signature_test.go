package slack_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/gateway/slack"
)

// The example of https://docs.slack.dev/authentication/verifying-requests-from-slack/.
const (
	exampleSecret = "8f742231b10e8888abcd99yyyzzz85a5"
	exampleStamp  = "1531420618"
	exampleBody   = "token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
	exampleSign   = "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503"
)

func TestVerify(t *testing.T) {
	at := time.Unix(1531420618, 0)
	for _, c := range []struct {
		name               string
		secret, stamp, sig string
		body               string
		now                time.Time
		good               bool
	}{
		{"Slack's own example", exampleSecret, exampleStamp, exampleSign, exampleBody, at, true},
		{"five minutes old", exampleSecret, exampleStamp, exampleSign, exampleBody, at.Add(5 * time.Minute), true},
		{"older", exampleSecret, exampleStamp, exampleSign, exampleBody, at.Add(5*time.Minute + time.Second), false},
		{"from five minutes ahead", exampleSecret, exampleStamp, exampleSign, exampleBody, at.Add(-5 * time.Minute), true},
		{"from further ahead", exampleSecret, exampleStamp, exampleSign, exampleBody,
			at.Add(-5*time.Minute - time.Second), false},
		{"another body", exampleSecret, exampleStamp, exampleSign, exampleBody + "&x=1", at, false},
		{"another secret", "x" + exampleSecret, exampleStamp, exampleSign, exampleBody, at, false},
		{"no secret", "", exampleStamp, exampleSign, exampleBody, at, false},
		{"another time", exampleSecret, "1531420619", exampleSign, exampleBody, at, false},
		{"no time", exampleSecret, "", exampleSign, exampleBody, at, false},
		{"signed time", exampleSecret, "+1531420618", exampleSign, exampleBody, at, false},
		{"time with a space", exampleSecret, " 1531420618", exampleSign, exampleBody, at, false},
		{"time beyond all numbers", exampleSecret, strings.Repeat("9", 30), exampleSign, exampleBody, at, false},
		{"no signature", exampleSecret, exampleStamp, "", exampleBody, at, false},
		{"v1", exampleSecret, exampleStamp, "v1" + exampleSign[2:], exampleBody, at, false},
		{"no version", exampleSecret, exampleStamp, exampleSign[3:], exampleBody, at, false},
		{"too short", exampleSecret, exampleStamp, exampleSign[:len(exampleSign)-2], exampleBody, at, false},
		{"too long", exampleSecret, exampleStamp, exampleSign + "00", exampleBody, at, false},
		{"no hex", exampleSecret, exampleStamp, exampleSign[:len(exampleSign)-1] + "g", exampleBody, at, false},
		{"empty", exampleSecret, exampleStamp, "v0=", exampleBody, at, false},
	} {
		h := http.Header{}
		h.Set("X-Slack-Request-Timestamp", c.stamp)
		h.Set("X-Slack-Signature", c.sig)
		err := slack.Verify(c.secret, h, []byte(c.body), c.now)
		if (err == nil) != c.good || err != nil && !errors.Is(err, slack.ErrSignature) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	// A signature over a time with a sign is genuine, and still refused.
	for stamp, good := range map[string]bool{exampleStamp: true, "+" + exampleStamp: false, "000" + exampleStamp: false} {
		mac := hmac.New(sha256.New, []byte(exampleSecret))
		fmt.Fprintf(mac, "v0:%s:%s", stamp, exampleBody)
		h := http.Header{}
		h.Set("X-Slack-Request-Timestamp", stamp)
		h.Set("X-Slack-Signature", fmt.Sprintf("v0=%x", mac.Sum(nil)))
		if err := slack.Verify(exampleSecret, h, []byte(exampleBody), at); (err == nil) != good || err != nil && !errors.Is(err, slack.ErrSignature) {
			t.Errorf("signed at %s: %v", stamp, err)
		}
	}
	if err := slack.Verify(exampleSecret, http.Header{}, []byte(exampleBody), at); !errors.Is(err, slack.ErrSignature) {
		t.Errorf("no headers: %v", err)
	}
}
