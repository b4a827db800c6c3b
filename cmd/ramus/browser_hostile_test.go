package main

import (
	"bytes"
	"cmp"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/containers/docker"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/internal/programs"
)

// harm is a hostile page or browser.
type harm struct {
	name    string
	path    string        // of the page
	timeout time.Duration // of the check
	steps   []any
	verdict record.BrowserVerdict // empty for FAIL or UNVERIFIED
	mayPass bool                  // PASS is accepted, too
	reason  string                // a regular expression
	more    func(t testing.TB, s *browserServer, m record.Manifest, b record.BrowserCheck)
	full    bool // runs with RAMUS_TEST=full only
}

// stepWithin bounds a step of the run. It is far more than the time of a check that ends by
// itself.
const stepWithin = 4 * time.Minute

// suffer does the checks in one container with a server, each in a step of one run. It then
// checks the rest of the run.
func (s *browserServer) suffer(caller, serve string, list []harm) {
	s.t.Helper()
	nodes := []any{map[string]any{"id": "serve", "run": serve, "execution": map[string]any{"background": true}}}
	transitions := []any{}
	last := "serve"
	then := func(id string, node map[string]any) {
		node["id"] = id
		nodes = append(nodes, node)
		transitions = append(transitions, map[string]any{"from": last, "to": id, "on": "always"})
		last = id
	}
	for i, h := range list {
		check := map[string]any{"name": h.name, "start": "none", "url": "http://127.0.0.1:8000" + h.path,
			"viewports": []any{"mobile"},
			"timeout":   cmp.Or(h.timeout, 2*time.Minute).String(), "wait": "1m"}
		if h.steps != nil {
			check["steps"] = h.steps
		}
		then(fmt.Sprintf("harm-%d", i), map[string]any{"task": "browser_test", "params": map[string]any{"check": check},
			"execution": map[string]any{"timeout_ms": stepWithin.Milliseconds()}})
	}
	// The container, its processes and the run have survived.
	then("after", map[string]any{"run": `python3 -c 'import urllib.request as u; print(u.build_opener(u.ProxyHandler({})).open("http://127.0.0.1:8000/alive").read())'
test ! -e /tmp/slipped; test ! -e /slipped; test ! -e slipped`})
	m, err := s.run(caller, record.Request{Workflow: jsonText(s.t,
		map[string]any{"id": "harm", "nodes": nodes, "transitions": transitions})})
	if err != nil {
		s.t.Error(err)
		return
	}
	if m.State != record.StateComplete {
		s.t.Errorf("the run is %s: %s %s", m.State, m.Reason, m.Error)
	}
	if len(m.Browser) != len(list) {
		s.t.Errorf("%d checks of %d: %+v", len(m.Browser), len(list), m)
		return
	}
	for i, h := range list {
		b := m.Browser[i]
		took := time.Duration(b.DurationMS) * time.Millisecond
		s.t.Logf("%s: %s in %s, %d MiB: %.300s", h.name, b.Verdict, took.Round(100*time.Millisecond),
			b.MemoryPeak>>20, b.Reason)
		if b.Verdict != h.verdict && (h.verdict != "" || b.Verdict == record.BrowserPass && !h.mayPass) ||
			!regexp.MustCompile(h.reason).MatchString(b.Reason) {
			s.t.Errorf("%s: %s %q, want %s %q", h.name, b.Verdict, b.Reason, h.verdict, h.reason)
		}
		for _, f := range b.Files {
			if !regexp.MustCompile(`^[0-9]{3}-[a-z0-9-]+/(app\.log|mobile/(screenshot\.png|step-[0-9]+(-[a-z0-9-]+)?\.png|trace\.zip|network\.har|console\.jsonl|aria\.yml))$`).MatchString(f.Name) {
				s.t.Errorf("%s: %s is kept", h.name, f.Name)
			}
		}
		if h.more != nil {
			h.more(s.t, s, m, b)
		}
	}
}

// hostListeners listens at addresses of the machine that belong to no container, and counts
// connections.
func hostListeners(t *testing.T) (addrs []string, came *atomic.Int64) {
	t.Helper()
	came = new(atomic.Int64)
	ips := []string{"127.0.0.1", "127.0.0.2"}
	all, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() && n.IP.To4() != nil {
			ips = append(ips, n.IP.String())
		}
	}
	if len(ips) < 3 {
		t.Log("the machine has no address but loopback")
	}
	for _, ip := range ips {
		l, err := net.Listen("tcp", ip+":0")
		if err != nil {
			t.Fatal(err)
		}
		var accepting sync.WaitGroup
		accepting.Go(func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				came.Add(1)
				c.Close()
			}
		})
		t.Cleanup(func() { l.Close(); accepting.Wait() })
		addrs = append(addrs, l.Addr().String())
	}
	return addrs, came
}

