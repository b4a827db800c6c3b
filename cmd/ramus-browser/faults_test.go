package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/ramus-dev/ramus/tasks/browser"
)

func request(status int, url string) exchange {
	return exchange{NetworkError: browser.NetworkError{Method: "GET", URL: url, Status: status}}
}

func broken(url, failure string) exchange {
	return exchange{NetworkError: browser.NetworkError{Method: "GET", URL: url, Failure: failure}}
}

func document(e exchange) exchange {
	e.document = true
	return e
}

// TestJudge: what is a fault, what is told twice, what is allowed, and in which order it is told.
func TestJudge(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		faults  faults
		allow   browser.Allow
		words   string
		allowed int
		network int
	}{
		{name: "nothing"},
		{name: "order", faults: faults{
			console: []consoleError{{text: "bad", position: true}, {text: "worse", position: true}},
			pages:   []string{"TypeError: x"},
			exchanges: []exchange{broken("http://a/f", "net::ERR_FAILED"), request(500, "http://a/s"),
				request(404, "http://a/c")},
		}, words: "uncaught TypeError: x; GET http://a/s answered 500; GET http://a/f failed: net::ERR_FAILED; console error: bad (and 1 more)", network: 3},
		{name: "the document first", faults: faults{
			pages: []string{"x"}, exchanges: []exchange{document(request(404, "http://a/"))},
		}, words: "http://a/ answered 404; uncaught x", network: 1},
		{name: "4xx is listed only",
			faults: faults{exchanges: []exchange{request(404, "http://a/c"), request(499, "http://a/d")}}, network: 2},
		{name: "told once", faults: faults{
			exchanges: []exchange{request(404, "http://a/c"), broken("http://a/d", "net::ERR_FAILED")},
			console: []consoleError{{text: "Failed to load resource", url: "http://a/c"},
				{text: "Failed to load resource", url: "http://a/d"}},
		}, words: "GET http://a/d failed: net::ERR_FAILED", network: 2},
		{name: "a script's own message counts", faults: faults{
			exchanges: []exchange{request(404, "http://a/c")},
			console:   []consoleError{{text: "Failed to load", url: "http://a/c", position: true}},
		}, words: "console error: Failed to load", network: 1},
		{name: "favicon", faults: faults{
			exchanges: []exchange{request(404, "http://a/favicon.ico"),
				broken("http://a/x/favicon.ico?v=2", "net::ERR_FAILED")},
			console: []consoleError{{text: "Failed to load resource", url: "http://a/favicon.ico"}},
		}},
		{name: "favicon with 500", faults: faults{exchanges: []exchange{request(500, "http://a/favicon.ico")}},
			words: "GET http://a/favicon.ico answered 500", network: 1},
		{name: "allowed", faults: faults{
			console: []consoleError{{text: "bad", position: true}, {text: "Failed", url: "http://a/s"}},
			pages:   []string{"TypeError: x"},
			exchanges: []exchange{request(500, "http://a/s"), broken("http://a/f", "net::ERR_FAILED"),
				document(request(404, "http://a/"))},
		}, allow: browser.Allow{Console: []string{"b.d"}, PageErrors: []string{"^Type"},
			Requests: []string{"http://a/"}}, allowed: 5},
		{name: "nothing answers",
			faults: faults{exchanges: []exchange{document(broken("http://a/", "net::ERR_CONNECTION_REFUSED"))}},
			words:  "nothing answers at http://a/ (net::ERR_CONNECTION_REFUSED)", network: 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			a, err := compileAllow(c.allow)
			if err != nil {
				t.Fatal(err)
			}
			var v browser.View
			if got := words(c.faults.judge(a, &v)); got != c.words {
				t.Errorf("got  %s\nwant %s", got, c.words)
			}
			if v.Allowed != c.allowed || len(v.Network) != c.network {
				t.Errorf("%d allowed, %d in the network's list", v.Allowed, len(v.Network))
			}
		})
	}
}

// TestManyFaults: a page's faults are bounded, and counted.
func TestManyFaults(t *testing.T) {
	t.Parallel()
	var f faults
	for i := range 3000 {
		f.addPage(strings.Repeat("x", 10_000))
		f.addConsole(consoleError{text: strings.Repeat("y", 10_000), position: true})
		f.addExchange(broken(fmt.Sprint("http://a/", i), "net::ERR_FAILED"))
	}
	var v browser.View
	text := words(f.judge(allowed{}, &v))
	for _, want := range []string{"x… (and 2999 more)", "y… (and 2999 more)", "net::ERR_FAILED (and 2999 more)"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in %s", want, text)
		}
	}
	if len(v.Console.Errors) != keptErrors || len(v.Console.PageErrors) != keptErrors || len(v.Network) != keptNetwork {
		t.Errorf("%d, %d, %d", len(v.Console.Errors), len(v.Console.PageErrors), len(v.Network))
	}
}

