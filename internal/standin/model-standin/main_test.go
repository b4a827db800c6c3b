package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/internal/standin/modeltest"
)

const scenes = `
- prompt: the test fails
  answers:
    - text: Let me look.
      calls: [{name: read, input: {path: a.go}}]
    - text: I see.
`

// lines gives out what is written, line by line.
type lines chan string

func (l lines) Write(b []byte) (int, error) {
	for line := range strings.Lines(string(b)) {
		l <- strings.TrimSpace(line)
	}
	return len(b), nil
}

func TestScenes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "scenes.yaml")
	if err := os.WriteFile(path, []byte(scenes), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	out, ended := make(lines, 100), make(chan error, 1)
	go func() {
		ended <- run(ctx, []string{"-listen", "127.0.0.1:0", "-scenes", path}, func(string) string { return "" }, out)
	}()
	_, url, _ := strings.Cut(<-out, ": ")
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	ask := func(said string) string {
		body := `{"model":"m","max_tokens":10,"tools":[{"name":"read","input_schema":{"type":"object"}}],"messages":[{"role":"user","content":"` + said + `"}]}`
		req, err := http.NewRequest("POST", url+"/v1/messages", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Anthropic-Version", "2023-06-01")
		req.Header.Set("X-Api-Key", modeltest.Key)
		resp, err := transport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	if got := ask("Please, the test fails."); !strings.Contains(got, `"path":"a.go"`) {
		t.Error(got)
	}
	if got := ask("Hello."); !strings.Contains(got, "Understood.") {
		t.Error(got)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestRefused(t *testing.T) {
	dir := t.TempDir()
	for i, text := range []string{"", "- prompt: x", "- {prompt: x, answer: []}", "prompt: x", "- ["} {
		path := filepath.Join(dir, "scenes.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		var out bytes.Buffer
		err := run(ctx, []string{"-listen", "127.0.0.1:0", "-scenes", path}, func(string) string { return "" }, &out)
		if (err == nil) != (i == 0) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if err := run(t.Context(), []string{"-scenes", filepath.Join(dir, "none")}, func(string) string { return "" }, io.Discard); err == nil {
		t.Error("a file that is not there")
	}
}
