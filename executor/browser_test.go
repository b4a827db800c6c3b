package executor_test

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/containers/containerstest"
	"github.com/ramus-dev/ramus/containers/docker"
	"github.com/ramus-dev/ramus/containers/sandbox"
	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/browse"
	"github.com/ramus-dev/ramus/executor/browse/browsetest"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/tasks/browser"
)

// browserWorld returns a world with a browser. It skips an engine without one (`make browser`).
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
		if err := exec.Command("docker", "image", "inspect", docker.BrowserImage).Run(); err != nil {
			t.Skipf("cannot run here: there is no image %s; `make browser` makes it", docker.BrowserImage)
		}
	}
	w := newWorldOn(t, engine, func(x *executor.Executor) {
		if s, ok := x.Fleet.Engine.(*sandbox.Engine); ok {
			s.Browser = dir
		}
		x.Browser = &browse.Browser{}
		if opts != nil {
			opts(x)
		}
	})
	return w
}

// browserFiles are a small application, which is a server of Python's standard library with its pages.
var browserFiles = map[string]string{
	"serve.py": `import http.server, sys
class H(http.server.SimpleHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/broken":
            self.send_error(500, "it is broken")
            return
        if self.path == "/me":
            body = (self.headers.get("Cookie") or "nobody").encode()
            sys.stdout.write("asked by " + body.decode() + "\n"); sys.stdout.flush()
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
func (w *world) browse(name, spec string) record.Manifest {
	w.t.Helper()
	var check any
	if err := json.Unmarshal([]byte(spec), &check); err != nil {
		w.t.Fatalf("%v in %s", err, spec)
	}
	return w.task(name, "browser_test", map[string]any{"check": check})
}

func (w *world) task(name, task string, params map[string]any) record.Manifest {
	w.t.Helper()
	ctx := context.WithoutCancel(w.t.Context())
	r, err := w.x.Submit(ctx, record.Request{Caller: caller(w.t, "run:"+name), Repo: "demo",
		Task:  &record.TaskCall{Name: task, Params: params},
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
			result     record.CheckResult
		}{
			{"good", `{"start": "python3 serve.py 5173", "url": "http://127.0.0.1:5173/", "steps": [{"click": "button"}, {"expect_text": "#count", "value": "1 item"}]}`, "PASS", "", "passed"},
			{"console", `{"start": "python3 serve.py 5173", "url": "http://127.0.0.1:5173/console.html", "viewports": ["mobile"]}`, "FAIL", "planted error", "failed"},
			{"five", `{"start": "python3 serve.py 5173", "url": "http://127.0.0.1:5173/five.html", "viewports": ["mobile"]}`, "FAIL", "500", "failed"},
			{"step", `{"start": "python3 serve.py 5173", "url": "http://127.0.0.1:5173/", "steps": [{"expect_text": "#count", "value": "7 items", "timeout": "1s"}], "viewports": ["mobile"]}`, "FAIL", "7 items", "failed"},
			{"dead", `{"start": "python3 serve.py 5174", "url": "http://127.0.0.1:5173/", "wait": "8s"}`, "FAIL",
				"nothing listens at 127.0.0.1:5173 after 8s, and `python3 serve.py 5174` still runs; it listens at port 5174", "failed"},
			{"dies", `{"start": "echo it cannot; exit 3", "url": "http://127.0.0.1:5173/"}`, "FAIL",
				"nothing listens at 127.0.0.1:5173: `echo it cannot; exit 3` ended with exit code 3", "failed"},
			{"found", `{"start": "python3 serve.py 8123", "viewports": ["mobile"]}`, "PASS", "", "passed"},
		} {
			if engine == "docker" && c.verdict == "FAIL" && c.name != "five" {
				continue // the same program looks, so the engine makes no difference
			}
			m := w.browse("look", c.spec)
			if len(m.Browser) != 1 || len(m.Checks) != 1 {
				t.Fatalf("%s: %d checks by a browser, %+v; %s", c.name, len(m.Browser), m.Checks, m.Error)
			}
			b := m.Browser[0]
			if string(b.Verdict) != c.verdict || !strings.Contains(b.Reason, c.reason) || m.Checks[0].Result != c.result {
				t.Errorf("%s: %s %q, %s, want %s %q\n%s", c.name, b.Verdict, b.Reason, m.Checks[0].Result, c.verdict,
					c.reason, b.Log)
			}
			if b.MemoryPeak > 0 {
				t.Logf("%s: %d ms, %d MiB", c.name, b.DurationMS, b.MemoryPeak>>20)
			}
		}
	})
}

// apart returns the counter of containers that were started to look at a base.
func (w *world) apart() *atomic.Int64 {
	var n atomic.Int64
	before := w.opts
	w.opts = func(x *executor.Executor) {
		before(x)
		x.Fleet.Event = func(e containers.FleetEvent) {
			if e.What == "started" && strings.HasPrefix(e.Key, "look:") {
				n.Add(1)
			}
		}
	}
	w.stop(false)
	w.start()
	return &n
}

func TestBrowseCompared(t *testing.T) {
	onEngines(t, func(t *testing.T, engine string) {
		oneEngine(t, engine)
		w := browserWorld(t, engine, nil)
		n := w.apart()
		w.onBase(browserFiles)
		compared := func(name, more string) record.BrowserCheck {
			m := w.browse(name, `{"start": "python3 serve.py 5173", "url": "http://127.0.0.1:5173/", "viewports": ["mobile"], "compare": {`+more+`}}`)
			if len(m.Browser) != 1 || m.Browser[0].Compare == nil || len(m.Browser[0].Compare.Views) != 1 {
				t.Fatalf("%+v", m)
			}
			return m.Browser[0]
		}
		w.exec("run:changed", `sed -i 's|<h1>Todo</h1>|<h1 style="color:red">To do</h1>|' index.html`)
		c := compared("changed", "")
		base := w.inRepo("rev-parse", "main")
		if d := c.Compare; d.Cached || d.Verdict != record.BrowserPass || d.Commit != base || d.Base != "main" || n.Load() != 1 {
			t.Errorf("%+v, %d containers", d, n.Load())
		}
		d := c.Compare.Views[0]
		if d.Changed <= 0 || d.Changed > 0.5 || len(d.Boxes) == 0 || d.Before == "" || d.Picture == "" ||
			d.After == "" || !strings.Contains(d.Aria, `+- heading "To do"`) {
			t.Errorf("%+v", d)
		}
		for _, name := range []string{d.Before, d.After, d.Picture} {
			if !slices.ContainsFunc(c.Files, func(f browser.File) bool { return f.Name == name && f.Type == "image/png" && f.Size > 0 }) {
				t.Errorf("%s is not among the files %+v", name, c.Files)
			}
		}
		// All callers share one look at the base. A difference above max_changed is a failure.
		c = compared("changed", `"max_changed": 0.0001`)
		if !c.Compare.Cached || n.Load() != 1 || c.Verdict != record.BrowserFail ||
			!strings.Contains(c.Reason, "mobile differs from main") {
			t.Errorf("%s %s, %+v, %d containers", c.Verdict, c.Reason, c.Compare, n.Load())
		}
		if engine == "docker" {
			return // the rest does not depend on the engine
		}
		// If nothing changed, nothing is looked at twice.
		c = compared("same", "")
		if d := c.Compare; !d.Cached || d.Views[0].Pixels != 0 || d.Views[0].Picture != "" || d.Views[0].Aria != "" || n.Load() != 1 {
			t.Errorf("%+v, %d containers", d, n.Load())
		}
		// A base that the container may not read cannot be compared with.
		w.exec("run:other", "echo more >>greeting.txt")
		c = w.browse("same", `{"start": "python3 serve.py 5173", "url": "http://127.0.0.1:5173/", "viewports": ["mobile"], "compare": {"base": "ramus/run-other"}}`).Browser[0]
		if d := c.Compare; d.Verdict != record.BrowserUnverified ||
			!strings.Contains(d.Reason, "all that the container may read") || c.Verdict != record.BrowserPass {
			t.Errorf("%+v, %s", d, c.Verdict)
		}
		if refs := strings.Fields(w.inRepo("for-each-ref", "--format=%(refname)", "refs/ramus/browser")); len(refs) != 1 {
			t.Errorf("%d looks are kept: %v", len(refs), refs)
		}
	})
}

// TestBrowseKeepsSecretsOut checks with a session and types a secret. Neither is in any kept file.
func TestBrowseKeepsSecretsOut(t *testing.T) {
	const cookie, typed = "cookie-value-0123456789", "typed-in-secret-42"
	w := browserWorld(t, "sandbox", nil)
	w.onBase(browserFiles)
	w.onBase(map[string]string{"auth.sh": `echo "signing in as ` + cookie + `" >&2; test "$RAMUS_PAGE_URL" = http://127.0.0.1:5173/me
printf '{"cookies":[{"name":"sid","value":"%s-%s","domain":"127.0.0.1","path":"/"}],"origins":[]}' cookie-value 0123456789
`})
	m := w.browse("auth", `{"start": "python3 -u serve.py 5173", "url": "http://127.0.0.1:5173/me", "viewports": ["mobile"], "auth": "sh auth.sh",
		"steps": [{"expect_text": "#who", "value": "sid="}, {"goto": "/"}, {"fill": "#new", "value": "`+typed+`", "secret": true}]}`)
	if len(m.Browser) != 1 || m.Browser[0].Verdict != record.BrowserPass || !m.Browser[0].Redacted {
		t.Fatalf("%+v", m.Browser)
	}
	out := filepath.Join(t.TempDir(), "sealed")
	w.sh(t.TempDir(), "mkdir -p "+out+" && git -C "+filepath.Join(w.data, "repos", "demo.git")+
		" archive refs/ramus/runs/"+strings.ReplaceAll(strings.Replace(m.Run, "run:", "run-", 1), "..", "")+
		" | tar -x -C "+out)
	seen := 0
	look := func(name string, text []byte) {
		seen++
		for _, secret := range []string{cookie, typed} {
			// typed is in the open part of the spec, so the record of the request may have it. The check's
			// files may not.
			if bytes.Contains(text, []byte(secret)) && (secret == cookie || strings.Contains(name, "/artifacts/")) {
				t.Errorf("%s holds %s", name, secret)
			}
		}
	}
	err := filepath.WalkDir(out, func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		look(name, text)
		if filepath.Ext(name) != ".zip" {
			return nil
		}
		z, err := zip.NewReader(bytes.NewReader(text), int64(len(text)))
		if err != nil {
			return err
		}
		for _, f := range z.File {
			in, err := f.Open()
			if err != nil {
				return err
			}
			text, err := io.ReadAll(in)
			if err := errors.Join(err, in.Close()); err != nil {
				return err
			}
			look(name+"!"+f.Name, text)
		}
		return nil
	})
	if err != nil || seen < 15 {
		t.Errorf("%d files were looked at: %v", seen, err)
	}
	if log, err := os.ReadFile(filepath.Join(out, "artifacts", "browser", m.Browser[0].Dir, "app.log")); err != nil ||
		!strings.Contains(string(log), "asked by sid=[secret") {
		t.Errorf("app.log: %s, %v", log, err)
	}
}

// TestBrowseEvidenceIsTheHosts has a container write to the place of the evidence. Its files are not
// evidence. The container gets copies of the pictures.
func TestBrowseEvidenceIsTheHosts(t *testing.T) {
	w := browserWorld(t, "sandbox", nil)
	w.onBase(browserFiles)
	m := w.browse("forged", `{"install": "mkdir -p /artifacts/browser/001-check/mobile && echo forged | tee /artifacts/browser/001-check/mobile/forged.png /artifacts/browser/index.json /artifacts/own.txt",
		"start": "python3 serve.py 5173", "url": "http://127.0.0.1:5173/", "viewports": ["mobile"]}`)
	var names []string
	for _, f := range m.Files {
		if strings.HasPrefix(f.Name, "artifacts/") {
			names = append(names, f.Name)
		}
	}
	slices.Sort(names)
	want := []string{"artifacts/browser/001-check/mobile/aria.yml", "artifacts/browser/001-check/mobile/console.jsonl",
		"artifacts/browser/001-check/mobile/network.har",
		"artifacts/browser/001-check/mobile/screenshot.png", "artifacts/browser/001-check/mobile/trace.zip",
		"artifacts/browser/index.json", "artifacts/own.txt"}
	if !slices.Equal(slices.DeleteFunc(names, func(n string) bool { return strings.HasSuffix(n, "app.log") }), want) {
		t.Errorf("%v", names)
	}
	f, err := w.x.Artifact(t.Context(), m.Run, "artifacts/browser/index.json")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var index browser.Index
	if err := json.NewDecoder(f).Decode(&index); err != nil || len(index.Checks) != 1 || !reflect.DeepEqual(index.Checks, m.Browser) {
		t.Errorf("%+v, %v", index, err)
	}
	for _, file := range index.Checks[0].Files {
		if i := slices.IndexFunc(m.Files, func(f record.ManifestFile) bool {
			return f.Name == "artifacts/browser/"+
				file.Name
		}); i < 0 || m.Files[i].SHA256 != file.SHA256 {
			t.Errorf("%s is another file than what is kept", file.Name)
		}
	}
	if _, out, _ := w.exec("run:forged",
		"cd /artifacts/browser && ls 001-check/mobile && head -c 40 index.json"); !strings.Contains(out,
		"screenshot.png") || !strings.Contains(out, `"schema": 1`) {
		t.Errorf("the container has %s", out)
	}
}

// fakeBrowser is an engine whose browser writes the output that a test chooses.
type fakeBrowser struct {
	containerstest.Engine
	look func(ctx context.Context, job browser.Job, out io.Writer) (containers.SidecarExit, error)
}

func (f *fakeBrowser) RunSidecar(ctx context.Context, _ string, s containers.Sidecar) (containers.SidecarExit, error) {
	var job browser.Job
	if err := json.NewDecoder(s.Stdin).Decode(&job); err != nil {
		return containers.SidecarExit{}, err
	}
	return f.look(ctx, job, s.Stdout)
}

const fakePNG = "\x89PNG\r\n\x1a\nrest"

// TestBrowseHostile has pages take the browser over. Such a browser can end its own check, and nothing
// else.
func TestBrowseHostile(t *testing.T) {
	passed := `{"verdict":"PASS","reason":"all is well","views":[{"viewport":{"name":"mobile"},"verdict":"PASS","screenshot":"../../../run.json","trace":"mobile/trace.zip"}]}`
	many := func(n int, name func(i int) string) (list []tar.Header) {
		for i := range n {
			list = append(list, tar.Header{Name: name(i)})
		}
		return list
	}
	long := strings.Repeat("x", 256<<10)
	said := func(code int, tar []byte) func(context.Context, browser.Job, io.Writer) (containers.SidecarExit, error) {
		return func(_ context.Context, _ browser.Job, out io.Writer) (containers.SidecarExit, error) {
			_, err := out.Write(tar)
			return containers.SidecarExit{Code: code, Image: "fake"}, err
		}
	}
	f := &fakeBrowser{}
	w := newWorld(t, func(x *executor.Executor) {
		f.Engine, x.Fleet.Engine, x.Browser = x.Fleet.Engine.(containerstest.Engine), f, &browse.Browser{}
		x.Browser.Grace = time.Second
	})
	w.onBase(browserFiles)
	for _, c := range []struct {
		name    string
		look    func(context.Context, browser.Job, io.Writer) (containers.SidecarExit, error)
		verdict record.CheckResult
		reason  string
	}{
		{"fine", said(0, browsetest.Tar(passed, tar.Header{Name: "mobile/screenshot.png", Uname: fakePNG})), "passed",
			"all is well"},
		{"slip", said(0, browsetest.Tar(passed, tar.Header{Name: "../../../slipped"})), "not_run",
			`"../../../slipped" is no file`},
		{"absolute", said(0, browsetest.Tar(passed, tar.Header{Name: "/tmp/slipped"})), "not_run", "is no file"},
		{"symlink", said(0, browsetest.Tar(passed, tar.Header{Name: "mobile/screenshot.png", Typeflag: tar.TypeSymlink,
			Linkname: "/etc/passwd"})), "not_run", "is no file"},
		{"hard link", said(0, browsetest.Tar(passed, tar.Header{Name: "mobile/screenshot.png", Typeflag: tar.TypeLink,
			Linkname: "index.json"})), "not_run", "is no file"},
		{"device", said(0, browsetest.Tar(passed, tar.Header{Name: "mobile/screenshot.png", Typeflag: tar.TypeChar})),
			"not_run", "is no file"},
		{"deep", said(0, browsetest.Tar(passed, tar.Header{Name: strings.Repeat("a/", 100) + "b"})), "not_run",
			"is no file"},
		{"other viewport", said(0, browsetest.Tar(passed, tar.Header{Name: "desktop/screenshot.png"})), "not_run",
			"is no file"},
		{"unknown name", said(0, browsetest.Tar(passed, tar.Header{Name: "mobile/index.html"})), "not_run", "is no file"},
		{"twice", said(0, browsetest.Tar(passed, tar.Header{Name: "mobile/aria.yml"},
			tar.Header{Name: "mobile/aria.yml"})), "not_run", "cannot be kept"},
		{"many", said(0, browsetest.Tar(passed,
			many(10_000, func(i int) string { return fmt.Sprintf("mobile/step-%d.png", i) })...)), "not_run",
			"more than 2000 files"},
		{"large", func(_ context.Context, _ browser.Job, out io.Writer) (containers.SidecarExit, error) {
			t := tar.NewWriter(out)
			if err := t.WriteHeader(&tar.Header{Name: "mobile/screenshot.png", Size: 300 << 20, Mode: 0o644}); err != nil {
				return containers.SidecarExit{}, err
			}
			_, err := io.Copy(t, io.LimitReader(zeros{}, 300<<20))
			return containers.SidecarExit{}, err
		}, "not_run", "too large"},
		{"endless", func(_ context.Context, _ browser.Job, out io.Writer) (containers.SidecarExit, error) {
			if _, err := out.Write(browsetest.Tar(passed)); err != nil {
				return containers.SidecarExit{}, err
			}
			_, err := io.Copy(out, zeros{})
			return containers.SidecarExit{}, err
		}, "not_run", "larger than 256 MiB"},
		{"half", said(0, browsetest.Tar(passed, tar.Header{Name: "mobile/aria.yml", Uname: "abc"})[:300]), "not_run",
			"no whole tar"},
		{"no index", said(0, browsetest.Tar("")), "not_run", "its result cannot be read"},
		{"no JSON", said(0, browsetest.Tar("hello")), "not_run", "its result cannot be read"},
		{"says PASS, ended with 1", said(1, browsetest.Tar(passed)), "not_run", "contradicts itself"},
		{"says PASS of no view", said(0, browsetest.Tar(`{"verdict":"PASS"}`)), "not_run", "mobile was not seen to pass"},
		{"no PNG", said(0, browsetest.Tar(passed, tar.Header{Name: "mobile/screenshot.png", Uname: "<script>"})),
			"passed", "mobile/screenshot.png could not be"},
		{"no ZIP", said(0, browsetest.Tar(passed, tar.Header{Name: "mobile/trace.zip", Uname: "PK none"})), "passed",
			"mobile/trace.zip could not be"},
		{"long", said(1, browsetest.Tar(`{"verdict":"FAIL","reason":"`+long+
			`","views":[{"viewport":{"name":"mobile"},"verdict":"FAIL","title":"`+long+`","network_errors":[`+
			strings.TrimSuffix(strings.Repeat(`{"url":"`+long[:3000]+`"},`, 900), ",")+`]}]}`)), "failed", "xxx"},
		{"broken", said(2, browsetest.Tar(`{"verdict":"UNVERIFIED","reason":"no driver"}`)), "not_run", "no driver"},
		{"memory", func(context.Context, browser.Job, io.Writer) (containers.SidecarExit, error) {
			return containers.SidecarExit{OOM: true, Code: 137}, nil
		}, "not_run", "more than 1024 MiB of memory"},
		{"away", func(context.Context, browser.Job, io.Writer) (containers.SidecarExit, error) {
			return containers.SidecarExit{}, containers.ErrUnavailable
		}, "not_run", "container engine unavailable"},
		{"hangs", func(ctx context.Context, _ browser.Job, out io.Writer) (containers.SidecarExit, error) {
			<-ctx.Done()
			return containers.SidecarExit{}, ctx.Err()
		}, "not_run", "did not end within 1s"},
	} {
		f.look = c.look
		within := "2m" // long enough for checks with as much output as possible
		if c.name == "hangs" {
			within = "1s"
		}
		m := w.browse("hostile",
			`{"start": "none", "url": "http://page.invalid/", "viewports": ["mobile"], "timeout": "`+within+`"}`)
		if len(m.Browser) != 1 || len(m.Checks) != 1 {
			t.Errorf("%s: %+v", c.name, m)
			continue
		}
		b := m.Browser[0]
		if m.Checks[0].Result != c.verdict || !strings.Contains(b.Reason, c.reason) {
			t.Errorf("%s: %s, %s %q, want %s %q", c.name, m.Checks[0].Result, b.Verdict, clip300(b.Reason),
				c.verdict, c.reason)
		}
		if text, err := json.Marshal(b); err != nil || len(text) > 600<<10 {
			t.Errorf("%s: %d bytes, %v", c.name, len(text), err)
		}
		for _, v := range b.Views {
			want := ""
			if c.name == "fine" {
				want = b.Dir + "/mobile/screenshot.png"
			}
			if v.Screenshot != want || v.Trace != "" {
				t.Errorf("%s: %q, %q", c.name, v.Screenshot, v.Trace)
			}
		}
	}
	if slipped, _ := filepath.Glob(filepath.Join(w.data, "**", "slipped")); len(slipped) > 0 {
		t.Errorf("%v", slipped)
	}
}

