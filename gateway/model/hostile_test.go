package model

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ramus-dev/ramus/internal/standin/modeltest"
)

// raw sends bytes to the door as they are and reads one answer.
func (w *world) raw(request string) (int, string) {
	w.t.Helper()
	conn, err := net.Dial("tcp", w.door.Listener.Addr().String())
	if err != nil {
		w.t.Fatal(err)
	}
	defer conn.Close()
	// The answer may come before the request has been written, and end it.
	go func() { _, _ = io.WriteString(conn, request) }()
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	w.clean(reply{resp.StatusCode, resp.Header, string(b), nil})
	return resp.StatusCode, string(b)
}

// Nothing leads past the endpoints that are named.
func TestPathsThatLeadNowhere(t *testing.T) {
	w := newWorld(t, nil)
	const head = " HTTP/1.1\r\nHost: 127.0.0.1:7070\r\nAnthropic-Version: 2023-06-01\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
	for _, line := range []string{
		"POST /model/anthropic/v1/files",
		"POST /model/anthropic/v1/messages/batches",
		"GET /model/anthropic/v1/organizations/users",
		"POST /model/anthropic/v1/messages/",
		"POST /model/anthropic//v1/messages",
		"POST /model/anthropic/v1/messages/../files",
		"POST /model/anthropic/v1/messages%2f..%2ffiles",
		"POST /model/anthropic/../../v1/messages",
		"POST /model/anthropic/v1/../v1/messages",
		"POST /model/anthropic/./v1/messages",
		"POST /model/anthropic/v1/messages%00",
		"POST /model/anthropic/v1/messages%0d%0aX-Injected:%20yes",
		"POST /model/anthropic/v1/messages;a=b",
		"GET /model/anthropic/v1/models/../../v1/files",
		"GET /model/anthropic/v1/models/%2e%2e",
		"GET /model/anthropic/v1/models/..",
		"GET /model/anthropic/v1/models/a%2fb",
		"GET /model/anthropic/v1/models/a%3fkey=x",
		"GET /model/anthropic/v1/models/a%23b",
		"GET /model/anthropic/v1/models/" + strings.Repeat("a", 200),
		"GET /model/anthropic/v1/messages",
		"DELETE /model/anthropic/v1/messages",
		"PUT /model/openai/responses",
		"DELETE /model/openai/v1/models/ft:mine",
		"GET /model/openai/v1/responses/resp_1",
		"GET /model/openai/v1/files",
		"POST /model/openai/v1/fine_tuning/jobs",
		"POST /model/openai/v1/v1/responses",
		"POST /model/gemini/v1beta/models/a:tuneModel",
		"POST /model/gemini/v1beta/models/a/b:generateContent",
		"POST /model/gemini/v1beta/tunedModels/a:generateContent",
		"POST /model/gemini/upload/v1beta/files",
		"POST /model/gemini/v1betaalpha/models/a:generateContent",
		"POST /model/gemini/v9/models/a:generateContent",
		"POST /model/@evil.example.org/v1/messages",
		"POST /model/http://evil.example.org/v1/messages",
		"POST /model//evil.example.org/v1/messages",
		"POST /model/",
		"CONNECT evil.example.org:443",
		"TRACE /model/anthropic/v1/messages",
		"PRI *",
	} {
		if status, body := w.raw(line + head); status < 400 || status >= 500 {
			t.Errorf("%s: %d %s", line, status, body)
		}
	}
	if calls := w.stand.Calls(); len(calls) > 0 {
		t.Errorf("the provider was asked: %+v", calls)
	}
}

// An absolute address reaches nobody but the provider. (At a real door it does not come as far.)
func TestAbsoluteForm(t *testing.T) {
	w := newWorld(t, nil)
	body := protocols[0].whole
	status, _ := w.raw(fmt.Sprintf("POST http://evil.example.org/model/anthropic/v1/messages HTTP/1.1\r\nHost: evil.example.org\r\nAnthropic-Version: 1\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", len(body), body))
	calls := w.stand.Calls()
	if status != 200 || len(calls) != 1 {
		t.Fatalf("%d, %d requests", status, len(calls))
	}
	if host := calls[0].Header.Get("Host"); host != "" {
		t.Errorf("Host %q", host)
	}
}

