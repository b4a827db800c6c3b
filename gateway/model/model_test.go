package model

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/internal/standin/modeltest"
)

func TestEveryProtocolIsCounted(t *testing.T) {
	eachProtocol(t, func(t *testing.T, p protocol, path, body string, streamed bool) {
		w := newWorld(t, nil)
		w.stand.CacheRead = 1000
		if p.caches {
			w.stand.CacheWrite = 200
		}
		got := w.post(path, body)
		if got.status != 200 || got.err != nil || !strings.Contains(got.body, "four") {
			t.Fatalf("status %d, %v: %s", got.status, got.err, got.body)
		}
		if isStream := strings.HasPrefix(got.header.Get("Content-Type"), "text/event-stream"); isStream != streamed {
			t.Errorf("content type %s", got.header.Get("Content-Type"))
		}
		asked := w.stand.Calls()
		if len(asked) != 1 {
			t.Fatalf("%d requests", len(asked))
		}
		want := record.ModelCall{Provider: p.provider, Model: p.model, Status: 200,
			InputTokens: 4 + 1000 + w.stand.CacheWrite, OutputTokens: 4,
			CacheRead: 1000, CacheWrite: w.stand.CacheWrite, CostMicros: 4 + 4*2 + 100 + w.stand.CacheWrite*125/100}
		c := w.call()
		c.DurationMS = 0
		if c != want {
			t.Errorf("journalled\n%+v\nwant\n%+v", c, want)
		}
		if e := w.run.events[0]; e.Type != record.EventUsage || e.Message != p.provider+" "+p.model {
			t.Errorf("event %+v", e)
		}
		if u := w.run.usage; u.Calls != 1 || u.Tokens() != asked[0].Input+asked[0].Output || u.CostMicros != want.CostMicros {
			t.Errorf("usage %+v", u)
		}
	})
}

func TestStreamsArrivePieceByPiece(t *testing.T) {
	eachProtocol(t, func(t *testing.T, p protocol, path, body string, streamed bool) {
		if !streamed {
			return
		}
		w := newWorld(t, nil)
		go_ := make(chan struct{})
		held := make(chan struct{})
		w.stand.Fail(modeltest.Fault{Cut: 4, Hold: go_, Held: held})
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.door.URL+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Anthropic-Version", "2023-06-01")
		resp, err := w.door.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		<-held
		// The provider has stopped in the middle: what it sent is here.
		in := newEvents(resp.Body)
		text := ""
		for range 3 {
			event, err := in.next()
			if err != nil {
				t.Fatal(err)
			}
			text += string(event)
		}
		close(go_)
		rest, err := io.ReadAll(in.r)
		if err != nil || !strings.Contains(text+string(rest), "four") {
			t.Errorf("%v: %s | %s", err, text, rest)
		}
		if c := w.call(); c.Estimated || c.OutputTokens != 4 {
			t.Errorf("%+v", c)
		}
	})
}

// What a stream looks like on the wire makes no difference to what is counted.
func TestPackets(t *testing.T) {
	for _, split := range []int{1, 3, 7, 64} {
		eachProtocol(t, func(t *testing.T, p protocol, path, body string, streamed bool) {
			if !streamed {
				return
			}
			w := newWorld(t, nil)
			w.stand.Split = split
			if got := w.post(path, body); got.status != 200 || got.err != nil {
				t.Fatalf("%d %v %s", got.status, got.err, got.body)
			}
			if c := w.call(); c.Estimated || c.InputTokens != 4 || c.OutputTokens != 4 {
				t.Errorf("split by %d: %+v", split, c)
			}
		})
	}
}

func TestUnaskedCompression(t *testing.T) {
	eachProtocol(t, func(t *testing.T, p protocol, path, body string, _ bool) {
		w := newWorld(t, nil)
		w.stand.Fail(modeltest.Fault{Gzip: true})
		got := w.post(path, body)
		if got.status != 200 || !strings.Contains(got.body, "four") || got.header.Get("Content-Encoding") != "" {
			t.Fatalf("%d %v %q", got.status, got.header, got.body)
		}
		if c := w.call(); c.Estimated || c.OutputTokens != 4 {
			t.Errorf("%+v", c)
		}
		if asked := w.stand.Calls()[0].Header.Get("Accept-Encoding"); asked != "identity" {
			t.Errorf("asked for %q", asked)
		}
	})
}