func clip300(s string) string { return s[:min(len(s), 300)] }

// zeros is an endless reader of zeros.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// crashLook runs the server that TestBrowseKilled kills.
func crashLook(ctx context.Context, x *executor.Executor, c record.Caller) error {
	r, err := x.Submit(ctx, record.Request{Key: "look", Caller: c, Repo: "demo", Task: &record.TaskCall{Name: "browser_test",
		Params: map[string]any{"check": map[string]any{"start": "python3 serve.py 5173",
			"url": "http://127.0.0.1:5173/", "viewports": []any{"mobile"}}}}})
	if err != nil {
		return err
	}
	_, err = crashWait(ctx, x, r)
	return err
}

// TestBrowseKilled kills the server during a check. The check begins again and is there once. Neither the
// first browser nor its application remains.
func TestBrowseKilled(t *testing.T) {
	w := browserWorld(t, "sandbox", nil)
	w.onBase(browserFiles)
	w.stop(false)
	dir, err := filepath.Abs("../bin/browser")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "RAMUS_TEST_CRASH="+w.data, "RAMUS_TEST_RUNNER="+runnerBinary, "RAMUS_TEST_BROWSER="+dir)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	raw := filepath.Join(w.data, "live", "run-crash", "look.output", "browser-001.part", "raw")
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(raw); err == nil {
			break
		}
		if time.Now().After(end) {
			t.Error("the page was not looked at")
			break
		}
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	w.start()
	r, err := w.x.Settled(t.Context(), caller(t, "run:crash"), "look")
	if err != nil {
		t.Fatal(err)
	}
	m, err := w.x.Manifest(t.Context(), r.Name())
	if err != nil || r.State != record.StateComplete || len(m.Browser) != 1 ||
		m.Browser[0].Verdict != record.BrowserPass || m.Browser[0].Dir != "001-check" {
		t.Fatalf("%+v, %v\n%s", r, err, w.journal(r.Name()))
	}
	if left, _ := filepath.Glob(filepath.Join(w.data, "live", "*", "*")); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
	// The port of the application is free again.
	if res, _, errs := w.exec("run:crash", `python3 -c 'import socket; socket.create_server(("127.0.0.1", 5173))'`); res.ExitCode != 0 {
		t.Errorf("the application is left: %s", errs)
	}
}