func TestFailureWords(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		code, url string
		proxied   bool
		want      string
	}{
		{"net::ERR_FAILED", "http://far.example/", false, "net::ERR_FAILED"},
		{"net::ERR_PROXY_CONNECTION_FAILED", "http://far.example/", false,
			"refused: from here only 127.0.0.1, localhost and [::1] can be reached"},
		{"net::ERR_TUNNEL_CONNECTION_FAILED", "https://far.example/", true,
			"refused by the egress proxy (net::ERR_TUNNEL_CONNECTION_FAILED)"},
		{"net::ERR_NAME_NOT_RESOLVED", "http://127.0.0.1:7070/", true, "refused: this port is not for pages"},
		{"net::ERR_NAME_NOT_RESOLVED", "http://127.0.0.2:80/", true,
			"refused: from here only 127.0.0.1, localhost and [::1] can be reached"},
	} {
		if got := failure(c.code, c.url, c.proxied); got != c.want {
			t.Errorf("%s of %s: %s", c.code, c.url, got)
		}
	}
}

func view1(name string, verdict browser.Verdict, reason string) browser.View {
	return browser.View{Viewport: browser.Viewport{Name: name, Width: 1, Height: 2}, Verdict: verdict, Reason: reason,
		URL: "http://a/"}
}

// TestSum: the worst view decides, equal reasons are told once, the verdict's own first.
func TestSum(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		views   []browser.View
		verdict browser.Verdict
		reason  string
	}{
		{nil, browser.Unverified, ""},
		{[]browser.View{view1("a", browser.Pass, ""), view1("b", browser.Pass, "")}, browser.Pass,
			"http://a/ at a 1x2 and b 1x2: 0 steps, no errors"},
		{[]browser.View{view1("a", browser.Fail, "x"), view1("b", browser.Fail, "x")}, browser.Fail, "x"},
		{[]browser.View{view1("a", browser.Pass, ""), view1("b", browser.Fail, "x"), view1("c", browser.Fail, "x")},
			browser.Fail, "b, c: x"},
		{[]browser.View{view1("a", browser.Unverified, "y"), view1("b", browser.Fail, "x")}, browser.Fail, "b: x; a: y"},
		{[]browser.View{view1("a", browser.Pass, ""), view1("b", browser.Unverified, "y")}, browser.Unverified, "b: y"},
	} {
		got := browser.Check{Views: c.views}
		sum(&got)
		if got.Verdict != c.verdict || got.Reason != c.reason {
			t.Errorf("%s: %s; want %s: %s", got.Verdict, got.Reason, c.verdict, c.reason)
		}
	}
}

// TestComplete: what a driver that ended did not come to is UNVERIFIED, but a page that kept it from going on fails.
func TestComplete(t *testing.T) {
	t.Parallel()
	answered := view1("a", "", "")
	answered.Status = 200
	for _, c := range []struct {
		name    string
		end     error
		said    string
		views   []browser.View
		verdict browser.Verdict
		reason  string
	}{
		{"deadline, not answered", errDeadline, "", []browser.View{view1("a", "", ""), view1("b", "", "")},
			browser.Unverified,
			"not looked at: the check took longer than 0s"},
		{"deadline, answered", errDeadline, "", []browser.View{answered, view1("b", "", "")}, browser.Fail,
			"a: the check took longer than 0s; b: not looked at: the check took longer than 0s"},
		{"stopped", errStopped, "", []browser.View{answered}, browser.Unverified,
			"not looked at to the end: the check was stopped"},
		{"panic", errors.New("exit status 2"), "panic: x",
			[]browser.View{view1("a", browser.Pass, "fine"), answered, view1("c", "", "")},
			browser.Unverified, "a: the browser could not be driven: panic: x; c: not looked at"},
		{"killed", endOf(t, "kill -KILL $$"), "Node.js v20", []browser.View{view1("a", "", "")},
			browser.Unverified, "the browser could not be driven: signal: killed"},
		{"exit", endOf(t, "exit 3"), "", []browser.View{view1("a", "", "")},
			browser.Unverified, "the browser could not be driven: exit status 3"},
		{"exit with words", endOf(t, "exit 3"), "no channel", []browser.View{view1("a", "", "")},
			browser.Unverified, "the browser could not be driven: no channel"},
		{"silent", nil, "", []browser.View{answered}, browser.Unverified, errBrowser.Error()},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got := browser.Check{Views: c.views}
			complete(&got, &job{}, c.end, c.said)
			if got.Verdict != c.verdict || got.Reason != c.reason {
				t.Errorf("%s: %s; want %s: %s", got.Verdict, got.Reason, c.verdict, c.reason)
			}
		})
	}
}

// endOf returns the error of a shell script's end.
func endOf(t *testing.T, script string) error {
	t.Helper()
	return exec.CommandContext(t.Context(), "sh", "-c", script).Run()
}

