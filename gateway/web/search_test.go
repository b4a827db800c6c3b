package web_test

import (
	"fmt"
	"html"
	"net/url"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/executor/record"
)

// TestSearchPage finds words without scripts, and goes from a line to its place in the output.
func TestSearchPage(t *testing.T) {
	w := talker(t, "")
	w.run("otter", record.Request{Command: &record.Command{Shell: "seq 3000 | sed 's/^2345$/a <b>Needle<\\/b> here/'; printf 'needle in \\033[31mred' >&2"}})
	w.run("otter", record.Request{Command: &record.Command{Shell: "seq 40 | sed s/^/needle/"}})
	w.run("otter", record.Request{Command: &record.Command{Shell: "echo 1 >changed-path"}})
	find := func(q string) string {
		t.Helper()
		status, _, body := w.get("/search?" + q)
		parse(t, q, body).check()
		if status != 200 && status != 422 {
			t.Errorf("%s answers %d", q, status)
		}
		return body
	}
	w.until("/search?q=Needle", "not read yet", false) // the index of a busy machine is behind
	body := find("q=Needle+here&kind=output")
	if !strings.Contains(body, "a &lt;b&gt;<mark>Needle</mark>&lt;/b&gt; <mark>here</mark>") {
		t.Errorf("the line is not there: %s", body)
	}
	place := link(t, body, `href="([^"#]+line=2345[^"#]*)#L2345"`)
	_, _, page := w.get(place)
	parse(t, "the output", page).check()
	for _, want := range []string{`<span id="L2345" class="shown">`, `<span id="L2295">`, `<span id="L2794">`, "a &lt;b&gt;Needle",
		">2346</a>2346\n</span><span"} {
		if !strings.Contains(page, want) {
			t.Errorf("the output lacks %q", want)
		}
	}
	if strings.Contains(page, `id="L2294"`) || strings.Contains(page, `id="L2795"`) {
		t.Error("the output has too many lines")
	}
	_, _, end := w.get(link(t, page, `href="([^"]+line=last[^"]*)"`))
	if !strings.Contains(end, `id="L3000"`) || !strings.Contains(end, `id="L2501"`) || strings.Contains(end, `id="L2500"`) {
		t.Error("the end of the output is not there")
	}
	if _, _, begin := w.get(link(t, end, `href="([^"]+stream=stdout)">Begin`)); !strings.Contains(begin, `id="L1"`) || strings.Contains(begin, `id="L501"`) {
		t.Error("the begin of the output is not there")
	}
	if _, _, errs := w.get(link(t, page, `href="([^"]+stream=stderr)"`)); !strings.Contains(errs, `needle in <span class="f1">red</span>`) {
		t.Errorf("the other stream: %s", errs)
	}

	body = find("q=needle")
	if n := strings.Count(body, "<mark>needle</mark>"); n < 12 {
		t.Errorf("%d lines", n)
	}
	if all := find(strings.TrimPrefix(link(t, body, `href="/search\?([^"]+run=[^"]+)"`), "?")); strings.Count(all, "<mark>needle</mark>") < 40 {
		t.Errorf("the lines of one run: %s", all)
	}
	for _, kind := range []string{"path", "subject"} {
		to := link(t, find("q=changed-path&kind="+kind), `class="row" href="(/workspaces/run-otter/changes[^"]+)"`)
		if status, _, body := w.get(to); status != 200 || !strings.Contains(body, "changed-path</a>") || !strings.Contains(body, "<span>1 file</span>") {
			t.Errorf("%s leads to %s, which answers %d: %s", kind, to, status, body)
		}
	}
	if body := find("q=ab"); !strings.Contains(body, "one word must have at least 3 letters") || !strings.Contains(body, `value="ab"`) {
		t.Errorf("a short word: %s", body)
	}
	if body := find("q=" + url.QueryEscape(`<script>`)); !strings.Contains(body, "Nothing was found") || strings.Contains(body, "<script>") {
		t.Errorf("nothing: %s", body)
	}
	if body := find("q=otter"); !strings.Contains(body, "<h2>Workspaces</h2>") {
		t.Errorf("no workspace: %s", body)
	}
	path := html.UnescapeString(link(t, page, `href="([^"]+stream=stderr)"`))
	for _, wrong := range []string{"&line=0", "&line=x", "&line=-1", "&line=99999999999999"} {
		if status, _, _ := w.get(path + wrong); status < 400 {
			t.Errorf("%s answers %d", wrong, status)
		}
	}
	if status, _, page := w.get(path + "&line=900"); status != 200 || !strings.Contains(page, `id="L1"`) {
		t.Errorf("a line after the end: %d %s", status, page)
	}
	if status, _, _ := w.get(fmt.Sprintf("%s/output?step=nothing", strings.Split(path, "/output")[0])); status != 404 {
		t.Errorf("a step that is not there answers %d", status)
	}
	if !testing.Short() {
		w.lookAt("/search?q=needle", "/search?q=nowhere", place)
	}
}