// TestBrowseAtOnce runs four checks at once. All finish, each with files of its own. Two are of two callers,
// and two of an agent's tools during its turn, in one container.
func TestBrowseAtOnce(t *testing.T) {
	w := browserWorld(t, "sandbox", func(x *executor.Executor) {
		withACP(nil)(x)
		x.Door = map[string]func(executor.Visitor) http.Handler{"/tool/": func(v executor.Visitor) http.Handler {
			return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				out, err := v.Task(r.Context(), strings.TrimPrefix(r.URL.Path, "/tool/"),
					json.RawMessage(r.URL.Query().Get("p")))
				fmt.Fprintln(rw, out.OK, err)
			})
		}}
	})
	w.onBase(browserFiles)
	spec := `{"start": "python3 serve.py 5173", "url": "http://127.0.0.1:5173/", "viewports": ["mobile"]}`
	call := `curl -sS -G --noproxy "*" --data-urlencode "p={\"check\": ` + strings.ReplaceAll(spec, `"`, `\"`) +
		`}" http://127.0.0.1:7070/tool/browser_test`
	var group sync.WaitGroup
	manifests := make([]record.Manifest, 3)
	for i := range 2 {
		group.Go(func() { manifests[i] = w.browse(fmt.Sprintf("at-once-%d", i), spec) })
	}
	group.Go(func() {
		r := w.ended(w.ask("conv:looks", "run "+call+" & "+call+"; wait").Name())
		manifests[2], _ = w.x.Manifest(t.Context(), r.Name())
	})
	group.Wait()
	for i, want := range []int{1, 1, 2} {
		m := manifests[i]
		if len(m.Browser) != want {
			t.Errorf("%d: %d checks, %+v\n%s", i, len(m.Browser), m, w.journal(m.Run))
		}
		seen := map[string]bool{}
		for _, b := range m.Browser {
			if b.Verdict != record.BrowserPass || seen[b.Dir] || b.Views[0].Screenshot == "" {
				t.Errorf("%d: %s %s %s", i, b.Dir, b.Verdict, b.Reason)
			}
			seen[b.Dir] = true
		}
	}
}