// TestEvidence: only regular files that fit go out, and the check names no others.
func TestEvidence(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	secret := filepath.Join(t.TempDir(), "secret")
	for name, size := range map[string]int64{
		"a/screenshot.png": 10, "a/trace.zip": maxFile + 1, "a/video.webm": maxFile + 1, "a/step-01.png": 5,
		"index.json": 7, "a/odd name\n": 3,
	} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, nil, 0o600), os.Truncate(path, size)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.WriteFile(secret, []byte("secret"), 0o600),
		os.Symlink(secret, filepath.Join(dir, "a/network.har")),
		os.Symlink(filepath.Dir(secret), filepath.Join(dir, "b"))); err != nil {
		t.Fatal(err)
	}
	c := browser.Check{Reason: "x", Views: []browser.View{view1("a", browser.Pass, "")}}
	c.Views[0].Trace, c.Views[0].HAR = "a/trace.zip", "a/network.har"
	c.Views[0].Steps = []browser.StepResult{{Screenshot: "a/step-01.png"}, {Screenshot: "a/step-02.png"}}
	var out strings.Builder
	if err := writeEvidence(&out, dir, &c); err != nil {
		t.Fatal(err)
	}
	v := c.Views[0]
	if v.Screenshot != "a/screenshot.png" || v.Trace != "" || v.HAR != "" || v.Video != "a/video.webm" ||
		v.Steps[0].Screenshot == "" || v.Steps[1].Screenshot != "" {
		t.Errorf("%+v", v)
	}
	if c.Reason != "x; 1 file of the evidence left out: too large" {
		t.Error(c.Reason)
	}
	if strings.Contains(out.String(), "secret") {
		t.Error("a link was followed")
	}
}

func TestTail(t *testing.T) {
	t.Parallel()
	var passed strings.Builder
	w := &tailWriter{w: &passed, left: 100}
	for range 10_000 {
		fmt.Fprintln(w, "a line")
	}
	fmt.Fprintln(w, "ramus-browser: the last one")
	if passed.Len() != 100 || w.last() != "the last one" || len(w.tail) > 4096 {
		t.Errorf("%d bytes passed, %d kept, last %q", passed.Len(), len(w.tail), w.last())
	}
	fmt.Fprintln(w, "panic: no channel\n\ngoroutine 7 [running]:")
	if w.last() != "panic: no channel" {
		t.Error(w.last())
	}
}

func TestResolve(t *testing.T) {
	t.Parallel()
	page, err := webURL("http://127.0.0.1:5173/a/b?x=1")
	if err != nil {
		t.Fatal(err)
	}
	j := &job{page: page}
	for target, want := range map[string]string{
		"/next": "http://127.0.0.1:5173/next", "c": "http://127.0.0.1:5173/a/c", "?y": "http://127.0.0.1:5173/a/b?y",
		"https://far.example/": "https://far.example/", "//far.example/x": "http://far.example/x",
		"file:///etc/passwd": "", "javascript:alert(1)": "", "chrome://crash": "", "view-source:http://a/": "",
		"data:text/html,x": "", "about:blank": "",
	} {
		got, err := j.resolve(target)
		if (err != nil) != (want == "") || err == nil && got.String() != want {
			t.Errorf("%s: %v, %v", target, got, err)
		}
	}
}

// FuzzJob checks that each job is refused or within bounds.
func FuzzJob(f *testing.F) {
	f.Add(`{"spec":{"url":"http://127.0.0.1/","viewports":["desktop",{"name":"x","width":3,"height":4}],"steps":[{"click":"a"}]},"deadline":"1m"}`)
	f.Add(`{"spec":{"url":"file:///"},"proxy":"http://a:1","state":{"cookies":[]}}`)
	f.Add(`{"spec":{"url":"http://[::1]:7/","allow":{"console":["("]},"clock":"2026-01-02T03:04:05Z"}}`)
	f.Fuzz(func(t *testing.T, text string) {
		in, err := readJob(strings.NewReader(text))
		if err != nil {
			return
		}
		j, err := newJob(in)
		if err != nil {
			return
		}
		if j.page.Scheme != "http" && j.page.Scheme != "https" || len(j.spec.Viewports) == 0 || j.timeout <= 0 || j.deadline <= 0 {
			t.Errorf("%+v", j)
		}
		for _, v := range j.spec.Viewports {
			if !filepath.IsLocal(v.Name) || v.Scale <= 0 {
				t.Errorf("%+v", v)
			}
		}
	})
}

// TestConsoleLog: lines are bounded in number and length, each is one JSON object.
func TestConsoleLog(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "console.jsonl")
	l, err := newConsoleLog(name, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for i := range maxConsoleLines + 5 {
		l.add(fmt.Sprint("kind", i), strings.Repeat("é\n", maxConsoleText), "", i)
	}
	if err := l.close(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(string(text)) {
		n++
		var c browser.ConsoleLine
		if err := json.Unmarshal([]byte(line), &c); err != nil || len(c.Text) > maxConsoleText+len("…") || !utf8.ValidString(c.Text) {
			t.Fatalf("%v: %.100s", err, line)
		}
	}
	if n != maxConsoleLines || l.dropped != 5 || len(l.counts) != maxKinds {
		t.Errorf("%d lines, %d dropped, %d kinds", n, l.dropped, len(l.counts))
	}
}
