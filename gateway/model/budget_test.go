package model

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/internal/standin/modeltest"
)

// used is a run of which the journal tells that it used so much.
func (w *world) used(tokens int64) {
	w.run.usage = &record.Usage{Calls: 1, InputTokens: tokens, CostMicros: tokens}
}

func TestBudgetUsedUp(t *testing.T) {
	eachProtocol(t, func(t *testing.T, p protocol, path, body string, _ bool) {
		w := newWorld(t, func(p *Proxy) { p.Budget.Tokens = 100 })
		w.used(99)
		// Answered whole, a call may exceed what is left by what it costs itself.
		if got := w.post(p.path, p.whole); got.status != 200 || got.err != nil {
			t.Fatalf("below the budget: %d %s", got.status, got.body)
		}
		// The run is at its end, and stays there however often the container asks.
		for range 5 {
			got := w.post(path, body)
			want := 429
			if p.provider == "anthropic" {
				want = 402
			}
			if got.status != want ||
				!strings.Contains(got.body, "this run has used its budget for models: 107 of 100 tokens") ||
				got.header.Get("X-Should-Retry") != "false" {
				t.Errorf("%d %s", got.status, got.body)
			}
			checkFormat(t, p.provider, got.body)
		}
		calls := w.calls()
		if len(calls) != 2 || calls[0].Ended != "" || !calls[1].Refused || calls[1].Ended != "budget" || calls[1].InputTokens != 0 {
			t.Errorf("journalled %+v", calls)
		}
		if u := w.run.usage; u.Calls != 2 || u.Tokens() != 107 {
			t.Errorf("usage %+v", u)
		}
		if n := len(w.stand.Calls()); n != 1 {
			t.Errorf("the provider was asked %d times", n)
		}
		// What is not counted is served still.
		if got := w.post("/model/anthropic/v1/messages/count_tokens", protocols[0].whole); got.status != 200 {
			t.Errorf("%d %s", got.status, got.body)
		}
	})
}

// A restart of the server is a new proxy and a run summed up again from its journal.
func TestBudgetOutlivesTheServer(t *testing.T) {
	w := newWorld(t, func(p *Proxy) { p.Budget.Tokens = 10 })
	for range 2 {
		w.post(protocols[0].path, protocols[0].whole)
	}
	events := w.run.events
	again := newWorld(t, func(p *Proxy) { p.Budget.Tokens = 10 })
	for _, e := range events {
		again.run.Tell(e)
	}
	if got := again.post(protocols[0].path, protocols[0].whole); got.status != 402 {
		t.Errorf("%d %s", got.status, got.body)
	}
}

func TestStreamRunsIntoTheBudget(t *testing.T) {
	eachProtocol(t, func(t *testing.T, p protocol, path, body string, streamed bool) {
		if !streamed {
			return
		}
		w := newWorld(t, func(p *Proxy) { p.Budget.Tokens = 2000 })
		w.stand.Reply = func(string) string { return strings.TrimSpace(strings.Repeat("wordword ", 5000)) }
		got := w.post(path, body)
		if got.status != 200 || got.err != nil {
			t.Fatalf("%d %v", got.status, got.err)
		}
		events := strings.Split(strings.TrimSpace(got.body), "\n\n")
		last := events[len(events)-1]
		if !strings.Contains(last, "used its budget for models") {
			t.Fatalf("the last event is %s", last)
		}
		var e map[string]json.RawMessage
		if err := json.Unmarshal(data([]byte(last)), &e); err != nil {
			t.Error(err)
		}
		switch p.name {
		case "messages":
			if !strings.HasPrefix(last, "event: error\n") || string(e["type"]) != `"error"` {
				t.Error(last)
			}
		case "responses":
			if !strings.HasPrefix(last, "event: response.failed\n") ||
				!strings.Contains(string(e["response"]), `"code":"insufficient_quota"`) {
				t.Error(last)
			}
		default:
			if e["error"] == nil {
				t.Error(last)
			}
		}
		c := w.call()
		if c.Ended != "budget" || !c.Estimated || c.InputTokens+c.OutputTokens < 2000 || c.InputTokens+c.OutputTokens > 2010 {
			t.Errorf("%+v", c)
		}
	})
}

// The last event of a stream that ends at the budget is the provider's.
func TestStreamEndsAtTheBudget(t *testing.T) {
	eachProtocol(t, func(t *testing.T, p protocol, path, body string, streamed bool) {
		w := newWorld(t, func(p *Proxy) { p.Budget.Tokens = 1000 })
		w.stand.CacheRead = 5000 // known with the answer's end, or its beginning
		got := w.post(path, body)
		ended := p.provider == "anthropic" || p.provider == "gemini"
		if c := w.call(); streamed && ended {
			if c.Ended != "budget" || !strings.Contains(got.body, "budget") {
				t.Errorf("%+v %s", c, got.body)
			}
		} else if c.Ended != "" || c.Estimated || strings.Contains(got.body, "budget") || got.status != 200 {
			t.Errorf("%+v %s", c, got.body)
		}
	})
}

