package fallback_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/gateway/fallback"
	"github.com/ramus-dev/ramus/gateway/slack"
	"github.com/ramus-dev/ramus/internal/golden"
	"github.com/ramus-dev/ramus/internal/standin/fallbacktest"
)

// packet is a thread like any.
func packet() fallback.Packet {
	at := time.Date(2024, 5, 6, 7, 8, 9, 0, time.UTC)
	return fallback.Packet{
		Session: "slack:T1:C1:1700000000.000100", Key: "C1:1700000001.000200", Text: "tests <fail> & more",
		Mention: slack.Mention{Team: "T1", Channel: "C1", TS: "1700000001.000200", ThreadTS: "1700000000.000100",
			User: "U1", Bot: "U9",
			Text: "<@U9> tests &lt;fail&gt; &amp; more", Time: at},
		Thread: slack.Thread{Team: "T1", Channel: "C1", TS: "1700000000.000100",
			Parent: slack.Post{TS: "1700000000.000100", User: "U2", Name: "grace", Text: "it is red"},
			Replies: []slack.Post{{TS: "1700000001.000200", User: "U1", Name: "ada", Text: "@ramus tests <fail> & more",
				Files: []slack.File{{ID: "F1", Name: "a.png", MIME: "image/png", Size: 3,
					Download: "https://files.example.org/secret"}}}}},
		Tools: json.RawMessage(`[ { "name": "fallback_session" } ]`),
	}
}

// world is a client and the stand-in that it hands over to.
type world struct {
	*fallback.Client
	runner *fallbacktest.Runner
	server *httptest.Server
	mu     sync.Mutex
	pauses []time.Duration // guarded by mu
}

func newWorld(t *testing.T) *world {
	t.Helper()
	before := runtime.NumGoroutine()
	w := &world{}
	w.runner, w.server = fallbacktest.New()
	transport := &http.Transport{}
	w.Client = &fallback.Client{URL: w.server.URL + "/threads?token=in-the-url", Secret: fallbacktest.Secret,
		HTTP: &http.Client{Transport: transport},
		Sleep: func(ctx context.Context, d time.Duration) error {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.pauses = append(w.pauses, d)
			return context.Cause(ctx)
		}}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		w.server.Close()
		for range 6000 {
			if runtime.NumGoroutine() <= before {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Errorf("%d goroutines are left of %d", runtime.NumGoroutine(), before)
	})
	return w
}

func TestSend(t *testing.T) {
	w := newWorld(t)
	a, err := w.Send(t.Context(), packet())
	if err != nil || a.Accepted || a.Text != "The fallback runner works on slack:T1:C1:1700000000.000100: tests <fail> & more" {
		t.Fatalf("%+v, %v", a, err)
	}
	// Handed over again, after a crash say: the earlier answer, and no second work.
	b, err := w.Send(t.Context(), packet())
	if err != nil || b != a || w.runner.Taken() != 1 {
		t.Fatalf("%+v, %v, taken %d times", b, err, w.runner.Taken())
	}
	got := w.runner.Requests()
	if len(got) != 2 || got[0].Status != 200 || got[1].Status != 409 || !bytes.Equal(got[0].Body, got[1].Body) {
		t.Errorf("requests %+v", got)
	}
	if h := got[0].Header; h.Get("Idempotency-Key") != packet().Key || h.Get("Content-Type") != "application/json" ||
		!strings.HasPrefix(h.Get("X-Ramus-Signature"), "v0=") {
		t.Errorf("headers %v", h)
	}
}

func TestAccepted(t *testing.T) {
	w := newWorld(t)
	w.runner.Accept = true
	for range 2 {
		if a, err := w.Send(t.Context(), packet()); err != nil || !a.Accepted || a.Text != "" {
			t.Errorf("%+v, %v", a, err)
		}
	}
}