// TestDoorRefusesPages sends requests to the door. The door refuses pages that use the container's name. It
// serves the container's programs, including the fetch of node.
func TestDoorRefusesPages(t *testing.T) {
	w := newWorld(t, nil)
	const repo = "http://127.0.0.1:7070/demo.git/info/refs?service=git-upload-pack"
	for header, want := range map[string]string{"X-Nothing: 1": "200", "Origin: http://127.0.0.1:5173": "403",
		"Origin: null": "403", "Sec-Fetch-Site: none": "403",
		"Sec-Fetch-Site: same-site": "403", "Sec-Fetch-Mode: cors": "200"} {
		_, out, _ := w.exec("run:door", `curl -s --noproxy '*' -o /dev/null -w '%{http_code}' -H '`+header+`' '`+repo+`'`)
		if out != want {
			t.Errorf("%s: %s, want %s", header, out, want)
		}
	}
	res, out, errs := w.exec("run:door",
		`env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY node -e 'fetch("`+repo+
			`").then(r => console.log(r.status))'`)
	if res.ExitCode == 127 {
		t.Skip("cannot run here: there is no node")
	}
	if out != "200\n" {
		t.Errorf("node's fetch: %s%s", out, errs)
	}
}

// TestBrowseInParts checks pages in a sub-workflow and in lines with branches of their own. The checks are
// the run's evidence, with their files.
func TestBrowseInParts(t *testing.T) {
	w := browserWorld(t, "sandbox", nil)
	w.onBase(browserFiles)
	look := func(id, page string) string {
		return fmt.Sprintf(`{id: %s, task: browser_test, params: {check: {name: %s, start: "python3 serve.py 5173", url: "http://127.0.0.1:5173/%s", viewports: [mobile]}}}`, id, id, page)
	}
	sub := map[string]string{"inner": "id: inner\nnodes:\n  - " + look("deep", "console.html") + "\n"}
	r := w.submit(record.Request{Sub: sub, Workflow: `
id: parts
nodes:
  - ` + look("first", "") + `
  - {id: below, kind: workflow, implementation: {workflow_def_id: inner, inherit_branch: true}}
  - ` + look("line", "") + `
  - {id: end, run: "true"}
transitions:
  - {from: first, to: below}
  - {from: below, to: line, on: failure, fan_out: {over: "['x','y','z']", branch: true}}
  - {from: line, to: end, fan_in: {}}
`})
	m, err := w.x.Manifest(t.Context(), r.Name())
	if err != nil {
		t.Fatal(err)
	}
	names := w.kept(m, r)
	if want := []string{"first PASS", "deep FAIL", "line PASS", "line PASS", "line PASS"}; !slices.Equal(names, want) {
		t.Errorf("%q, want %q\n%s", names, want, w.journal(r.Name()))
	}
	var checks []string
	for _, c := range m.Checks {
		checks = append(checks, string(c.Result))
	}
	slices.Sort(checks)
	if want := []string{"failed", "passed", "passed", "passed", "passed"}; !slices.Equal(checks, want) {
		t.Errorf("%+v", m.Checks)
	}
}

