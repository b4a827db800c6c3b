package egress_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/ramus-dev/ramus/executor/egress"
	"github.com/ramus-dev/ramus/executor/record"
)

// TestDoor sends each kind of request to the part of the door that is for it.
func TestDoor(t *testing.T) {
	var asked int
	out := &egress.Proxy{Tell: func(record.Event) { asked++ }}
	door := httptest.NewServer(out.Door(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "local "+r.URL.Path)
	})))
	defer door.Close()
	get := func(client *http.Client, url string, header ...string) (int, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		res, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res.StatusCode, string(text)
	}

	if code, text := get(door.Client(), door.URL+"/a"); code != http.StatusOK || text != "local /a" {
		t.Errorf("a program: %d, %q", code, text)
	}
	for _, header := range []string{"Origin", "Sec-Fetch-Site"} {
		if code, text := get(door.Client(), door.URL+"/a", header, "null"); code != http.StatusForbidden {
			t.Errorf("a page, by %s: %d, %q", header, code, text)
		}
	}
	if asked != 0 {
		t.Errorf("the proxy was asked %d times for nothing", asked)
	}

	at, err := url.Parse(door.URL)
	if err != nil {
		t.Fatal(err)
	}
	proxied := &http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(at)}}
	defer proxied.CloseIdleConnections()
	if code, text := get(proxied, "http://elsewhere.example.org/", "Origin", "null"); code != http.StatusForbidden || asked != 1 {
		t.Errorf("another host: %d, %q, the proxy was asked %d times", code, text, asked)
	}
}