// The body is pinned byte for byte: runners may compare it.
func TestBody(t *testing.T) {
	got, err := packet().Body()
	if err != nil {
		t.Fatal(err)
	}
	golden.CompareFile(t, filepath.Join("testdata", "packet.json"), string(got))
	if bytes.Contains(got, []byte("files.example.org")) {
		t.Error("the address of a file is handed over, which needs Slack's token")
	}
	// The same thread, read at another time by another machine.
	p := packet()
	p.Mention.Time = p.Mention.Time.In(time.FixedZone("east", 7200))
	p.Tools = json.RawMessage(`[{"name":"fallback_session"}]`)
	if again, err := p.Body(); err != nil || !bytes.Equal(again, got) {
		t.Errorf("the same packet is written as\n%s", again)
	}
	var empty, nothing fallback.Packet
	empty.Thread.Replies, empty.Tools = []slack.Post{}, json.RawMessage(`[]`)
	a, errA := empty.Body()
	b, errB := nothing.Body()
	if errA != nil || errB != nil || !bytes.Equal(a, b) {
		t.Errorf("nothing is written as\n%s\n%s", a, b)
	}
	broken := packet()
	broken.Tools = json.RawMessage(`{`)
	if _, err := broken.Body(); err == nil {
		t.Error("a broken catalog is handed over")
	}
}

func TestSignature(t *testing.T) {
	// printf 'v0:1700000000:{}' | openssl dgst -sha256 -hmac secret
	const want = "v0=84dd7b277ba946b3a34369b43499bfd9258b410b8894583f1288b1911aa6a6d6"
	if got := fallback.Sign("secret", "1700000000", []byte("{}")); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	w := newWorld(t)
	w.Secret = "another"
	if _, err := w.Send(t.Context(), packet()); !errors.Is(err, fallback.ErrRefused) ||
		!strings.Contains(err.Error(), "status 401: the signature is wrong") {
		t.Errorf("with another secret: %v", err)
	}
	w = newWorld(t)
	w.Now = func() time.Time { return time.Now().Add(-6 * time.Minute) }
	if _, err := w.Send(t.Context(), packet()); !errors.Is(err, fallback.ErrRefused) || !strings.Contains(err.Error(), "timestamp") {
		t.Errorf("from six minutes ago: %v", err)
	}
	if n := len(w.runner.Requests()); n != 1 {
		t.Errorf("asked %d times", n)
	}
}

// Every attempt is signed again: a wait may be longer than a signature is good for.
func TestSignedAnew(t *testing.T) {
	w := newWorld(t)
	now := time.Now()
	w.Now = func() time.Time { now = now.Add(4 * time.Minute); return now }
	w.runner.Now = w.Now
	w.runner.Fail(fallbacktest.Fault{Status: 503}, fallbacktest.Fault{Status: 503})
	if _, err := w.Send(t.Context(), packet()); err != nil {
		t.Error(err)
	}
	seen := map[string]bool{}
	for _, r := range w.runner.Requests() {
		seen[r.Header.Get("X-Ramus-Timestamp")+r.Header.Get("X-Ramus-Signature")] = true
	}
	if len(seen) != 3 {
		t.Errorf("%d signatures of 3 attempts", len(seen))
	}
}

func TestFailuresThatPass(t *testing.T) {
	w := newWorld(t)
	w.runner.Fail(
		fallbacktest.Fault{Status: 429, RetryAfter: "90"}, fallbacktest.Fault{Status: 500},
		fallbacktest.Fault{Status: 502}, fallbacktest.Fault{Status: 503, RetryAfter: "junk"},
		fallbacktest.Fault{Status: 408}, fallbacktest.Fault{Status: 425}, fallbacktest.Fault{Status: 409},
		fallbacktest.Fault{Status: 409, Body: `{"text":" "}`},
		fallbacktest.Fault{Status: 503, RetryAfter: "999999"}, fallbacktest.Fault{Lose: true})
	a, err := w.Send(t.Context(), packet())
	if err != nil || a.Text == "" || w.runner.Taken() != 1 {
		t.Fatalf("%+v, %v, taken %d times", a, err, w.runner.Taken())
	}
	// The transport repeats the last failure by itself, because of the key.
	if len(w.pauses) < 9 || w.pauses[0] != 90*time.Second || w.pauses[8] != time.Hour {
		t.Errorf("paused %v", w.pauses)
	}
	for i, d := range w.pauses {
		if d <= 0 || i != 0 && i != 8 && d > time.Minute {
			t.Errorf("pause %d is %v", i, d)
		}
	}
	first := w.runner.Requests()[0]
	for _, r := range w.runner.Requests() {
		if !bytes.Equal(r.Body, first.Body) || r.Header.Get("Idempotency-Key") != first.Header.Get("Idempotency-Key") {
			t.Error("an attempt is not the same request")
		}
	}
}

