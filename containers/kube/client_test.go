package kube

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
)

// serve returns a client of an API server that is h.
func serve(t *testing.T, h http.HandlerFunc) *Client {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	c, err := New(*(&Config{Server: server.URL + "/base"}).WithToken("secret"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// answer writes a JSON answer.
func answer(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(code)
	io.WriteString(w, text)
}

// TestDo sends requests with and without bodies, and reads answers.
func TestDo(t *testing.T) {
	type object struct {
		Name string `json:"name"`
	}
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got, _ := json.Marshal(map[string]string{"name": strings.Join([]string{r.Method, r.URL.Path, r.URL.RawQuery,
			r.Header.Get("Authorization"), r.Header.Get("Content-Type"), string(body)}, " ")})
		answer(w, http.StatusOK, string(got))
	})
	for _, x := range []struct {
		method string
		query  url.Values
		body   any
		want   string
	}{
		{"GET", url.Values{"limit": {"1"}}, nil, "GET /base/api limit=1 Bearer secret  "},
		{"POST", nil, object{"x"}, `POST /base/api  Bearer secret application/json {"name":"x"}`},
		{"PATCH", nil, object{"x"}, `PATCH /base/api  Bearer secret application/merge-patch+json {"name":"x"}`},
	} {
		var got object
		if err := c.Do(t.Context(), x.method, "/api", x.query, x.body, &got); err != nil || got.Name != x.want {
			t.Errorf("%s: %q, %v", x.method, got.Name, err)
		}
	}
	if err := c.Do(t.Context(), "DELETE", "/api", nil, nil, nil); err != nil || c.Requests() != 4 {
		t.Errorf("%v, %d requests", err, c.Requests())
	}
	if err := c.Do(t.Context(), "GET", "/api", nil, nil, new(int)); err == nil {
		t.Error("an object is read as a number")
	}
	if err := c.Do(t.Context(), "POST", "/api", nil, func() {}, nil); err == nil || c.Requests() != 5 {
		t.Errorf("a body that is no JSON is sent: %v", err)
	}
}

// TestCredentials asks without a credential, and not at all if there is none to be had.
func TestCredentials(t *testing.T) {
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked++; r.Header.Get("Authorization") != "" {
			t.Errorf("the credential is %q", r.Header.Get("Authorization"))
		}
		answer(w, http.StatusOK, "{}")
	}))
	defer server.Close()
	for i, x := range []struct {
		from source
		ok   bool
	}{
		{nil, true},
		{func(context.Context) (credential, error) { return credential{}, nil }, true},
		{func(context.Context) (credential, error) { return credential{token: "old"}, os.ErrPermission }, false},
	} {
		c, err := New(Config{Server: server.URL, credential: x.from})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if err := c.Do(t.Context(), "GET", "/", nil, nil, nil); (err == nil) != x.ok || !x.ok && !errors.Is(err, os.ErrPermission) {
			t.Errorf("%d: %v", i, err)
		}
	}
	if asked != 2 {
		t.Errorf("%d requests", asked)
	}
}

// TestRefusals reads the refusals of API servers and of proxies.
func TestRefusals(t *testing.T) {
	for _, x := range []struct {
		write func(w http.ResponseWriter)
		want  StatusError
		text  string
	}{
		{func(w http.ResponseWriter) {
			w.Header().Set("Retry-After", "7")
			answer(w, 429, `{"kind":"Status","reason":"TooManyRequests","message":"slow down","code":429}`)
		}, StatusError{429, "TooManyRequests", "slow down", 7 * time.Second}, "slow down"},
		{func(w http.ResponseWriter) {
			w.Header().Set("Retry-After", "99999999999")
			http.Error(w, `{"message":"<html>"}`, http.StatusBadGateway)
		}, StatusError{502, "", "", time.Hour}, "the API server answers 502 Bad Gateway"},
		{func(w http.ResponseWriter) {
			w.Header().Set("Retry-After", "-1")
			answer(w, 302, `x`)
		}, StatusError{302, "", "", 0}, "the API server answers 302 Found"},
	} {
		c := serve(t, func(w http.ResponseWriter, r *http.Request) { x.write(w) })
		err := c.Do(t.Context(), "GET", "/", nil, nil, nil)
		var got *StatusError
		if !errors.As(err, &got) || *got != x.want || got.Error() != x.text {
			t.Errorf("%+v: %v", got, err)
		}
		if !IsCode(err, 1, x.want.Code) || IsCode(err, 1) || IsCode(io.EOF, x.want.Code) {
			t.Errorf("%v is of another code", err)
		}
	}
	for _, server := range []string{"", "10.0.0.1", "ftp://10.0.0.1", "https://", "https://a b"} {
		if _, err := New(Config{Server: server}); err == nil {
			t.Errorf("%q is an address", server)
		}
	}
	if _, err := New(Config{Server: "https://a", CA: []byte("no PEM")}); err == nil {
		t.Error("a certificate that is none is used")
	}
}

