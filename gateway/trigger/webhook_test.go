package trigger

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

const secret = "a-secret-of-thirty-two-characters"

var noon = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

// signed returns the headers of a body, as the sender of a scheme signs it.
func signed(scheme Scheme, secret string, body string, at time.Time) http.Header {
	h := http.Header{}
	digits := hex.EncodeToString(sum(secret, "", []byte(body)))
	switch scheme {
	case SchemeRamus:
		stamp := strconv.FormatInt(at.Unix(), 10)
		h.Set(HeaderTimestamp, stamp)
		h.Set(HeaderSignature, Sign(secret, stamp, []byte(body)))
	case SchemeSentry:
		h.Set("Sentry-Hook-Signature", digits)
	case SchemePagerDuty:
		h.Set("X-PagerDuty-Signature", "v1="+strings.Repeat("0", 64)+", v1="+digits)
	case SchemeGitHub:
		h.Set("X-Hub-Signature-256", "sha256="+digits)
	}
	return h
}

// bodies are events as the senders write them.
var bodies = map[Scheme]string{
	SchemeRamus:  `{"suite":"all","build":123456789012345678901}`,
	SchemeSentry: `{"action":"created","data":{"event":{"event_id":"e1","title":"KeyError: 'x'","web_url":"https://sentry.example.org/1"}}}`,
	SchemePagerDuty: `{"event":{"id":"01E","event_type":"incident.triggered","resource_type":"incident","occurred_at":"2026-11-23T11:59:00.000Z",` +
		`"data":{"id":"P1","title":"disk","urgency":"high"}}}`,
	SchemeGitHub: `{"action":"opened","number":1}`,
}

func hook(t testing.TB, scheme Scheme) *Trigger {
	t.Helper()
	one := &Trigger{Name: "hook", Repo: "app", Workflow: "w", Webhook: &Webhook{Scheme: scheme, Secret: secret}}
	if err := one.Check(); err != nil {
		t.Fatal(err)
	}
	return one
}

func TestWebhookSignatures(t *testing.T) {
	for _, scheme := range Schemes() {
		t.Run(string(scheme), func(t *testing.T) {
			one, body := hook(t, scheme), bodies[scheme]
			e, fits, err := one.parse(signed(scheme, secret, body, noon), []byte(body), noon)
			if err != nil || !fits {
				t.Fatalf("%+v, %t, %v", e, fits, err)
			}
			again, _, err := one.parse(signed(scheme, secret, body, noon), []byte(body), noon.Add(time.Minute))
			if err != nil || again.Key != e.Key {
				t.Errorf("delivered again, its key is %q and not %q, %v", again.Key, e.Key, err)
			}
			other := strings.Replace(body, `{"`, `{"n":1,"`, 1)
			if more, _, err := one.parse(signed(scheme, secret, other, noon), []byte(other), noon); err != nil ||
				more.Key == e.Key && scheme != SchemePagerDuty {
				t.Errorf("another event has the key %q, %v", more.Key, err)
			}
			for name, h := range map[string]http.Header{
				"no signature":   {},
				"another secret": signed(scheme, secret+"x", body, noon),
				"another body":   signed(scheme, secret, body+" ", noon),
				"another scheme": signed(Schemes()[(1+indexOf(scheme))%4], secret, body, noon),
			} {
				if _, _, err := one.parse(h, []byte(body), noon); !errors.Is(err, ErrSignature) {
					t.Errorf("%s: %v", name, err)
				}
			}
		})
	}
	one, body := hook(t, SchemeRamus), bodies[SchemeRamus]
	for _, off := range []time.Duration{window + time.Second, -window - time.Second} {
		if _, _, err := one.parse(signed(SchemeRamus, secret, body, noon.Add(off)), []byte(body), noon); !errors.Is(err, ErrSignature) {
			t.Errorf("signed %v from now: %v", off, err)
		}
	}
	one, body = hook(t, SchemePagerDuty), bodies[SchemePagerDuty]
	for _, off := range []time.Duration{oldest + time.Minute, -window - 2*time.Minute} {
		if _, _, err := one.parse(signed(SchemePagerDuty, secret, body, noon), []byte(body), noon.Add(off)); !errors.Is(err, ErrSignature) {
			t.Errorf("an event that happened %v ago: %v", off, err)
		}
	}
}

func indexOf(scheme Scheme) int {
	for i, s := range Schemes() {
		if s == scheme {
			return i
		}
	}
	return -1
}

