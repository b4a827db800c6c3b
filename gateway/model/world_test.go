package model

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/secret"
	"github.com/ramus-dev/ramus/internal/standin/modeltest"
)

// world is a proxy between a run that is only a journal and a stand-in of all providers.
type world struct {
	t      *testing.T
	stand  *modeltest.Server
	remote *httptest.Server // the stand-in's
	proxy  *Proxy
	run    *journal
	door   *httptest.Server
}

// journal is a run as the proxy sees it: it keeps events and sums them as the executor does.
type journal struct {
	name string

	mu     sync.Mutex // guards all below
	events []record.Event
	usage  *record.Usage
	idle   bool // no command is at work
	person string
	over   context.Context
	guests int
}

// visitor is a guest of a journal.
type visitor struct {
	*journal
	ctx   context.Context
	leave func()
}

func (j *journal) enter(r *http.Request) (guest, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.idle {
		return nil, false
	}
	j.guests++
	ctx, cancel := context.WithCancel(r.Context())
	stop := context.AfterFunc(j.over, cancel)
	return &visitor{j, ctx, func() {
		stop()
		cancel()
		j.mu.Lock()
		defer j.mu.Unlock()
		j.guests--
	}}, true
}

func (v *visitor) Context() context.Context { return v.ctx }
func (v *visitor) Leave()                   { v.leave() }

func (v *visitor) User() secret.User {
	v.mu.Lock()
	defer v.mu.Unlock()
	return secret.User{Repo: "app", Person: v.person, Run: v.name}
}

func (j *journal) Run() record.Run {
	j.mu.Lock()
	defer j.mu.Unlock()
	return record.Run{ID: j.name, Usage: j.usage}
}

func (j *journal) Tell(e record.Event) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.events = append(j.events, e)
	var c record.ModelCall
	if e.Type == record.EventUsage && json.Unmarshal(e.Data, &c) == nil {
		j.usage = j.usage.Plus(c)
	}
}

// calls are those in the journal, when nobody is at the door any more.
func (w *world) calls() []record.ModelCall {
	w.t.Helper()
	w.settle()
	w.run.mu.Lock()
	defer w.run.mu.Unlock()
	var calls []record.ModelCall
	for _, e := range w.run.events {
		var c record.ModelCall
		if err := json.Unmarshal(e.Data, &c); err != nil {
			w.t.Fatal(err)
		}
		calls = append(calls, c)
	}
	return calls
}

// call is the only one in the journal.
func (w *world) call() record.ModelCall {
	w.t.Helper()
	calls := w.calls()
	if len(calls) != 1 {
		w.t.Fatalf("%d calls in the journal, want 1: %+v", len(calls), calls)
	}
	return calls[0]
}

