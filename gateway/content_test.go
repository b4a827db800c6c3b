package gateway_test

import (
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway"
	"github.com/ramus-dev/ramus/gitd"
)

// TestContent checks the origin of content, where nothing is but the trace viewer and files by their links.
func TestContent(t *testing.T) {
	t.Parallel()
	const content = "content.localhost:8080"
	r := open(t, false, func(s *gateway.Server) {
		withPeople(t)(s)
		s.Content = "http://" + content
	})
	r.repo(t, "app")
	run, err := r.local.Submit(t.Context(), record.Request{Repo: "app", Command: &record.Command{Shell: "true"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range r.local.Events(t.Context(), run.Name(), 0) {
		if err != nil {
			t.Fatal(err)
		}
	}
	file := "/evidence/" + run.Name() + "/files/journal.jsonl"
	signed := r.Links.Sign(file)
	token := r.token(t, gitd.Grant{Subject: "a", Repo: "*", Scopes: []string{"read"}})
	get := func(host, at, token string) (int, string, http.Header) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), "GET", r.web.URL+at, nil)
		if err != nil {
			t.Fatal(err)
		}
		if host != "" {
			req.Host = host
		}
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
		resp, err := (&http.Client{Transport: r.web.Client().Transport,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(b), resp.Header
	}
	viewer := "http://" + content + "/trace/index.html?trace=" + url.QueryEscape(signed)
	for _, x := range []struct {
		host, at, token string
		status          int
		to              string
	}{
		{"", "/trace/index.html?trace=" + url.QueryEscape(signed), "", 302, viewer},
		{"", "/trace/index.html?trace=" + url.QueryEscape(r.web.URL+signed), "", 302, viewer},
		{"", "/trace/", "", 302, "http://" + content + "/trace/"},
		{"", "/trace/index.html?trace=" + url.QueryEscape("https://evil.example"+signed), "", 400, ""},
		{"", "/trace/index.html?trace=%2Fapi%2Fruns", "", 400, ""},
		{"", "/trace/index.html?trace=javascript:x", "", 400, ""},
		{content, signed, "", 200, ""}, {content, file, "", 401, ""}, {content, file, token, 403, ""},
		{content, strings.Replace(signed, "signature=", "signature=x", 1), "", 403, ""},
		{content, "/trace/index.html", "", 503, ""}, {content, "/api/runs", token, 404, ""},
		{content, "/", "", 404, ""}, {content, "/settings/sessions", "", 404, ""},
		{content, "/app.git/info/refs?service=git-upload-pack", token, 404, ""},
		{strings.ToUpper(content), "/health", "", 404, ""}, {"", "/health", "", 200, ""},
	} {
		status, body, h := get(x.host, x.at, x.token)
		if status != x.status || x.to != "" && h.Get("Location") != x.to {
			t.Errorf("%s at %q: %d to %q, want %d to %q: %s", x.at, x.host, status, h.Get("Location"), x.status, x.to, body)
		}
		if h.Get("Set-Cookie") != "" {
			t.Errorf("%s at %q sets a cookie", x.at, x.host)
		}
	}

	r = open(t, false, withPeople(t))
	if status, body := r.ask(t, false, "", "GET", "/trace/index.html", ""); status != 503 || !strings.Contains(body, "web.content_url") {
		t.Errorf("without an origin of content: %d %s", status, body)
	}
}
