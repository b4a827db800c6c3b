package web_test

import (
	"fmt"
	"html"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/web/webtest"
	"github.com/ramus-dev/ramus/gateway/workspace"
	"github.com/ramus-dev/ramus/gitd"
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
	for _, want := range []string{"failed, changed files, exit 3", "&lt;b&gt;bad", "&#43;by a shell", "path=made", "commit="} {
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
	at := link(t, body, `name="at" value="([^"]+)"`)
	for _, wrong := range []string{"", "main~9", "x/1"} {
		if status, _, answer := w.post(path+"/rollback", url.Values{"at": {wrong}}); status < 400 {
			t.Errorf("a tick of nobody: %d %s", status, answer)
		}
	}
	if status, header, answer := w.post(path+"/rollback", url.Values{"at": {at}}); status != 303 {
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

// TestTimelineForms goes on from ticks in all ways, without scripts.
func TestTimelineForms(t *testing.T) {
	w := talker(t, "")
	for _, command := range []string{"echo one >a", "echo two >b; exit 1", "rm README", "true"} {
		w.run("otter", record.Request{Command: &record.Command{Shell: command}})
	}
	w.run("otter", record.Request{Agent: &record.AgentCall{Name: "coder", Prompt: "write c three\nsay done"}})
	const path = "/workspaces/run-otter/timeline"
	_, _, body := w.get(path)
	list := regexp.MustCompile(`<a class="row" href="[^"]*at=([^"&]+)`).FindAllStringSubmatch(body, -1)
	if len(list) != 5 || strings.Count(body, `class="lane"`) != 2 || !strings.Contains(body, `data-states="cfcsc`) {
		t.Fatalf("%d ticks: %s", len(list), body)
	}
	at := func(n int) string {
		id, err := url.QueryUnescape(html.UnescapeString(list[n][1]))
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	post := func(action string, form url.Values) string {
		t.Helper()
		status, header, answer := w.post(path+"/"+action, form)
		if status != 303 {
			t.Fatalf("%s answers %d: %s", action, status, answer)
		}
		return header.Get("Location")
	}
	settled := func(place string) record.Run {
		t.Helper()
		caller, ok := workspace.CallerOf(strings.Split(strings.Split(place, "?")[0], "/")[2])
		if !ok {
			t.Fatal(place)
		}
		r, err := w.x.Settled(t.Context(), caller, w.x.OfCaller(caller)[0].ID)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	files := func(r record.Run) string {
		t.Helper()
		repo, err := w.git.Repo("app")
		if err != nil {
			t.Fatal(err)
		}
		entries, err := repo.Tree(t.Context(), string(r.Head), "", true)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, e := range entries {
			names = append(names, e.Path)
		}
		return strings.Join(names, " ")
	}

	// A fork at the failed command has the file that only its shell made.
	_, _, body = w.get(path + "?n=2")
	fork, err := url.Parse(link(t, body, `btn primary" href="(/workspaces/new\?[^"]+)"`))
	if err != nil {
		t.Fatal(err)
	}
	form := fork.Query()
	form.Set("name", "forked")
	if status, header, answer := w.post("/workspaces/new", form); status != 303 {
		t.Errorf("a fork answers %d: %s", status, answer)
	} else if got := files(settled(header.Get("Location"))); got != "README a b" {
		t.Errorf("the fork at the failed command: %s", got)
	}
	if got := files(settled(post("continue", url.Values{"at": {at(1)}, "prompt": {"write d four\nsay done"}}))); got != "README a b d" {
		t.Errorf("with other words after the failed command: %s", got)
	}
	if status, _, _ := w.post(path+"/continue", url.Values{"at": {at(1)}}); status != 422 && status != 400 {
		t.Errorf("no words: %d", status)
	}
	if r := settled(post("restart", url.Values{"at": {at(1)}})); files(r) != "README a b" || r.Command != "echo two >b; exit 1" {
		t.Errorf("the command again: %s %+v", files(r), r)
	}
	if r := settled(post("restart", url.Values{"at": {at(4)}})); files(r) != "a b c" || r.Agent.Prompt != "write c three\nsay done" {
		t.Errorf("the words again: %s %+v", files(r), r)
	}

	status, _, done := w.post(path+"/pick", url.Values{"at": {at(1)}})
	parse(t, "the picked step", done).check()
	if status != 200 || !strings.Contains(done, "main has the step") {
		t.Errorf("take only this step: %d %s", status, done)
	}
	if status, _, _ := w.post(path+"/pick", url.Values{"at": {at(3)}}); status != 409 {
		t.Errorf("a step without changes is taken: %d", status)
	}
	w.commit("refs/heads/main", []gitd.File{{Path: "README", Content: []byte("other\n")}})
	status, _, done = w.post(path+"/pick", url.Values{"at": {at(2)}})
	parse(t, "the conflict", done).check()
	if status != 409 || !strings.Contains(done, "does not fit on main") || !strings.Contains(done, `<li class="mono">README`) {
		t.Errorf("a step that does not fit: %d %s", status, done)
	}

	w.lookForBad(path, at(0), at(4))
	place := post("visit", url.Values{"at": {at(1)}})
	if r := settled(place); !strings.HasSuffix(place, "?pane=shell") || files(r) != "README a b" {
		t.Errorf("the visit: %s %s", place, files(r))
	}
	if _, _, body := w.get(place); !strings.Contains(body, "You look around at an earlier command") {
		t.Error("the visit does not say that it is one")
	}
	w.endVisits(place, post("visit", url.Values{"at": {at(1)}}), settled)
	pinned := path + "?" + url.Values{"at": {at(2)}, "pin": {at(0)}}.Encode()
	if _, _, body := w.get(pinned); !strings.Contains(body, "Command 1</a> is pinned") || !strings.Contains(body, `<span class="what mono">b<`) ||
		!strings.Contains(body, `<span class="what mono">README<`) || !strings.Contains(body, "&amp;pin=") {
		t.Errorf("since a pinned command: %s", body)
	}
	if _, _, body := w.get(path + "?n=2"); !strings.Contains(body, "2 of 5") {
		t.Errorf("by number: %s", body)
	}
	for _, wrong := range []string{"?n=0", "?n=x", "?pin=x/1", "/searches/x"} {
		if status, _, _ := w.get(path + wrong); status != 404 {
			t.Errorf("%s answers %d", wrong, status)
		}
	}
	if !testing.Short() {
		w.lookAt(pinned)
		w.lookAtAnswer(path+"?n=2", "/timeline/pick", "main has the step", "Nothing was changed")
		w.lookAtAnswer(path+"?n=3", "/timeline/pick", "does not fit on main")
	}
}

// endVisits removes a visit in which nothing was changed when it is unused, and keeps another one.
func (w *world) endVisits(unused, used string, settled func(place string) record.Run) {
	w.t.Helper()
	first, second := settled(unused), settled(used)
	w.run(second.Caller.ID(), record.Request{Command: &record.Command{Shell: "echo more >more"}})
	end := func(r record.Run) bool {
		w.t.Helper()
		ended, err := w.api.EndVisit(w.t.Context(), r.Caller)
		if err != nil {
			w.t.Error(err)
		}
		return ended
	}
	if end(first) {
		w.t.Error("a visit ends at once")
	}
	w.later.Store(int64(2 * time.Hour))
	if !end(first) || !end(second) {
		w.t.Error("a visit does not end")
	}
	w.later.Store(0)
	repo, err := w.git.Repo("app")
	if err != nil {
		w.t.Fatal(err)
	}
	for r, want := range map[*record.Run]bool{&first: false, &second: true} {
		if _, err := repo.Resolve(w.t.Context(), "refs/heads/"+r.Branch); (err == nil) != want {
			w.t.Errorf("the branch of %s: %v", r.Caller, err)
		}
	}
}

// lookForBad searches for the command that removed README, from a page.
func (w *world) lookForBad(path, good, bad string) {
	t := w.t
	t.Helper()
	for _, wrong := range []url.Values{{}, {"command": {"x"}, "spec": {"x"}}} {
		wrong.Set("at", bad)
		if status, _, answer := w.post(path+"/bisect", wrong); status < 400 {
			t.Errorf("%v: %d %s", wrong, status, answer)
		}
	}
	status, header, answer := w.post(path+"/bisect", url.Values{"at": {bad}, "good": {good}, "command": {"test -e README"}})
	if status != 303 {
		t.Fatalf("the search: %d %s", status, answer)
	}
	place := header.Get("Location")
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		_, _, body := w.get(place)
		parse(t, "the search", body).check()
		if strings.Contains(body, "Searches</span>") && time.Now().Before(deadline) {
			continue
		}
		if !strings.Contains(body, `>rm README</a>`) || !strings.Contains(body, "Round 1") || !strings.Contains(body, "&#43;0,0 @@") {
			t.Errorf("the answer: %s", body)
		}
		if to := link(t, body, `href="([^"]+)">rm README`); !strings.Contains(to, "/timeline?at=") {
			t.Errorf("the answer leads to %s", to)
		}
		break
	}
	if !testing.Short() {
		w.lookAt(place)
	}
}

// TestScrub moves through a timeline by the keys of its slider, while commands are added at its end.
func TestScrub(t *testing.T) {
	if testing.Short() {
		t.Skip("cannot run here: it starts a browser")
	}
	w := talker(t, "")
	for i := range 5 {
		w.run("otter", record.Request{Command: &record.Command{Shell: fmt.Sprint("echo ", i)}})
	}
	w.run("otter", record.Request{Agent: &record.AgentCall{Name: "coder", Prompt: "say words"}})
	p := webtest.Start(t).Open(nil)
	p.Go(w.server.URL + "/workspaces/run-otter/timeline")
	p.Wait(`document.documentElement.dataset.connected === 'yes' && document.querySelector('.scrub.on')`)
	at := func(place int, text string) {
		t.Helper()
		p.Wait(fmt.Sprintf(`document.querySelector('.place').dataset.place === '%d' && document.querySelector('output').textContent.startsWith('%[1]d of ') &&
			document.querySelector('.tick h2').textContent === %s && [null,
			new URL(document.querySelector('.lane [aria-current]').href).searchParams.get('at')].includes(new URLSearchParams(location.search).get('at'))`, place, webtest.Quote(text)))
	}
	at(6, "say words")
	p.Eval(`window.same = document.querySelector('#tick'); same.focus(); 0`, nil)
	for _, step := range []struct {
		key   string
		place int
		text  string
	}{{"ArrowLeft", 5, "echo 4"}, {"PageUp", 1, "echo 0"}, {"PageDown", 6, "say words"}, {"Home", 1, "echo 0"}, {"ArrowRight", 2, "echo 1"}} {
		p.Press(step.key)
		at(step.place, step.text)
	}
	w.run("otter", record.Request{Command: &record.Command{Shell: "echo more"}})
	p.Wait(`document.querySelector('#tick').max === '7'`)
	at(2, "echo 1")
	if !p.Holds(`document.activeElement === same && same === document.querySelector('#tick') && same.value === '2'`) {
		t.Error("the slider moved when a command came")
	}
	p.Click(`.place a[rel=next]`)
	at(3, "echo 2")
	p.Click(`[data-part=play]`)
	at(4, "echo 3")
	at(5, "echo 4")
	p.Click(`[data-part=play]`)
	if faults := p.Faults(); len(faults) > 0 {
		t.Error(faults)
	}
}

// lookAt looks at pages in a browser, wide and light, narrow and dark, and at 320 pixels. With RAMUS_TEST=full it looks at both sizes in both
// themes. A test that is not complete without it calls it last.
func (w *world) lookAt(paths ...string) {
	w.t.Helper()
	axe, err := os.ReadFile(axeFile)
	if err != nil {
		w.t.Skip("cannot look at it here: `npm ci` in gateway/web brings axe-core")
	}
	looks := []look{{1440, 900, "light"}, {390, 844, "dark"}, {1440, 900, "dark"}, {390, 844, "light"}}
	if os.Getenv("RAMUS_TEST") != "full" {
		looks = looks[:2]
	}
	p := webtest.Start(w.t).Open(nil)
	for _, path := range paths {
		for _, l := range looks {
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

// lookAtAnswer looks at the page that answers a form of another page, which is found by the end of its action. The answer has one of the texts.
func (w *world) lookAtAnswer(path, action string, want ...string) {
	w.t.Helper()
	axe, err := os.ReadFile(axeFile)
	if err != nil {
		w.t.Skip("cannot look at it here: `npm ci` in gateway/web brings axe-core")
	}
	p := webtest.Start(w.t).Open(nil)
	for _, l := range []look{{1440, 900, "light"}, {390, 844, "dark"}} {
		p.Look(l.width, l.height, l.theme)
		p.Go(w.server.URL + path)
		p.Follow(func() { p.Eval(`document.querySelector('form[action$=`+webtest.Quote(action)+`]').submit()`, nil) })
		var text string
		p.Eval(`document.querySelector('main').innerText`, &text)
		if !slices.ContainsFunc(want, func(s string) bool { return strings.Contains(text, s) }) {
			w.t.Errorf("the answer of %s has none of %q: %s", action, want, text)
		}
		for _, fault := range append(p.Faults(), p.Axe(string(axe))...) {
			w.t.Errorf("the answer of %s, %d px, %s: %s", action, l.width, l.theme, fault)
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
