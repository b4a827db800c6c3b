package llm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/ramus-dev/ramus/executor"
)

const key = "sk-very-secret"

// endpoint stands in for a model endpoint: it refuses what a real one refuses
// and counts what it was asked.
type endpoint struct {
	*httptest.Server
	kind Kind

	mu     sync.Mutex // guards the below
	asked  int
	faults []fault // taken one by one before answers are given
	stop   string  // the finish reason of answers
	raw    string  // an answer in raw form
}

type fault struct {
	status     int
	retryAfter string
	cut        bool // break the connection
}

func newEndpoint(t *testing.T, kind Kind) *endpoint {
	e := &endpoint{kind: kind}
	e.Server = httptest.NewServer(http.HandlerFunc(e.serve))
	t.Cleanup(e.Close)
	return e
}

func (e *endpoint) refuse(w http.ResponseWriter, status int, format string, args ...any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(map[string]any{"type": "error",
		"error": map[string]any{"message": fmt.Sprintf(format, args...)}})
}

func (e *endpoint) serve(w http.ResponseWriter, r *http.Request) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.asked++
	if len(e.faults) > 0 {
		f := e.faults[0]
		e.faults = e.faults[1:]
		if f.cut {
			panic(http.ErrAbortHandler)
		}
		if f.retryAfter != "" {
			w.Header().Set("Retry-After", f.retryAfter)
		}
		if f.status == http.StatusFound {
			w.Header().Set("Location", "/elsewhere")
		}
		e.refuse(w, f.status, "fault %d", f.status)
		return
	}
	path, got := "/v1/chat/completions", strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	if e.kind == Anthropic {
		path, got = "/v1/messages", r.Header.Get("X-Api-Key")
	}
	if r.Method != "POST" || r.URL.Path != path {
		e.refuse(w, 404, "no %s %s here", r.Method, r.URL.Path)
		return
	}
	if got != key {
		e.refuse(w, 401, "the key %s is wrong", got)
		return
	}
	if r.Header.Get("Content-Type") != "application/json" {
		e.refuse(w, 415, "want JSON")
		return
	}
	if e.kind == Anthropic && r.Header.Get("Anthropic-Version") == "" {
		e.refuse(w, 400, "anthropic-version: header is required")
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	text, err := e.answer(body)
	if err != nil {
		e.refuse(w, 400, "%v", err)
		return
	}
	if e.raw != "" {
		text = e.raw
	}
	w.Header().Set("Content-Type", "application/json")
	io.WriteString(w, text)
}

// answer repeats the question, so that a test sees that all of it came.
func (e *endpoint) answer(body []byte) (string, error) {
	strict := func(into any) error {
		d := json.NewDecoder(strings.NewReader(string(body)))
		d.DisallowUnknownFields()
		return d.Decode(into)
	}
	check := func(schema json.RawMessage) error {
		var s jsonschema.Schema
		if err := json.Unmarshal(schema, &s); err != nil {
			return err
		}
		_, err := s.Resolve(nil)
		return err
	}
	if e.kind == Anthropic {
		var q messagesQuestion
		if err := strict(&q); err != nil {
			return "", err
		}
		switch {
		case q.MaxTokens < 1:
			return "", errors.New("max_tokens: field required")
		case len(q.Messages) == 0 || q.Messages[0].Role != "user":
			return "", errors.New("messages: first message must use the user role")
		case q.ToolChoice != nil && (len(q.Tools) == 0 || q.Tools[0].Name != q.ToolChoice.Name):
			return "", errors.New("tool_choice: no such tool")
		}
		said := q.Model + "|" + q.System + "|" + q.Messages[0].Content
		block := map[string]any{"type": "text", "text": said}
		stop := "end_turn"
		if q.ToolChoice != nil {
			if err := check(q.Tools[0].InputSchema); err != nil {
				return "", err
			}
			block, stop = map[string]any{"type": "tool_use", "id": "t", "name": answerTool,
				"input": map[string]any{"said": said}}, "tool_use"
		}
		if e.stop != "" {
			stop = e.stop
		}
		b, err := json.Marshal(map[string]any{"type": "message", "content": []any{block}, "stop_reason": stop})
		return string(b), err
	}
	var q chatQuestion
	if err := strict(&q); err != nil {
		return "", err
	}
	said := q.Model
	for _, m := range q.Messages {
		if !slices.Contains([]string{"system", "user"}, m.Role) {
			return "", fmt.Errorf("unknown role %q", m.Role)
		}
		said += "|" + m.Content
	}
	if f := q.ResponseFormat; f != nil {
		if f.Type != "json_schema" || f.JSONSchema.Name == "" {
			return "", errors.New("response_format: want a name")
		}
		if err := check(f.JSONSchema.Schema); err != nil {
			return "", err
		}
		b, err := json.Marshal(map[string]any{"said": said})
		if err != nil {
			return "", err
		}
		said = string(b)
	}
	stop := "stop"
	if e.stop != "" {
		stop = e.stop
	}
	b, err := json.Marshal(map[string]any{"choices": []any{map[string]any{
		"index": 0, "message": map[string]any{"role": "assistant", "content": said}, "finish_reason": stop}}})
	return string(b), err
}

