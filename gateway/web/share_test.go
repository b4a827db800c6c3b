package web_test

import (
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
	"golang.org/x/net/html"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/export"
	"github.com/ramus-dev/ramus/gateway/people"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gateway/share"
	"github.com/ramus-dev/ramus/gateway/timeline"
	"github.com/ramus-dev/ramus/gateway/web"
	"github.com/ramus-dev/ramus/gitd"
)

// sharing adds links to a world that is being opened. private is the caller that is private, if any.
func sharing(t *testing.T, now *time.Time, private *record.Caller) (func(*web.API), **share.API) {
	t.Helper()
	db, err := bolt.Open(filepath.Join(t.TempDir(), "web.db"), 0o600, &bolt.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	shares := new(*share.API)
	return func(api *web.API) {
		clock := func() time.Time { return *now }
		store := &share.Store{Options: people.Options{Git: api.Git, Committer: gitd.Person{Name: "ramus", Email: "ramus@example.org"}, Now: clock}}
		if err := store.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := store.CountIn(db); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = store.Close() })
		signer := *api.Evidence.Links
		signer.Now = clock
		*shares = &share.API{Store: store, Find: api.Find, Timelines: &timeline.Timelines{Journals: api.Executor}, Links: &signer, Now: clock,
			Owner: func(c record.Caller) (string, bool) { return ada.Subject, c == *private }}
		api.Shares = *shares
	}, shares
}

// readOnly tests that a page has no action, and leads nowhere but into itself.
func readOnly(t *testing.T, what, own, body string) {
	t.Helper()
	d := parse(t, what, body)
	d.check()
	for _, n := range d.all {
		switch n.Data {
		case "form", "button", "input", "textarea":
			t.Errorf("%s has <%s>", what, n.Data)
		case "a", "img":
			to := attr(n, "href") + attr(n, "src")
			if !strings.HasPrefix(to, own) && !strings.HasPrefix(to, "#") && to != "/" {
				t.Errorf("%s leads to %s", what, to)
			}
		}
		if has(n, "data-live-at") {
			t.Errorf("%s follows changes over a socket", what)
		}
	}
}