func TestBudgetOfMoney(t *testing.T) {
	w := newWorld(t, func(p *Proxy) {
		p.Budget.CostMicros = 20
		c := p.Providers["openai"]
		c.Prices = map[string]Price{"gpt-y": {Input: 1}}
		p.Providers["openai"] = c
	})
	for i := range 3 {
		got := w.post(protocols[0].path, protocols[0].whole) // 12 a call
		if want := map[bool]int{true: 200, false: 402}[i < 2]; got.status != want {
			t.Errorf("call %d: %d %s", i, got.status, got.body)
		}
	}
	got := w.post(protocols[1].path, protocols[1].whole)
	if got.status != 400 || !strings.Contains(got.body, "adds it to models.openai.prices") {
		t.Errorf("%d %s", got.status, got.body)
	}
}

func TestBudgetOfCalls(t *testing.T) {
	w := newWorld(t, func(p *Proxy) { p.Budget.Calls = 3 })
	for i := range 5 {
		got := w.post(protocols[0].path, protocols[0].stream)
		if want := map[bool]int{true: 200, false: 402}[i < 3]; got.status != want {
			t.Errorf("call %d: %d %s", i, got.status, got.body)
		}
	}
	if u := w.run.usage; u.Calls != 3 {
		t.Errorf("%+v", u)
	}
}

// However many calls race for what is left, each is counted once, and those that
// exceed the budget are no more than may be at work at once.
func TestBudgetRace(t *testing.T) {
	const atOnce, callers = 4, 24
	w := newWorld(t, func(p *Proxy) { p.Calls, p.Budget.Tokens = atOnce, 400 })
	var served, refused, busy atomic.Int64
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			p := protocols[i%len(protocols)]
			body := p.whole
			if i%2 == 0 && p.streamPath == "" {
				body = p.stream
			}
			for {
				got := w.post(p.path, body)
				switch {
				case got.status == 200:
					served.Add(1)
				case strings.Contains(got.body, "budget"):
					refused.Add(1)
					return
				case got.status == 429:
					busy.Add(1)
				default:
					t.Errorf("%d %s", got.status, got.body)
					return
				}
			}
		})
	}
	wg.Wait()
	w.settle()
	u := w.run.usage
	var told int64
	for _, c := range w.stand.Calls() {
		told += c.Input + c.Output
	}
	if u.Calls != int64(len(w.stand.Calls())) {
		t.Errorf("%d calls journalled, %d made", u.Calls, len(w.stand.Calls()))
	}
	// Streams that were ended in the middle are estimated, so the sums may differ a little.
	if most := int64(400 + atOnce*60); u.Tokens() > most || told > most {
		t.Errorf("%d tokens journalled, %d told; want at most %d", u.Tokens(), told, most)
	}
	if refused.Load() != callers || u.Tokens() < 400 {
		t.Errorf("%d of %d were refused, %d tokens", refused.Load(), callers, u.Tokens())
	}
	t.Logf("%d served, %d refused, %d told to come again; %d tokens", served.Load(), refused.Load(), busy.Load(), u.Tokens())
}

// More calls than may be at work are told to come again, and take nobody's place for long.
func TestCallsAtOnce(t *testing.T) {
	w := newWorld(t, func(p *Proxy) { p.Calls = 3 })
	free := make(chan struct{})
	var held []chan struct{}
	for range 3 {
		held = append(held, make(chan struct{}))
		w.stand.Fail(modeltest.Fault{Hold: free, Held: held[len(held)-1]})
	}
	var wg sync.WaitGroup
	var at atomic.Int64
	for range 3 {
		wg.Go(func() {
			if got := w.post(protocols[0].path, protocols[0].whole); got.status != 200 {
				t.Errorf("%d %s", got.status, got.body)
			}
			at.Add(1)
		})
	}
	for _, h := range held {
		<-h
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.door.URL+"/model/openai/models", nil)
	if err != nil {
		t.Fatal(err)
	}
	got := w.do(r)
	if got.status != http.StatusTooManyRequests || got.header.Get("Retry-After") != "1" ||
		!strings.Contains(got.body, "3 calls of this run are at work") {
		t.Errorf("%d %v %s", got.status, got.header, got.body)
	}
	for i := range 1000 {
		resp, err := w.door.Client().Post(w.door.URL+protocols[i%4].path, "application/json",
			strings.NewReader(protocols[i%4].whole))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusTooManyRequests {
			t.Fatalf("call %d: %d", i, resp.StatusCode)
		}
	}
	if n := at.Load(); n != 0 {
		t.Errorf("%d calls were let go", n)
	}
	close(free)
	wg.Wait()
	if got = w.post(protocols[0].path, protocols[0].whole); got.status != 200 {
		t.Errorf("%d %s", got.status, got.body)
	}
	w.settle()
	if u := w.run.Run().Usage; u.Calls != 4 {
		t.Errorf("usage %+v", u)
	}
}

// Large requests take memory of the host's: no run gets all of it.
func TestMemory(t *testing.T) {
	var l ledger
	a, b := l.open("a"), l.open("b")
	if !a.holdBytes(heldByRun) || a.holdBytes(1) || !b.holdBytes(1) {
		t.Error("a run's bound")
	}
	a.release(heldByRun)
	if !a.holdBytes(1) {
		t.Error("what was released cannot be taken again")
	}
	var all []*account
	for i := range heldByAll/heldByRun + 1 {
		c := l.open(fmt.Sprint(i))
		if c.holdBytes(heldByRun) != (i < heldByAll/heldByRun-1) {
			t.Errorf("run %d", i)
		}
		all = append(all, c)
	}
	for _, c := range append(all, a, b) {
		c.close()
	}
	if len(l.accounts) > 0 {
		t.Errorf("%d accounts are left", len(l.accounts))
	}
}
