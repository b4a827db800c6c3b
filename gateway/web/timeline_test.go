package web_test

import (
	"html"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/web/webtest"
)

// TestTimeline goes through the commands of a workspace by links, without scripts. A command that failed has the files that only it made, and
// the workspace goes back to them.
func TestTimeline(t *testing.T) {
	w := talker(t, "")
	for _, command := range []string{"echo first >notes; echo said", "mkdir made; echo by a shell >made/it; echo '<b>bad' >&2; exit 3", "rm -r made"} {
		w.run("otter", record.Request{Command: &record.Command{Shell: command}})
	}
	const path = "/workspaces/run-otter/timeline"
	_, _, body := w.get(path)
	parse(t, "the last tick", body).check()
	if strings.Contains(body, "path=made") || !strings.Contains(body, "changed files") {
		t.Errorf("the last tick: %s", body)
	}
	failed := link(t, body, `rel="prev" href="([^"]+)"`)
	_, _, body = w.get(failed)
	parse(t, "the failed tick", body).check()
	for _, want := range []string{"failed, exit 3", "&lt;b&gt;bad", "&#43;by a shell", "path=made", "commit="} {
		if !strings.Contains(body, want) {
			t.Errorf("the failed tick lacks %q: %s", want, body)
		}
	}
	if _, _, folder := w.get(link(t, body, `href="([^"]+path=made)"`)); !strings.Contains(folder, "<span>it</span>") {
		t.Errorf("the folder: %s", folder)
	}
	_, _, run := w.get(link(t, body, `href="([^"]+)">Run<`))
	for _, page := range []string{body, run} {
		if _, _, changes := w.get(link(t, page, `href="([^"]+)">Review them`)); !strings.Contains(changes, "by a shell") || !strings.Contains(changes, "made/it") {
			t.Errorf("the changes of the failed tick: %s", changes)
		}
	}
	commit := link(t, body, `name="to" value="([^"]+)"`)
	if status, _, answer := w.post(path+"/rollback", url.Values{"to": {"main~9"}}); status < 400 {
		t.Errorf("a commit of nobody: %d %s", status, answer)
	}
	if status, header, answer := w.post(path+"/rollback", url.Values{"to": {commit}}); status != 303 {
		t.Errorf("the way back: %d %s %s", status, header.Get("Location"), answer)
	}
	w.run("otter", record.Request{Command: &record.Command{Shell: "cat made/it >again"}})
	if _, _, body := w.get(path); !strings.Contains(body, "&#43;by a shell") {
		t.Errorf("after the way back: %s", body)
	}
	for _, at := range []string{"x", "x/1", "%00"} {
		if status, _, _ := w.get(path + "?at=" + at); status != 404 {
			t.Errorf("at=%s answers %d", at, status)
		}
	}
	if testing.Short() {
		return
	}
	w.lookAt(failed)
}

// lookAt looks at pages in a browser, wide and light, narrow and dark, and at 320 pixels. A test that is not complete without it calls it last.
func (w *world) lookAt(paths ...string) {
	w.t.Helper()
	axe, err := os.ReadFile(axeFile)
	if err != nil {
		w.t.Skip("cannot look at it here: `npm ci` in gateway/web brings axe-core")
	}
	p := webtest.Start(w.t).Open(nil)
	for _, path := range paths {
		for _, l := range []look{{1440, 900, "light"}, {390, 844, "dark"}} {
			w.look(p, string(axe), path, 0, l)
		}
		p.Look(320, 640, "light")
		p.Go(w.server.URL + path)
		var wide []string
		if p.Eval(widerThanWindow, &wide); len(wide) > 0 {
			w.t.Errorf("%s is wider than 320 px: %v", path, wide)
		}
	}
}

// link returns the part of a page that a pattern finds.
func link(t *testing.T, body, pattern string) string {
	t.Helper()
	m := regexp.MustCompile(pattern).FindStringSubmatch(body)
	if m == nil {
		t.Fatalf("there is no %s in %s", pattern, body)
	}
	return html.UnescapeString(m[1])
}
