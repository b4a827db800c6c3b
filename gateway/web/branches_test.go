package web_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gateway/web"
	"github.com/ramus-dev/ramus/gateway/web/webtest"
	"github.com/ramus-dev/ramus/gitd"
)

// branch makes a branch of app with one commit on the base.
func (w *world) branch(name string, files map[string]string) {
	w.t.Helper()
	r, err := w.git.Repo("app")
	if err != nil {
		w.t.Fatal(err)
	}
	base, err := r.Resolve(w.t.Context(), "refs/heads/main")
	if err != nil {
		w.t.Fatal(err)
	}
	n := gitd.NewCommit{Parents: []gitd.Hash{base}, From: base, Author: gitd.Person{Name: "Bo", Email: "bo@example.org"},
		When:    time.Now().Add(-time.Hour),
		Message: "Work on " + name}
	for path, text := range files {
		n.Put = append(n.Put, gitd.File{Path: path, Content: []byte(text)})
	}
	commit, err := r.WriteCommit(w.t.Context(), n)
	if err == nil {
		err = r.Update(w.t.Context(), gitd.RefUpdate{Name: "refs/heads/" + name, New: commit})
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// until gets a page until it has a text, or lacks it if has is false. On a busy machine pages leave out what takes too long.
func (w *world) until(path, text string, has bool) (body string) {
	w.t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if _, _, body = w.get(path); strings.Contains(body, text) == has {
			return body
		}
	}
	w.t.Fatalf("%s after a minute: has %q is not %v: %s", path, text, has, body)
	return ""
}

// expect returns a page that has all the texts.
func (w *world) expect(path string, want ...string) string {
	w.t.Helper()
	status, _, body := w.get(path)
	parse(w.t, path, body).check()
	if status != 200 {
		w.t.Errorf("%s answers %d", path, status)
	}
	for _, x := range want {
		if !strings.Contains(body, x) {
			_, text, _ := strings.Cut(body, "<main")
			w.t.Errorf("%s lacks %q: %s", path, x, text)
		}
	}
	return body
}

// TestBranchPages shows the branches of a repository and their conflicts, and tells the agent of one of them once.
func TestBranchPages(t *testing.T) {
	w := talker(t, "")
	w.run("otter", record.Request{Command: &record.Command{Shell: "seq 9 >clash.txt && sed -i 's/^5$/otter <b>/' clash.txt"}})
	w.run("heron", record.Request{Command: &record.Command{Shell: "seq 9 >clash.txt && sed -i 's/^5$/heron/' clash.txt"}})
	w.branch("topic", map[string]string{"other.txt": "1\n"})
	for i := range 30 {
		name := fmt.Sprintf("many/%d", i)
		if i == 29 {
			name += "\u202egpj" // turns the order of letters around
		}
		w.branch(name, map[string]string{fmt.Sprintf("%d.txt", i): "1\n"})
	}
	w.until("/repos/app/radar", "to compare yet", false)
	first := w.expect("/repos/app/branches", "ramus/run-otter", "many/29", "/workspaces/run-heron", "1 conflict",
		`href="/repos/app/radar?of=ramus%2Frun-otter"`, "Complete")
	if n := strings.Count(first, "<tr data-key"); n != 30 {
		t.Errorf("%d rows", n)
	}
	w.expect(link(t, first, `rel="next" href="([^"]+)"`), ">Newest<")
	if others := w.expect("/repos/app/branches?kind=others", "many/29gpj<"); strings.Contains(others, "run-otter") || strings.Contains(others, "\u202egpj<") {
		t.Errorf("a branch of a workspace is among the others, or a name is not clean: %s", others)
	}
	if works := w.expect("/repos/app/branches?kind=workspaces", `data-label="Ahead">1<`, `data-label="Behind">0<`); strings.Contains(works, "topic") {
		t.Errorf("another branch is among those of workspaces: %s", works)
	}
	w.until("/workspaces/run-otter", `radar?of=ramus%2Frun-otter">Conflicts with ramus/run-heron in clash.txt:`, true)
	radar := w.expect("/repos/app/radar", `class="hit"`, "clash.txt:", "33 live branches, 561 pairs compared")
	shown := link(t, radar, `class="hit"><a href="([^"#]+)`)
	body := w.expect(shown, "otter &lt;b&gt;", "heron", "Tell its agent", `id="conflict"`)
	if n := strings.Count(body, "Tell its agent"); n != 2 {
		t.Errorf("%d agents can be told", n)
	}
	heron, err := record.RunCaller("heron")
	if err != nil {
		t.Fatal(err)
	}
	before := len(w.x.OfCaller(heron))
	form := url.Values{"one": {"ramus/run-heron"}, "other": {"ramus/run-otter"}, "branch": {"ramus/run-heron"}}
	for range 2 {
		if status, _, body := w.post("/repos/app/radar/tell", form); status != 303 {
			t.Fatalf("%d %s", status, body)
		}
	}
	runs := w.x.OfCaller(heron)
	if len(runs) != before+1 || runs[before].Agent == nil ||
		!strings.Contains(runs[before].Agent.Prompt, "does not merge with the branch ramus/run-otter") ||
		!strings.Contains(runs[before].Agent.Prompt, "clash.txt: line") {
		t.Errorf("the runs after two presses of the button: %+v", runs)
	}
	w.settle("heron")
	for path, want := range map[string]int{"/repos/app/branches?skip=x": 400, "/repos/none/branches": 404, "/repos/none/radar": 404,
		"/repos/app/bases?skip=-1": 400, "/repos/app/radar?of=none": 404} {
		if status, _, _ := w.get(path); status != want {
			t.Errorf("%s answers %d, want %d", path, status, want)
		}
	}
	for branch, want := range map[string]int{"main": 400, "ramus/run-nobody": 400} {
		form.Set("branch", branch)
		if status, _, _ := w.post("/repos/app/radar/tell", form); status != want {
			t.Errorf("telling %s answers %d, want %d", branch, status, want)
		}
	}
	form = url.Values{"one": {"ramus/run-heron"}, "other": {"topic"}, "branch": {"ramus/run-heron"}}
	if status, _, body := w.post("/repos/app/radar/tell", form); status != 409 {
		t.Errorf("telling of no conflict answers %d: %s", status, body)
	}
	w.expect("/repos/app/radar?one=topic&other=ramus/run-otter", "merge now")
	if !testing.Short() {
		w.lookAt("/repos/app/branches", "/repos/app/branches?kind=others&skip=60", "/repos/app/radar",
			strings.ReplaceAll(shown, "&amp;", "&"), "/repos/app/radar?one=topic&other=ramus/run-otter", "/repos/app/radar?of=topic", "/repos/app", "/workspaces/run-otter?pane=activity")
		if _, err := w.git.Create(t.Context(), "empty"); err != nil {
			t.Fatal(err)
		}
		w.lookAt("/repos/empty", "/repos/empty/files", "/repos/empty/log", "/repos/empty/branches", "/repos/empty/radar")
		w.become(route.NewStranger("app"))
		w.lookAt("/repos/app", "/repos/app/files?path=README", "/repos/app/files?path=README&why=1", "/repos/app/log", "/repos/app/branches")
		w.become(ada)
		w.repositoryByKeyboard()
	}
}

// repositoryByKeyboard goes through all pages of a repository with Tab, Enter and keys alone, from the list to an agent that hears of a
// conflict. The focus is visible on all ways.
func (w *world) repositoryByKeyboard() {
	w.t.Helper()
	p := webtest.Start(w.t).Open(nil)
	p.Look(1440, 900, "light")
	p.Focused()
	for range 6 {
		w.base("By & Co")
	}
	enter := func(selector, path, holds string) {
		w.t.Helper()
		p.Follow(func() {
			p.TabTo(selector)
			p.Press("Enter")
		})
		if !p.Holds(`location.pathname === ` + webtest.Quote(path) + ` && !!(` + holds + `)`) {
			var at string
			p.Eval(`location.href + ' ' + document.body.innerText`, &at)
			w.t.Fatalf("%s does not lead to %s with %s, but to %s", selector, path, holds, at)
		}
	}
	const has = `document.querySelector('main').innerText.includes`
	p.Go(w.server.URL + "/repos")
	enter(`main a[href="/repos/app"]`, "/repos/app", `document.querySelector('main h1').innerText === 'app'`)
	enter(`a[href="/repos/app/bases"]`, "/repos/app/bases", has+`('Signature holds')`)
	enter(`main td a[href*="/files?at="]`, "/repos/app/files", has+`('README')`)
	enter(`.files-list a[href*="path=README"]`, "/repos/app/files", `document.querySelector('#L1').innerText.includes('hello')`)
	enter(`a[href*="why=1"]`, "/repos/app/files", `document.querySelector('.cause')`)
	enter(`main .acts a[href*="/log"]`, "/repos/app/log", has+`('Begin')`)
	enter(`.row-link[href*="/files?"]`, "/repos/app/files", `document.querySelector('#L1')`)
	enter(`.crumb a[href="/repos/app"]`, "/repos/app", `true`)
	enter(`main a[href="/repos/app/branches"]`, "/repos/app/branches", has+`('many/')`)
	p.Follow(func() { p.Press("]") })
	if !p.Holds(`location.search.includes('skip=30')`) {
		w.t.Error("the key ] does not lead to older branches")
	}
	enter(`.tabs a[href*="kind=workspaces"]`, "/repos/app/branches", has+`('run-heron')`)
	enter(`td a[href*="radar?of=ramus%2Frun-otter"]`, "/repos/app/radar", `document.querySelector('.matrix .hit')`)
	enter(`main .acts a[href="/repos/app/radar"]`, "/repos/app/radar", has+`('live branches')`)
	enter(`.matrix .hit a`, "/repos/app/radar", `document.querySelector('#conflict .clash')`)
	enter(`#conflict form button`, "/repos/app/radar", has+`('Its agent was told')`)
	w.settle("otter")
	if faults := p.Faults(); len(faults) > 0 {
		w.t.Error(faults)
	}
}

// base keeps a manifest of the base of app, refreshed by a person.
func (w *world) base(by string) {
	w.t.Helper()
	r, err := w.git.Repo("app")
	if err != nil {
		w.t.Fatal(err)
	}
	head, err := r.Resolve(w.t.Context(), "refs/heads/main")
	if err != nil {
		w.t.Fatal(err)
	}
	w.bases++
	b := gitd.Base{Branch: "main", Commit: head, Head: head, Environment: "prod <b>", Lockfiles: map[string]string{},
		Time: time.Unix(1_700_000_000+int64(w.bases), 0)}
	if _, err := r.PutBase(w.t.Context(), b, gitd.Person{Name: by, Email: "bo@example.org"}); err != nil {
		w.t.Fatal(err)
	}
}

// TestBasesPage shows the manifests of a base, with their persons and their signatures.
func TestBasesPage(t *testing.T) {
	w := open(t, ada, func(api *web.API) { api.Assets = built(t) })
	w.repo("app")
	w.expect("/repos/app/bases", "No manifests yet")
	for range 32 {
		w.base("Bo & Co")
	}
	w.expect("/repos/app", "Signature holds", "Bo &amp; Co", `href="/repos/app/bases"`, "git clone http://", "vscode://vscode.git/clone?url=http")
	body := w.expect("/repos/app/bases", "prod &lt;b&gt;", "refs/ramus/bases/20231114", "ssh-keygen -Y verify", "main")
	if n := strings.Count(body, "Signature holds"); n != 30 {
		t.Errorf("%d rows", n)
	}
	older := link(t, body, `rel="next" href="([^"]+)"`)
	w.expect(older, "Newest")
	if !testing.Short() {
		w.lookAt("/repos/app/bases", older)
	}
}
