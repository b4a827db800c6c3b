package client

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
)

// Each line that the client reads is JSON, with any answer of a server.
func FuzzMCPAnswers(f *testing.F) {
	for _, body := range []string{
		"", "{}", "data: {}\n\n", "data:{}\n\n",
		"event: message\nid: x_1\ndata: {\"jsonrpc\":\"2.0\",\"id\":1,\n\ndata: \"result\":{}}\n\n",
		"data: {\"jsonrpc\":\"2.0\",\ndata: \"id\":1,\"result\":{}}\n\n", ": ok\n\ndata: \n\n",
		"data: {\"id\":1,\"result\":{}}\r\n\r\n", "data: not json\n\n", "[{},{}]",
	} {
		f.Add(body, true)
		f.Add(body, false)
	}
	f.Fuzz(func(t *testing.T, body string, stream bool) {
		var out bytes.Buffer
		b := &bridge{out: &out}
		media := "application/json"
		if stream {
			media = "text/event-stream"
		}
		resp := &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {media}},
			Body: io.NopCloser(strings.NewReader(body))}
		_ = b.answers(resp, b.line) // it may be refused
		for line := range strings.Lines(out.String()) {
			if !json.Valid([]byte(line)) || !strings.HasSuffix(line, "\n") {
				t.Errorf("%q became the line %q", body, line)
			}
		}
	})
}