func TestAnswersThatAreFinal(t *testing.T) {
	for _, x := range []struct {
		fault fallbacktest.Fault
		want  string
	}{
		{fallbacktest.Fault{Status: 400, Body: "bad"}, "status 400: bad"},
		{fallbacktest.Fault{Status: 403, Body: "your secret " + fallbacktest.Secret + " is out"},
			"your secret [secret] is out"},
		{fallbacktest.Fault{Status: 404}, "status 404"},
		{fallbacktest.Fault{Status: 410, Body: strings.Repeat("x ", 1000)}, "x …"},
		{fallbacktest.Fault{Status: 422}, "status 422"},
		{fallbacktest.Fault{Status: 204}, "status 204"},
		{fallbacktest.Fault{Status: 200, Body: "done"}, `its answer is not {"text": "…"}`},
		{fallbacktest.Fault{Status: 200, Body: "{}"}, `its answer is not`},
		{fallbacktest.Fault{Status: 200, Body: strings.Repeat("x", 300<<10)}, "larger than"},
		{fallbacktest.Fault{Status: 307, Location: "http://127.0.0.1:1/"}, "status 307"},
	} {
		w := newWorld(t)
		w.runner.Fail(x.fault)
		_, err := w.Send(t.Context(), packet())
		if !errors.Is(err, fallback.ErrRefused) || !strings.Contains(err.Error(), x.want) || len(err.Error()) > 1000 {
			t.Errorf("%d: %v, want %q", x.fault.Status, err, x.want)
		}
		if strings.Contains(err.Error(), "in-the-url") || strings.Contains(err.Error(), fallbacktest.Secret) {
			t.Errorf("the error tells a secret: %v", err)
		}
		if n := len(w.runner.Requests()); n != 1 {
			t.Errorf("%d: asked %d times", x.fault.Status, n)
		}
	}
}

// The runner is away for as long as the context lasts.
func TestAway(t *testing.T) {
	w := newWorld(t)
	w.URL = "http://127.0.0.1:1/threads?token=in-the-url"
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("the server stops")
	w.Sleep = func(ctx context.Context, d time.Duration) error {
		w.pauses = append(w.pauses, d)
		if len(w.pauses) == 20 {
			cancel(stop)
		}
		return context.Cause(ctx)
	}
	_, err := w.Send(ctx, packet())
	if !errors.Is(err, stop) || errors.Is(err, fallback.ErrRefused) || len(w.pauses) != 20 {
		t.Errorf("%v after %d attempts", err, len(w.pauses))
	}
	if strings.Contains(err.Error(), "in-the-url") {
		t.Errorf("the error tells the URL's token: %v", err)
	}
}

// An attempt that hangs is given up and made again.
func TestHanging(t *testing.T) {
	w := newWorld(t)
	w.runner.Fail(fallbacktest.Fault{Hold: make(chan struct{})}, fallbacktest.Fault{Hold: make(chan struct{})})
	w.Client.Timeout = 100 * time.Millisecond
	if _, err := w.Send(t.Context(), packet()); err != nil {
		t.Error(err)
	}
	if n := w.runner.Taken(); n != 1 {
		t.Errorf("taken %d times", n)
	}
}

func TestManyAtOnce(t *testing.T) {
	w := newWorld(t)
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			if a, err := w.Send(t.Context(), packet()); err != nil || a.Text == "" {
				t.Errorf("%+v, %v", a, err)
			}
		})
	}
	wg.Wait()
	if n := w.runner.Taken(); n != 1 {
		t.Errorf("taken %d times", n)
	}
}

func TestCheck(t *testing.T) {
	for _, c := range []fallback.Client{{}, {URL: "ftp://x", Secret: "s"}, {URL: "https://u:p@x", Secret: "s"},
		{URL: "https://x"}, {URL: "https://x#f", Secret: "s"}} {
		if err := c.Check(); err == nil {
			t.Errorf("%+v is accepted", c)
		} else if _, err := c.Send(t.Context(), packet()); err == nil {
			t.Errorf("%+v is used", c)
		}
	}
}
