package browser_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/internal/redact"
	"github.com/ramus-dev/ramus/internal/redact/redacttest"
	"github.com/ramus-dev/ramus/tasks/browser"
	"github.com/ramus-dev/ramus/tasks/browser/browsertest"
)

func output(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v: %s", strings.Join(args, " "), err, errs.String())
	}
	return string(out)
}

// TestRedactRealTrace cleans what Playwright and Chromium write of a page with secrets, looks
// for each in every form, and opens the copy with Playwright's own tools.
func TestRedactRealTrace(t *testing.T) {
	if testing.Short() {
		t.Skip("cannot run here: it starts a browser")
	}
	pkg, chromium, node := browsertest.Driver(t, "../..")
	values := map[string]string{"cookie": "cookie-Value/7+4=xyz", "session": "set-Cookie-Value-88",
		"bearer": "bearer-Token-1234", "key": "api-Key-56789",
		"typed": `hunter2-"quoted"-\pw`, "body": "json-Body-Secret-é42", "page": `page-<Source>-Secret-"77"`,
		"query": "query-Token-99x", "basic": "basic-Pass-33!"}
	text, err := json.Marshal(values)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	output(t, "", node, "testdata/trace.cjs", pkg, chromium, dir, string(text))
	// The server knows only the values in the page's source. The rest is found by their places.
	secrets, _ := redact.New(map[string]string{"PAGE": values["page"]})
	clean := make(map[string]string)
	for _, name := range []string{"trace.zip", "network.har"} {
		in, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		before := string(in)
		if name == "trace.zip" {
			before = textOfTrace(t, in)
		}
		var out, again bytes.Buffer
		found, err := browser.Redact(name, &out, bytes.NewReader(in), secrets)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := browser.Redact(name, &again, bytes.NewReader(in), secrets); err != nil || !bytes.Equal(out.Bytes(), again.Bytes()) {
			t.Errorf("%s: two copies differ: %v", name, err)
		}
		clean[name] = out.String()
		after := clean[name]
		if name == "trace.zip" {
			after = textOfTrace(t, out.Bytes())
		}
		if had, err := secrets.Find(strings.NewReader(before)); err != nil || len(found) != len(had) {
			t.Errorf("%s: found %q of %q, %v", name, found, had, err)
		}
		hits := 0
		for what, value := range values {
			for form, text := range redacttest.Forms(value) {
				hits += strings.Count(before, text)
				if n := strings.Count(after, text); n > 0 {
					at := strings.Index(after, text)
					t.Errorf("%s has %s %d times as %s: …%s…", name, what, n, form,
						after[max(0, at-200):min(len(after), at+100)])
				}
			}
		}
		t.Logf("%s: %d occurrences before", name, hits)
		if hits < 10 {
			t.Errorf("%s had only %d occurrences: the test looks at nothing", name, hits)
		}
	}
	copied := filepath.Join(dir, "clean.zip")
	if err := os.WriteFile(copied, []byte(clean["trace.zip"]), 0o600); err != nil {
		t.Fatal(err)
	}

	// The same actions.
	actions := func(file string) string {
		at := t.TempDir()
		output(t, at, node, filepath.Join(pkg, "cli.js"), "trace", "open", file)
		return output(t, at, node, filepath.Join(pkg, "cli.js"), "trace", "actions")
	}
	before, after := actions(filepath.Join(dir, "trace.zip")), actions(copied)
	before = strings.ReplaceAll(before, values["typed"], browser.Redacted)
	if u := strings.Fields(before); len(u) < 20 || strings.Join(u, " ") != strings.Join(strings.Fields(after), " ") {
		t.Errorf("actions before\n%s\nafter\n%s", before, after)
	}

	// The viewer shows it.
	mux := http.NewServeMux()
	mux.Handle("/trace/", http.StripPrefix("/trace/",
		http.FileServerFS(os.DirFS(filepath.Join(pkg, "lib/vite/traceViewer")))))
	mux.HandleFunc("/clean.zip", func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, copied) })
	web := httptest.NewServer(mux)
	defer web.Close()
	var seen struct {
		Errors, PageErrors, Actions []string
		Snapshots                   []struct{ Error, HTML string }
	}
	shown := output(t, "", node, "../../gateway/testdata/trace_viewer.cjs", pkg, chromium,
		web.URL+"/trace/?trace="+url.QueryEscape("/clean.zip"), "", "", "Hello Ada")
	if err := json.Unmarshal([]byte(shown), &seen); err != nil {
		t.Fatal(err)
	}
	if len(seen.Errors)+len(seen.PageErrors) > 0 || len(seen.Actions) != 7 || len(seen.Snapshots) != 14 {
		t.Errorf("the viewer: %d actions, %d snapshots, %q, %q", len(seen.Actions), len(seen.Snapshots), seen.Errors,
			seen.PageErrors)
	}
	if last := seen.Snapshots[len(seen.Snapshots)-1]; last.Error != "" || !strings.Contains(last.HTML, "Hello Ada") {
		t.Errorf("the last snapshot: %s %s", last.Error, last.HTML)
	}
}