// Of what the container sends, the provider sees what is named and no more.
func TestHeadersAndParameters(t *testing.T) {
	w := newWorld(t, nil)
	for _, p := range protocols {
		path, body := p.path, p.stream
		if p.streamPath != "" {
			path = p.streamPath + "&"
		} else {
			path += "?beta=true&"
		}
		path += "key=container&api_key=container&access_token=container&x=y"
		status, text := w.raw("POST " + path +
			" HTTP/1.1\r\nHost: evil.example.org\r\nConnection: close, X-Api-Key, Authorization, X-Goog-Api-Key, Accept-Encoding\r\n" +
			"X-Api-Key: container\r\nAuthorization: Bearer container\r\nAuthorization: Basic Y29udGFpbmVy\r\nX-Goog-Api-Key: container\r\nApi-Key: container\r\n" +
			"Cookie: a=container\r\nProxy-Authorization: container\r\nX-Forwarded-For: container\r\nForwarded: for=container\r\nX-Real-Ip: container\r\n" +
			"OpenAI-Organization: org-container\r\nOpenAI-Project: container\r\nX-Goog-User-Project: container\r\nX-HTTP-Method-Override: DELETE\r\n" +
			"Anthropic-Version: 2023-06-01\r\nAnthropic-Beta: a\r\nAnthropic-Beta: b\r\nOpenAI-Beta: c\r\nX-OpenAI-Internal-Codex-Responses-Lite: true\r\nX-Made-Up: container\r\nUser-Agent: container\r\nReferer: container\r\n" +
			"Te: trailers\r\nTrailer: X-Api-Key\r\nUpgrade: websocket\r\nAccept-Encoding: br\r\nContent-Encoding: gzip\r\nAccept: text/event-stream\r\nContent-Type: text/plain\r\n" +
			"Transfer-Encoding: chunked\r\n\r\n" + fmt.Sprintf("%x\r\n%s\r\n0\r\nX-Api-Key: container\r\n\r\n",
			len(body), body))
		if status != 200 {
			t.Fatalf("%s: %d %s", p.name, status, text)
		}
	}
	for i, c := range w.stand.Calls() {
		var b strings.Builder
		_ = c.Header.Write(&b)
		b.WriteString(c.Query.Encode())
		if text := b.String(); strings.Contains(text, "container") || strings.Contains(text, "Upgrade") ||
			strings.Contains(text, "Trailer") || strings.Contains(text, "br\r\n") {
			t.Errorf("the provider sees\n%s", text)
		}
		known := map[string]bool{"Accept": true, "Accept-Encoding": true, "Content-Type": true, "Content-Length": true,
			"User-Agent": true,
			"X-Api-Key":  i == 0, "Anthropic-Version": i == 0, "Anthropic-Beta": i == 0,
			"Authorization": i == 1 || i == 2, "Openai-Beta": i == 1 || i == 2,
			"X-Openai-Internal-Codex-Responses-Lite": i == 1 || i == 2, "X-Goog-Api-Key": i == 3}
		for name := range c.Header {
			if !known[name] {
				t.Errorf("%s: a header %s", c.Path, name)
			}
		}
		if want := []string{"beta=true", "", "", "alt=sse"}[i]; c.Query.Encode() != want {
			t.Errorf("%s: parameters %s", c.Path, c.Query.Encode())
		}
		if i == 0 && len(c.Header["Anthropic-Beta"]) != 2 {
			t.Errorf("%v", c.Header["Anthropic-Beta"])
		}
	}
}

// Two requests in one, as a proxy that trusts either header would see them.
func TestSmuggledRequests(t *testing.T) {
	w := newWorld(t, nil)
	inner := "POST /model/anthropic/v1/messages HTTP/1.1\r\nHost: x\r\n\r\n"
	for _, head := range []string{
		"Content-Length: 5\r\nContent-Length: 6\r\n",
		"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n",
		"Transfer-Encoding: identity, chunked\r\n",
		"Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n",
		"Content-Length: -1\r\n",
		"Content-Length: 99999999999999999999\r\n",
		"Content-Length : 3\r\n",
		"X-A: b\x00c\r\n",
	} {
		if status, body := w.raw("POST /model/anthropic/v1/messages HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" +
			head + "\r\n{}\r\n\r\n" + inner); status == 200 {
			t.Errorf("%q: %d %s", head, status, body)
		}
	}
	if calls := w.stand.Calls(); len(calls) > 0 {
		t.Errorf("the provider was asked: %+v", calls)
	}
}