// oneEngine skips the second engine in short runs, for tests in which both engines reach the browser the
// same way.
func oneEngine(t *testing.T, engine string) {
	t.Helper()
	if engine == "docker" && os.Getenv("RAMUS_TEST") != "full" {
		t.Skip("only with RAMUS_TEST=full: TestBrowse looks at pages on both engines")
	}
}

// kept returns the names of a run's checks with their verdicts, and compares their files with their hashes.
func (w *world) kept(m record.Manifest, r record.Run) (names []string) {
	w.t.Helper()
	for _, c := range m.Browser {
		names = append(names, c.Name+" "+string(c.Verdict))
		for _, v := range c.Views {
			for _, name := range []string{v.Screenshot, v.Trace, v.Console.File} {
				i := slices.IndexFunc(m.Files,
					func(f record.ManifestFile) bool { return f.Name == "artifacts/browser/"+name })
				if name == "" || i < 0 {
					w.t.Fatalf("%s: no file %q in %+v", c.Step, name, m.Files)
				}
				f, err := w.x.OpenFile(w.t.Context(), r, m.Files[i])
				if err != nil {
					w.t.Fatal(err)
				}
				if _, err := io.Copy(io.Discard, f); err != nil { // which compares it with its hash
					w.t.Errorf("%s: %v", name, err)
				}
				_ = f.Close()
			}
		}
	}
	return names
}