func TestUnknownCompression(t *testing.T) {
	w := newWorld(t, nil)
	w.stand.Fail(modeltest.Fault{Header: http.Header{"Content-Encoding": {"br"}}})
	if got := w.post(protocols[0].path, protocols[0].whole); got.status != 502 {
		t.Errorf("%d %s", got.status, got.body)
	}
	if c := w.call(); !c.Estimated || c.InputTokens == 0 {
		t.Errorf("%+v", c)
	}
}

// A stream that breaks off is charged by what came, and the client sees that it is
// not whole; Gemini's is told.
func TestStreamsThatBreakOff(t *testing.T) {
	eachProtocol(t, func(t *testing.T, p protocol, path, body string, streamed bool) {
		w := newWorld(t, nil)
		w.stand.Reply = func(string) string { return strings.Repeat("wordword ", 40) }
		if !streamed {
			w.stand.Fail(modeltest.Fault{Cut: -1})
			if got := w.post(path, body); got.status != 502 {
				t.Errorf("%d %s", got.status, got.body)
			}
			if c := w.call(); !c.Estimated || c.InputTokens == 0 || c.Status != 0 {
				t.Errorf("%+v", c)
			}
			return
		}
		w.stand.Fail(modeltest.Fault{Cut: 20})
		got := w.post(path, body)
		told := p.provider == "gemini" && strings.HasSuffix(strings.TrimSpace(got.body), `"status":"UNAVAILABLE"}}`)
		if got.status != 200 || got.err == nil && !told {
			t.Errorf("%d, and no error at the end of %s", got.status, got.body)
		}
		c := w.call()
		if !c.Estimated || c.InputTokens < 4 || c.OutputTokens < 16 || c.OutputTokens > 60 || c.CostMicros == 0 {
			t.Errorf("%+v", c)
		}
		if m := w.run.events[0].Message; !strings.Contains(m, "estimated") {
			t.Errorf("the journal says %q", m)
		}
	})
}

func TestUsageThatIsNotTold(t *testing.T) {
	eachProtocol(t, func(t *testing.T, p protocol, path, body string, _ bool) {
		w := newWorld(t, nil)
		w.stand.Reply = func(string) string { return strings.Repeat("word ", 80) }
		w.stand.Fail(modeltest.Fault{NoUsage: true})
		if got := w.post(path, body); got.status != 200 || got.err != nil {
			t.Fatalf("%d %v", got.status, got.err)
		}
		if c := w.call(); !c.Estimated || c.InputTokens == 0 || c.OutputTokens < 100 {
			t.Errorf("%+v", c)
		}
	})
}

// The usage is asked for in the client's name; it does not see the chunk that answers.
func TestUsageOfCompletions(t *testing.T) {
	for _, x := range []struct {
		options string
		seen    bool
	}{
		{``, false},
		{`"stream_options":{},`, false},
		{`"stream_options":null,`, false},
		{`"stream_options":{"include_usage":false,"include_obfuscation":false},`, false},
		{`"stream_options": {"include_usage" : true} ,`, true},
	} {
		w := newWorld(t, nil)
		got := w.post("/model/openai/v1/chat/completions",
			`{"model":"m",`+x.options+`"stream":true,"messages":[{"role":"user","content":"a"}]}`)
		if seen := strings.Contains(got.body, `"prompt_tokens"`); got.status != 200 || seen != x.seen ||
			!strings.Contains(got.body, "[DONE]") {
			t.Errorf("%s: %d %s", x.options, got.status, got.body)
		}
		var sent struct {
			Options map[string]bool `json:"stream_options"`
			Model   string          `json:"model"`
		}
		if err := json.Unmarshal(w.stand.Calls()[0].Body, &sent); err != nil || !sent.Options["include_usage"] || sent.Model != "m" {
			t.Errorf("%s: sent %s, %v", x.options, w.stand.Calls()[0].Body, err)
		}
		if _, kept := sent.Options["include_obfuscation"]; kept != strings.Contains(x.options, "obfuscation") {
			t.Errorf("%s: sent %s", x.options, w.stand.Calls()[0].Body)
		}
		if c := w.call(); c.Estimated {
			t.Errorf("%s: %+v", x.options, c)
		}
	}
}