// TestShare makes a link to each kind of thing, opens it without signing in, and ends it in each way.
func TestShare(t *testing.T) {
	now, private := time.Now().Truncate(time.Second), record.Caller{}
	change, shares := sharing(t, &now, &private)
	w := open(t, ada, func(api *web.API) {
		api.Assets = built(t)
		change(api)
		api.Exports = &export.API{Executor: api.Executor, Find: api.Find, Links: api.Evidence.Links, Now: time.Now}
	})
	logged := w.logged()
	w.fill(0)
	w.run("calm-heron", record.Request{Command: &record.Command{Shell: "echo of-another-caller"}})
	otter, err := record.RunCaller("brave-otter")
	if err != nil {
		t.Fatal(err)
	}
	run := w.x.OfCaller(otter)[0]
	var paths []string
	for _, x := range []struct {
		form url.Values
		want []string
	}{
		{url.Values{"days": {"7"}}, []string{"Conversation of brave-otter", "shared by Ada"}},
		{url.Values{"days": {"7"}, "run": {run.ID}}, []string{"go test ./...", "Commands", "&lt;script&gt;"}},
	} {
		status, header, body := w.post("/workspaces/run-brave-otter/share", x.form)
		if status != 200 || header.Get("Cache-Control") != "no-store" {
			t.Fatalf("%v: %d %v", x.form, status, header)
		}
		parse(t, "share", body).check()
		path := html.UnescapeString(link(t, body, `<code class="token">http://[^/]+(/shared/[^<]+)<`))
		paths = append(paths, path)
		status, header, body = w.anybody(path)
		for _, want := range x.want {
			if !strings.Contains(body, want) {
				t.Errorf("%s lacks %q: %s", path, want, body)
			}
		}
		if status != 200 || strings.Contains(body, "calm-heron") || strings.Contains(body, "of-another-caller") ||
			header.Get("X-Robots-Tag") != "noindex, nofollow" || header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: %d %v", path, status, header)
		}
		readOnly(t, path, path, body)
	}
	status, _, body := w.post("/workspaces/run-brave-otter/export", url.Values{"run": {run.ID}})
	if parse(t, "export", body).check(); status != 200 || !strings.Contains(body, "/export.bundle?expires=") {
		t.Errorf("a link to an export: %d %s", status, body)
	}
	for _, form := range []url.Values{{"days": {"0"}}, {"days": {"91"}}, {"days": {"x"}}} {
		if status, _, body := w.post("/workspaces/run-brave-otter/share", form); status != 422 || !strings.Contains(body, "one day to 90") {
			t.Errorf("%v: %d", form, status)
		}
	}
	if status, _, _ := w.post("/workspaces/run-brave-otter/share", url.Values{"days": {"1"}, "at": {"none/1"}}); status != 404 {
		t.Errorf("a moment that is not there: %d", status)
	}
	_, id, _ := strings.Cut(paths[0], "/shared/")
	id, token, _ := strings.Cut(id, "/")
	for _, path := range []string{"/shared/" + id + "/x", "/shared/" + id + "/" + token + "x", "/shared/none/" + token,
		"/shared/" + id + "/9" + token, paths[0] + "/files/journal.jsonl", paths[1] + "/files/journal.jsonl"} {
		if status, _, body := w.anybody(path); status != 404 || strings.Contains(body, "otter") {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	w.expect("/workspaces/run-brave-otter/share", "opened", "Revoke")
	table := w.expect("/settings/links", "Run "+run.ID+" of run:brave-otter", "The conversation of run:brave-otter", "Opens")
	if strings.Contains(table, token) {
		t.Error("the list has a token")
	}
	// A browser that opens the link again is counted once.
	first, header, _ := w.anybody(paths[0])
	if n := (*shares).Store.Count(id); n.Opened != 2 || first != 200 {
		t.Errorf("%+v", n)
	}
	cookie, err := http.ParseSetCookie(header.Get("Set-Cookie"))
	if err != nil || cookie.Path != "/shared/"+id+"/" || !cookie.HttpOnly || strings.Contains(cookie.Value, token) {
		t.Fatalf("%+v, %v", cookie, err)
	}
	r, err := http.NewRequestWithContext(t.Context(), "GET", w.server.URL+paths[0], nil)
	if err != nil {
		t.Fatal(err)
	}
	r.AddCookie(cookie)
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if n := (*shares).Store.Count(id); n.Opened != 2 || resp.StatusCode != 200 {
		t.Errorf("a reload is counted: %+v, status %d", n, resp.StatusCode)
	}
	if !testing.Short() {
		w.lookAt("/workspaces/run-brave-otter/share", "/workspaces/run-brave-otter/export", "/settings/links", paths[0], paths[1],
			"/shared/none/none")
	}

	bo := route.Who{Subject: "bo", Repo: "*", Scopes: []string{gitd.ScopeRead}, Name: "Bo", Email: "bo@example.org"}
	w.become(bo)
	if status, _, body := w.get("/workspaces/run-brave-otter/share"); status != 200 || strings.Contains(body, "Make a link") {
		t.Errorf("somebody who may only read can share: %d", status)
	}
	if status, _, body := w.get("/settings/links"); status != 200 || strings.Contains(body, "brave-otter") {
		t.Errorf("somebody else sees the links: %d", status)
	}
	bo.Scopes, bo.Write = []string{gitd.ScopeWrite}, []string{"refs/heads/*"}
	w.become(bo)
	if status, _, _ := w.post("/settings/links/"+id+"/revoke", url.Values{}); status != 404 {
		t.Errorf("somebody else revokes a link: %d", status)
	}
	status, _, body = w.post("/workspaces/run-brave-otter/share", url.Values{"days": {"1"}})
	bos := html.UnescapeString(link(t, body, `<code class="token">http://[^/]+(/shared/[^<]+)<`))
	if status != 200 {
		t.Fatalf("%d %s", status, body)
	}
	private = otter
	if status, _, _ := w.anybody(bos); status != 404 {
		t.Errorf("a link of somebody else to a private workspace: %d", status)
	}
	if status, _, _ := w.anybody(paths[0]); status != 200 {
		t.Errorf("the owner's link to a private workspace: %d", status)
	}
	if status, _, _ := w.post("/workspaces/run-brave-otter/share", url.Values{"days": {"1"}}); status != 403 {
		t.Errorf("somebody else shares a private workspace: %d", status)
	}
	w.become(ada)
	_, _, body = w.post("/workspaces/run-brave-otter/share", url.Values{"days": {"1"}})
	own := html.UnescapeString(link(t, body, `<code class="token">http://[^/]+(/shared/[^<]+)<`))
	if _, _, body := w.anybody(own); !strings.Contains(body, "shared by Ada, the owner of this private workspace") {
		t.Errorf("the page does not name the owner: %s", body)
	}
	private = record.Caller{}
	if _, err := (*shares).Make(t.Context(), route.Who{Subject: "run:brave-otter", Repo: "app", Scopes: []string{gitd.ScopeWrite},
		Write: []string{"refs/heads/*"}}, share.Wish{Of: "run:brave-otter"}, "http://x"); route.AsProblem(err, ada).Kind != route.KindDenied {
		t.Errorf("an agent makes a link: %v", err)
	}

	if status, _, _ := w.post("/settings/links/"+id+"/revoke", url.Values{}); status != 303 {
		t.Errorf("%d", status)
	}
	if status, _, body := w.anybody(paths[0]); status != 404 || !strings.Contains(body, "has ended") {
		t.Errorf("a revoked link: %d", status)
	} else {
		parse(t, "a revoked link", body).check()
	}
	const of = " run:brave-otter"
	if got, want := logged(), []string{"share.make" + of, "share.make" + of + "/" + run.ID, "export.link" + of + "/" + run.ID, "share.make" + of,
		"share.make" + of, "share.revoke" + of}; !slices.Equal(got, want) {
		t.Errorf("the log of actions has %q, want %q", got, want)
	}
	again := &share.Store{Options: people.Options{Git: w.git}}
	if err := again.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r, ok := again.Get(id); !ok || r.Open(now) || r.RevokedBy == nil || r.RevokedBy.Name != "Ada" {
		t.Errorf("after a restart: %+v", r)
	}
	if status, _, _ := w.anybody(paths[1]); status != 200 {
		t.Errorf("another link: %d", status)
	}
	now = now.Add(7 * 24 * time.Hour)
	if status, _, _ := w.anybody(paths[1]); status != 404 {
		t.Errorf("a link after its end: %d", status)
	}
	if !testing.Short() {
		w.lookAtAnswer("/workspaces/run-brave-otter/share", "/share", "Copy it now")
		w.lookAtAnswer("/workspaces/run-brave-otter/export", "/export", "A link to")
	}
}

// TestShareMoment shares one command of a timeline, and shows none of the others.
func TestShareMoment(t *testing.T) {
	now, private := time.Now().Truncate(time.Second), record.Caller{}
	change, shares := sharing(t, &now, &private)
	w := talker(t, "", change)
	w.run("otter", record.Request{Command: &record.Command{Shell: "echo before-it >first.txt"}})
	w.run("otter", record.Request{Command: &record.Command{Shell: "echo 'the <b>line</b>' | tee second.txt; exit 3"}})
	w.run("otter", record.Request{Command: &record.Command{Shell: "echo after-it >third.txt"}})
	otter, err := record.RunCaller("otter")
	if err != nil {
		t.Fatal(err)
	}
	line, err := (*shares).Timelines.Read(t.Context(), ada, otter, timeline.Window{Ticks: 9})
	if err != nil || len(line.Ticks) != 3 {
		t.Fatalf("%d ticks, %v", len(line.Ticks), err)
	}
	l, err := (*shares).Make(t.Context(), ada, share.Wish{Of: "run:otter", At: line.Ticks[1].ID}, w.server.URL)
	if err != nil || l.Kind != share.KindMoment {
		t.Fatalf("%+v, %v", l, err)
	}
	path := strings.TrimPrefix(l.URL, w.server.URL)
	status, _, body := w.anybody(path)
	for _, want := range []string{"A moment of run:otter", "the &lt;b&gt;line", "second.txt", "first.txt", "exit 3"} {
		if !strings.Contains(body, want) {
			t.Errorf("the page lacks %q: %s", want, body)
		}
	}
	if status != 200 || strings.Contains(body, "after-it") || strings.Contains(body, "third.txt") || strings.Contains(body, "before-it") {
		t.Errorf("%d, the page has other commands: %s", status, body)
	}
	readOnly(t, path, path, body)
	if !testing.Short() {
		w.lookAt(path)
	}
}

// logged has the actions of people kept from now on, and returns a function that returns those so far.
func (w *world) logged() func() []string {
	var mu sync.Mutex // guards list
	var list []string
	w.mux.Audit = func(_ *route.Call, action, object, result string) error {
		mu.Lock()
		defer mu.Unlock()
		if result != route.ResultOK {
			object += ": " + result
		}
		list = append(list, action+" "+object)
		return nil
	}
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(list)
	}
}

