package web_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/web"
	"github.com/ramus-dev/ramus/gateway/web/webtest"
)

// TestOutput reads an output with colours and groups without scripts, and finds lines in it.
func TestOutput(t *testing.T) {
	w := talker(t, "")
	r := w.run("otter", record.Request{Command: &record.Command{Shell: `seq 600
echo '::group::Build <b>all</b>'
printf '\033[31mred\nstill red\033[0m\n'
seq 700
echo ::endgroup::
echo 'the <i>End</i>'; printf half`}})
	path := "/workspaces/run-otter/runs/" + r.ID + "/output?step=exec"
	get := func(query string) string {
		t.Helper()
		at := query
		if !strings.HasPrefix(query, "/") {
			at = path + query
		}
		status, _, body := w.get(at)
		if status != 200 {
			t.Errorf("%s answers %d", query, status)
		}
		parse(t, query, body).check()
		return body
	}
	contains := func(name, body string, want ...string) {
		t.Helper()
		for _, x := range want {
			if !strings.Contains(body, x) {
				t.Errorf("%s lacks %q: %s", name, x, body)
			}
		}
	}
	body := get("")
	contains("the begin", body, "1306 lines", "1 group<", "Build &lt;b&gt;all&lt;/b&gt;", `id="L1"`, `id="L500"`)
	if _, header, file := w.get(link(t, body, `href="([^"]+/output/file\?[^"]+)"`)); !strings.HasSuffix(file, "End</i>\nhalf") ||
		!strings.Contains(header.Get("Content-Disposition"), "attachment") {
		t.Errorf("the file: %v, %d bytes", header, len(file))
	}
	next := get(link(t, body, `rel="next" href="([^"]+)"`))
	contains("the next part", next, `<details class="group" open data-group="601"><summary id="L601"><b>Build &lt;b&gt;all&lt;/b&gt;</b> <span class="soft">601–1304</span>`,
		`id="L602"><a href="#L602" tabindex="-1">602</a><span class="f1">red</span>`, `<span class="f1">still red</span>`, `id="L501"`, `id="L1000"`)
	if strings.Contains(next, `id="L500"`) || strings.Contains(next, `<span id="L601"`) {
		t.Errorf("the next part has too much: %s", next)
	}
	end := get("&line=last")
	contains("the end", end, `data-group="601"><summary><b>Build`, `id="L1306"`, "half", "the &lt;i&gt;End&lt;/i&gt;")
	if strings.Contains(end, `id="L1304"`) || strings.Contains(end, `rel="next" href`) {
		t.Errorf("the end has too much: %s", end)
	}
	contains("a part before", get(link(t, end, `rel="prev" href="([^"]+)"`)), `id="L307"`, `id="L806"`)
	contains("part of a line", get("&from=10&to=12"), `id="L10"`, `id="L12"`, `data-to="12"`)

	found := get("&q=THE+%3Ci%3EEND")
	contains("the lines with a word", found, "1 line with these words", "<mark>the &lt;i&gt;End</mark>&lt;/i&gt;")
	contains("its place", get(link(t, found, `href="([^"]+)#L1305"`)),
		`<span id="L1305" class="shown">`)
	many := get("&q=1")
	contains("many lines", many, "100 lines and more with these words")
	contains("further lines", get(link(t, many, `href="([^"]+)">Further lines`)), "with these words")
	contains("no line", get("&q=%3Cscript%3E"), "0 lines with these words")
	for _, wrong := range []string{"&from=0", "&to=x", "&after=-1&q=x", "&q=" + strings.Repeat("x", 401)} {
		if status, _, _ := w.get(path + wrong); status < 400 {
			t.Errorf("%.20s answers %d", wrong, status)
		}
	}
	_, _, run := w.get("/workspaces/run-otter/runs/" + r.ID)
	contains("the run", run, `data-step="exec"`, "half</pre>", "all lines")
	if !testing.Short() {
		w.lookAt(path+"&line=603", path+"&q=1", path+"&q=nowhere", path+"&stream=stderr", path+"&line=x", "/workspaces/run-otter/runs/"+r.ID)
	}
}

