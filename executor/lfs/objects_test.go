package lfs_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor/lfs"
	"github.com/ramus-dev/ramus/executor/store"
	"github.com/ramus-dev/ramus/gitd"
	gitlfs "github.com/ramus-dev/ramus/gitd/lfs"
)

// world is a Git server whose Git LFS objects are in a folder.
type world struct {
	*gitd.Server
	t       *testing.T
	objects *lfs.Objects
	dir     string
	now     time.Time
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, dir: filepath.Join(t.TempDir(), "artifacts"), now: time.Now()}
	bucket, err := store.OpenFolder(w.dir)
	if err != nil {
		t.Fatal(err)
	}
	w.objects = &lfs.Objects{Bucket: bucket, Now: func() time.Time { return w.now }}
	w.Server = &gitd.Server{Root: filepath.Join(t.TempDir(), "repos"), LFS: w.objects}
	if err := w.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		w.objects.Close()
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

func (w *world) create(name string) *gitd.Repo {
	w.t.Helper()
	r, err := w.Create(w.t.Context(), name)
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

func objectOf(content string) gitlfs.Object {
	sum := sha256.Sum256([]byte(content))
	return gitlfs.Object{OID: hex.EncodeToString(sum[:]), Size: int64(len(content))}
}

// put keeps a content.
func (w *world) put(r *gitd.Repo, content string) gitlfs.Object {
	w.t.Helper()
	o := objectOf(content)
	if err := w.objects.Put(w.t.Context(), r, o, gitlfs.NewContent(o, strings.NewReader(content))); err != nil {
		w.t.Fatal(err)
	}
	return o
}

// has reports whether a repository has an object.
func (w *world) has(r *gitd.Repo, o gitlfs.Object) bool {
	w.t.Helper()
	in, err := w.objects.Open(w.t.Context(), r, o)
	if errors.Is(err, gitd.ErrNotFound) {
		return false
	}
	if err != nil {
		w.t.Fatal(err)
	}
	defer in.Close()
	text, err := io.ReadAll(in)
	if err != nil || objectOf(string(text)) != o {
		w.t.Errorf("read %q, %v", text, err)
	}
	return true
}

// age makes all objects older.
func (w *world) age(d time.Duration) {
	w.t.Helper()
	err := filepath.WalkDir(w.dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		at := info.ModTime().Add(-d)
		return os.Chtimes(path, at, at)
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

func TestObjects(t *testing.T) {
	w := newWorld(t)
	a, b := w.create("a"), w.create("team/b")
	o := w.put(a, "hello")
	if !w.has(a, o) || w.has(b, o) {
		t.Error("the object is not where it was put, or elsewhere too")
	}
	found, err := w.objects.Find(t.Context(), a, []gitlfs.Object{{OID: o.OID, Size: 9}, objectOf("other")}, true)
	if err != nil || len(found) != 1 || found[0] != o {
		t.Errorf("found %v, %v", found, err)
	}
	if found, err := w.objects.Find(t.Context(), b, []gitlfs.Object{o}, true); err != nil || len(found) != 0 {
		t.Errorf("another repository: %v, %v", found, err)
	}
	if _, err := w.objects.Open(t.Context(), a, gitlfs.Object{OID: o.OID, Size: 9}); !errors.Is(err, gitd.ErrNotFound) {
		t.Errorf("another size: %v", err)
	}

	// Nothing stays of another content, or of one whose client goes away.
	other := objectOf("other")
	for _, from := range []io.Reader{strings.NewReader("hullo"), io.MultiReader(strings.NewReader("oth"), broken{})} {
		if err := w.objects.Put(t.Context(), a, other, gitlfs.NewContent(other, from)); err == nil || w.has(a, other) {
			t.Errorf("kept: %v", err)
		}
	}
	mark, err := a.Mark()
	if err != nil {
		t.Fatal(err)
	}
	if err := w.objects.Drop(t.Context(), mark); err != nil || w.has(a, o) {
		t.Errorf("dropped: %v", err)
	}
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

func TestPrune(t *testing.T) {
	w := newWorld(t)
	r := w.create("a")
	named, loose, recent := w.put(r, "named"), w.put(r, "loose"), w.put(r, "recent")
	commit, err := r.WriteCommit(t.Context(),
		gitd.NewCommit{Author: gitd.Person{Name: "Ada", Email: "ada@example.org"}, When: w.now,
			Put: []gitd.File{{Path: "a/b.bin", Content: named.Pointer()},
				{Path: "README", Content: []byte(strings.Repeat("x", 200))}}})
	if err != nil {
		t.Fatal(err)
	}
	// A ref of ramus's own counts like any other.
	if err := r.Update(t.Context(), gitd.RefUpdate{Name: "refs/ramus/wip/run-a", New: commit}); err != nil {
		t.Fatal(err)
	}
	prune := func(dry bool) int {
		t.Helper()
		removed, err := w.objects.Prune(t.Context(), r, dry)
		if err != nil {
			t.Fatal(err)
		}
		return len(removed)
	}
	if n := prune(false); n != 0 {
		t.Errorf("%d new objects are removed", n)
	}
	w.age(lfs.Grace + time.Hour)
	w.now = w.now.Add(25 * time.Hour)
	// A client that is told about an old object may push a pointer to it after a restart of the server.
	if found, err := w.objects.Find(t.Context(), r, []gitlfs.Object{recent}, false); err != nil || len(found) != 1 {
		t.Fatal(found, err)
	}
	w.objects.Close()
	w.objects = &lfs.Objects{Bucket: w.objects.Bucket, Now: w.objects.Now}
	if n := prune(true); n != 1 || !w.has(r, loose) {
		t.Errorf("%d would be removed", n)
	}
	if n := prune(false); n != 1 || w.has(r, loose) || !w.has(r, named) || !w.has(r, recent) {
		t.Errorf("%d are removed", n)
	}
	// One that was promised a moment ago stays, at any age.
	w.age(lfs.Grace + time.Hour)
	if n := prune(true); n != 1 {
		t.Errorf("%d would be removed", n)
	}
	w.put(r, "recent")
	w.age(lfs.Grace + time.Hour)
	if n := prune(false); n != 0 || !w.has(r, recent) {
		t.Errorf("%d are removed", n)
	}
}

// TestUpstream fetches objects from another server, once each, and also if all clients give up.
func TestUpstream(t *testing.T) {
	up := newWorld(t)
	source := up.create("app")
	o := up.put(source, strings.Repeat("large ", 100_000))
	token, err := up.Sign(gitd.Grant{Subject: "mirror", Repo: "app", Scopes: []string{gitd.ScopeRead},
		Expires: time.Now().Add(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	var gets atomic.Int64
	handler := up.Handler()
	site := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			gets.Add(1)
		}
		handler.ServeHTTP(rw, r)
	}))
	defer site.Close()

	w := newWorld(t)
	r := w.create("copy")
	if w.has(r, o) {
		t.Error("without an upstream")
	}
	w.objects.Source = func(string) (gitd.Upstream, []string) {
		return gitd.Upstream{URL: site.URL + "/app.git", Credential: func(context.Context) (gitd.Credential, error) {
			return gitd.Credential{User: "x", Password: token}, nil
		}}, nil
	}
	found, err := w.objects.Find(t.Context(), r, []gitlfs.Object{o, objectOf("nowhere")}, true)
	if err != nil || len(found) != 1 || found[0] != o {
		t.Errorf("found %v, %v", found, err)
	}
	if found, err := w.objects.Find(t.Context(), r, []gitlfs.Object{o}, false); err != nil || len(found) != 0 {
		t.Errorf("what is to be uploaded is looked for upstream: %v, %v", found, err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := w.objects.Open(ended, r, o); !errors.Is(err, context.Canceled) {
		t.Errorf("a client that gives up: %v", err)
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if !w.has(r, o) {
				t.Error("upstream's object is not here")
			}
		})
	}
	all.Wait()
	if n := gets.Load(); n != 1 {
		t.Errorf("it was fetched %d times", n)
	}
	if w.has(r, objectOf("nowhere")) {
		t.Error("an object from nowhere")
	}
}

// TestUpstreamFolder fetches objects from a clone on this machine.
func TestUpstreamFolder(t *testing.T) {
	w := newWorld(t)
	dir := t.TempDir()
	for name, content := range map[string]string{"good": "good", "bad": "bed"} {
		o := objectOf(name)
		path := filepath.Join(dir, ".git", "lfs", "objects", o.OID[:2], o.OID[2:4], o.OID)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w.objects.Source = func(string) (gitd.Upstream, []string) { return gitd.Upstream{URL: dir}, nil }
	r := w.create("a")
	if !w.has(r, objectOf("good")) {
		t.Error("the object is not fetched")
	}
	if _, err := w.objects.Open(t.Context(), r, objectOf("bad")); !errors.Is(err, gitd.ErrInvalid) {
		t.Errorf("another content: %v", err)
	}
}

// TestStores reads objects of the store that was used before.
func TestStores(t *testing.T) {
	w := newWorld(t)
	r := w.create("a")
	o := w.put(r, "earlier")
	bucket, err := store.OpenFolder(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	w.objects = &lfs.Objects{Bucket: bucket, Earlier: w.objects.Bucket, Now: w.objects.Now}
	later := w.put(r, "later")
	if !w.has(r, o) || !w.has(r, later) {
		t.Error("an object is missing")
	}
	w.age(8 * 24 * time.Hour)
	if found, err := w.objects.Find(t.Context(), r, []gitlfs.Object{o, later}, false); err != nil || len(found) != 2 {
		t.Errorf("found %v, %v", found, err)
	}
	var b bytes.Buffer
	for e, err := range bucket.List(t.Context(), "lfs/") {
		fmt.Fprintln(&b, e.Key, err)
	}
	if !strings.Contains(b.String(), o.OID) {
		t.Errorf("an old object that a client was told about is not written again: %s", &b)
	}
}

// TestSend sends the objects of new commits to upstream before the commits, each once.
func TestSend(t *testing.T) {
	up := newWorld(t)
	source := up.create("app")
	token, err := up.Sign(gitd.Grant{Subject: "ramus", Repo: "app", Write: []string{"refs/heads/*"},
		Scopes:  []string{gitd.ScopeRead, gitd.ScopeWrite},
		Expires: time.Now().Add(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	var puts, refused atomic.Int64
	handler := up.Handler()
	site := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut {
			puts.Add(1)
		}
		if refused.Load() > 0 && strings.Contains(r.URL.Path, "/info/lfs/") {
			rw.WriteHeader(http.StatusNotFound)
			return
		}
		handler.ServeHTTP(rw, r)
	}))
	defer site.Close()
	w := newWorld(t)
	r := w.create("copy")
	access := gitd.Upstream{URL: site.URL + "/app.git", Credential: func(context.Context) (gitd.Credential, error) {
		return gitd.Credential{User: "x", Password: token}, nil
	}}
	var parents []gitd.Hash
	commit := func(objects ...gitlfs.Object) gitd.Hash {
		t.Helper()
		c := gitd.NewCommit{Author: gitd.Person{Name: "Ada", Email: "ada@example.org"}, When: w.now, Parents: parents}
		if len(parents) > 0 {
			c.From = parents[0]
		}
		for _, o := range objects {
			c.Put = append(c.Put, gitd.File{Path: "a/" + o.OID[:8] + ".bin", Content: o.Pointer()})
		}
		h, err := r.WriteCommit(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		parents = []gitd.Hash{h}
		return h
	}
	push := func(h gitd.Hash) error {
		return r.PushUpstream(t.Context(), gitd.UpstreamPush{Upstream: access, Branch: "main", Commit: h})
	}
	one, two, three := w.put(r, strings.Repeat("one ", 50_000)), w.put(r, "two"), w.put(r, "three")
	if err := push(commit(one, two, objectOf("nowhere"))); err != nil {
		t.Fatal(err)
	}
	if !up.has(source, one) || !up.has(source, two) || puts.Load() != 2 {
		t.Errorf("%d objects are sent", puts.Load())
	}
	refused.Store(1)
	h := commit(three)
	if err := push(h); !errors.Is(err, gitd.ErrUpstreamRefused) || !strings.Contains(err.Error(), "no Git LFS server") {
		t.Errorf("an upstream without Git LFS: %v", err)
	}
	if tip, err := source.Resolve(t.Context(), "refs/heads/main"); err != nil || tip == h {
		t.Errorf("upstream has a pointer without its object: %s, %v", tip, err)
	}
	refused.Store(0)
	if err := push(h); err != nil || !up.has(source, three) || puts.Load() != 3 {
		t.Errorf("%d objects are sent, %v", puts.Load(), err)
	}

	// A folder of this machine has its objects in the layout of clients.
	bare, err := up.Create(t.Context(), "bare")
	if err != nil {
		t.Fatal(err)
	}
	access = gitd.Upstream{URL: bare.Dir()}
	if err := push(h); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(bare.Dir(), "lfs", "objects", two.OID[:2], two.OID[2:4], two.OID))
	if string(text) != "two" || err != nil {
		t.Errorf("%q, %v", text, err)
	}
}