// TestBrowseRetried retries a run after a failed step. The checks before that step are evidence of the retry,
// and of the retry after it.
func TestBrowseRetried(t *testing.T) {
	w := browserWorld(t, "sandbox", nil)
	w.onBase(browserFiles)
	r := w.submit(record.Request{Workflow: `
id: again
nodes:
  - {id: look, task: browser_test, params: {check: {name: look, start: "python3 serve.py 5173", url: "http://127.0.0.1:5173/", viewports: [mobile]}}}
  - {id: fails, run: "false"}
`})
	for range 2 {
		again, err := w.x.Retry(t.Context(), r.Name(), gitd.Person{})
		if err != nil {
			t.Fatal(err)
		}
		r = w.ended(again.Name())
		m, err := w.x.Manifest(t.Context(), r.Name())
		if err != nil {
			t.Fatal(err)
		}
		if names := w.kept(m, r); !slices.Equal(names, []string{"look PASS"}) || len(m.Checks) != 1 ||
			m.Checks[0].Result != record.CheckPassed {
			t.Errorf("%q, %+v\n%s", names, m.Checks, w.journal(r.Name()))
		}
	}
}

// TestBrowsePublic looks at a page of another host, through the door's proxy. The proxy reaches the allowed
// hosts, which are journalled, and no others. No application is started.
func TestBrowsePublic(t *testing.T) {
	onEngines(t, func(t *testing.T, engine string) {
		oneEngine(t, engine)
		elsewhere := func() *httptest.Server {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "text/html")
				fmt.Fprintf(w, `<!doctype html><title>preview</title><link rel=icon href="data:,"><h1>%s</h1>`, r.URL.Path)
			}))
			t.Cleanup(s.Close)
			return s
		}
		// To a browser, 0.0.0.0 is not its own loopback. To the proxy, which dials it, 0.0.0.0 is this
		// machine.
		allowed, refused := elsewhere(), elsewhere()
		host := func(s *httptest.Server) string {
			return strings.Replace(s.Listener.Addr().String(), "127.0.0.1", "0.0.0.0", 1)
		}
		w := browserWorld(t, engine, func(x *executor.Executor) { x.Options.Egress = []string{host(allowed)} })
		w.onBase(browserFiles)
		m := w.browse("public", `{"url": "http://`+host(allowed)+
			`/smoke", "pdf": true, "viewports": ["mobile"], "steps": [{"expect_text": "h1", "value": "/smoke"}]}`)
		if len(m.Browser) != 1 || m.Browser[0].Verdict != browser.Pass || len(m.Browser[0].Views) != 1 {
			t.Fatalf("%+v %s", m.Browser, m.Error)
		}
		v := m.Browser[0].Views[0]
		if v.PDF == "" || v.Screenshot == "" || v.Trace == "" || v.Status != 200 || v.Title != "preview" {
			t.Errorf("%+v", v)
		}
		if want := (record.ManifestEgress{Host: host(allowed), Verdict: "allowed"}); !slices.Contains(m.Egress, want) {
			t.Errorf("the journal does not tell of %s: %+v", want.Host, m.Egress)
		}
		// A light picture, of a page that is not to be seen.
		m = w.task("public", "capture_screenshot",
			map[string]any{"url": "http://" + host(refused) + "/", "viewports": []string{"mobile"}})
		if len(m.Browser) != 1 || m.Browser[0].Verdict != browser.Fail {
			t.Fatalf("%+v %s", m.Browser, m.Error)
		}
		if v := m.Browser[0].Views[0]; v.Title == "preview" || v.Status == 200 {
			t.Errorf("a host was reached that is not allowed: %+v", v)
		}
		if want := (record.ManifestEgress{Host: host(refused), Verdict: "refused"}); !slices.Contains(m.Egress, want) {
			t.Errorf("the journal does not tell of %s: %+v", want.Host, m.Egress)
		}
	})
}
