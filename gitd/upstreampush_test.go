package gitd

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/gitd/gitcmd"
	"github.com/ramus-dev/ramus/gitd/gittest"
)

// hashOf returns a pointer for the field Old.
func hashOf(h Hash) *Hash { return &h }

// forked returns a repository that was imported from a bare upstream with one commit.
func forked(t testing.TB) (up string, r *Repo, first Hash) {
	t.Helper()
	src := work(t)
	up = filepath.Join(t.TempDir(), "up.git")
	git(t, "", "clone", "-q", "--bare", src, up)
	// If two push the same, the slower one waits for the other's lock, even on a slow disk.
	git(t, up, "config", "core.filesRefLockTimeout", "60000")
	r, err := newServer(t).Import(t.Context(), "r", up, nil)
	if err != nil {
		t.Fatal(err)
	}
	return up, r, Hash(git(t, up, "rev-parse", "main"))
}

// at returns the commit of a branch of upstream, or "" if it does not exist.
func at(t testing.TB, up, branch string) Hash {
	t.Helper()
	return Hash(git(t, up, "for-each-ref", "--format=%(objectname)", "refs/heads/"+branch))
}

func TestPushUpstream(t *testing.T) {
	ctx := t.Context()
	up, r, first := forked(t)
	one := commit(t, r, "work", "One", "b", "1")
	two := commit(t, r, "work", "Two", "b", "2")
	aside := commit(t, r, "aside", "Aside", "c", "1") // without main's history
	gone := Hash(strings.Repeat("1", 40))
	tree := Hash(git(t, r.Dir(), "rev-parse", "main^{tree}"))
	steps := []struct {
		name string
		push UpstreamPush
		want error
		at   Hash // of branch "b" at upstream, after it
	}{
		{"new, expected at something", UpstreamPush{Commit: first, Old: hashOf(one)}, ErrConflict, ""},
		{"delete what is not there", UpstreamPush{Old: hashOf(one)}, nil, ""},
		{"new", UpstreamPush{Commit: first, Old: hashOf("")}, nil, first},
		{"the same again", UpstreamPush{Commit: first, Old: hashOf("")}, nil, first},
		{"new, but it is there", UpstreamPush{Commit: aside, Old: hashOf("")}, ErrConflict, first},
		{"another history", UpstreamPush{Commit: aside}, ErrConflict, first},
		{"another history, expected", UpstreamPush{Commit: aside, Old: hashOf(first)}, ErrConflict, first},
		{"stale", UpstreamPush{Commit: two, Old: hashOf(one)}, ErrConflict, first},
		{"delete, stale", UpstreamPush{Old: hashOf(two)}, ErrConflict, first},
		{"a commit that is not here", UpstreamPush{Commit: gone}, ErrNotFound, first},
		{"a tree", UpstreamPush{Commit: tree}, ErrInvalid, first},
		{"no hash", UpstreamPush{Commit: "HEAD"}, ErrInvalid, first},
		{"no hash expected", UpstreamPush{Commit: first, Old: hashOf("main")}, ErrInvalid, first},
		{"delete", UpstreamPush{Old: hashOf(first)}, nil, ""},
		{"delete again", UpstreamPush{Old: hashOf(first)}, nil, ""},
		{"new, at any tip", UpstreamPush{Commit: one}, nil, one},
		{"forward, expected", UpstreamPush{Commit: two, Old: hashOf(one)}, nil, two},
		{"backward", UpstreamPush{Commit: one}, ErrConflict, two},
		{"delete, at any tip", UpstreamPush{}, nil, ""},
	}
	for _, s := range steps {
		s.push.Branch = "b"
		if err := r.PushUpstream(ctx, s.push); !errors.Is(err, s.want) {
			t.Errorf("%s: %v, want %v", s.name, err, s.want)
		}
		if is := at(t, up, "b"); is != s.at {
			t.Fatalf("%s: upstream is at %q, want %q", s.name, is, s.at)
		}
	}
	// A branch of somebody else is not even deleted, unless the caller names its commit.
	clone := filepath.Join(t.TempDir(), "clone")
	git(t, "", "clone", "-q", up, clone)
	git(t, clone, "commit", "-q", "--allow-empty", "-m", "Theirs")
	git(t, clone, "push", "-q", "origin", "HEAD:refs/heads/b")
	theirs := at(t, up, "b")
	for _, p := range []UpstreamPush{{}, {Commit: first}, {Commit: two}} {
		p.Branch = "b"
		if err := r.PushUpstream(ctx, p); !errors.Is(err, ErrConflict) {
			t.Errorf("%+v: %v", p, err)
		}
	}
	if err := r.PushUpstream(ctx, UpstreamPush{Branch: "b", Old: &theirs}); err != nil || at(t, up, "b") != "" {
		t.Error(err)
	}
	fsck(t, up)
}