// anybody gets a page without any credential.
func (w *world) anybody(path string) (int, http.Header, string) {
	w.t.Helper()
	before := w.who
	w.become(route.Who{})
	defer w.become(before)
	return w.get(path)
}

// TestManyShares has a person make as many links as one may have. A person with fewer is not hindered, and the counts of links that are gone
// do not stay.
func TestManyShares(t *testing.T) {
	git := &gitd.Server{Root: t.TempDir(), KeyFile: filepath.Join(t.TempDir(), "key.pem")}
	if err := git.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = git.Close() })
	now := time.Unix(1_800_000_000, 0)
	store := &share.Store{Options: people.Options{Git: git, Committer: gitd.Person{Name: "ramus", Email: "ramus@example.org"}, Now: func() time.Time { return now }}}
	if err := store.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	caller, err := record.RunCaller("otter")
	if err != nil {
		t.Fatal(err)
	}
	put := func(by string, n int) error {
		return store.Make(t.Context(), share.Record{ID: by + strconv.Itoa(n), Kind: share.KindConversation, Repo: "app", Caller: caller,
			By: gitd.Person{Name: by, Email: by + "@example.org", ID: by}, Made: now, Expires: now.Add(time.Hour)})
	}
	for n := range 200 {
		if err := put("ada", n); err != nil {
			t.Fatal(n, err)
		}
	}
	if err := put("ada", 200); route.AsProblem(err, ada).Kind != route.KindTooLarge {
		t.Errorf("a link too many: %v", err)
	}
	if err := put("bo", 0); err != nil {
		t.Error(err)
	}
	if _, err := store.Revoke(t.Context(), "ada7", gitd.Person{Name: "ada", Email: "ada@example.org"}); err != nil {
		t.Fatal(err)
	}
	if err := put("ada", 200); err != nil {
		t.Errorf("after one was revoked: %v", err)
	}
	now = now.Add(time.Hour)
	if err := put("ada", 201); err != nil {
		t.Errorf("after all have ended: %v", err)
	}
}
