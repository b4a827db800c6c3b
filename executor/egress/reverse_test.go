package egress

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/internal/redact"
)

// TestReverse sends requests through the door to a host that repeats what it gets.
func TestReverse(t *testing.T) {
	const value = "s3cr3t value +/="
	var got http.Header
	host := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r.Header.Clone()
		switch r.URL.Path {
		case "/moved":
			http.Redirect(w, r, "https://"+r.Host+"/a?b=c", http.StatusFound)
		case "/elsewhere":
			w.Header().Set("Location", "https://other.example/a")
			w.WriteHeader(http.StatusFound)
		case "/plain":
			w.Header().Set("Location", "http://"+r.Host+"/a")
			w.WriteHeader(http.StatusFound)
		case "/zipped":
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = io.WriteString(w, "x")
		default:
			w.Header().Set("X-Back", r.Header.Get("Authorization"))
			user, password, _ := r.BasicAuth()
			body, _ := io.ReadAll(r.Body)
			_, _ = io.WriteString(w, r.Method+" "+r.URL.RequestURI()+" "+r.Header.Get("Authorization")+" "+user+" "+
				password+" "+string(body))
		}
	}))
	defer host.Close()
	at := strings.TrimPrefix(host.URL, "https://")

	secrets := new(redact.Secrets)
	var told []string
	v := &Reverse{
		Proxy:  &Proxy{Allow: []string{at}, Tell: func(e record.Event) { told = append(told, e.Message+" "+e.Reason) }},
		Header: func(string) Header { return Header{} },
		Value: func(_ context.Context, name, host string, trusted bool) (string, error) {
			if name != "TOKEN" || host != at && !trusted {
				return "", errors.New("no secret " + name)
			}
			secrets.Add(map[string]string{name: value})
			return value, nil
		},
		Secrets: secrets,
	}
	v.once.Do(v.setUp)
	roots := x509.NewCertPool()
	roots.AddCert(host.Certificate())
	v.transport.TLSClientConfig = &tls.Config{RootCAs: roots}
	defer v.transport.CloseIdleConnections()

	ask := func(method, path, body string, header ...string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(method, path, strings.NewReader(body))
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		w := httptest.NewRecorder()
		v.ServeHTTP(w, r)
		return w
	}
	check := func(what string, w *httptest.ResponseRecorder, code int, want string) {
		t.Helper()
		if text := w.Body.String(); w.Code != code || !strings.Contains(text, want) || strings.Contains(text, value) ||
			strings.Contains(w.Header().Get("X-Back"), value) {
			t.Errorf("%s: %d %q, want %d and %q", what, w.Code, text, code, want)
		}
	}

	check("a plain request", ask("POST", "/egress/"+at+"/a%2Fb/c?d=secret:TOKEN", "body secret:TOKEN"), 200,
		"POST /a%2Fb/c?d=secret:TOKEN    body secret:TOKEN")
	check("a placeholder", ask("GET", "/egress/"+at+"/x", "", "Authorization", "Bearer secret:TOKEN", "Connection",
		"X-Drop", "X-Drop", "1"), 200, "GET /x Bearer [secret TOKEN]")
	if got.Get("Authorization") != "Bearer "+value || got.Get("X-Drop") != "" || got.Get("Accept-Encoding") != "identity" {
		t.Errorf("the host got %v", got)
	}
	basic := httptest.NewRequest("GET", "/", nil)
	basic.SetBasicAuth("ada", "secret:TOKEN")
	check("Basic", ask("GET", "/egress/"+at+"/x", "", "Authorization", basic.Header.Get("Authorization")), 200,
		"ada [secret TOKEN]")
	check("another secret", ask("GET", "/egress/"+at+"/x", "", "X-Key", "secret:OTHER"), 403, "no secret OTHER")
	v.Header = func(string) Header {
		return Header{Values: map[string]string{"Authorization": "token secret:TOKEN"}, Trusted: true}
	}
	check("an added header", ask("GET", "/egress/"+at+"/x", "", "Authorization", "mine"), 200, "GET /x token [secret TOKEN]")
	if w := ask("GET", "/egress/"+at+"/moved", ""); w.Code != 302 || w.Header().Get("Location") != "/egress/"+at+"/a?b=c" {
		t.Errorf("a redirect: %d, %v", w.Code, w.Header())
	}
	for path, want := range map[string]string{"elsewhere": "https://other.example/a", "plain": "http://" + at + "/a", "x": ""} {
		if got := ask("GET", "/egress/"+at+"/"+path, "").Header().Get("Location"); got != want {
			t.Errorf("/%s leads to %q, want %q", path, got, want)
		}
	}
	check("an encoded answer", ask("GET", "/egress/"+at+"/zipped", ""), 502, "encoding")
	check("another host", ask("GET", "/egress/evil.example/x", ""), 403, "evil.example is not among the hosts")
	for _, path := range []string{"/egress/", "/egress//x", "/egress/a%40b/x", "/egress/a.org:80/x", "/egress/a.org:x/"} {
		check(path, ask("GET", path, ""), 400, "want /egress/HOST")
	}
	if want := at + " allowed,evil.example:443 refused"; strings.Join(told, ",") != want {
		t.Errorf("journalled %q, want %q", told, want)
	}
	host.Close()
	check("a host that is down", ask("GET", "/egress/"+at+"/x", ""), 502, "cannot reach")
}