// text reads a file of a run's evidence.
func (s *browserServer) text(m record.Manifest, name string) string {
	s.t.Helper()
	var b bytes.Buffer
	if err := s.api.EvidenceFile(s.t.Context(), m.Run, "artifacts/browser/"+name, &b); err != nil {
		s.t.Error(err)
	}
	return b.String()
}

// refused returns a check that the page sent requests, and that all its requests to others
// were refused.
func refused(prefixes ...string) func(testing.TB, *browserServer, record.Manifest, record.BrowserCheck) {
	return func(t testing.TB, _ *browserServer, _ record.Manifest, b record.BrowserCheck) {
		for _, prefix := range prefixes {
			n := 0
			for _, e := range b.Views[0].Network {
				if strings.HasPrefix(e.URL, prefix) {
					n++
					if e.Failure == "" && e.Status != http.StatusForbidden { // in the words of the egress proxy
						t.Errorf("%s: %+v", b.Name, e)
					}
				}
			}
			if n < 3 {
				t.Errorf("%s was asked only %d times: %+v", prefix, n, b.Views[0].Network)
			}
		}
	}
}

// TestBrowserHostile checks hostile pages. The check of any page ends in time with a
// reason, and the run continues in the same container. The page reaches and leaves nothing
// outside of the container.
func TestBrowserHostile(t *testing.T) {
	onBrowsers(t, func(t *testing.T, engine string) {
		if engine == "docker" && !browserFull() {
			t.Skip("only with RAMUS_TEST=full: TestBrowserTakenOver looks at the walls of this engine")
		}
		addrs, came := hostListeners(t)
		var hosts []string
		for _, a := range addrs[1:] { // loopback is the container's own
			hosts = append(hosts, "http://"+a)
		}
		s := newBrowserServer(t, engine)
		// Two checks run at a time.
		lanes := [][]harm{{
			{name: "memory", path: "/memory", steps: []any{map[string]any{"expect_visible": "#never",
				"timeout": "90s"}}, reason: "memory|crashed|ended by itself"},
			{name: "hosts", path: "/hosts", verdict: record.BrowserFail, reason: "refused", more: refused(hosts...)},
			{name: "dialogs", path: "/dialogs", verdict: record.BrowserFail, reason: "dialogs without end"},
			{name: "file", path: "/file", verdict: record.BrowserFail, reason: "file:///etc/passwd", more: noPasswords},
			{name: "passwd", path: "/passwd", verdict: record.BrowserFail, reason: "redirects to what is no web page",
				more: noPasswords},
			{name: "silent", path: "/silent", timeout: 3 * time.Second, verdict: record.BrowserUnverified,
				reason: "took longer than 3s before the page answered", full: true},
			{name: "spin", path: "/spin", timeout: 5 * time.Second, verdict: record.BrowserFail,
				reason: "took longer than 5s", full: true},
			{name: "storage", path: "/storage", timeout: 8 * time.Second,
				steps: []any{map[string]any{"expect_visible": "#never", "timeout": "30s"}}, reason: ".", full: true},
		}, {
			{name: "workers", path: "/workers", timeout: 5 * time.Second, reason: ".", full: true},
			{name: "download", path: "/download", timeout: 5 * time.Second, mayPass: true, reason: "."},
			// Chromium lets a page close only some windows.
			{name: "close", path: "/close", mayPass: true, reason: "closed itself|no errors"},
			{name: "console", path: "/console", verdict: record.BrowserPass,
				more: func(t testing.TB, s *browserServer, m record.Manifest, b record.BrowserCheck) {
					if c := b.Views[0].Console; c.Counts["log"] != 10_000 || c.Dropped != 8_000 ||
						strings.Count(s.text(m, c.File), "\n") != 2_000 {
						t.Errorf("%+v", c)
					}
				}},
			{name: "endless", path: "/endless", timeout: 3 * time.Second, verdict: record.BrowserFail,
				reason: "took longer than 3s", full: true},
			{name: "door", path: "/door", verdict: record.BrowserFail, reason: "refused",
				more: refused("http://127.0.0.1:7070/", "http://localhost:7070/", "http://[::1]:7070/")},
		}}
		var group sync.WaitGroup
		for i, lane := range lanes {
			if !browserFull() {
				lane = slices.DeleteFunc(lane, func(h harm) bool { return h.full })
			}
			group.Go(func() {
				s.suffer(fmt.Sprintf("run:harm-%d", i), "exec python3 hostile/serve.py 8000 "+strings.Join(hosts, " "), lane)
			})
		}
		group.Wait()
		if n := came.Load(); n > 0 {
			t.Errorf("the host was reached %d times", n)
		}
		s.peak()
		s.finish()
		s.unslipped()
	})
}