func TestWebhookValues(t *testing.T) {
	one := hook(t, SchemeSentry)
	one.When = map[string]string{"action": "created"}
	one.Input = map[string]string{"fixed": "yes"}
	one.Take = map[string]string{"title": "data.title", "n": "data.n", "id": "data.id", "flag": "data.flag",
		"list": "data.list", "first": "data.list.0.x", "none": "data.none", "null": "data.null", "out": "data.list.9"}
	parse := func(body string) (Event, bool) {
		t.Helper()
		e, fits, err := one.parse(signed(SchemeSentry, secret, body, noon), []byte(body), noon)
		if err != nil {
			t.Fatal(err)
		}
		return e, fits
	}
	e, fits := parse(`{"action":"created","data":{"title":"$(rm -rf /) '; \u001b[2J\u0000\n` + strings.Repeat("é",
		maxValue) + `","n":1.5,"id":123456789012345678901,"flag":true,"list":[{"x":"y"}],"null":null}}`)
	title, _ := e.Values["title"].(string)
	if !fits || !strings.HasPrefix(title, "$(rm -rf /) '; [2J\n") || len(title) > maxValue+10 || !utf8.ValidString(title) {
		t.Errorf("the title is %.100q of %d bytes", title, len(title))
	}
	delete(e.Values, "title")
	want := map[string]any{"fixed": "yes", "n": 1.5, "id": "123456789012345678901", "flag": true, "list": `[{"x":"y"}]`,
		"first": "y"}
	got, _ := json.Marshal(e.Values)
	if expected, _ := json.Marshal(want); string(got) != string(expected) {
		t.Errorf("it takes %s, want %s", got, expected)
	}
	if _, fits := parse(`{"action":"resolved"}`); fits {
		t.Error("an event that does not fit is taken")
	}
	for _, body := range []string{"", "[]", "null", "1", "{} {}", "{"} {
		if _, _, err := one.parse(signed(SchemeSentry, secret, body, noon), []byte(body), noon); !errors.Is(err, ErrEvent) {
			t.Errorf("%q: %v", body, err)
		}
	}
}

func FuzzWebhook(f *testing.F) {
	for scheme, body := range bodies {
		f.Add(string(scheme), body, "data.event.title", strconv.FormatInt(noon.Unix(), 10))
	}
	f.Add("ramus", `{"a":[{"b":1e999}]}`, "a.0.b", "99999999999999999999")
	f.Fuzz(func(t *testing.T, scheme, body, path, stamp string) {
		one := &Trigger{Name: "hook", Repo: "app", Workflow: "w", Take: map[string]string{"x": path},
			Webhook: &Webhook{Scheme: Scheme(scheme), Secret: secret, Title: path}}
		if one.Check() != nil {
			return
		}
		forged := signed(one.Webhook.Scheme, "another-secret-of-many-characters", body, noon)
		forged.Set(HeaderTimestamp, stamp)
		if _, _, err := one.parse(forged, []byte(body), noon); !errors.Is(err, ErrSignature) {
			t.Fatalf("a forged webhook: %v", err)
		}
		e, fits, err := one.parse(signed(one.Webhook.Scheme, secret, body, noon), []byte(body), noon)
		if err != nil {
			return
		}
		if !fits || e.Key == "" || len(e.Title) > maxTitle+10 || !utf8.ValidString(e.Title) || strings.ContainsAny(e.Title, "\n\x1b\x00") {
			t.Fatalf("%+v", e)
		}
		if text, _ := e.Values["x"].(string); len(text) > maxValue+10 || !utf8.ValidString(text) || strings.ContainsAny(text, "\x1b\x00") {
			t.Fatalf("it takes %.200q", text)
		}
		if _, err := json.Marshal(e); err != nil {
			t.Fatal(err)
		}
		if _, err := callerOf("hook", e.Key); err != nil {
			t.Fatal(err)
		}
	})
}

func FuzzSchedule(f *testing.F) {
	for _, spec := range []string{"0 3 * * *", "*/5 9-17 * * mon-fri", "@daily", "0 0 29 2 *", "1,2,3 0 1 1 0"} {
		f.Add(spec, "Europe/Berlin")
	}
	f.Add("TZ=0", "")
	f.Fuzz(func(t *testing.T, spec, zone string) {
		s, err := ParseSchedule(spec, zone)
		if err != nil {
			return
		}
		if next := s.Next(noon); !next.IsZero() && !next.After(noon) {
			t.Fatalf("%q in %q: after %v comes %v", spec, zone, noon, next)
		}
	})
}
