package executor_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/gitd"
)

// browserWorld is a world whose pages can be looked at. An engine without a browser
// (`make browser`) is skipped.
func browserWorld(t *testing.T, engine string, opts func(*executor.Executor)) *world {
	t.Helper()
	dir, err := filepath.Abs("../bin/browser")
	if err != nil {
		t.Fatal(err)
	}
	switch engine {
	case "sandbox":
		if _, err := os.Stat(filepath.Join(dir, "ramus-browser")); err != nil {
			t.Skip("cannot run here: there is no bin/browser; `make browser` makes it")
		}
	case "docker":
		if err := exec.Command("docker", "image", "inspect", executor.BrowserImage).Run(); err != nil {
			t.Skipf("cannot run here: there is no image %s; `make browser` makes it", executor.BrowserImage)
		}
	}
	w := newWorldOn(t, engine, func(x *executor.Executor) {
		if s, ok := x.Fleet.Engine.(*containers.Sandbox); ok {
			s.Browser = dir
		}
		x.Browser = &executor.Browser{}
		if opts != nil {
			opts(x)
		}
	})
	return w
}

// browserFiles are a small application: a server of Python's standard library, and its pages.
var browserFiles = map[string]string{
	"serve.py": `import http.server, sys
class H(http.server.SimpleHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/broken":
            self.send_error(500, "it is broken")
            return
        if self.path == "/me":
            body = (self.headers.get("Cookie") or "nobody").encode()
            print("asked by", body.decode(), flush=True)
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<title>me</title><h1>hello</h1><p id=who>" + body + b"</p>")
            return
        super().do_GET()
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), H).serve_forever()
`,
	"index.html":   `<!doctype html><title>todo</title><link rel=icon href="data:,"><h1>Todo</h1><input id=new><button onclick="document.getElementById('count').textContent='1 item'">Add</button><p id=count>0 items</p>`,
	"console.html": `<!doctype html><title>c</title><link rel=icon href="data:,"><h1>c</h1><script>console.error("planted error")</script>`,
	"five.html":    `<!doctype html><title>f</title><link rel=icon href="data:,"><h1>f</h1><script>fetch("/broken")</script>`,
}

// browse runs one browser_test in a run of its own and returns its manifest.
func (w *world) browse(name, spec string) executor.Manifest {
	w.t.Helper()
	var check any
	if err := json.Unmarshal([]byte(spec), &check); err != nil {
		w.t.Fatalf("%v in %s", err, spec)
	}
	return w.task(name, "browser_test", map[string]any{"check": check})
}

func (w *world) task(name, task string, params map[string]any) executor.Manifest {
	w.t.Helper()
	ctx := context.WithoutCancel(w.t.Context())
	r, err := w.x.Submit(ctx, executor.Request{Caller: caller(w.t, "run:"+name), Repo: "demo", Task: &executor.TaskCall{Name: task, Params: params},
		Asker: gitd.Person{Name: "Ada", Email: "ada@example.com"}})
	if err != nil {
		w.t.Fatal(err)
	}
	if r, err = w.x.Settled(ctx, r.Caller, r.ID); err != nil {
		w.t.Fatal(err)
	}
	m, err := w.x.Manifest(ctx, r.Name())
	if err != nil {
		w.t.Fatal(err)
	}
	return m
}

func TestBrowse(t *testing.T) {
	onEngines(t, func(t *testing.T, engine string) {
		w := browserWorld(t, engine, nil)
		w.onBase(browserFiles)
		for _, c := range []struct {
			name, spec string
			verdict    string
			reason     string
			result     executor.CheckResult
		}{
			{"good", `{"start": "python3 serve.py 5173", "url": "http://127.0.0.1:5173/", "steps": [{"click": "button"}, {"expect_text": "#count", "value": "1 item"}]}`, "PASS", "", "passed"},
			{"console", `{"start": "python3 serve.py 5173", "url": "http://127.0.0.1:5173/console.html"}`, "FAIL", "planted error", "failed"},
			{"five", `{"start": "python3 serve.py 5173", "url": "http://127.0.0.1:5173/five.html"}`, "FAIL", "500", "failed"},
			{"step", `{"start": "python3 serve.py 5173", "url": "http://127.0.0.1:5173/", "steps": [{"expect_text": "#count", "value": "7 items", "timeout": "1s"}]}`, "FAIL", "7 items", "failed"},
			{"dead", `{"start": "python3 serve.py 5174", "url": "http://127.0.0.1:5173/", "wait": "3s"}`, "FAIL", "nothing listens at 127.0.0.1:5173 after 3s, and `python3 serve.py 5174` still runs; it listens at port 5174", "failed"},
			{"dies", `{"start": "echo it cannot; exit 3", "url": "http://127.0.0.1:5173/"}`, "FAIL", "nothing listens at 127.0.0.1:5173: `echo it cannot; exit 3` ended with exit code 3", "failed"},
			{"found", `{"start": "python3 serve.py 8123"}`, "PASS", "", "passed"},
		} {
			m := w.browse("look", c.spec)
			if len(m.Browser) != 1 || len(m.Checks) != 1 {
				t.Fatalf("%s: %d checks by a browser, %+v; %s", c.name, len(m.Browser), m.Checks, m.Error)
			}
			b := m.Browser[0]
			if string(b.Verdict) != c.verdict || !strings.Contains(b.Reason, c.reason) || m.Checks[0].Result != c.result {
				t.Errorf("%s: %s %q, %s, want %s %q\n%s", c.name, b.Verdict, b.Reason, m.Checks[0].Result, c.verdict, c.reason, b.Log)
			}
			fmt.Println(c.name, b.Verdict, b.Reason, b.DurationMS, b.MemoryPeak, b.Images, len(b.Files))
		}
	})
}
