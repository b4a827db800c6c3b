package files

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pkg/sftp"
	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/transfer"
	"github.com/ramus-dev/ramus/gateway/lookup"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gateway/workspace"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/gitd/repotest"
)

// world is an API over one workspace, run-a of the repository app. It is its own executor.
type world struct {
	workspace.Executor // nil; no other method is called
	t                  *testing.T
	api                *API
	status             executor.CallerStatus
	live               string // the folder of its container
	looks              int    // at the container
	uploads            []string
	fail               error // of an upload
	log                []string
}

var (
	writer = route.Who{Subject: "ada", Repo: "app", Scopes: []string{gitd.ScopeWrite}, Write: []string{"refs/heads/*"}}
	reader = route.Who{Subject: "bo", Repo: "app", Scopes: []string{gitd.ScopeRead}}
	made   = time.Date(2026, 5, 6, 7, 8, 10, 0, time.UTC)
)

func newWorld(t *testing.T) *world {
	git := repotest.NewServer(t)
	repo, err := git.Create(t.Context(), "app")
	if err != nil {
		t.Fatal(err)
	}
	caller, err := record.RunCaller("a")
	if err != nil {
		t.Fatal(err)
	}
	head, err := repo.WriteCommit(t.Context(), gitd.NewCommit{Author: gitd.Person{Name: "Ada", Email: "a@example.org"},
		When: made, Message: "begin", Put: []gitd.File{{Path: "a.txt", Content: []byte("alpha\n")},
			{Path: "docs/b.txt", Content: []byte("beta\n")}, {Path: "link", Mode: 0o120000, Content: []byte("a.txt")}}})
	if err == nil {
		err = repo.Update(t.Context(), gitd.RefUpdate{Name: "refs/heads/" + caller.Branch(), New: head})
	}
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, live: t.TempDir(), status: executor.CallerStatus{Caller: caller, Repo: "app", Branch: caller.Branch(),
		Head: head, Last: record.Run{ID: "1", Caller: caller, Repo: "app", State: record.StateComplete}}}
	w.write("new.txt", "gamma\n")
	w.api = &API{Mover: w, Git: git, Now: func() time.Time { return made },
		Workspaces: &workspace.Workspaces{Executor: w, Find: &lookup.Lookup{Executor: w, Git: git}, Git: git}}
	return w
}