func TestWhatIsNotCounted(t *testing.T) {
	w := newWorld(t, nil)
	for _, path := range []string{"/model/anthropic/v1/models?limit=5&key=x", "/model/openai/models",
		"/model/openai/v1/models", "/model/gemini/v1beta/models"} {
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, w.door.URL+path, nil)
		r.Header.Set("Anthropic-Version", "2023-06-01")
		if got := w.do(r); got.status != 200 || !strings.Contains(got.body, "stand-in-1") {
			t.Errorf("%s: %d %s", path, got.status, got.body)
		}
	}
	if got := w.post("/model/anthropic/v1/messages/count_tokens", protocols[0].whole); got.body != `{"input_tokens":4}` {
		t.Errorf("%s", got.body)
	}
	if got := w.post("/model/gemini/v1beta/models/m:countTokens", protocols[3].whole); got.body != `{"totalTokens":4}` {
		t.Errorf("%s", got.body)
	}
	if calls := w.calls(); len(calls) > 0 {
		t.Errorf("journalled: %+v", calls)
	}
	if got := w.post("/model/openai/v1/embeddings", `{"model":"e","input":"a b"}`); got.status != 200 {
		t.Errorf("%d %s", got.status, got.body)
	}
	if c := w.call(); c.Estimated || c.InputTokens != 2 || c.OutputTokens != 0 {
		t.Errorf("%+v", c)
	}
}

// A stream that Gemini was not asked to send as events is an array.
func TestGeminiArray(t *testing.T) {
	w := newWorld(t, nil)
	got := w.post("/model/gemini/v1beta/models/gemini-x-1:streamGenerateContent", protocols[3].whole)
	var parts []any
	if err := json.Unmarshal([]byte(got.body), &parts); err != nil || len(parts) != 4 {
		t.Fatalf("%v: %s", err, got.body)
	}
	if c := w.call(); c.Estimated || c.InputTokens != 4 || c.OutputTokens != 4 {
		t.Errorf("%+v", c)
	}
}

func TestErrorsOfTheProvider(t *testing.T) {
	for _, x := range []struct {
		fault      modeltest.Fault
		status     int
		want       string
		retryAfter string
	}{
		{modeltest.Fault{Status: 429, RetryAfter: "7"}, 429, "a fault of organization [account]", "7"},
		{modeltest.Fault{Status: 529}, 529, "a fault of", ""},
		{modeltest.Fault{Status: 400}, 400, "a fault of", ""},
		{modeltest.Fault{Status: 401, Body: `{"error":{"message":"Incorrect API key provided: ` + modeltest.Key +
			`"}}`}, 401, "does not allow this with the key", ""},
		{modeltest.Fault{Status: 403, Body: `{"error":"project proj_abcdefgh12345 may not"}`}, 403,
			"does not allow this with the key", ""},
		{modeltest.Fault{Status: 400, Body: `{"error":{"message":"key ` + modeltest.Key +
			` of project proj_abcdefgh12345 in projects/1234567890"}}`}, 400, "of project [account] in [account]", ""},
		{modeltest.Fault{Status: 502, Body: "<html>proxy.internal.example.org is down</html>"}, 502,
			"answered with status 502", ""},
		{modeltest.Fault{Status: 503, RetryAfter: "3", Body: "{"}, 503, "answered with status 503", "3"},
		{modeltest.Fault{Status: 500, Body: `"` + strings.Repeat("x", maxRefused) + `"`}, 500,
			"answered with status 500", ""},
		{modeltest.Fault{Status: 500, Gzip: true, Header: http.Header{"Content-Encoding": {"gzip"}}}, 500,
			"answered with status 500", ""},
		{modeltest.Fault{Status: 204}, 502, "status 204", ""},
		{modeltest.Fault{Redirect: "http://127.0.0.1:1/elsewhere?key=x"}, 502, "status 307", ""},
	} {
		eachProtocol(t, func(t *testing.T, p protocol, path, body string, _ bool) {
			w := newWorld(t, nil)
			w.stand.Fail(x.fault)
			got := w.post(path, body)
			if got.status != x.status || !strings.Contains(got.body, x.want) || got.header.Get("Retry-After") != x.retryAfter {
				t.Errorf("%+v: %d %v %s", x.fault, got.status, got.header, got.body)
			}
			if strings.Contains(got.body, "internal.example.org") || got.header.Get("Location") != "" {
				t.Errorf("%v %s", got.header, got.body)
			}
			checkFormat(t, p.provider, got.body)
			if c := w.call(); x.status >= 400 && x.fault.Status >= 400 &&
				(c.Status != x.status || c.InputTokens+c.OutputTokens+c.CostMicros != 0) {
				t.Errorf("%+v", c)
			}
			if n := len(w.stand.Calls()); n != 1 {
				t.Errorf("asked %d times", n)
			}
		})
	}
}