// noPasswords checks that nothing of the file is in the evidence.
func noPasswords(t testing.TB, s *browserServer, m record.Manifest, b record.BrowserCheck) {
	for _, f := range b.Files {
		if text := s.text(m, f.Name); strings.Contains(text, "root:x:0") || strings.Contains(text, "daemon:") {
			t.Errorf("%s: %s has the file", b.Name, f.Name)
		}
	}
}

// peak checks the peak memory of the server itself.
func (s *browserServer) peak() {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	if err != nil {
		s.t.Error(err)
	}
	s.t.Logf("the server: %s", regexp.MustCompile(`VmHWM:\s*[0-9]+ kB`).Find(text))
}

// unslipped looks for the files that a hostile browser tried to write.
func (s *browserServer) unslipped() {
	s.t.Helper()
	above := filepath.Dir(s.data)
	err := filepath.WalkDir(above, func(name string, e fs.DirEntry, err error) error {
		if err == nil && strings.Contains(e.Name(), "slipped") {
			s.t.Errorf("%s is there", name)
		}
		return err
	})
	if err != nil {
		s.t.Error(err)
	}
	for _, name := range []string{"/tmp/slipped", "/slipped", filepath.Join(filepath.Dir(above), "slipped")} {
		if _, err := os.Lstat(name); err == nil {
			s.t.Errorf("%s is there", name)
		}
	}
}

// TestBrowserTakenOver runs a browser that an attacker controls. It can spoil its own check,
// and nothing more.
func TestBrowserTakenOver(t *testing.T) {
	onBrowsers(t, func(t *testing.T, engine string) {
		if engine == "sandbox" && !browserFull() {
			t.Skip("only with RAMUS_TEST=full: TestBrowserHostile looks at the walls of this engine")
		}
		addrs, came := hostListeners(t)
		dir := t.TempDir()
		if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := programs.Build(filepath.Join(dir, "ramus-browser"), "./testdata/hostilebrowser"); err != nil {
			t.Fatalf("cannot build the hostile browser: %v", err)
		}
		settings := []string{"dir: " + dir, "timeout: 1s"}
		if engine == "docker" {
			image := fmt.Sprintf("ramus/browser-hostile:test-%d", os.Getpid())
			text := "FROM " + docker.BrowserImage + "\nCOPY ramus-browser /opt/ramus-browser/ramus-browser\n"
			if err := os.WriteFile(filepath.Join(dir, "Dockerfile"), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if out, err := exec.CommandContext(t.Context(), "docker", "build", "-q", "-t", image, dir).CombinedOutput(); err != nil {
				t.Fatalf("cannot build the hostile browser's image: %v\n%s", err, out)
			}
			t.Cleanup(func() { _ = exec.Command("docker", "rmi", "--no-prune", image).Run() })
			settings = append(settings, "image: "+image)
		}
		s := newBrowserServer(t, engine, settings...)
		const unverified, notAFile = record.BrowserUnverified, "cannot be kept: .* is no file that belongs into it"
		list := []harm{
			{name: "fine", verdict: record.BrowserPass, reason: "all is well"},
			{name: "path ../../../slipped", verdict: unverified, reason: notAFile},
			{name: "path mobile/../../../../slipped", verdict: unverified, reason: notAFile},
			{name: "path /tmp/slipped", verdict: unverified, reason: notAFile},
			{name: "symlink /tmp", verdict: unverified, reason: notAFile},
			{name: "symlink ../../../../..", verdict: unverified, reason: notAFile},
			{name: "hardlink /etc/passwd", verdict: unverified, reason: notAFile},
			{name: "device", verdict: unverified, reason: notAFile},
			{name: "fifo", verdict: unverified, reason: notAFile},
			{name: "many", verdict: unverified, reason: "more than 2000 files"},
			{name: "huge", verdict: unverified, reason: "too large"},
			{name: "index", verdict: unverified, reason: "too large"},
			{name: "deep", verdict: unverified, reason: "cannot be read"},
			{name: "stdout", verdict: unverified, reason: "cannot be kept"},
			{name: "bomb", verdict: record.BrowserPass,
				reason: "mobile/network.har, mobile/screenshot.png, mobile/trace.zip could not be freed of secrets"},
			{name: "forks", verdict: unverified, reason: "^[0-9]{2,3} were started"},
			{name: "reach " + strings.Join(addrs, " "), verdict: unverified, reason: `^reached \[\]$`},
			{name: "stderr", verdict: record.BrowserPass, reason: "all is well"},
			{name: "hangs", verdict: unverified, reason: "did not end within 1s", full: true},
		}
		if !browserFull() {
			list = slices.DeleteFunc(list, func(h harm) bool { return h.full })
		}
		s.suffer("run:harm", "exec python3 hostile/serve.py 8000", list)
		if n := came.Load(); n > 0 {
			t.Errorf("the host was reached %d times", n)
		}
		s.peak()
		s.finish()
		s.unslipped()
	})
}