// ask makes a client of an endpoint; pauses are collected, not slept.
func (e *endpoint) client(t *testing.T, pauses *[]time.Duration) *Client {
	t.Helper()
	c, err := New(Client{Kind: e.kind, BaseURL: e.URL + "/v1/", Model: "m", Key: key, HTTP: e.Client(),
		Sleep: func(ctx context.Context, d time.Duration) error {
			if pauses != nil {
				*pauses = append(*pauses, d)
			}
			return ctx.Err()
		}})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func both(t *testing.T, f func(t *testing.T, e *endpoint)) {
	for _, kind := range []Kind{OpenAI, Anthropic} {
		t.Run(string(kind), func(t *testing.T) { f(t, newEndpoint(t, kind)) })
	}
}

func TestAnswers(t *testing.T) {
	both(t, func(t *testing.T, e *endpoint) {
		c := e.client(t, nil)
		got, err := c.Ask(t.Context(), executor.LLMCall{System: "be brief", Prompt: "is it good?"})
		if err != nil || got != "m|be brief|is it good?" {
			t.Errorf("%q, %v", got, err)
		}
		got, err = c.Ask(t.Context(), executor.LLMCall{Model: "n", System: "s", Prompt: "p", MaxTokens: 7,
			Schema: json.RawMessage(`{"type":"object","properties":{"said":{"type":"string"}}}`)})
		if err != nil || got != `{"said":"n|s|p"}` {
			t.Errorf("structured: %q, %v", got, err)
		}
	})
}

func TestBusyIsAskedAgain(t *testing.T) {
	both(t, func(t *testing.T, e *endpoint) {
		e.faults = []fault{{status: 429, retryAfter: "7"}, {status: 529}, {cut: true}, {status: 503, retryAfter: "86400"}}
		var pauses []time.Duration
		if _, err := e.client(t, &pauses).Ask(t.Context(), executor.LLMCall{Prompt: "p"}); err != nil {
			t.Fatal(err)
		}
		if len(pauses) != 4 || pauses[0] != 7*time.Second || pauses[3] != longestPause {
			t.Errorf("pauses %v: want the endpoint's own first, at most %v last", pauses, longestPause)
		}
		for _, p := range pauses[1:3] {
			if p < 250*time.Millisecond || p > 20*time.Second {
				t.Errorf("pause %v", p)
			}
		}
	})
}

func TestBusyForEver(t *testing.T) {
	e := newEndpoint(t, OpenAI)
	for range 9 {
		e.faults = append(e.faults, fault{status: 500})
	}
	_, err := e.client(t, nil).Ask(t.Context(), executor.LLMCall{Prompt: "p"})
	if !errors.Is(err, ErrBusy) || e.asked != 5 {
		t.Errorf("%v after %d attempts", err, e.asked)
	}
}

func TestRefusalsAreNotAskedAgain(t *testing.T) {
	both(t, func(t *testing.T, e *endpoint) {
		for _, status := range []int{400, 401, 403, 404, 413, 302} {
			e.faults, e.asked = []fault{{status: status}}, 0
			_, err := e.client(t, nil).Ask(t.Context(), executor.LLMCall{Prompt: "p"})
			if !errors.Is(err, ErrRefused) || e.asked != 1 {
				t.Errorf("status %d: %v after %d attempts", status, err, e.asked)
			}
		}
	})
}

func TestKeyIsNeverTold(t *testing.T) {
	both(t, func(t *testing.T, e *endpoint) {
		c := e.client(t, nil)
		c.Key = key + "x" // the endpoint repeats the wrong key in its error
		_, err := c.Ask(t.Context(), executor.LLMCall{Prompt: "p"})
		if !errors.Is(err, ErrRefused) || strings.Contains(err.Error(), key) {
			t.Errorf("%v", err)
		}
	})
}

func TestUnusableAnswers(t *testing.T) {
	for kind, stops := range map[Kind][]string{OpenAI: {"length", "content_filter"}, Anthropic: {"max_tokens", "refusal"}} {
		e := newEndpoint(t, kind)
		for _, stop := range stops {
			e.stop = stop
			if _, err := e.client(t, nil).Ask(t.Context(), executor.LLMCall{Prompt: "p"}); !errors.Is(err, ErrAnswer) {
				t.Errorf("%s: %v", stop, err)
			}
		}
		for _, raw := range []string{"<html>", "{}", `{"choices":[{}],"content":[{"type":"image"}]}`,
			strings.Repeat(" ", largestAnswer+1)} {
			e.raw = raw
			if _, err := e.client(t, nil).Ask(t.Context(), executor.LLMCall{Prompt: "p"}); !errors.Is(err, ErrAnswer) {
				t.Errorf("%s: %.20q: %v", kind, raw, err)
			}
		}
	}
}

func TestEndsWithItsContext(t *testing.T) {
	e := newEndpoint(t, OpenAI)
	e.faults = []fault{{status: 503}}
	ctx, cancel := context.WithCancel(t.Context())
	c := e.client(t, nil)
	c.Sleep = func(ctx context.Context, _ time.Duration) error { cancel(); return ctx.Err() }
	if _, err := c.Ask(ctx, executor.LLMCall{Prompt: "p"}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

func TestOptions(t *testing.T) {
	for _, c := range []Client{
		{Kind: OpenAI, BaseURL: "llm.example.org"}, {Kind: OpenAI, BaseURL: "ftp://llm.example.org"},
		{Kind: "x", BaseURL: "https://llm.example.org"},
		{Kind: OpenAI, BaseURL: "https://user:pw@llm.example.org"}, {Kind: OpenAI},
	} {
		if _, err := New(c); err == nil {
			t.Errorf("%+v is accepted", c)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"choices":[{"message":{"content":"x"}}]}`), true)
	f.Add([]byte(`{"content":[{"type":"tool_use","input":{}}]}`), false)
	f.Fuzz(func(t *testing.T, b []byte, structured bool) {
		for _, kind := range []Kind{OpenAI, Anthropic} {
			c := &Client{Kind: kind}
			call := executor.LLMCall{}
			if structured {
				call.Schema = json.RawMessage(`{}`)
			}
			if _, err := c.decode(b, call); err != nil && !errors.Is(err, ErrAnswer) {
				t.Error(err)
			}
			c.errorText(b)
		}
	})
}