// write writes a file in the container.
func (w *world) write(name, content string) {
	w.t.Helper()
	if err := os.WriteFile(filepath.Join(w.live, name), []byte(content), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) Caller(_ context.Context, name string) (executor.CallerStatus, error) {
	if name != w.status.Caller.String() {
		return executor.CallerStatus{}, gitd.ErrNotFound
	}
	return w.status, nil
}

func (w *world) OfCaller(record.Caller) []record.Run { return []record.Run{w.status.Last} }

func (w *world) Uploads() *transfer.Spool { return &transfer.Spool{Dir: w.t.TempDir()} }

func (w *world) Upload(_ context.Context, c record.Caller, by gitd.Person, u *transfer.Upload) (transfer.Uploaded, error) {
	w.uploads = append(w.uploads, fmt.Sprint(c, " by ", by.Name, ": ", strings.Join(u.Paths(), " "), " ", u.Replace))
	return transfer.Uploaded{Caller: c, Paths: u.Paths(), Bytes: u.Bytes()}, w.fail
}

func (w *world) Look(_ context.Context, _ record.Caller, _ gitd.Person, f func(*transfer.Live) error) error {
	w.looks++
	here, there := net.Pipe()
	server, err := sftp.NewServer(there, sftp.ReadOnly())
	if err != nil {
		return err
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve() }()
	tree, err := transfer.OpenLive(here, w.live)
	if err == nil {
		err = errors.Join(f(tree), tree.Close())
	}
	server.Close()
	<-served
	return err
}

// handler serves the routes to a person.
func (w *world) handler(who route.Who, more ...route.Route) http.Handler {
	mux := &route.Mux{Audit: func(_ *route.Call, action, object, result string) error {
		w.log = append(w.log, action+" "+object+" "+result)
		return nil
	}}
	return mux.Handler(append(w.api.Routes(), more...), &who)
}

// get returns the answer to a request below /api/workspaces.
func (w *world) get(who route.Who, path string) *httptest.ResponseRecorder {
	rec := httptest.NewRecorder()
	w.handler(who).ServeHTTP(rec, httptest.NewRequest("GET", "/api/workspaces/"+path, nil))
	return rec
}

func TestList(t *testing.T) {
	w := newWorld(t)
	for _, c := range []struct {
		path, names string
		live        bool
	}{
		{"run-a/files", "docs a.txt link", false},
		{"run-a/files?path=docs", "docs/b.txt", false},
		{"run-a/files?live=true", "new.txt", true},
	} {
		rec := w.get(writer, c.path)
		var got Folder
		if err := json.Unmarshal(rec.Body.Bytes(), &got); err != nil || rec.Code != 200 {
			t.Errorf("%s: %d %s", c.path, rec.Code, rec.Body)
			continue
		}
		var names []string
		for _, e := range got.Entries {
			names = append(names, e.Path)
		}
		if strings.Join(names, " ") != c.names || c.live != (got.Commit == "") || !c.live && got.Commit != w.status.Head ||
			got.More {
			t.Errorf("%s: %+v", c.path, got)
		}
	}
	if err := os.Remove(filepath.Join(w.live, "new.txt")); err != nil {
		t.Fatal(err)
	}
	if rec := w.get(writer, "run-a/files?live=true"); !strings.Contains(rec.Body.String(), `"entries":[]`) {
		t.Errorf("an empty folder: %s", rec.Body)
	}
	for i := range MaxListed + 1 {
		w.write(fmt.Sprint(i), "")
	}
	var many Folder
	rec := w.get(writer, "run-a/files?live=true")
	if err := json.Unmarshal(rec.Body.Bytes(), &many); err != nil || !many.More || len(many.Entries) != MaxListed {
		t.Errorf("a large folder: %d entries, more %v, %v", len(many.Entries), many.More, err)
	}
}

// TestRefused asks for what is not there or not allowed. A person who may only read does not wake a container.
func TestRefused(t *testing.T) {
	w := newWorld(t)
	other := writer
	other.Repo = "other"
	for _, c := range []struct {
		who    route.Who
		path   string
		status int
	}{
		{writer, "run-a/files?colour=blue", 400},
		{writer, "run-a/files?path=missing", 404},
		{writer, "run-a/files?path=../..&live=true", 400},
		{writer, "run-b/files", 404},
		{other, "run-a/files", 404},
		{reader, "run-a/files?live=true", 403},
		{reader, "run-a/download?path=new.txt&live=true", 403},
		{writer, "run-a/download?colour=blue", 400},
		{writer, "run-a/download?path=missing", 404},
		{writer, "run-a/download?path=docs", 400},
		{writer, "run-a/download?path=link", 400},
		{writer, "run-a/download?path=docs&format=rar", 400},
		{writer, "run-a/download?path=missing&format=zip", 404},
	} {
		looks := w.looks
		if rec := w.get(c.who, c.path); rec.Code != c.status || c.status == 403 && w.looks > looks {
			t.Errorf("%s of %s: %d %s", c.path, c.who.Subject, rec.Code, rec.Body)
		}
	}
	w.status.Head = ""
	if rec := w.get(writer, "run-a/files"); rec.Code != 404 || !strings.Contains(rec.Body.String(), "no branch") {
		t.Errorf("without a branch: %d %s", rec.Code, rec.Body)
	}
}

func TestDownload(t *testing.T) {
	w := newWorld(t)
	for _, c := range []struct{ path, name, content, length string }{
		{"run-a/download?path=a.txt", "a.txt", "alpha\n", "6"},
		{"run-a/download?path=docs/b.txt&format=zip", "b.txt", "beta\n", "5"},
		{"run-a/download?path=new.txt&live=true", "new.txt", "gamma\n", ""}, // a secret would be taken out
	} {
		rec := w.get(writer, c.path)
		h := rec.Header()
		if rec.Code != 200 || rec.Body.String() != c.content || h.Get("Content-Length") != c.length ||
			!strings.Contains(h.Get("Content-Disposition"), "attachment") ||
			!strings.Contains(h.Get("Content-Disposition"), c.name) || h.Get("Cache-Control") != "private, no-store" {
			t.Errorf("%s: %d %q %v", c.path, rec.Code, rec.Body, h)
		}
	}
	head := httptest.NewRecorder()
	w.handler(reader).ServeHTTP(head, httptest.NewRequest("HEAD", "/api/workspaces/run-a/download?path=a.txt", nil))
	if head.Code != 200 || head.Body.Len() != 0 || head.Header().Get("Content-Length") != "6" {
		t.Errorf("HEAD: %d %q %v", head.Code, head.Body, head.Header())
	}
}

// TestArchive reads archives of folders. Their files have the time of the clock, and links are left out.
func TestArchive(t *testing.T) {
	w := newWorld(t)
	rec := w.get(reader, "run-a/download?format=zip")
	z, err := zip.NewReader(bytes.NewReader(rec.Body.Bytes()), int64(rec.Body.Len()))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range z.File {
		names = append(names, f.Name)
		if !f.Modified.Equal(made) {
			t.Errorf("%s is of %s", f.Name, f.Modified)
		}
	}
	slices.Sort(names)
	if h := rec.Header(); !slices.Equal(names, []string{"a/a.txt", "a/docs/b.txt"}) || h.Get("X-Ramus-Left-Out") != "1" ||
		!strings.Contains(h.Get("Content-Disposition"), "a.zip") {
		t.Errorf("%q %v", names, h)
	}

	rec = w.get(reader, "run-a/download?format=tar.gz&path=docs")
	unzipped, err := gzip.NewReader(rec.Body)
	if err != nil {
		t.Fatal(err)
	}
	tape := tar.NewReader(unzipped)
	header, err := tape.Next()
	if err != nil || !header.ModTime.Equal(made) || !strings.HasSuffix(header.Name, "b.txt") ||
		!strings.Contains(rec.Header().Get("Content-Disposition"), "a-docs.tar.gz") {
		t.Errorf("%+v, %v, %v", header, err, rec.Header())
	}
	w.api.Now = nil
	if rec := w.get(reader, "run-a/download?format=zip"); rec.Code != 200 {
		t.Errorf("by the machine's clock: %d %s", rec.Code, rec.Body)
	}

	w.api.once.Do(w.api.bound)
	for range mostPacked / 4 {
		release, err := w.api.packing.Acquire(reader)
		if err != nil {
			t.Fatal(err)
		}
		defer release()
	}
	if rec := w.get(reader, "run-a/download?format=zip"); rec.Code != 429 || rec.Header().Get("Retry-After") == "" {
		t.Errorf("too many archives: %d %s", rec.Code, rec.Body)
	}
}

// TestDownloadPage gives pages of this server archives, and pages of others none. A container is woken by POST alone.
func TestDownloadPage(t *testing.T) {
	w := newWorld(t)
	h := w.handler(writer, route.Route{Method: "GET", Pattern: "/page/{workspace}", Access: route.AccessRead, Handle: w.api.Download},
		route.Route{Method: "POST", Pattern: "/page/{workspace}", Access: route.AccessWrite, Handle: func(c *route.Call) error {
			return w.api.DownloadLive(c, "new.txt", "")
		}})
	for _, x := range []struct {
		method, query, site string
		status              int
	}{
		{"GET", "?path=a.txt", "cross-site", 200},
		{"GET", "?format=zip", "cross-site", 403},
		{"GET", "?format=zip", "same-site", 403},
		{"GET", "?format=zip", "same-origin", 200},
		{"GET", "?format=zip", "none", 200},
		{"GET", "?format=zip", "", 200},
		{"GET", "?path=new.txt&live=true", "", 400},
		{"GET", "?colour=blue", "", 400},
		{"POST", "", "", 200},
	} {
		r := httptest.NewRequest(x.method, "/page/run-a"+x.query, nil)
		if x.site != "" {
			r.Header.Set("Sec-Fetch-Site", x.site)
		}
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, r)
		if rec.Code != x.status {
			t.Errorf("%s %s from %s: %d %s", x.method, x.query, x.site, rec.Code, rec.Body)
		}
	}
	if w.looks != 1 {
		t.Errorf("the container was read %d times", w.looks)
	}
}

