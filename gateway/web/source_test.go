package web_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/executor/record"
)

// TestSourcePages reads files of a branch with the commands that their lines come from, and its commits, without scripts.
func TestSourcePages(t *testing.T) {
	w := talker(t, "")
	w.run("otter", record.Request{Command: &record.Command{Shell: `mkdir -p d/e && seq -f 'line %g' 900 >d/long.txt &&
		printf 'package x\n\n// <b>bold</b>\nvar y = "z"\n' >d/x.go && printf 'a\0b' >bin && : >none && ln -s bin d/to &&
		printf 'one\n<two>\n\n' >LICENSE && seq -f 'var x%g = 1' 40000 >d/large.go && printf '%8000d\n' 1 >d/wide.js`}})
	w.run("otter", record.Request{Command: &record.Command{Shell: `sed -i 's/"z"/"changed"/' d/x.go`}})
	const branch = "at=ramus%2Frun-otter"
	look := func(path string, want ...string) string {
		t.Helper()
		status, _, body := w.get(path)
		parse(t, path, body).check()
		if status != 200 {
			t.Errorf("%s answers %d", path, status)
		}
		for _, x := range want {
			if !strings.Contains(body, x) {
				t.Errorf("%s lacks %q: %s", path, x, body)
			}
		}
		return body
	}
	look("/repos/app", `href="/repos/app/files"`, `href="/repos/app/log"`)
	look("/repos/app/files?"+branch, "path=d\"", "path=none", "3 B")
	look("/repos/app/files?"+branch+"&path=d", "long.txt", "link")
	look("/repos/app/files?"+branch+"&path=bin", "not text")
	look("/repos/app/files?"+branch+"&path=none", "is empty")
	look("/repos/app/files?"+branch+"&path=LICENSE", "&lt;two&gt;", `id="L3"`)
	look("/repos/app/files?"+branch+"&path=d/large.go&line=40000", "var x40000 = 1", `id="L39601"`)
	look("/repos/app/files?"+branch+"&path=d/wide.js", "   …")
	body := look("/repos/app/files?"+branch+"&path=d/x.go", `<span id="L3">`, "&lt;b&gt;bold&lt;/b&gt;", `<i class="`)
	why := look(link(t, body, `href="([^"]+why=1[^"]*)"`), "sed -i", "mkdir -p d/e", "exit 0", "Ada")
	if n := strings.Count(why, `class="cause`); n != 2 {
		t.Errorf("%d causes: %s", n, why)
	}
	look(link(t, why, `command" href="([^"]+)">sed -i`), "Timeline", "2 of 2<", "sed -i")
	look(link(t, why, `command" href="([^"]+)">mkdir`), "1 of 2<", "mkdir -p d/e")
	long := look("/repos/app/files?"+branch+"&path=d/long.txt&line=700", `<span id="L700" class="shown">`, `id="L501"`, `id="L900"`)
	if strings.Contains(long, `id="L500"`) {
		t.Error("the page has too many lines")
	}
	first := look("/repos/app/files?"+branch+"&path=d/long.txt", `id="L400"`)
	look(link(t, first, `rel="next" href="([^"]+)"`), `id="L401"`)
	log := look("/repos/app/log?"+branch+"&path=d/x.go", "its run", "sed -i")
	look(link(t, log, `row-link" href="([^"]+)"`), "changed")
	for path, want := range map[string]int{
		"/repos/none/files": 404, "/repos/app/files?at=none": 404, "/repos/app/files?" + branch + "&path=no": 404,
		"/repos/app/files?" + branch + "&path=" + url.QueryEscape("../../x"): 400, "/repos/app/files?" + branch + "&path=d/x.go&line=x": 400,
		"/repos/app/log?skip=x": 400, "/repos/app/log?at=none": 404,
	} {
		if status, _, _ := w.get(path); status != want {
			t.Errorf("%s answers %d, want %d", path, status, want)
		}
	}
	if !testing.Short() {
		w.lookAt("/repos/app/files?"+branch+"&path=d/x.go&why=1", "/repos/app/files?"+branch, "/repos/app/log?"+branch)
	}
}
