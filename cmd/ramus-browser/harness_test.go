package main

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/tasks/browser"
)

// TestMain makes the test program the command itself when it is called as one: check starts its
// own executable again.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && slices.Contains([]string{"check", "drive", "viewer", "mcp", "install", "version"}, os.Args[1]) {
		main()
	}
	if len(os.Args) > 1 && os.Args[1] == "drive-script" {
		driveScript()
	}
	os.Exit(m.Run())
}

// installed is the folder with the driver, installed once for all tests of this machine.
var installed = sync.OnceValues(func() (string, error) {
	for _, program := range []string{"node", "npm"} {
		if _, err := exec.LookPath(program); err != nil {
			return "", err
		}
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "ramus-test", "browser-driver")
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	var out bytes.Buffer
	if err := install(ctx, []string{dir}, &out); err != nil {
		return "", errors.New(err.Error() + "\n" + out.String())
	}
	return dir, nil
})

// full tells whether all is to be tried that takes long.
func full() bool { return os.Getenv("RAMUS_TEST") == "full" }

// needBrowser skips a test where there is no browser, and says where the driver is.
func needBrowser(t *testing.T) string {
	t.Helper()
	if firstFile(chromiums...) == "" {
		t.Skip("cannot run here: there is no Chromium in /usr/lib/chromium")
	}
	dir, err := installed()
	if err != nil {
		t.Skipf("cannot run here: no driver: %v", err)
	}
	return dir
}

// command is this program.
func command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	dir := needBrowser(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, args...)
	cmd.Env = append(os.Environ(), dirEnv+"="+dir, "TMPDIR="+t.TempDir())
	return cmd
}

// outcome is what came of a check.
type outcome struct {
	browser.Check
	files map[string][]byte
	code  int
	said  string
}

// small is the only viewport of most tests.
var small = browser.Viewport{Name: "small", Width: 400, Height: 300, Scale: 1}

// look does a check of a job as the server does.
func look(t *testing.T, j browser.Job) outcome {
	t.Helper()
	return lookWhile(t, j, func(int) {})
}

// lookWhile does a check, and calls a function with its process's id when it has started.
func lookWhile(t *testing.T, j browser.Job, started func(pid int)) outcome {
	t.Helper()
	if j.Spec.Viewports == nil {
		j.Spec.Viewports = []browser.Viewport{small}
	}
	if j.Deadline == 0 {
		j.Deadline = browser.Duration(2 * time.Minute)
	}
	text, err := json.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	cmd := command(t, "check")
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(text), &stdout, &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	started(cmd.Process.Pid)
	err = cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	o := outcome{code: cmd.ProcessState.ExitCode(), said: stderr.String(), files: make(map[string][]byte)}
	r := tar.NewReader(&stdout)
	for {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatalf("cannot read the evidence: %v\n%s", err, o.said)
		}
		if o.files[h.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := json.Unmarshal(o.files[indexFile], &o.Check); err != nil {
		t.Fatalf("cannot read the check: %v\n%s", err, o.said)
	}
	want := map[browser.Verdict]int{browser.Pass: exitPass, browser.Fail: exitFail, browser.Unverified: exitOther}[o.Verdict]
	if o.code != want {
		t.Errorf("%s exits with %d", o.Verdict, o.code)
	}
	if t.Failed() || testing.Verbose() {
		t.Logf("%s: %s (%d ms)", o.Verdict, o.Reason, o.DurationMS)
	}
	return o
}

// want fails a test whose check has another verdict or other words.
func (o outcome) want(t *testing.T, verdict browser.Verdict, texts ...string) {
	t.Helper()
	if o.Verdict != verdict {
		t.Errorf("%s, want %s: %s\n%s", o.Verdict, verdict, o.Reason, o.said)
	}
	for _, text := range texts {
		if !strings.Contains(o.Reason, text) {
			t.Errorf("the reason %q does not say %q", o.Reason, text)
		}
	}
}

// site serves pages by their paths.
func site(t *testing.T, pages map[string]any) *httptest.Server {
	t.Helper()
	mux := http.NewServeMux()
	for path, page := range pages {
		switch p := page.(type) {
		case string:
			mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "text/html; charset=utf-8")
				io.WriteString(w, "<!doctype html><title>A page</title>"+p)
			})
		case func(http.ResponseWriter, *http.Request):
			mux.HandleFunc(path, p)
		case int:
			mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) { http.Error(w, "status", p) })
		}
	}
	s := httptest.NewServer(mux)
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

// spec is a check of one page of a site.
func spec(s *httptest.Server, path string, steps ...browser.Step) browser.Spec {
	return browser.Spec{Name: "test", URL: s.URL + path, Steps: steps}
}

// interrupt asks a program to end.
func interrupt(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
}
