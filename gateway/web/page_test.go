package web_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gateway/web"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/golden"
	"github.com/ramus-dev/ramus/internal/webbuild/bundle"
)

func readAll(t *testing.T, resp *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// document is a page that was parsed.
type document struct {
	t    *testing.T
	name string
	ids  map[string]bool
	all  []*html.Node
}

func parse(t *testing.T, name, text string) *document {
	t.Helper()
	root, err := html.Parse(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	d := &document{t: t, name: name, ids: map[string]bool{}}
	for n := range root.Descendants() {
		if n.Type == html.ElementNode {
			d.all = append(d.all, n)
		}
	}
	return d
}

func attr(n *html.Node, name string) string {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

func has(n *html.Node, name string) bool {
	return slices.ContainsFunc(n.Attr, func(a html.Attribute) bool { return a.Key == name })
}

// words returns the text of an element.
func words(n *html.Node) string {
	var b strings.Builder
	for c := range n.Descendants() {
		if c.Type == html.TextNode {
			b.WriteString(c.Data)
		}
	}
	return strings.Join(strings.Fields(b.String()), " ")
}

// check tests the rules that each page keeps.
func (d *document) check() {
	t := d.t
	heads, keys := 0, map[string]bool{}
	labels := map[string]bool{}
	for _, n := range d.all {
		if id := attr(n, "id"); id != "" {
			if d.ids[id] {
				t.Errorf("%s: two elements have the id %s", d.name, id)
			}
			d.ids[id] = true
		}
		if key := attr(n, "data-key"); key != "" {
			if keys[key] {
				t.Errorf("%s: two fragments have the key %s", d.name, key)
			}
			keys[key] = true
		}
		if n.Data == "label" {
			labels[attr(n, "for")] = true
		}
		if n.Data == "h1" {
			heads++
		}
	}
	if heads != 1 {
		t.Errorf("%s: %d elements h1", d.name, heads)
	}
	for _, n := range d.all {
		d.checkElement(n, labels)
	}
}

func (d *document) checkElement(n *html.Node, labels map[string]bool) {
	t := d.t
	for _, a := range n.Attr {
		if a.Key == "style" || strings.HasPrefix(a.Key, "on") ||
			strings.HasPrefix(strings.TrimSpace(strings.ToLower(a.Val)), "javascript:") ||
			strings.HasPrefix(a.Val, "data:") {
			t.Errorf("%s: <%s %s=%q>", d.name, n.Data, a.Key, a.Val)
		}
		if a.Key == "aria-describedby" {
			for id := range strings.FieldsSeq(a.Val) {
				if !d.ids[id] {
					t.Errorf("%s: aria-describedby names %s, which is nowhere", d.name, id)
				}
			}
		}
	}
	switch n.Data {
	case "style":
		t.Errorf("%s: an inline style", d.name)
	case "script":
		if n.FirstChild != nil || attr(n, "src") == "" {
			t.Errorf("%s: an inline script", d.name)
		}
	case "img":
		if !has(n, "alt") {
			t.Errorf("%s: a picture without alt", d.name)
		}
	case "input", "select", "textarea":
		wrapped := n.Parent.Data == "label"
		if attr(n, "type") != "hidden" && !wrapped && !labels[attr(n, "id")] {
			t.Errorf("%s: the field %s has no label", d.name, attr(n, "name"))
		}
	case "a", "button":
		if words(n) == "" && attr(n, "aria-label") == "" {
			t.Errorf("%s: <%s href=%q> has no text", d.name, n.Data, attr(n, "href"))
		}
	}
}

// outline returns the texts and the controls of a page, without times and names that are random.
func (d *document) outline() string {
	var b strings.Builder
	for _, n := range d.all {
		switch n.Data {
		case "h1", "h2", "h3":
			fmt.Fprintf(&b, "%s %s\n", strings.Repeat("#", int(n.Data[1]-'0')), words(n))
		case "form":
			fmt.Fprintf(&b, "form %s %s\n", strings.ToUpper(attr(n, "method")), attr(n, "action"))
		case "button":
			fmt.Fprintf(&b, "  [%s]\n", words(n))
		case "label":
			fmt.Fprintf(&b, "  %s:\n", words(n))
		}
		if strings.HasPrefix(attr(n, "class"), "badge") {
			fmt.Fprintf(&b, "  (%s)\n", words(n))
		}
		for class := range strings.FieldsSeq(attr(n, "class")) {
			if text := words(n); text != "" && (class == "empty" || class == "wrong") {
				fmt.Fprintf(&b, "%s: %s\n", class, text)
			}
		}
	}
	return runID.ReplaceAllString(b.String(), "RUN")
}

var runID = regexp.MustCompile(`2\d{7}-\d{6}-[0-9a-z]+`)

// manyRows is the number of rows of the tests with many of them.
func manyRows() int {
	if os.Getenv("RAMUS_TEST") == "full" {
		return 500
	}
	return 60
}

// TestPages checks each page in three states: nothing, one of each, and many.
func TestPages(t *testing.T) {
	for _, state := range []struct {
		name string
		rows int
	}{{"empty", -1}, {"one", 0}, {"many", manyRows()}} {
		t.Run(state.name, func(t *testing.T) {
			if state.rows > 0 && testing.Short() {
				t.Skip("cannot run here: it takes seconds")
			}
			w := open(t, ada, nil)
			if state.rows >= 0 {
				w.fill(state.rows)
			}
			seen := map[string]bool{}
			var outlines strings.Builder
			for _, path := range paths(state.rows) {
				status, header, body := w.get(w.path(path))
				d := parse(t, path, body)
				d.check()
				if got := header.Get("Content-Security-Policy"); !strings.Contains(got, "script-src 'self'") &&
					!strings.Contains(got, "script-src 'none'") || strings.Contains(got, "unsafe") {
					t.Errorf("%s: policy %q", path, got)
				}
				if strings.Contains(body, "<script>") || strings.Contains(body, "<b>version") {
					t.Errorf("%s: a text is markup", path)
				}
				fmt.Fprintf(&outlines, "=== %s %d\n%s\n", path, status, d.outline())
				w.follow(d, seen)
			}
			if state.rows <= 0 {
				golden.Compare(t, "pages-"+state.name+".txt", outlines.String())
			}
		})
	}
}

// follow tests that the links of a page lead somewhere.
func (w *world) follow(d *document, seen map[string]bool) {
	for _, n := range d.all {
		to := attr(n, "href") + attr(n, "src")
		path, fragment, _ := strings.Cut(to, "#")
		if n.Data == "a" && path == "" && fragment != "" && !d.ids[fragment] {
			w.t.Errorf("%s: #%s is nowhere", d.name, fragment)
		}
		if path == "" || !strings.HasPrefix(path, "/") || strings.HasPrefix(path, "/evidence/") || seen[path] || n.Data == "use" {
			continue
		}
		seen[path] = true
		if status, _, _ := w.get(path); status != http.StatusOK {
			w.t.Errorf("%s links to %s, which answers %d", d.name, path, status)
		}
	}
}

// TestForms sends each form, with mistakes and without.
func TestForms(t *testing.T) {
	w := open(t, ada, nil)
	w.repo("app")
	for _, x := range []struct {
		path   string
		form   url.Values
		status int
		want   string // in Location or in the page
	}{
		{"/dashboard/ask", url.Values{"repository": {"app"}, "prompt": {" "}}, 422, "Say what the agent should do."},
		{"/dashboard/ask", url.Values{"repository": {"nowhere"}, "prompt": {"keep <me>"}}, 422, "keep &lt;me&gt;"},
		{"/dashboard/ask", url.Values{"repository": {"app"}, "prompt": {"round it"}}, 303, "/workspaces/run-"},
		{"/workspaces/new", url.Values{"name": {"Not A Name"}, "prompt": {"kept"}}, 422, "Choose a repository."},
		{"/workspaces/new", url.Values{"repository": {"app"}, "name": {"brave-otter"}}, 303, "/workspaces/run-brave-otter"},
		{"/workspaces/new", url.Values{"repository": {"app"}, "name": {"brave-otter"}}, 422, "in use"},
		{"/workspaces/new", url.Values{"from": {"run-brave-otter"}, "name": {"fork"}}, 303, "/workspaces/run-fork"},
		{"/repos", url.Values{"name": {"app"}}, 422, "There is a repository of this name."},
		{"/repos", url.Values{"name": {"fresh"}}, 303, "/repos"},
		{"/settings/appearance", url.Values{"theme": {"dark"}}, 303, "/settings"},
		{"/workspaces/run-nobody/stop", url.Values{}, 404, "There is nothing here"},
		{"/workspaces/run-brave-otter/stop", url.Values{}, 409, "Not in this state"},
	} {
		if strings.HasSuffix(x.path, "/stop") || x.form.Get("from") != "" {
			w.settle("brave-otter")
		}
		status, header, body := w.post(x.path, x.form)
		if status != x.status || !strings.Contains(header.Get("Location")+body, x.want) {
			t.Errorf("%s %v: %d %s %s, want %d %q", x.path, x.form, status, header.Get("Location"), body, x.status, x.want)
		}
		if status == 422 {
			d := parse(t, x.path, body)
			d.check()
			for _, value := range x.form {
				if text := strings.TrimSpace(value[0]); text != "" && text != "nowhere" &&
					!strings.Contains(html.UnescapeString(body), text) {
					t.Errorf("%s: the page has lost %q", x.path, text)
				}
			}
		}
	}
}

// settle waits until the runs of a caller have ended.
func (w *world) settle(name string) {
	w.t.Helper()
	caller, err := record.RunCaller(name)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, r := range w.x.OfCaller(caller) {
		if _, err := w.x.Settled(w.t.Context(), caller, r.ID); err != nil {
			w.t.Fatal(err)
		}
	}
}

// TestLongGate shows the beginning of a long question on the dashboard. The answer is given at the whole of it.
func TestLongGate(t *testing.T) {
	w := open(t, ada, nil)
	w.repo("app")
	const end = "and now the end"
	w.run("long-heron", record.Request{Workflow: strings.Replace(asks, "version 2", "version 2 "+strings.Repeat("x ",
		400)+end, 1)})
	path := w.path("/workspaces/run-long-heron/runs/RUN")
	if _, _, body := w.get("/dashboard"); !strings.Contains(body, "Read and answer") || strings.Contains(body, end) ||
		strings.Contains(body, "/approve") {
		t.Errorf("the dashboard takes an answer to a part of the question: %s", body)
	}
	if _, _, body := w.get(path); !strings.Contains(body, end) || !strings.Contains(body, "/approve") {
		t.Errorf("the page of the run: %s", body)
	}
	if status, _, body := w.post(path+"/approve", url.Values{"step": {"ask"}}); status != 303 {
		t.Fatalf("%d %s", status, body)
	}
	w.settle("long-heron")
}

// TestGate answers the question of a run by its page.
func TestGate(t *testing.T) {
	w := open(t, ada, nil)
	w.repo("app")
	w.run("calm-heron", record.Request{Workflow: asks})
	path := w.path("/workspaces/run-calm-heron/runs/RUN")
	if _, _, body := w.get("/dashboard"); !strings.Contains(body, "Publish &lt;b&gt;version 2") ||
		!strings.Contains(body, "(1) Dashboard") {
		t.Errorf("the dashboard does not show the question: %s", body)
	}
	if status, header, body := w.post(path+"/approve",
		url.Values{"step": {"ask"}, "from": {"dashboard"}}); status != 303 || header.Get("Location") != "/dashboard" {
		t.Fatalf("%d %s", status, body)
	}
	w.settle("calm-heron")
	if status, _, body := w.post(path+"/approve", url.Values{"step": {"ask"}}); status != 409 {
		t.Errorf("a second answer: %d %s", status, body)
	}
	if _, _, body := w.get(path); !strings.Contains(body, "Complete") {
		t.Errorf("the run is not complete: %s", body)
	}
}

// TestStrangers tests that pages show nothing of repositories that a person does not see.
func TestStrangers(t *testing.T) {
	w := open(t, route.Who{Subject: "bo", Repo: "other", Scopes: []string{gitd.ScopeRead}, Name: "Bo",
		Email: "bo@example.org"}, nil)
	w.fill(0)
	w.repo("other")
	for _, path := range paths(0) {
		status, _, body := w.get(w.path(path))
		if strings.Contains(body, "brave-otter") && !strings.Contains(path, "otter") ||
			strings.Contains(body, "Publish") || strings.Contains(body, "Round to two") {
			t.Errorf("%s shows what is hidden: %s", path, body)
		}
		if hidden := strings.Contains(path, "/run-") || strings.HasPrefix(path, "/repos/app"); hidden != (status == 404) {
			t.Errorf("%s: status %d", path, status)
		}
	}
	for _, path := range []string{"/workspaces/run-brave-otter/stop", "/workspaces/run-brave-otter/say",
		"/workspaces/run-brave-otter/command", "/workspaces/run-calm-heron/delete",
		"/workspaces/run-deft-ibis/sessions/coder/name"} {
		if status, _, _ := w.post(path, url.Values{"prompt": {"x"}, "command": {"x"}}); status != 404 {
			t.Errorf("%s: status %d", path, status)
		}
	}
	if status, _, _ := w.post("/repos", url.Values{"name": {"mine"}}); status != 403 {
		t.Errorf("an import: status %d", status)
	}
}

// TestProblemPages tests the pages of problems.
func TestProblemPages(t *testing.T) {
	api := &web.API{}
	for _, p := range []*route.Problem{
		{Kind: route.KindDenied, Detail: "you may not"}, {Kind: route.KindNotFound},
		{Kind: route.KindConflict, Detail: "it is asleep"},
		{Kind: route.KindLimited, Detail: "too much", RetryAfter: 3},
		{Kind: route.KindUnavailable, Detail: "<b>no engine</b>"},
	} {
		mux := &route.Mux{Page: api.Problem}
		h := mux.Serve(route.Route{Method: "GET", Pattern: "/x", Access: route.AccessPublic, Media: route.MediaHTML,
			Handle: func(*route.Call) error { return p }}, &ada)
		r := httptest.NewRequest("GET", "/x", nil)
		r.Header.Set("Accept", "text/html")
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, r)
		d := parse(t, string(p.Kind), rec.Body.String())
		d.check()
		if rec.Code != p.Kind.Status() || strings.Contains(rec.Body.String(), "<b>no engine") ||
			!strings.Contains(rec.Body.String(), fmt.Sprint(rec.Code)) {
			t.Errorf("%s: %d %s", p.Kind, rec.Code, rec.Body)
		}
	}
}

// TestNoScript tests that a server without scripts serves none, and forbids them.
func TestNoScript(t *testing.T) {
	w := open(t, ada, func(api *web.API) { api.NoScript, api.Assets = true, built(t) })
	w.fill(0)
	for _, path := range []string{"/dashboard", "/workspaces/run-brave-otter"} {
		_, header, body := w.get(path)
		if strings.Contains(body, "<script") || strings.Contains(body, "data-live-at") ||
			!strings.Contains(header.Get("Content-Security-Policy"), "script-src 'none'") {
			t.Errorf("%s: %s %s", path, header.Get("Content-Security-Policy"), body)
		}
		if !strings.Contains(body, `<noscript><meta http-equiv="refresh"`) {
			t.Errorf("%s does not reload itself", path)
		}
	}
}

// TestAssets tests that files with a hash in their name are kept without a limit, and sent compressed.
func TestAssets(t *testing.T) {
	w := open(t, ada, func(api *web.API) { api.Assets = built(t) })
	_, _, body := w.get("/")
	for _, want := range []string{".css", ".js", ".svg"} {
		path := regexp.MustCompile(`/assets/[a-zA-Z0-9.]+\` + want).FindString(body)
		status, header, file := w.get(path)
		if path == "" || status != 200 || !strings.Contains(header.Get("Cache-Control"), "immutable") || file == "" {
			t.Errorf("%s %s: %d %v", want, path, status, header)
		}
	}
	for _, path := range []string{"/assets/nothing.js", "/assets/manifest.json"} {
		if status, _, _ := w.get(path); status != 404 {
			t.Errorf("%s: status %d", path, status)
		}
	}
}

// TestBudget keeps the files that every page loads small.
func TestBudget(t *testing.T) {
	out, err := bundle.Build(".")
	if err != nil {
		t.Fatal(err)
	}
	for name, most := range map[string]int{"app.js": 12 << 10, "app.css": 14 << 10, "term.js": 110 << 10} {
		if got := out.Manifest.Sizes[name]; got > most || got == 0 && name != "term.js" {
			t.Errorf("%s has %d bytes after gzip, want at most %d", name, got, most)
		}
	}
}

func TestProse(t *testing.T) {
	for text, want := range map[string]string{
		"":                      "",
		"run `ramus <x>` again": "Run <code>ramus &lt;x&gt;</code> again.",
		"it ends!":              "It ends!",
	} {
		if got := string(web.Prose(text)); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

// TestTournamentOfCaller shows a tournament on the page of the caller that it was forked from, to people who see all
// entries.
func TestTournamentOfCaller(t *testing.T) {
	w := open(t, ada, nil)
	w.fill(0)
	w.tournament("cup", "run:brave-otter")
	w.tournament("elsewhere", "run:calm-heron")
	_, _, body := w.get("/workspaces/run-brave-otter")
	for _, want := range []string{"Tournament cup", "/workspaces/run-cup-2/runs/", "Did not begin",
		"no evidence: &lt;script&gt;"} {
		if !strings.Contains(body, want) {
			t.Errorf("the page has no %q: %s", want, body)
		}
	}
	if strings.Contains(body, "elsewhere") {
		t.Errorf("the page has the tournament of another caller: %s", body)
	}
	w.become(route.Who{Subject: "bo", Repo: "app", Scopes: []string{gitd.ScopeRead}, Name: "Bo", Email: "bo@example.org",
		Read: []string{"refs/heads/main", "refs/heads/ramus/run-brave-otter", "refs/heads/ramus/run-cup-1"}})
	if _, _, body := w.get("/workspaces/run-brave-otter"); strings.Contains(body, "cup") {
		t.Errorf("somebody who does not see an entry sees the tournament: %s", body)
	}
}