func TestPushUpstreamRefused(t *testing.T) {
	ctx := t.Context()
	up, r, first := forked(t)
	hook := filepath.Join(up, "hooks", "update")
	write(t, hook, "#!/bin/sh\nprintf 'GH006: \\033[31mProtected branch\\033[0m update failed for %s\\n' \"$1\" >&2\nyes x | head -c 100000 >&2\nexit 1\n")
	if err := os.Chmod(hook, 0o755); err != nil {
		t.Fatal(err)
	}
	err := r.PushUpstream(ctx, UpstreamPush{Branch: "b", Commit: first})
	if !errors.Is(err, ErrUpstreamRefused) || errors.Is(err, ErrConflict) || errors.Is(err, ErrUpstream) {
		t.Fatal(err)
	}
	if text := err.Error(); !strings.Contains(text, "hook declined") || strings.Contains(text, "\x1b") || len(text) > 2*saidMax {
		t.Errorf("%q", text)
	}
	write(t, hook, "#!/bin/sh\necho 'GH006: Protected branch' >&2\nexit 1\n")
	if err := r.PushUpstream(ctx, UpstreamPush{Branch: "b", Commit: first}); err == nil ||
		!strings.Contains(err.Error(), "GH006: Protected branch") {
		t.Error(err)
	}
	if err := os.Remove(hook); err != nil {
		t.Fatal(err)
	}
	// The refs of the other side make this name impossible.
	if err := r.PushUpstream(ctx, UpstreamPush{Branch: "main/b", Commit: first}); !errors.Is(err, ErrUpstreamRefused) {
		t.Error(err)
	}
	// Somebody else pushes after git has looked.
	git(t, up, "branch", "faster", "main")
	two := commit(t, r, "main", "Two", "b", "2")
	write(t, hook, "#!/bin/sh\nunset GIT_QUARANTINE_PATH\nexport GIT_AUTHOR_NAME=x GIT_AUTHOR_EMAIL=x@x GIT_COMMITTER_NAME=x GIT_COMMITTER_EMAIL=x@x\n"+
		"git update-ref refs/heads/faster $(git commit-tree -m x -p main main^{tree})\n")
	if err := os.Chmod(hook, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := r.PushUpstream(ctx, UpstreamPush{Branch: "faster", Commit: two}); !errors.Is(err, ErrConflict) {
		t.Error(err)
	}
	if at(t, up, "faster") == two {
		t.Error("the push won")
	}
}

func TestUpstreamBranchNames(t *testing.T) {
	ctx := t.Context()
	up, r, first := forked(t)
	for _, name := range []string{"", "-d", "--all", "HEAD", "a b", "a..b", "a:b", "+a", "^a", "refs/heads/x:y", "a\nb",
		"a/", "/a", "*", "a.lock",
		"@{-1}", "a\x00b", strings.Repeat("x", 2000)} {
		err := r.PushUpstream(ctx, UpstreamPush{Branch: name, Commit: first})
		if name == "+a" {
			// The name is unusual and valid.
			if err != nil || at(t, up, name) != first {
				t.Errorf("%q: %v", name, err)
			}
			continue
		}
		if !errors.Is(err, ErrInvalid) {
			t.Errorf("push to %.20q: %v", name, err)
		}
		if _, err := r.FetchUpstream(ctx, Upstream{}, name); !errors.Is(err, ErrInvalid) {
			t.Errorf("fetch of %.20q: %v", name, err)
		}
	}
	// These names look like refs, revisions or shell code, and are valid.
	for _, name := range []string{"refs/heads/main", "@", "ä/ö", "main;touch", "$(touch)", "'\"`"} {
		if err := r.PushUpstream(ctx, UpstreamPush{Branch: name, Commit: first}); err != nil {
			t.Errorf("push to %q: %v", name, err)
		}
		if h, err := r.FetchUpstream(ctx, Upstream{}, name); h != first || err != nil {
			t.Errorf("fetch of %q: %s, %v", name, h, err)
		}
	}
	if err := r.PushUpstream(ctx, UpstreamPush{Upstream: Upstream{URL: "ext::sh -c x"}, Branch: "b",
		Commit: first}); !errors.Is(err, ErrInvalid) {
		t.Error(err)
	}
	alone, err := r.server.Create(ctx, "alone")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := alone.FetchUpstream(ctx, Upstream{}, "b"); !errors.Is(err, ErrInvalid) {
		t.Error(err)
	}
}

// tollGate is a proxy of a Git server that breaks requests.
type tollGate struct {
	*httptest.Server
	mu     sync.Mutex // guards before and after
	before func(http.ResponseWriter, *http.Request) bool
	after  func()
}

// upstreamGate serves an upstream that takes pushes from clients with the password.
func upstreamGate(t *testing.T, secret string) (*tollGate, string) {
	t.Helper()
	w := newWire(t, func(s *Server) { s.Anonymous = true })
	dir := w.repo("r")
	g := &tollGate{}
	g.Server = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, q *http.Request) {
		if _, pw, _ := q.BasicAuth(); pw != secret {
			rw.Header().Set("WWW-Authenticate", `Basic realm="x"`)
			http.Error(rw, "refused: "+q.Header.Get("Authorization"), http.StatusUnauthorized)
			return
		}
		q.Header.Del("Authorization")
		g.mu.Lock()
		before, after := g.before, g.after
		g.mu.Unlock()
		if before != nil && before(rw, q) {
			return
		}
		if after != nil && strings.HasSuffix(q.URL.Path, "/git-receive-pack") {
			w.Handler().ServeHTTP(httptest.NewRecorder(), q)
			after()
			panic(http.ErrAbortHandler)
		}
		w.Handler().ServeHTTP(rw, q)
	}))
	t.Cleanup(g.Close)
	return g, dir
}