// checkFormat tells whether an error is as the provider's clients expect it.
func checkFormat(t *testing.T, provider, body string) {
	t.Helper()
	var e struct {
		Type  string          `json:"type"`
		Error json.RawMessage `json:"error"`
	}
	if err := json.Unmarshal([]byte(body), &e); err != nil || len(e.Error) == 0 {
		t.Errorf("no error of %s: %s", provider, body)
	}
}

func TestProviderAway(t *testing.T) {
	w := newWorld(t, func(p *Proxy) {
		p.Providers["anthropic"] = Provider{BaseURL: modeltest.BaseURL("http://127.0.0.1:1", "anthropic"),
			Key: modeltest.Key}
	})
	got := w.post(protocols[0].path, protocols[0].stream)
	if got.status != 502 || strings.Contains(got.body, "127.0.0.1") || !strings.Contains(got.body, "cannot be reached") {
		t.Errorf("%d %s", got.status, got.body)
	}
	if c := w.call(); c.Status != 0 || c.InputTokens != 0 || c.Estimated {
		t.Errorf("%+v", c)
	}
}

func TestProviderSlow(t *testing.T) {
	for _, after := range []int{0, 5} {
		// The provider is asked within the same time. Where the machine took all of it for that,
		// nothing is seen of what comes then, and the call is made again with twice the time.
		for timeout := 200 * time.Millisecond; ; timeout *= 2 {
			w := newWorld(t, func(p *Proxy) { p.Timeout = timeout })
			held := make(chan struct{})
			w.stand.Fail(modeltest.Fault{Cut: after, Hold: make(chan struct{}), Held: held})
			got := w.post(protocols[0].path, protocols[0].stream)
			late := after > 0 && got.status == 504
			select {
			case <-held:
			default:
				late = true
			}
			if late && timeout < time.Minute {
				continue
			}
			if after == 0 && got.status != 504 || after > 0 &&
				(got.status != 200 || !strings.Contains(got.body, "event: error\n") || got.err != nil) {
				t.Errorf("after %d: %d %v %s", after, got.status, got.err, got.body)
			}
			if c := w.call(); c.Ended != record.EndedTime || !c.Estimated || c.InputTokens == 0 {
				t.Errorf("%+v", c)
			}
			break
		}
	}
}

// Who hangs up in the middle pays for what came.
func TestClientHangsUp(t *testing.T) {
	for _, after := range []int{0, 8} {
		w := newWorld(t, nil)
		held := make(chan struct{})
		w.stand.Fail(modeltest.Fault{Cut: after, Hold: make(chan struct{}), Held: held})
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			<-held
			cancel()
		})
		r, _ := http.NewRequestWithContext(ctx, http.MethodPost, w.door.URL+protocols[0].path,
			strings.NewReader(protocols[0].stream))
		r.Header.Set("Anthropic-Version", "2023-06-01")
		if resp, err := w.door.Client().Do(r); err == nil {
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
		wg.Wait()
		if c := w.call(); !c.Estimated || c.InputTokens == 0 {
			t.Errorf("after %d: %+v", after, c)
		}
	}
}

