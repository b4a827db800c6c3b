package store

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// TestIdleBody reads a body that stops in the middle, and one that is slow and
// complete.
func TestIdleBody(t *testing.T) {
	hang := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		flush := http.NewResponseController(w).Flush
		_, _ = io.WriteString(w, "half")
		_ = flush()
		if r.URL.Path == "/hang" {
			<-hang
			return
		}
		for range 4 {
			time.Sleep(30 * time.Millisecond)
			_, _ = io.WriteString(w, ".")
			_ = flush()
		}
	}))
	defer server.Close()
	defer close(hang)
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	for path, want := range map[string]string{"/hang": "half", "/slow": "half" + strings.Repeat(".", 4)} {
		wait := 5 * time.Second
		if path == "/hang" {
			wait = 50 * time.Millisecond
		}
		client := &http.Client{Transport: &idleTransport{transport, wait}}
		resp, err := client.Get(server.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		if string(text) != want || errors.Is(err, errIdle) != (path == "/hang") || path == "/slow" && err != nil {
			t.Errorf("%s: %q, %v", path, text, err)
		}
		_ = resp.Body.Close()
	}
}