// TestUpload sends forms to a server. Only those who may change the workspace have their files read.
func TestUpload(t *testing.T) {
	w := newWorld(t)
	send := func(who route.Who, workspace string, parts ...part) (int, string) {
		t.Helper()
		server := httptest.NewServer(w.handler(who))
		defer server.Close()
		body, media := form(t, parts...)
		resp, err := http.Post(server.URL+"/api/workspaces/"+workspace+"/files", media, body)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(text)
	}
	code, body := send(writer, "run-a", field("folder", "docs"), field("replace", "1"), file("c.txt", "delta"))
	if code != 200 || !strings.Contains(body, "docs/c.txt") || !slices.Equal(w.log, []string{"workspace.upload run-a ok"}) ||
		!slices.Equal(w.uploads, []string{"run:a by ada: docs/c.txt true"}) {
		t.Errorf("%d %s, %q, %q", code, body, w.uploads, w.log)
	}
	for _, c := range []struct {
		who       route.Who
		workspace string
		sent      part
		status    int
	}{
		{reader, "run-a", file("c.txt", "x"), 403},
		{writer, "run-b", file("c.txt", "x"), 404},
		{writer, "run-a", field("colour", "blue"), 400},
	} {
		if code, body := send(c.who, c.workspace, c.sent); code != c.status || len(w.uploads) != 1 {
			t.Errorf("%s to %s: %d %s", c.who.Subject, c.workspace, code, body)
		}
	}

	logged := len(w.log)
	w.fail = &route.Problem{Kind: route.KindConflict, Detail: "it is there"}
	if code, body := send(writer, "run-a", file("c.txt", "x")); code != 409 || slices.Contains(w.log[logged:], "workspace.upload run-a ok") {
		t.Errorf("%d %s, %q", code, body, w.log)
	}
	w.fail = nil
	w.api.once.Do(w.api.bound)
	for _, streams := range []*route.Streams{&w.api.arriving, &w.api.taken} {
		var releases []func()
		for range streams.Max / 4 {
			release, err := streams.Acquire(writer)
			if err != nil {
				t.Fatal(err)
			}
			releases = append(releases, release)
		}
		if code, body := send(writer, "run-a", file("c.txt", "x")); code != 429 {
			t.Errorf("too many uploads: %d %s", code, body)
		}
		for _, release := range releases {
			release()
		}
	}
	if code, body := send(writer, "run-a", file("c.txt", "x")); code != 200 {
		t.Errorf("when others have ended: %d %s", code, body)
	}
}

func TestTrimFolder(t *testing.T) {
	for text, want := range map[string]string{"": "", " / ": "", "///": "", ".": "", "a": "a", " /a b/c/ ": "a b/c"} {
		if got := trimFolder(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