// TestWatch follows changes until the server ends the answer.
func TestWatch(t *testing.T) {
	failed := errors.New("failed")
	for _, x := range []struct {
		about string
		code  int
		body  string
		seen  int
		fails error // of each
		want  func(error) bool
	}{
		{"the end", 200, `{"type":"ADDED","object":{}}{"type":"BOOKMARK","object":{}}`, 2, nil, func(err error) bool { return err == nil }},
		{"a failure of each", 200, `{"type":"ADDED"}{"type":"ADDED"}`, 1, failed, func(err error) bool { return err == failed }},
		{"an old version", 200, `{"type":"ADDED"}{"type":"ERROR","object":{"code":410}}`, 1, nil,
			func(err error) bool { return errors.Is(err, ErrExpired) && IsCode(err, 410) }},
		{"an error", 200, `{"type":"ERROR","object":{"code":500}}`, 0, nil,
			func(err error) bool { return !errors.Is(err, ErrExpired) && IsCode(err, 500) }},
		{"a refusal of an old version", 410, `{}`, 0, nil, func(err error) bool { return errors.Is(err, ErrExpired) && IsCode(err, 410) }},
		{"a refusal", 403, `{}`, 0, nil, func(err error) bool { return !errors.Is(err, ErrExpired) && IsCode(err, 403) }},
		{"half a change", 200, `{"type":"ADDED"}{"type"`, 1, nil, func(err error) bool { return errors.Is(err, io.ErrUnexpectedEOF) }},
		{"an endless change", 200, `{"type":"ADDED","object":"` + strings.Repeat("x", maxChange), 0, nil,
			func(err error) bool { return err != nil && strings.Contains(err.Error(), "more than") }},
	} {
		c := serve(t, func(w http.ResponseWriter, r *http.Request) {
			q := r.URL.Query()
			if q.Get("watch") != "true" || q.Get("allowWatchBookmarks") != "true" || q.Get("resourceVersion") != "7" {
				t.Errorf("the query is %s", r.URL.RawQuery)
			}
			answer(w, x.code, x.body)
		})
		seen := 0
		err := c.Watch(t.Context(), "/pods", url.Values{"resourceVersion": {"7"}}, func(Change) error { seen++; return x.fails })
		if !x.want(err) || seen != x.seen {
			t.Errorf("%s: %d changes, %v", x.about, seen, err)
		}
	}
}

// TestExec runs commands, whose streams come in messages.
func TestExec(t *testing.T) {
	run := func(do func(ws *websocket.Conn)) (*Exec, *bytes.Buffer, error) {
		t.Helper()
		c := serve(t, func(w http.ResponseWriter, r *http.Request) {
			q := r.URL.Query()
			if r.URL.Path != "/base/api/v1/namespaces/boxes/pods/a/exec" || !slices.Equal(q["command"], []string{"cat", "-"}) ||
				q.Get("container") != "main" || q.Get("stdin") != "true" || r.Header.Get("Authorization") != "Bearer secret" {
				t.Errorf("%s %v", r.URL, r.Header)
			}
			if do == nil {
				answer(w, 403, `{"message":"no"}`)
				return
			}
			ws, err := (&websocket.Upgrader{Subprotocols: []string{execProtocol}}).Upgrade(w, r, nil)
			if err != nil {
				t.Error(err)
				return
			}
			defer ws.Close()
			do(ws)
		})
		stderr := new(bytes.Buffer)
		e, err := c.Exec(t.Context(), Command{Namespace: "boxes", Pod: "a", Container: "main", Args: []string{"cat", "-"}, Input: true,
			Stderr: stderr})
		if err == nil {
			t.Cleanup(func() { e.Close() })
		}
		return e, stderr, err
	}
	send := func(ws *websocket.Conn, stream byte, text string) {
		t.Helper()
		if err := ws.WriteMessage(websocket.BinaryMessage, append([]byte{stream}, text...)); err != nil {
			t.Error(err)
		}
	}

	// A command that writes its stdin to stdout.
	e, stderr, err := run(func(ws *websocket.Conn) {
		send(ws, streamStderr, "warning")
		send(ws, streamStdout, "")
		for {
			_, b, err := ws.ReadMessage()
			if err != nil || len(b) == 0 {
				t.Error(len(b), err)
				return
			}
			if len(b) > maxPiece+1 {
				t.Errorf("a message of %d bytes", len(b))
			}
			if b[0] == streamClose {
				send(ws, streamStatus, `{"status":"Success"}`)
				return
			}
			send(ws, streamStdout, string(b[1:]))
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Repeat("0123456789", maxPiece/4)
	if n, err := io.WriteString(e, text); n != len(text) || err != nil {
		t.Fatal(n, err)
	}
	if err := e.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(e); string(got) != text || err != nil || stderr.String() != "warning" {
		t.Errorf("%d bytes of %d, %v, stderr %q", len(got), len(text), err, stderr)
	}

	// Commands that end otherwise.
	for status, want := range map[string]string{
		`{"status":"Failure","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"7"}]}}`: "exit status 7",
		`{"status":"Failure","reason":"InternalError","message":"the container is gone"}`:                            "the container is gone",
		`?`: "cannot read the end",
		``:  "unexpected EOF",
	} {
		e, _, err := run(func(ws *websocket.Conn) {
			send(ws, streamStdout, "x")
			if status != "" {
				send(ws, streamStatus, status)
			}
			_ = ws.WriteMessage(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""))
		})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 { // the end stays
			got, err := io.ReadAll(e)
			if err == nil || !strings.Contains(err.Error(), want) || len(got) > 1 {
				t.Errorf("%s: %q, %v", status, got, err)
			}
		}
	}
	if _, _, err := run(nil); !IsCode(err, 403) {
		t.Errorf("a refusal: %v", err)
	}
}

// TestParseExit reads exit codes of a byte, and no others.
func TestParseExit(t *testing.T) {
	for code, want := range map[string]int{"1": 1, "255": 255, "0": -1, "256": -1, "-1": -1, "x": -1} {
		got, err := parseExit([]byte(`{"status":"Failure","reason":"NonZeroExitCode","details":{"causes":[{"reason":"Other","message":"9"},` +
			`{"reason":"ExitCode","message":"` + code + `"}]}}`))
		if got != want || (err == nil) != (want > 0) {
			t.Errorf("%s: %d, %v", code, got, err)
		}
	}
}
