package browser

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/internal/growth"
	"github.com/ramus-dev/ramus/internal/redact"
)

// TestRedactGrowth checks that the time to clean what a browser recorded grows with it.
func TestRedactGrowth(t *testing.T) {
	secrets, _ := redact.New(map[string]string{"TOKEN": "xoxb-4711-Rm9vYmFyQmF6UXV4-s3cr3t"})
	const size = 1 << 18 // expressions take 0.1 µs a byte
	text := growth.Tokens("a", "&", "=", "a=b&", "?token=a&", "?a=", ";", "&amp;", "://", "a://", "http://",
		"http://a:b@c ", "http://a@", "@", ":", "bearer ", "Bearer a", "bearer aaaaaaaaaaaa ", "basic ", "eyJ",
		"eyJaaaaaaaa.", "eyJaaaaaaaa.eyJaaaaaaaa.a ",
		"cookie: ", "cookie: a\n", "Authorization: Bearer aaaaaaaaaaaa\n", "x-api-key", "<input ",
		"<input type=password>", "<input type=password value=a>", "<input type=password value='",
		"<input type=password ", " value=a", " value=\"", "form-data; name=\"password\"", "form-data;",
		"form-data; name=\"password\"\r\n\r\na\r\n--",
		"form-data; name=\"password\"\r\na\r\n", "name=\"password\"\n", "\n", "\r\n", "\r\n--", "[secret ",
		"[secret a]", "[", "%20", "\"", "'", "<", ">", "\\", "é", "\xff", "\x00", "one-time-code ", "authorization",
		"-token", "password")
	for _, prefix := range []string{"http://a:", "?token=", "bearer ", "cookie: ", "<input type=password value='",
		"form-data; name=\"password\"\r\n\r\n", "form-data; name=\"password\"", "eyJ", "authorization: "} {
		for _, token := range []string{"a", "[secret a]", "[secret ", "\r\n", "\r\na", "-", "=", "&", ".eyJaaaaaaaa",
			" value=a", "form-data;", "/"} {
			text = append(text, growth.Case{Prefix: prefix, Token: token})
		}
	}
	for i := range text {
		text[i].Limit = size
	}
	clean := func(name string) func([]byte) {
		return func(text []byte) { _, _ = Redact(name, io.Discard, bytes.NewReader(text), secrets) }
	}
	growth.Check(t, "text", clean("aria.yml"), text...)

	objects := growth.Tokens("{", "[", `"`, `{"a":`, "a", " ", "1", `\`, "{}\n", "[]\n", "\n")
	add := func(name, prefix, suffix string, tokens ...string) {
		for _, token := range tokens {
			objects = append(objects, growth.Case{Name: name + " " + fmt.Sprintf("%.40q", token), Prefix: prefix,
				Token: token, Suffix: suffix})
		}
	}
	add("elements", "[", "1]", "1,", "{},", `"a",`, `{"name":"cookie","value":"a"},`, `{"name":"a","value":"b"},`,
		`"{}",`, `"[1]",`, `{"password":"a"},`)
	add("text", `{"text":"`, `"}`, "a", `\u0061`, `\"`, `{`, `[`, `\\`)
	add("inner", `{"text":"[`, `1]"}`, "1,", `{},`, `[],`, `\"[1]\",`)
	add("body", `{"postData":{"mimeType":"application/x-www-form-urlencoded","text":"`, `"}}`, "a=b&", "password=a&",
		"&", "%", "+")
	add("headers", `{"log":{"entries":[{"request":{"headers":[`, `{}]}}]}}`, `{"name":"cookie","value":"a=b"},`,
		`{"name":"authorization","value":"basic YTpi"},`)
	add("cookies", `{"name":"cookie","value":"`, `"}`, "a=b; ", ";", "=", `\n`, "a=0123456789abcdef; ", "[secret a]; ")
	objects = append(objects, growth.Case{Name: "learned", Prefix: `{"headers":[`, Suffix: "{}]}",
		Each: func(n int) string { return fmt.Sprintf(`{"name":"cookie","value":"a=0123456789abcdef%d"},`, n) }},
		growth.Case{Name: "learned runs", Prefix: `{"headers":[{"name":"authorization","value":"bearer ` +
			strings.Repeat("a", 4000) + `b"}],"text":"`, Token: "a", Suffix: `"}`},
		growth.Case{Name: "learned runs in lines", Prefix: `{"headers":[{"name":"authorization","value":"bearer ` +
			strings.Repeat("a", 4000) + `b"}],"text":"`, Token: strings.Repeat("a", 60) + `\n`, Suffix: `"}`},
		growth.Case{Name: "members", Prefix: "{", Suffix: `"a":1}`,
			Each: func(n int) string { return fmt.Sprintf(`"k%d":{},`, n) }})
	for i := range objects {
		objects[i].Limit = size
	}
	growth.Check(t, "HAR", clean("network.har"), objects...)
	growth.Check(t, "lines", clean("console.jsonl"), objects...)
}

// TestSpecGrowth checks that the time to read a check grows with its file.
func TestSpecGrowth(t *testing.T) {
	var cases []growth.Case
	for _, step := range []string{"  - click: a\n", "  - goto: /\n", "  - expect: {text: a}\n", "  - {}\n", "  - a\n",
		"  - a: b\n", "  -\n", "  - [a]\n"} {
		cases = append(cases, growth.Case{Prefix: "url: http://a/\nsteps:\n", Token: step})
	}
	cases = append(cases, growth.Tokens("a", "a: b\n", "- a\n", "[", "{", "\n", "steps:\n")...)
	cases = append(cases, growth.Case{Name: "keys", Each: func(n int) string { return fmt.Sprintf("k%d: a\n", n) }},
		growth.Case{Name: "members", Prefix: "{", Each: func(n int) string { return fmt.Sprintf(`"k%d": 1,`, n) },
			Suffix: `"a":1}`})
	growth.Check(t, "check", func(text []byte) { _, _ = Parse("a.yaml", text) }, cases...)
}