func TestBodies(t *testing.T) {
	w := newWorld(t, nil)
	for body, want := range map[string]string{
		``:                          "must be a JSON object",
		`[]`:                        "must be a JSON object",
		`"a"`:                       "must be a JSON object",
		`{"model":"a"`:              "must be a JSON object",
		`{"model":"a"} {}`:          "must be a JSON object",
		`{}`:                        "names no model",
		`{"model":""}`:              "no model's name",
		`{"model":7}`:               "no model's name",
		`{"model":null}`:            "no model's name",
		`{"model":"a\nb"}`:          "no model's name",
		`{"model":"../x"}`:          "no model's name",
		`{"model":"a","model":"b"}`: `the key \"model\" twice`,
		`{"stream":true,"model":"a","str\u0065am":false}`:                           `the key \"stream\" twice`,
		`{"model":"a","background":true}`:                                           "background work is not served",
		`{"model":"a","background":"yes"}`:                                          "background work is not served",
		`{"` + strings.Repeat("k", 99) + `":1,"` + strings.Repeat("k", 99) + `":1}`: "twice",
		// The cut is not within a rune.
		`{"` + strings.Repeat("k", 39) + `éé":1,"` + strings.Repeat("k", 39) + `éé":1}`: strings.Repeat("k", 39) +
			`…\" twice`,
	} {
		got := w.post("/model/openai/responses", body)
		if got.status != 400 || !strings.Contains(got.body, want) {
			t.Errorf("%s: %d %s", body, got.status, got.body)
		}
		checkFormat(t, "openai", got.body)
	}
	if got := w.post(protocols[3].path, `{"model":7,"contents":[{"parts":[{"text":"a"}]}]}`); got.status != 200 {
		t.Errorf("%d %s", got.status, got.body)
	}
	if n := len(w.stand.Calls()); n != 1 {
		t.Errorf("the provider was asked %d times", n)
	}
}

// endless is a body that does not end.
type endless struct{ n atomic.Int64 }

func (e *endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	e.n.Add(int64(len(p)))
	return len(p), nil
}

func TestHugeBodies(t *testing.T) {
	w := newWorld(t, nil)
	if status, body := w.raw(fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n{",
		protocols[0].path, maxRequest+1)); status != 413 {
		t.Errorf("declared: %d %s", status, body)
	}
	body := &endless{}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.door.URL+protocols[0].path,
		io.LimitReader(body, 1<<40))
	if err != nil {
		t.Fatal(err)
	}
	if resp, err := w.door.Client().Do(r); err == nil {
		resp.Body.Close()
		if resp.StatusCode != 413 {
			t.Errorf("endless: %d", resp.StatusCode)
		}
	}
	// The client may still be at it: it ends when it finds the connection closed.
	if n := body.n.Load(); n > 2*maxRequest {
		t.Errorf("%d bytes of an endless body were taken", n)
	}
	// As large as it may be.
	text := `{"model":"m","messages":[{"role":"user","content":"a"}],"x":"` + strings.Repeat("A", maxRequest-200) + `"}`
	if got := w.post("/model/openai/chat/completions", text); got.status != 200 {
		t.Errorf("%d %s", got.status, got.body)
	}
	if c := w.call(); c.InputTokens != 1 {
		t.Errorf("%+v", c)
	}
}

// A stand-in that repeats its key in answers: it does not get into the container.
func TestKeyInAnswers(t *testing.T) {
	eachProtocol(t, func(t *testing.T, p protocol, path, body string, _ bool) {
		w := newWorld(t, nil)
		w.stand.Reply = func(string) string { return "the key is " + modeltest.Key + " indeed" }
		w.stand.Split = 5
		got := w.post(path, body) // which looks for it
		if got.status != 200 || !strings.Contains(got.body, "indeed") {
			t.Errorf("%d %s", got.status, got.body)
		}
	})
}

// The log says that a key is wrong. The container gets only the status.
func TestWrongKey(t *testing.T) {
	eachProtocol(t, func(t *testing.T, p protocol, path, body string, _ bool) {
		w := newWorld(t, func(pr *Proxy) {
			c := pr.Providers[p.provider]
			c.Key = "sk-wrong-wrong-wrong-wrong"
			pr.Providers[p.provider] = c
		})
		got := w.post(path, body)
		if got.status != 401 || strings.Contains(got.body, "sk-wrong") || !strings.Contains(got.body, "models."+p.provider+".api_key_env") {
			t.Errorf("%d %s", got.status, got.body)
		}
		checkFormat(t, p.provider, got.body)
	})
}