// TestLinesInWindow scrolls through an output of 5,000 lines, which grows, and goes to its lines by address.
func TestLinesInWindow(t *testing.T) {
	if testing.Short() {
		t.Skip("cannot run here: it starts a browser")
	}
	w := talker(t, "")
	const script = `seq 5000; echo ::group::Slow; while ! test -e %[1]s/go; do sleep 0.05; done; printf half
while ! test -e %[1]s/on; do sleep 0.05; done; echo ' and all'; seq 5003 5100; echo 'the end'`
	r := w.begin("otter", record.Request{Command: &record.Command{Shell: fmt.Sprintf(script, w.shared)}})
	signal := func(name string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(w.shared, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	path := w.server.URL + "/workspaces/run-otter/runs/" + r.ID
	p := webtest.Start(t).Open(nil)
	p.Look(1440, 900, "light")
	p.Go(path)
	p.Wait(`document.querySelector('details[data-step=exec] pre')?.innerText.includes('5000')`)
	p.Go(path + "#exec.L2500")
	p.Wait(`document.querySelector('#L2500.shown') && document.querySelector('#L2500').getBoundingClientRect().top < innerHeight`)
	p.Wait(`location.hash === '#L2500'`)
	whole := func() {
		t.Helper()
		const script = `(() => {
			const all = [...document.querySelectorAll('.out samp > span')].map(l => Number(l.id.slice(1)));
			return all.length <= 1200 && all.every((n, i) => i === 0 || n - all[i - 1] === 1 || n - all[i - 1] === 2 && document.getElementById('L' + (n - 1)));
		})()`
		if !p.Holds(script) {
			t.Error("the window is too large, or lacks lines")
		}
	}
	scroll := func(from, to int) {
		t.Helper()
		p.Wait(fmt.Sprintf(`document.getElementById('L%d') || (scrollBy(0, %d), false)`, to, (to-from)*20))
		whole()
	}
	scroll(2500, 4900)
	scroll(4900, 100)
	scroll(100, 1200)
	p.Eval(`location.hash = '#L4000'; 0`, nil)
	p.Wait(`document.querySelector('#L4000.shown')`)

	p.Go(path + "/output?step=exec&line=last")
	p.Wait(`document.getElementById('L5001')`)
	p.Eval(`scrollTo(0, 1e6); 0`, nil)
	signal("go")
	p.Wait(`document.getElementById('L5002')?.textContent.includes('half')`)
	signal("on")
	p.Wait(`document.getElementById('L5101')?.textContent.includes('the end') && document.getElementById('L5002').textContent.includes('half and all')`)
	p.Wait(`document.querySelector('[data-total]').textContent === '5101 lines' && document.getElementById('L5101').getBoundingClientRect().top < innerHeight`)
	whole()
	p.Click(`.group summary`)
	p.Wait(`!document.getElementById('L5101').checkVisibility() && document.getElementById('L5000').checkVisibility()`)
	if faults := p.Faults(); len(faults) > 0 {
		t.Error(faults)
	}
}

// TestSwipe moves the border between two pictures by keys and by a pointer.
func TestSwipe(t *testing.T) {
	if testing.Short() {
		t.Skip("cannot run here: it starts a browser")
	}
	w := open(t, ada, func(api *web.API) { api.Assets = built(t) })
	w.repo("app")
	r := w.run("otter", record.Request{Command: &record.Command{Shell: "true"}})
	p := webtest.Start(t).Open(nil)
	p.Look(1440, 900, "light")
	p.Go(w.server.URL + "/workspaces/run-otter/runs/" + r.ID)
	p.Wait(`document.documentElement.dataset.connected === 'yes'`)
	const pair = `(() => {
		const pair = document.createElement('div');
		pair.className = 'swipe';
		for (const name of ['before', 'after']) {
			const figure = document.createElement('figure'), img = document.createElement('img'), text = document.createElement('figcaption');
			img.alt = text.textContent = name;
			Object.assign(img, {src: '/favicon.ico', width: 400, height: 300});
			figure.append(img, text);
			pair.append(figure);
		}
		document.querySelector('[data-live=run]').append(pair);
		return 0;
	})()`
	p.Eval(pair, nil)
	p.Wait(`document.querySelector('.swipe.on input[type=range]')`)
	clip := func(share string) {
		t.Helper()
		p.Wait(`document.querySelectorAll('.swipe img')[1].style.clipPath === 'inset(0px 0px 0px ` + share + `)'`)
	}
	clip("50%")
	p.Eval(`document.querySelector('.swipe input').focus(); 0`, nil)
	p.Press("ArrowRight")
	clip("51%")
	p.Press("Home")
	clip("0%")
	p.Click(`.swipe figure + figure`)
	clip("50%")
	if faults := p.Faults(); len(faults) > 0 {
		t.Error(faults)
	}
}
