package model

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// FuzzMembers compares the walk through an object with the library's.
func FuzzMembers(f *testing.F) {
	for _, text := range []string{`{}`, `{ "a" : 1 , "b":[1,{"c":"}]"}],"d":"x\\\"y" ,"e":-1.5e3}`,
		`{"a":{"a":{}}, "":null,"z":true}`, "{\"\\u0061\":\"\\\\\"}",
		protocols[1].stream, `{"a":"` + strings.Repeat(`\\`, 9) + `","b":false}`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		text = bytes.TrimSpace(text)
		var want map[string]json.RawMessage
		if len(text) == 0 || text[0] != '{' || json.Unmarshal(text, &want) != nil {
			return
		}
		got := make(map[string]json.RawMessage)
		for m := range members(text) {
			got[m.key] = m.value(text) // the last of two counts, as with the library
		}
		if len(got) != len(want) {
			t.Fatalf("%d members, want %d", len(got), len(want))
		}
		for key, value := range want {
			if !bytes.Equal(got[key], value) {
				t.Errorf("%q: %s, want %s", key, got[key], value)
			}
		}
	})
}

// FuzzParse: what is sent on is the body, or the body with the usage asked for.
func FuzzParse(f *testing.F) {
	for _, p := range protocols {
		f.Add([]byte(p.whole))
		f.Add([]byte(p.stream))
	}
	f.Add([]byte(`{"model":"a","stream":true,"stream_options":{"x":{"include_usage":false}},"max_tokens":5}`))
	f.Add([]byte(`{"model":"a","stream":true,"stream_options":7}`))
	v, err := newProvider("openai", Provider{Key: "k"})
	if err != nil {
		f.Fatal(err)
	}
	e, path, _, no := v.find("POST", "/chat/completions")
	if no != nil {
		f.Fatal(no.text)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		q, no := e.parse(v, path, "", body)
		if no != nil {
			return
		}
		var before, after map[string]json.RawMessage
		if err := json.Unmarshal(body, &before); err != nil {
			t.Fatalf("accepted %q: %v", body, err)
		}
		if err := json.Unmarshal(q.body, &after); err != nil {
			t.Fatalf("%q becomes %q: %v", body, q.body, err)
		}
		var options struct {
			Usage bool `json:"include_usage"`
		}
		if q.stream {
			if err := json.Unmarshal(after["stream_options"], &options); err != nil || !options.Usage {
				t.Errorf("%q becomes %q: %v", body, q.body, err)
			}
			delete(before, "stream_options")
			delete(after, "stream_options")
		}
		if len(before) != len(after) {
			t.Errorf("%q becomes %q", body, q.body)
		}
		for key, value := range before {
			if !bytes.Equal(after[key], value) {
				t.Errorf("%q becomes %q", body, q.body)
			}
		}
		if !bodyModel.MatchString(q.model) || q.most < 0 {
			t.Errorf("%q: %+v", body, q)
		}
	})
}

// FuzzEvents: a stream is not changed by being split, with any packets,
// and its tally stays within bounds.
func FuzzEvents(f *testing.F) {
	f.Add("event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"model\":\"m\",\"usage\":{\"input_tokens\":3,\"output_tokens\":1}}}\n\n"+
		"data: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":5}}\n\n", 3)
	f.Add("data: {\"choices\":[{\"delta\":{\"content\":\"x\",\"tool_calls\":[{\"function\":{\"arguments\":\"{}\"}}]}}]}\r\n\r\ndata: [DONE]\r\n\r\n", 1)
	f.Add("data: {\"type\":\"response.completed\",\ndata: \"response\":{\"usage\":{\"input_tokens\":1,\"output_tokens\":2}}}\n\n", 7)
	f.Add("data: {\"usageMetadata\":{\"promptTokenCount\":-5,\"candidatesTokenCount\":99999999999999999999}}\n\n: comment\n\n\n\n", 2)
	f.Add("data:{\"usage\":{\"prompt_tokens\":1e3,\"completion_tokens\":\"x\"}}\rdata", 5)
	f.Fuzz(func(t *testing.T, text string, size int) {
		var r io.Reader = strings.NewReader(text)
		switch size % 3 {
		case 1:
			r = iotest.OneByteReader(r)
		case 2:
			r = iotest.HalfReader(r)
		}
		in := newEvents(r)
		tallies := []*tally{{}, {}, {}}
		var out strings.Builder
		for {
			event, err := in.next()
			out.Write(event)
			object := data(event)
			readAnthropic(tallies[0], object)
			readOpenAI(tallies[1], object)
			readGemini(tallies[2], object)
			onlyUsage(object)
			if err != nil {
				if !errors.Is(err, io.EOF) {
					t.Fatal(err)
				}
				break
			}
		}
		if out.String() != text {
			t.Errorf("%q comes out as %q", text, out.String())
		}
		for _, tally := range tallies {
			checkTally(t, tally)
		}
	})
}

// FuzzUsage reads whole answers.
func FuzzUsage(f *testing.F) {
	f.Add([]byte(`{"model":"m","usage":{"input_tokens":3,"output_tokens":1,"cache_read_input_tokens":9223372036854775807}}`))
	f.Add([]byte(`{"model":"m","usage":{"prompt_tokens":3,"completion_tokens":null,"prompt_tokens_details":{"cached_tokens":7}}}`))
	f.Add([]byte(`[{"usageMetadata":{"promptTokenCount":3,"thoughtsTokenCount":4}},{"candidates":[{"finishReason":"STOP","content":{"parts":[{"text":"x"}]}}]}]`))
	f.Add([]byte(`[[]]`))
	f.Add([]byte(`{"usage":[],"choices":7,"response":{"usage":{}}}`))
	f.Fuzz(func(t *testing.T, object []byte) {
		for _, read := range []func(*tally, []byte){readAnthropic, readOpenAI, readGemini} {
			tally := &tally{guess: guessInput(object)}
			read(tally, object)
			read(tally, object)
			checkTally(t, tally)
		}
	})
}

func checkTally(t *testing.T, a *tally) {
	t.Helper()
	n, _ := a.tokens()
	for _, part := range []int64{n.input, n.output, n.cacheRead, n.cacheWrite, a.visible} {
		if part < 0 || part > 4*maxTokens {
			t.Errorf("%+v", n)
		}
	}
	if (Price{Input: maxPrice, Output: maxPrice, CacheRead: maxPrice, CacheWrite: maxPrice}).cost(n) < 0 {
		t.Errorf("the cost of %+v is negative", n)
	}
}

func TestLargeEvents(t *testing.T) {
	in := newEvents(strings.NewReader("data: " + strings.Repeat("x", 1<<20) + "\n\nafter\n\n"))
	if event, err := in.next(); err != nil || len(event) != 1<<20+8 {
		t.Errorf("%d bytes, %v", len(event), err)
	}
	if event, err := in.next(); err != nil || string(event) != "after\n\n" {
		t.Errorf("%s, %v", event, err)
	}
	in = newEvents(&endless{})
	if _, err := in.next(); !errors.Is(err, errEventTooLarge) {
		t.Error(err)
	}
}

func TestGuess(t *testing.T) {
	words := strings.Repeat("some words of a text, ", 1000)
	if n := guessInput([]byte(words)); n < 4000 || n > 7000 {
		t.Errorf("words: %d", n)
	}
	if n := guessInput([]byte(`{"data":"` + strings.Repeat("iVBORw0KGgo", 100_000) + `"}`)); n < 1600 || n > 1700 {
		t.Errorf("a picture: %d", n)
	}
}