// A command's end ends its calls, and they are in the journal when it is finished.
func TestStepEnds(t *testing.T) {
	w := newWorld(t, nil)
	over, end := context.WithCancel(t.Context())
	w.run.over = over
	held := make(chan struct{})
	w.stand.Fail(modeltest.Fault{Cut: 5, Hold: make(chan struct{}), Held: held})
	var wg sync.WaitGroup
	wg.Go(func() {
		<-held
		end()
	})
	resp, err := w.door.Client().Post(w.door.URL+protocols[1].path, "application/json",
		strings.NewReader(protocols[1].stream))
	if err == nil { // it had come as far as the answer's head
		_, err = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
	if err == nil {
		t.Error("the stream ended well")
	}
	wg.Wait()
	if c := w.call(); !c.Estimated {
		t.Errorf("%+v", c)
	}
}

func TestBetweenRuns(t *testing.T) {
	w := newWorld(t, nil)
	w.run.idle = true
	got := w.post(protocols[1].path, protocols[1].whole)
	if got.status != 403 || !strings.Contains(got.body, "while a command of a run is at work") ||
		got.header.Get("X-Should-Retry") != "false" {
		t.Errorf("%d %s", got.status, got.body)
	}
	if len(w.stand.Calls()) > 0 {
		t.Error("it reached the provider")
	}
}

func TestNotConfigured(t *testing.T) {
	w := newWorld(t, func(p *Proxy) { p.Providers["openai"] = Provider{} })
	got := w.post(protocols[1].path, protocols[1].whole)
	if got.status != 404 || !strings.Contains(got.body, "models.openai.api_key_env") {
		t.Errorf("%d %s", got.status, got.body)
	}
	got = w.post("/model/other/v1/messages", "{}")
	if got.status != 404 || !strings.Contains(got.body, "[anthropic gemini]") {
		t.Errorf("%d %s", got.status, got.body)
	}
}

func TestCheck(t *testing.T) {
	for want, p := range map[string]*Proxy{
		"want one of anthropic, gemini, openai":  {Providers: map[string]Provider{"antropic": {}}},
		"its URL must be like":                   {Providers: map[string]Provider{"openai": {BaseURL: "api.openai.com"}}},
		"no user, query or fragment":             {Providers: map[string]Provider{"openai": {BaseURL: "https://a:b@c"}}},
		"characters that no header can carry":    {Providers: map[string]Provider{"gemini": {Key: "a\nb"}}},
		"the price of m is not between 0 and":    {Providers: map[string]Provider{"gemini": {Prices: map[string]Price{"m": {Output: -1}}}}},
		"cannot use the budget for models: it i": {Budget: Budget{Tokens: -1}},
	} {
		if err := p.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if err := (&Proxy{Providers: map[string]Provider{"openai": {}, "anthropic": {}, "gemini": {}}}).Check(); err != nil {
		t.Error(err)
	}
	if DefaultURL("openai") != "https://api.openai.com/v1" || DefaultURL("x") != "" {
		t.Error("default URLs")
	}
}

func TestPrices(t *testing.T) {
	v := &served{prices: map[string]Price{"a-1": {Input: 1}, "a-*": {Input: 2}, "a-1-*": {Input: 3}, "*": {Input: 4}}}
	for name, want := range map[string]int64{"a-1": 1, "a-2": 2, "a-1-mini": 3, "b": 4} {
		if p, ok := v.price(name); !ok || p.Input != want {
			t.Errorf("%s: %+v", name, p)
		}
	}
	v.prices = map[string]Price{"asked": {Input: 7}}
	if p, ok := v.price("answered", "asked"); !ok || p.Input != 7 {
		t.Errorf("%+v", p)
	}
	if _, ok := v.price("other"); ok {
		t.Error("a price for nothing")
	}
	if got := (Price{Input: 3_000_000, Output: 15_000_000}).cost(tokens{input: 1000, cacheRead: 400, cacheWrite: 100,
		output: 10}); got != 3150 {
		t.Errorf("cost %d", got)
	}
	if got := (Price{Input: 1}).cost(tokens{input: 1}); got != 1 {
		t.Errorf("a small call costs %d", got)
	}
	if got := (Price{Input: maxPrice, Output: maxPrice}).cost(tokens{input: maxTokens * 2, output: maxTokens * 2}); got <= 0 {
		t.Errorf("the largest call costs %d", got)
	}
}

func ExampleDefaultURL() {
	fmt.Println(DefaultURL("anthropic"))
	// Output: https://api.anthropic.com
}
