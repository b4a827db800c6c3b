package main

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/mxschmitt/playwright-go"

	"github.com/ramus-dev/ramus/internal/loopback"
)

func TestViewer(t *testing.T) {
	t.Parallel()
	out, err := command(t, "viewer").Output()
	if err != nil {
		t.Fatal(err)
	}
	found := make(map[string]bool)
	r := tar.NewReader(bytes.NewReader(out))
	for {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Typeflag != tar.TypeReg || !filepath.IsLocal(h.Name) {
			t.Errorf("%q", h.Name)
		}
		found[h.Name] = true
	}
	if !found["index.html"] || !found["sw.bundle.js"] {
		t.Errorf("the viewer is not whole: %v", found)
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	out, err := command(t, "version").Output()
	if err != nil {
		t.Fatal(err)
	}
	var v map[string]any
	if err := json.Unmarshal(out, &v); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"ramus-browser", "driver", "chromium", "node"} {
		if s, _ := v[name].(string); s == "" {
			t.Errorf("no version of %s: %s", name, out)
		}
	}
}

// TestInstall: what install leaves is enough for a check, also a second time over the first.
func TestInstall(t *testing.T) {
	t.Parallel()
	dir := needBrowser(t)
	for range 2 {
		if out, err := command(t, "install", dir).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	info, err := os.Stat(filepath.Join(dir, "ramus-browser"))
	if err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("%v, %v", info, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "driver", "node")); err != nil {
		t.Error(err)
	}
}

// TestInstallOverHalf: a driver that was not unpacked to its end, or is another version's, is replaced.
func TestInstallOverHalf(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("node"); err != nil {
		t.Skip("cannot run here: there is no node")
	}
	d, err := playwright.NewDriver(&playwright.RunOptions{DriverDirectory: t.TempDir(), SkipInstallBrowsers: true})
	if err != nil {
		t.Fatal(err)
	}
	var archive bytes.Buffer
	packed := gzip.NewWriter(&archive)
	files := tar.NewWriter(packed)
	for name, text := range map[string]string{"package/cli.js": `require("./lib/rest.js")`,
		"package/lib/rest.js": `console.log("Version ` + d.Version + `")`} {
		err = errors.Join(err, files.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(text)),
			Typeflag: tar.TypeReg}))
		_, failed := files.Write([]byte(text))
		err = errors.Join(err, failed)
	}
	if err := errors.Join(err, files.Close(), packed.Close()); err != nil {
		t.Fatal(err)
	}
	var asked atomic.Int32
	registry := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		_, _ = w.Write(archive.Bytes())
	}))
	defer registry.Close()
	for i, half := range []string{"", `require("./lib/rest.js")`, `console.log("Version 1.0.0")`} {
		dir := t.TempDir()
		cli := filepath.Join(dir, "driver", "package", "cli.js")
		if half != "" {
			if err := errors.Join(os.MkdirAll(filepath.Dir(cli), 0o755), os.WriteFile(cli, []byte(half), 0o644)); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 {
			cmd := command(t, "install", dir)
			cmd.Env = append(cmd.Environ(), registryEnv+"="+registry.URL)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("over %q: %v: %s", half, err, out)
			}
		}
		if out, err := exec.Command("node", cli).CombinedOutput(); err != nil || !strings.Contains(string(out), d.Version) {
			t.Errorf("over %q: %v %s", half, err, out)
		}
		if left, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(left) != 2 {
			t.Errorf("over %q: %v %v", half, left, err)
		}
		if n := int(asked.Load()); n != i+1 {
			t.Errorf("over %q: fetched %d times", half, n-i)
		}
	}
}

// TestMCP: an agent drives a browser that has a check's walls.
func TestMCP(t *testing.T) {
	t.Parallel()
	host, port, err := net.SplitHostPort(loopback.Address(t))
	if err != nil {
		t.Fatal(err)
	}
	cmd := command(t, "mcp", "--host", host, "--port", port, "--output-dir", t.TempDir())
	said, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout = cmd.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	drained := make(chan struct{})
	defer func() {
		killFamily(cmd.Process.Pid)
		<-drained
		_ = cmd.Wait()
	}()
	// It may be that it speaks of other things first.
	listening := make(chan bool, 1)
	go func() {
		defer close(drained)
		defer close(listening)
		for lines := bufio.NewScanner(said); lines.Scan(); {
			if strings.Contains(lines.Text(), "Listening") {
				listening <- true
				_, _ = io.Copy(io.Discard, said)
			}
		}
	}()
	if !<-listening {
		t.Fatal("it does not listen")
	}
	address := "http://" + net.JoinHostPort(host, port) + "/mcp"
	// Every site of another test that is closed closes the connections of http.DefaultTransport.
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	session := ""
	call := func(message string) string {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address, strings.NewReader(message))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
		if session != "" {
			r.Header.Set("Mcp-Session-Id", session)
		}
		w, err := (&http.Client{Transport: transport}).Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Body.Close()
		if id := w.Header.Get("Mcp-Session-Id"); id != "" {
			session = id
		}
		text, err := io.ReadAll(io.LimitReader(w.Body, 1<<20))
		if err != nil || w.StatusCode >= 300 {
			t.Fatalf("%s: %s, %v", w.Status, text, err)
		}
		return string(text)
	}
	navigate := func(url string) string {
		return call(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"browser_navigate","arguments":{"url":"` + url + `"}}}`)
	}
	call(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-03-26","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`)
	call(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	s := site(t, map[string]any{"/": "<h1>Hello, agent</h1>"})
	if got := navigate(s.URL); !strings.Contains(got, "A page") {
		t.Error(got)
	}
	if got := call(`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"browser_snapshot","arguments":{}}}`); !strings.Contains(got, "Hello, agent") {
		t.Error(got)
	}
	for _, url := range []string{"file:///etc/passwd", "http://127.0.0.1:" + doorPort, address, "http://192.0.2.1/"} {
		if got := navigate(url); !strings.Contains(got, `"isError":true`) {
			t.Errorf("%s: %s", url, got)
		}
	}
}