func (g *tollGate) set(before func(http.ResponseWriter, *http.Request) bool, after func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.before, g.after = before, after
}

func TestPushUpstreamOverHTTP(t *testing.T) {
	const secret = "a-password-of-some-length"
	ctx := t.Context()
	gate, up := upstreamGate(t, secret)
	asked := 0
	with := Upstream{URL: gate.URL + "/r.git", Credential: func(context.Context) (Credential, error) {
		asked++
		return Credential{User: "x-access-token", Password: secret}, nil
	}}
	s := newServer(t)
	r, err := s.ImportFrom(ctx, "r", with, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	first := at(t, up, "main")
	one := commit(t, r, "main", "One", "b", "1")
	if err := r.PushUpstream(ctx,
		UpstreamPush{Upstream: with, Branch: "b", Commit: one, Old: hashOf("")}); err != nil || at(t, up, "b") != one {
		t.Fatal(err)
	}
	if h, err := r.FetchUpstream(ctx, with, "b"); h != one || err != nil {
		t.Error(h, err)
	}
	if asked != 3 {
		t.Errorf("the credential was asked for %d times, want once a conversation", asked)
	}

	wrong := with
	wrong.Credential = func(context.Context) (Credential, error) {
		return Credential{User: "x", Password: "another-password"}, nil
	}
	err = r.PushUpstream(ctx, UpstreamPush{Upstream: wrong, Branch: "c", Commit: one})
	if !errors.Is(err, ErrUpstream) || strings.Contains(err.Error(), "another-password") ||
		strings.Contains(err.Error(), "eDphbm90aGVyLXBhc3N3b3Jk") {
		t.Error(err)
	}
	if _, err := r.FetchUpstream(ctx, wrong, "b"); !errors.Is(err, ErrUpstream) || strings.Contains(err.Error(), "another-password") {
		t.Error(err)
	}

	// A token without the permission may read and not write.
	gate.set(func(w http.ResponseWriter, q *http.Request) bool {
		if strings.Contains(q.URL.Path+q.URL.RawQuery, "git-receive-pack") {
			http.Error(w, "Permission denied for "+secret, http.StatusForbidden)
			return true
		}
		return false
	}, nil)
	err = r.PushUpstream(ctx, UpstreamPush{Upstream: with, Branch: "c", Commit: one})
	if !errors.Is(err, ErrUpstream) || strings.Contains(err.Error(), secret) {
		t.Error(err)
	}

	// The upstream dies in the middle, either before it has the pack, or after it has taken
	// the pack and before it answers.
	gate.set(func(w http.ResponseWriter, q *http.Request) bool {
		if strings.HasSuffix(q.URL.Path, "/git-receive-pack") {
			panic(http.ErrAbortHandler)
		}
		return false
	}, nil)
	if err := r.PushUpstream(ctx, UpstreamPush{Upstream: with, Branch: "c", Commit: one}); !errors.Is(err,
		ErrUpstream) || at(t, up, "c") != "" {
		t.Error(err)
	}
	gate.set(nil, func() {})
	if err := r.PushUpstream(ctx, UpstreamPush{Upstream: with, Branch: "c", Commit: one}); err != nil || at(t, up, "c") != one {
		t.Error("taken, not said so:", err)
	}
	gate.set(nil, func() {
		gate.set(func(w http.ResponseWriter, _ *http.Request) bool {
			http.Error(w, "down", http.StatusServiceUnavailable)
			return true
		}, nil)
	})
	if err := r.PushUpstream(ctx, UpstreamPush{Upstream: with, Branch: "d", Commit: one}); !errors.Is(err,
		ErrUpstream) || at(t, up, "d") != one {
		t.Error("taken, and down:", err)
	}
	if _, err := r.FetchUpstream(ctx, with, "d"); !errors.Is(err, ErrUpstream) {
		t.Error(err)
	}
	gate.set(nil, nil)
	if err := r.PushUpstream(ctx, UpstreamPush{Upstream: with, Branch: "d", Commit: one, Old: hashOf("")}); err != nil {
		t.Error("again:", err)
	}

	// A push to an upstream that hangs ends with the caller.
	hung := make(chan struct{})
	var once sync.Once
	gate.set(func(_ http.ResponseWriter, q *http.Request) bool {
		once.Do(func() { close(hung) })
		<-q.Context().Done()
		return true
	}, nil)
	short, cancel := context.WithCancel(ctx)
	go func() {
		<-hung
		cancel()
	}()
	if err := r.PushUpstream(short, UpstreamPush{Upstream: with, Branch: "e", Commit: one}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	gate.set(nil, nil)
	if err := r.PushUpstream(ctx, UpstreamPush{Upstream: with, Branch: "b", Old: hashOf(one)}); err != nil || at(t, up, "b") != "" {
		t.Error(err)
	}
	if at(t, up, "main") != first {
		t.Error("main has moved")
	}
	fsck(t, up)
}

func TestFetchUpstream(t *testing.T) {
	ctx := t.Context()
	up, r, first := forked(t)
	clone := filepath.Join(t.TempDir(), "clone")
	git(t, "", "clone", "-q", up, clone)
	push := func(branch string, args ...string) Hash {
		t.Helper()
		git(t, clone, append([]string{"commit", "-q", "--allow-empty", "-m", time.Now().String()}, args...)...)
		git(t, clone, "push", "-q", "--force", "origin", "HEAD:refs/heads/"+branch)
		return at(t, up, branch)
	}
	if _, err := r.FetchUpstream(ctx, Upstream{}, "b"); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
	one := push("b")
	fetch := func(branch string, want Hash) {
		t.Helper()
		if h, err := r.FetchUpstream(ctx, Upstream{}, branch); h != want || err != nil {
			t.Errorf("fetched %s, want %s: %v", h, want, err)
		}
		if h, err := r.Resolve(ctx, "refs/ramus/upstream/"+branch); h != want || err != nil {
			t.Errorf("kept %s, want %s: %v", h, want, err)
		}
	}
	fetch("b", one)
	fetch("b", one)
	two := push("b")
	fetch("b", two)
	forced := push("b", "--amend")
	fetch("b", forced)
	for _, d := range []struct {
		commit, ancestor Hash
		want             bool
	}{{two, one, true}, {two, two, true}, {one, two, false}, {forced, one, true}, {forced, two, false},
		{forced, first, true}} {
		if got, err := r.Descends(ctx, d.commit, d.ancestor); got != d.want || err != nil {
			t.Errorf("%s descends from %s: %v, %v", d.commit, d.ancestor, got, err)
		}
	}
	if _, err := r.Descends(ctx, Hash(strings.Repeat("1", 40)), one); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
	if _, err := r.Descends(ctx, one, "--help"); !errors.Is(err, ErrInvalid) {
		t.Error(err)
	}
	// A fetched branch is merged like a branch of ours.
	if err := r.Update(ctx, RefUpdate{Name: "refs/heads/mine", New: one}); err != nil {
		t.Fatal(err)
	}
	mine := commit(t, r, "mine", "Mine", "mine", "1")
	res, err := r.Merge(ctx, MergeRequest{From: "refs/ramus/upstream/b", Into: "mine", Strategy: StrategyMerge,
		Committer: alice})
	if err != nil || !res.Merged || res.Old != mine {
		t.Errorf("%+v, %v", res, err)
	}
	for _, from := range []string{"refs/ramus/bases/latest", "refs/ramus/upstream/", "refs/ramus/upstream/gone",
		"refs/ramus/upstream/../b"} {
		if _, err := r.Merge(ctx, MergeRequest{From: from, Into: "mine", Strategy: StrategyMerge,
			Committer: alice}); !errors.Is(err, ErrNotFound) && !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", from, err)
		}
	}
	// A deleted branch is an error, and its commits stay.
	git(t, up, "branch", "-q", "-D", "b")
	if _, err := r.FetchUpstream(ctx, Upstream{}, "b"); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
	if h, err := r.Resolve(ctx, "refs/ramus/upstream/b"); h != forced || err != nil {
		t.Error(h, err)
	}
	// The old ref makes these names impossible.
	fetch("b/c/d", push("b/c/d"))
	git(t, up, "branch", "-q", "-D", "b/c/d")
	hidden := push("b/c")
	fetch("b/c", hidden)

	// A container, and a token that may read branches, see nothing of it.
	refs := stock(t, "", "-c", "protocol.version=0", "ls-remote", r.Dir())
	if !strings.Contains(refs, "refs/ramus/upstream/b/c") {
		t.Fatal(refs)
	}
	door := httptest.NewServer(r.server.GrantHandler(Grant{Subject: "x", Repo: "r", Scopes: []string{ScopeWrite},
		Read: []string{"refs/heads/*"}, Write: []string{"refs/heads/*"}}))
	t.Cleanup(door.Close)
	if refs := stock(t, "", "ls-remote", door.URL+"/r.git"); strings.Contains(refs, "refs/ramus") ||
		!strings.Contains(refs, "refs/heads/main") {
		t.Error(refs)
	}
	thief := t.TempDir()
	git(t, thief, "init", "-q")
	if out, err := gittest.Try(thief, "fetch", "-q", door.URL+"/r.git", string(hidden)); err == nil {
		t.Error("a container fetched it by its name:", out)
	}

	// These fetches are concurrent with a refresh and pushes.
	var wg sync.WaitGroup
	for _, f := range []func() error{
		func() error { _, err := r.FetchUpstream(ctx, Upstream{}, "b/c"); return err },
		func() error { _, err := r.FetchUpstream(ctx, Upstream{}, "main"); return err },
		func() error { _, err := r.server.Refresh(ctx, "r", nil); return err },
		func() error { return r.PushUpstream(ctx, UpstreamPush{Branch: "x", Commit: first}) },
		func() error { return r.PushUpstream(ctx, UpstreamPush{Branch: "x", Commit: first}) },
		func() error { return r.PushUpstream(ctx, UpstreamPush{Branch: "y", Commit: first}) },
	} {
		wg.Go(func() {
			if err := f(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

// TestPushFromShallow pushes from a repository whose history is not complete yet.
func TestPushFromShallow(t *testing.T) {
	ctx := t.Context()
	src := work(t)
	git(t, src, "commit", "-q", "--allow-empty", "-m", "Second")
	up := filepath.Join(t.TempDir(), "up.git")
	git(t, "", "clone", "-q", "--bare", src, up)
	r, err := newServer(t).ImportFrom(ctx, "r", Upstream{URL: up}, true, nil)
	if err != nil {
		t.Fatal(err)
	}
	one := commit(t, r, "main", "One", "b", "1")
	if err := r.PushUpstream(ctx, UpstreamPush{Branch: "b", Commit: one, Old: hashOf("")}); err != nil {
		t.Error(err)
	}
	if h, err := r.FetchUpstream(ctx, Upstream{}, "b"); h != one || err != nil {
		t.Error(h, err)
	}
	fsck(t, up)
}

func FuzzPushReport(f *testing.F) {
	f.Add([]byte("To /x\n!\t1:refs/heads/b\t[rejected] (stale info)\nDone\n"))
	f.Add([]byte("To /x\n!\t1:refs/heads/b\t[remote rejected] (hook declined)\n"))
	f.Add([]byte("!\t:refs/heads/b\t[remote failure] (remote failed to report status)"))
	f.Add([]byte("=\trefs/heads/b:refs/heads/b\t[up to date]\n"))
	f.Fuzz(func(t *testing.T, out []byte) {
		said := &gitcmd.Tail{Max: gitcmd.StderrMax}
		said.Write(append([]byte("remote: "), out...))
		rep := readReport(out, "refs/heads/b")
		if text := rep.reason(said); text == "" || len(text) > saidMax+10 || strings.ContainsAny(text, "\n\r\x1b") {
			t.Errorf("%q", text)
		}
		_, _ = readTip(out, "refs/heads/b")
	})
}

func TestPushReport(t *testing.T) {
	for text, want := range map[string]refReport{
		"To /x\n!\t1:refs/heads/b\t[rejected] (stale info)\nDone\n": {refLocal, "stale info"},
		"!\t1:refs/heads/b\t[remote rejected] (protected branch hook declined)\n": {refRemote,
			"protected branch hook declined"},
		"!\t:refs/heads/b\t[remote rejected] (a (b) c)":                          {refRemote, "a (b) c"},
		"!\t1:refs/heads/c\t[remote rejected] (x)\n":                             {},
		"!\t1:refs/heads/b\t[remote failure] (remote failed to report status)\n": {},
		" \t1:refs/heads/b\t1..2\n":                                              {},
		"":                                                                       {},
	} {
		if got := readReport([]byte(text), "refs/heads/b"); got != want {
			t.Errorf("%q: %+v", text, got)
		}
	}
}
