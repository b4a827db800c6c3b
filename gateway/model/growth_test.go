package model

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/ramus-dev/ramus/internal/growth"
)

// TestGrowth checks that the time to read what clients ask and what providers answer grows with it.
func TestGrowth(t *testing.T) {
	v, err := newProvider("openai", Provider{Key: "k"})
	if err != nil {
		t.Fatal(err)
	}
	e, path, _, no := v.find("POST", "/chat/completions")
	if no != nil {
		t.Fatal(no.text)
	}
	cases := growth.Tokens("a", "{", "[", `"`, `\`, `{"a":`, "[[", " ", "1", "-", "é", "\xff", "\x00", `{"model":"a",`,
		`"\u0061`, ",", ":")
	const head = `{"model":"a","stream":true,`
	for _, member := range []string{`"a":1,`, `"messages":[],`, `"":{"a":[]},`, "\n"} {
		cases = append(cases, growth.Case{Name: "member " + member, Prefix: head, Token: member, Suffix: `"b":1}`})
	}
	for _, value := range []string{"a", `\u0061`, `\\`, `\"`, "é", "a ", "{", "}"} {
		cases = append(cases, growth.Case{Name: "in a text " + value, Prefix: head + `"messages":[{"content":"`,
			Token: value, Suffix: `"}]}`},
			growth.Case{Name: "in a name " + value, Prefix: `{"model":"`, Token: value, Suffix: `"}`},
			growth.Case{Name: "in a key " + value, Prefix: head + `"`, Token: value, Suffix: `":1}`})
	}
	for _, element := range []string{"1", "{}", `{"role":"user","content":"a"}`, `"a"`, "[]", `[[[]]]`} {
		cases = append(cases, growth.Case{Name: "messages " + element, Prefix: head + `"messages":[`,
			Token: element + ",", Suffix: element + "]}"},
			growth.Case{Name: "options " + element, Prefix: head + `"stream_options":{"a":[`, Token: element + ",",
				Suffix: element + "]}}"})
	}
	cases = append(cases, growth.Case{Name: "members", Prefix: head,
		Each: func(n int) string { return fmt.Sprintf(`"k%d":{},`, n) }, Suffix: `"b":1}`},
		growth.Case{Name: "options", Prefix: head + `"stream_options":{`,
			Each: func(n int) string { return fmt.Sprintf(`"k%d":{},`, n) }, Suffix: `"b":1}}`})
	growth.Check(t, "request", func(text []byte) {
		_, _ = e.parse(v, path, "", text)
		guessInput(text)
	}, cases...)

	events := growth.Tokens("a", "\n", "\r\n", "\r", "data", "data:", "data:\n", "data: \n", "data: a\n",
		"data: {}\n\n", "data:{\n", "data: [\n", "event: a\n", ": a\n", ":\n", "\n\n", "a\n", "data: [DONE]\n\n",
		`data: {"choices":[{"delta":{"content":"x"}}]}`+"\n\n",
		"data: {\"usage\":{}}\n\n", "data: \r\n", "\xff", "\x00", "data: {\"a\":\n")
	for _, token := range []string{"data:\n", "data: a\n"} {
		events = append(events, growth.Case{Name: fmt.Sprintf("largest event of %q", token), Token: token, Limit: maxEvent})
	}
	growth.Check(t, "events", func(text []byte) {
		stream := newEvents(bytes.NewReader(text))
		for {
			event, err := stream.next()
			readOpenAI(&tally{}, data(event))
			if err != nil {
				return
			}
		}
	}, events...)
	answers := append(growth.Tokens("{", "[", `{"usage":`, `{"choices":[`, "a", `"`),
		growth.Case{Name: "choices", Prefix: `{"choices":[`, Token: `{"delta":{"content":"a"}},`, Suffix: "{}]}"},
		growth.Case{Name: "candidates", Prefix: `{"candidates":[`, Token: `{"content":{"parts":[{"text":"x"}]}},`,
			Suffix: "{}]}"}, growth.Case{Name: "list", Prefix: "[", Token: `{"usageMetadata":{}},`, Suffix: "{}]"},
		growth.Case{Name: "output", Prefix: `{"output":[`, Token: `{"content":[{"text":"x"}]},`, Suffix: "{}]}"},
		growth.Case{Name: "content", Prefix: `{"content":[`, Token: `{"text":"x"},`, Suffix: "{}]}"},
		growth.Case{Name: "members", Prefix: "{", Each: func(n int) string { return fmt.Sprintf(`"k%d":{},`, n) },
			Suffix: `"usage":{}}`})
	growth.Check(t, "answer", func(text []byte) {
		for _, read := range []func(*tally, []byte){readAnthropic, readOpenAI, readGemini} {
			read(&tally{}, text)
		}
	}, answers...)
}
