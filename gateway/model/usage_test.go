package model

import (
	"bytes"
	"errors"
	"io"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// TestTallyTokens estimates what a provider did not report.
func TestTallyTokens(t *testing.T) {
	for _, c := range []struct {
		name          string
		tally         tally
		input, output int64
		estimated     bool
	}{
		{"reported", tally{said: tokens{input: 3, output: 2}, hasIn: true, whole: true, guess: 99, visible: 99}, 3, 2, false},
		{"no input", tally{said: tokens{output: 2}, whole: true, guess: 9}, 9, 2, true},
		{"more input than guessed", tally{said: tokens{input: 10}, whole: true, guess: 9}, 10, 0, true},
		{"text without a count", tally{hasIn: true, visible: 41}, 0, 10, true},
		{"count is larger than the text", tally{said: tokens{output: 20}, hasIn: true, visible: 40}, 0, 20, true},
		{"less than a token of text", tally{hasIn: true, visible: 3, waited: time.Second}, 0, 100, true},
		{"one token of text", tally{hasIn: true, visible: 4, waited: time.Second}, 0, 1, true},
		{"no answer", tally{hasIn: true, waited: 2 * time.Second}, 0, 200, true},
		{"no answer with a limit", tally{hasIn: true, waited: 2 * time.Second, most: 50}, 0, 50, true},
		{"no answer with a large limit", tally{hasIn: true, waited: 2 * time.Second, most: 500}, 0, 200, true},
	} {
		n, estimated := c.tally.tokens()
		if n.input != c.input || n.output != c.output || estimated != c.estimated || n.total() != c.input+c.output {
			t.Errorf("%s: %+v, estimated: %t", c.name, n, estimated)
		}
	}
}

// TestValue bounds the counts of endpoints.
func TestValue(t *testing.T) {
	if got := value(nil); got != 0 {
		t.Error(got)
	}
	for n, want := range map[int64]int64{-1: 0, 0: 0, 1: 1, maxTokens: maxTokens, maxTokens + 1: maxTokens} {
		if got := value(&n); got != want {
			t.Errorf("%d: %d, want %d", n, got, want)
		}
	}
}

// TestReadAnthropic reads the events of a streamed message one after another.
func TestReadAnthropic(t *testing.T) {
	var got tally
	for _, c := range []struct {
		event string
		said  tokens
		whole bool
		hasIn bool
		seen  int64 // bytes of text
	}{
		{``, tokens{}, false, false, 0},
		{`{"type":"ping"}`, tokens{}, false, false, 0},
		{`{"type":"message_start","message":{"model":"m","usage":{"input_tokens":5,"cache_read_input_tokens":3,"cache_creation_input_tokens":2,"output_tokens":1}}}`,
			tokens{10, 1, 3, 2}, false, true, 0},
		{`{"delta":{"text":"ab","thinking":"c","partial_json":"de"}}`, tokens{10, 1, 3, 2}, false, true, 5},
		{`{"type":"message_delta","usage":{"output_tokens":7}}`, tokens{10, 7, 3, 2}, true, true, 5},
		{`{"type":"message_delta","usage":{"input_tokens":6,"output_tokens":4}}`, tokens{11, 7, 3, 2}, true, true, 5},
		{`{"type":"message_delta","usage":{"input_tokens":6,"cache_read_input_tokens":4}}`, tokens{12, 7, 4, 2}, true, true, 5},
		{`{"type":"message_stop","delta":{"text":1}}`, tokens{12, 7, 4, 2}, true, true, 5},
	} {
		readAnthropic(&got, []byte(c.event))
		if got.said != c.said || got.whole != c.whole || got.hasIn != c.hasIn || got.visible != c.seen {
			t.Errorf("after %s: %+v", c.event, got)
		}
	}
	if got.model != "m" {
		t.Errorf("the model is %q", got.model)
	}
}

// TestRefusalStatus has a status and headers that the clients of each provider understand.
func TestRefusalStatus(t *testing.T) {
	for _, c := range []struct {
		refusal  refusal
		provider string
		want     int
	}{
		{refusal{kind: kindBudget}, "anthropic", 402}, {refusal{kind: kindBudget}, "openai", 429}, {refusal{kind: kindBudget}, "gemini", 429},
		{refusal{kind: kindRefused}, "openai", 403}, {refusal{kind: kindBudget, code: 418}, "openai", 418},
	} {
		if got := c.refusal.status(c.provider); got != c.want {
			t.Errorf("%+v of %s: %d", c.refusal, c.provider, got)
		}
	}
	format := &served{name: "openai", api: &api{format: func(r refusal) any { return object{"text": r.text} }}}
	for _, c := range []struct {
		kind         *kind
		after, again string
	}{{kindBusy, "1", ""}, {kindGateway, "", ""}, {kindTime, "", ""}, {kindRefused, "", "false"}, {kindBudget, "", "false"}} {
		w := httptest.NewRecorder()
		refusal{kind: c.kind, text: "no"}.write(w, format)
		if h := w.Header(); h.Get("Retry-After") != c.after || h.Get("X-Should-Retry") != c.again || w.Body.String() != "{\"text\":\"no\"}\n" {
			t.Errorf("%d: %v %s", c.kind.code, h, w.Body)
		}
	}
	for _, c := range []struct{ name, path, begin string }{
		{"anthropic", "/messages", "event: error\ndata: {"}, {"openai", "/responses", "event: response.failed\ndata: {"},
		{"openai", "/chat/completions", "data: {"}, {"gemini", "/responses", "data: {"},
	} {
		format.name = c.name
		got := string(refusal{kind: kindBudget, text: "no"}.event(format, c.path))
		if !strings.HasPrefix(got, c.begin) || !strings.HasSuffix(got, "}\n\n") {
			t.Errorf("%s %s: %q", c.name, c.path, got)
		}
	}
}

// TestEvents splits streams into events with their ends, also beyond the buffer.
func TestEvents(t *testing.T) {
	long := "data: " + strings.Repeat("x", 40<<10) + "\n\n"
	for _, c := range []struct {
		text string
		want []string // the last is what is left at the end
	}{
		{"", []string{""}}, {"a\n\nb\n\n", []string{"a\n\n", "b\n\n", ""}}, {"a\r\n\r\nb", []string{"a\r\n\r\n", "b"}},
		{"a\nb\n\nc\n", []string{"a\nb\n\n", "c\n"}}, {"\n\n", []string{"\n", "\n", ""}}, {long + long, []string{long, long, ""}},
	} {
		s := newEvents(strings.NewReader(c.text))
		for i, want := range c.want {
			event, err := s.next()
			if last := i == len(c.want)-1; string(event) != want || errors.Is(err, io.EOF) != last {
				t.Errorf("%.20q: event %d is %.20q, %v", c.text, i, event, err)
			}
		}
	}
	s := newEvents(io.MultiReader(bytes.NewReader(make([]byte, maxEvent+1))))
	if _, err := s.next(); !errors.Is(err, errEventTooLarge) {
		t.Error(err)
	}
}

// TestData joins the data lines of an event.
func TestData(t *testing.T) {
	for event, want := range map[string]string{"": "", "event: x\n\n": "", "data: a\n\n": "a", "data:a\n\n": "a", "data:  a\n\n": " a",
		"data: a\r\ndata: b\r\nid: 1\r\ndata: c\r\n\r\n": "a\nb\nc", "data:\ndata: b\n\n": "\nb"} {
		in := []byte(event)
		if got := string(data(in)); got != want || string(in) != event {
			t.Errorf("%q: %q, want %q", event, got, want)
		}
	}
}