// settle waits until every call has left.
func (w *world) settle() {
	w.t.Helper()
	for range 12000 {
		w.run.mu.Lock()
		n := w.run.guests
		w.run.mu.Unlock()
		if n == 0 {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	w.t.Fatal("calls are still at work")
}

func newWorld(t *testing.T, change func(*Proxy)) *world {
	t.Helper()
	before := runtime.NumGoroutine()
	w := &world{t: t, run: &journal{name: "r1", over: t.Context()}}
	w.stand, w.remote = modeltest.New()
	transport := &http.Transport{}
	prices := map[string]Price{"*": {Input: 1_000_000, Output: 2_000_000, CacheRead: 100_000, CacheWrite: 1_250_000}}
	w.proxy = &Proxy{Providers: map[string]Provider{}, HTTP: &http.Client{Transport: transport}}
	for _, name := range Names() {
		w.proxy.Providers[name] = Provider{BaseURL: modeltest.BaseURL(w.remote.URL, name), Key: modeltest.Key,
			Prices: prices}
	}
	if change != nil {
		change(w.proxy)
	}
	if err := w.proxy.Check(); err != nil {
		t.Fatal(err)
	}
	w.door = httptest.NewServer(w.proxy.handler(w.run.enter))
	t.Cleanup(func() {
		w.settle()
		w.door.Client().CloseIdleConnections()
		w.door.Close()
		transport.CloseIdleConnections()
		w.remote.Close()
		if c := w.stand.Complaints(); len(c) > 0 {
			t.Errorf("the stand-in complains: %q", c)
		}
		if n := len(w.proxy.ledger.accounts); n > 0 || w.proxy.ledger.held != 0 {
			t.Errorf("%d accounts are left, %d bytes held", n, w.proxy.ledger.held)
		}
		for range 6000 {
			if runtime.NumGoroutine() <= before {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		stacks := make([]byte, 1<<20)
		t.Errorf("%d goroutines are left of %d:\n%s", runtime.NumGoroutine(), before, stacks[:runtime.Stack(stacks, true)])
	})
	return w
}

// reply is an answer as the container got it.
type reply struct {
	status int
	header http.Header
	body   string
	err    error // while the body was read
}

// post asks as a client in a container does, which has a key of its own making.
func (w *world) post(path, body string) reply {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost, w.door.URL+path, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Anthropic-Version", "2023-06-01")
	r.Header.Set("X-Api-Key", "made-up-key-of-the-container")
	r.Header.Set("Authorization", "Bearer made-up-key-of-the-container")
	return w.do(r)
}

func (w *world) do(r *http.Request) reply {
	w.t.Helper()
	resp, err := w.door.Client().Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	got := reply{resp.StatusCode, resp.Header, string(b), err}
	w.clean(got)
	return got
}

// clean tells whether an answer holds nothing of the host's.
func (w *world) clean(got reply) {
	w.t.Helper()
	var b bytes.Buffer
	_ = got.header.Write(&b)
	for _, secret := range []string{modeltest.Key, "org-standin1234567890", "0b1e55ed", "__cf_bm"} {
		if strings.Contains(b.String(), secret) || strings.Contains(got.body, secret) {
			w.t.Errorf("%s is in the answer: %s %s", secret, b.String(), got.body)
		}
	}
}

// protocol is one way to ask for an answer.
type protocol struct {
	name, provider string
	path           string
	whole, stream  string // bodies
	streamPath     string
	model          string
	caches         bool // it tells what went into a cache
}

var protocols = []protocol{
	{name: "messages", provider: "anthropic", path: "/model/anthropic/v1/messages", model: "claude-x-1", caches: true,
		whole:  `{"model":"claude-x-1","max_tokens":100,"messages":[{"role":"user","content":"one two three four"}]}`,
		stream: `{"model":"claude-x-1","max_tokens":100,"stream":true,"messages":[{"role":"user","content":"one two three four"}]}`},
	{name: "completions", provider: "openai", path: "/model/openai/chat/completions", model: "gpt-x-1",
		whole:  `{"model":"gpt-x-1","messages":[{"role":"user","content":"one two three four"}]}`,
		stream: ` {"model":"gpt-x-1","stream":true,"messages":[{"role":"user","content":[{"type":"text","text":"one two three four"}]}]} `},
	{name: "responses", provider: "openai", path: "/model/openai/v1/responses", model: "gpt-x-1",
		whole:  `{"model":"gpt-x-1","background":false,"input":"one two three four"}`,
		stream: `{"model":"gpt-x-1","stream":true,"input":[{"role":"user","content":"one two three four"}]}`},
	{name: "generateContent", provider: "gemini", path: "/model/gemini/v1beta/models/gemini-x-1:generateContent",
		model:      "gemini-x-1",
		whole:      `{"contents":[{"parts":[{"text":"one two three four"}]}]}`,
		stream:     `{"contents":[{"parts":[{"text":"one two three four"}]}]}`,
		streamPath: "/model/gemini/v1beta/models/gemini-x-1:streamGenerateContent?alt=sse"},
}

// eachProtocol runs a test for each way to ask, whole and streamed.
func eachProtocol(t *testing.T, test func(t *testing.T, p protocol, path, body string, streamed bool)) {
	for _, p := range protocols {
		t.Run(p.name, func(t *testing.T) { test(t, p, p.path, p.whole, false) })
		path := p.path
		if p.streamPath != "" {
			path = p.streamPath
		}
		t.Run(p.name+" streamed", func(t *testing.T) { test(t, p, path, p.stream, true) })
	}
}
