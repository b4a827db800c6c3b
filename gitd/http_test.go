package gitd

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func TestStockClient(t *testing.T) {
	for _, v := range []string{"0", "1", "2"} {
		t.Run("v"+v, func(t *testing.T) {
			w := newWire(t, nil)
			dir := w.repo("team/a")
			url := w.url("team/a", w.token(full))
			c := w.clone(url, "-c", "protocol.version="+v)
			head := addFile(t, c, "b.txt", "b\n")
			stock(t, c, "push", "-q", "origin", "HEAD:refs/heads/main", "HEAD:refs/heads/topic", "HEAD:refs/tags/v1")
			if got := stock(t, dir, "rev-parse", "topic"); got != head {
				t.Fatalf("topic is at %s, want %s", got, head)
			}
			for i := range 5 {
				addFile(t, c, fmt.Sprintf("more%d", i), strings.Repeat("x", i))
			}
			stock(t, c, "push", "-q", "origin", "HEAD:main")
			shallow := w.clone(url, "-c", "protocol.version="+v, "--depth=2")
			if got := stock(t, shallow, "rev-list", "--count", "HEAD"); got != "2" {
				t.Fatalf("%s commits in a clone of depth 2", got)
			}
			addFile(t, shallow, "from-shallow", "s")
			stock(t, shallow, "push", "-q", "origin", "HEAD:main")
			stock(t, shallow, "fetch", "-q", "--unshallow")
			if got := stock(t, shallow, "rev-list", "--count", "HEAD"); got != "8" {
				t.Fatalf("%s commits after unshallow", got)
			}
			part := w.clone(url, "-c", "protocol.version="+v, "--filter=blob:none", "--no-checkout")
			if got := stock(t, part, "rev-list", "--objects", "--missing=print", "HEAD"); !strings.Contains(got, "\n?") {
				t.Fatal("a clone with blob:none misses no blob")
			}
			stock(t, part, "checkout", "-q", "main")
			stock(t, part, "reset", "-q", "--hard", "HEAD~3") // fetches blobs one by one
			stock(t, c, "push", "-q", "origin", ":topic", "+HEAD~1:main")
			stock(t, c, "fetch", "-q", "--prune")
			fsck(t, dir)
			fsck(t, c)
			fsck(t, shallow)
		})
	}
}

// TestWriteScope checks the table of the writes that a container's grant
// allows.
func TestWriteScope(t *testing.T) {
	own := Grant{Subject: "run:a", Repo: "a", Read: []string{"refs/heads/main", "refs/heads/ramus/a"},
		Write: []string{"refs/heads/ramus/a"}}
	with := func(f func(*Grant)) Grant { g := own; f(&g); return g }
	for _, tt := range []struct {
		name  string
		grant Grant
		push  []string
		why   string // empty if accepted
	}{
		{"own branch", own, []string{"HEAD:refs/heads/ramus/a"}, ""},
		{"own branch, atomic", own, []string{"--atomic", "HEAD:refs/heads/ramus/a"}, ""},
		{"base", own, []string{"HEAD:refs/heads/main"}, "this token may write only refs/heads/ramus/a"},
		{"other branch", own, []string{"HEAD:refs/heads/ramus/b"}, "this token may write only refs/heads/ramus/a"},
		{"below own branch", own, []string{"HEAD:refs/heads/ramus/a/b"}, "this token may write only"},
		{"own and other", own, []string{"HEAD:refs/heads/ramus/a", "HEAD:refs/heads/x"}, "another ref of this push"},
		{"own and other, atomic", own, []string{"--atomic", "HEAD:refs/heads/ramus/a", "HEAD:refs/heads/x"},
			"this token may write only"},
		{"tag", own, []string{"HEAD:refs/tags/v9"}, "this token may write only"},
		{"journal", own, []string{"HEAD:refs/ramus/runs/a"}, "this token may write only"},
		{"replace", own, []string{"HEAD:refs/replace/0123456789012345678901234567890123456789"},
			"this token may write only"},
		{"force", own, []string{"+other:refs/heads/ramus/a"}, "non-fast-forward"},
		{"delete", own, []string{":refs/heads/ramus/a"}, "may not delete"},
		{"force granted", with(func(g *Grant) { g.Force = true }), []string{"+other:refs/heads/ramus/a"}, ""},
		{"delete granted", with(func(g *Grant) { g.Delete = true }), []string{":refs/heads/ramus/a"}, ""},
		{"prefix", with(func(g *Grant) { g.Write = []string{"refs/heads/ramus/*"} }),
			[]string{"HEAD:refs/heads/ramus/b"}, ""},
		{"prefix, its own name", with(func(g *Grant) { g.Write = []string{"refs/heads/x/*"} }),
			[]string{"HEAD:refs/heads/x"}, "this token may write only"},
		{"everything is not the journals", with(func(g *Grant) { g.Write = []string{"refs/*"} }),
			[]string{"HEAD:refs/ramus/runs/a"}, "this token may write only"},
		{"journals granted", with(func(g *Grant) { g.Write = []string{"refs/ramus/runs/*"} }),
			[]string{"HEAD:refs/ramus/runs/a"}, ""},
		{"move a tag", with(func(g *Grant) { g.Write = []string{"refs/tags/*"} }), []string{"+other:refs/tags/old"},
			"may not move tags"},
		{"add a tag", with(func(g *Grant) { g.Write = []string{"refs/tags/*"} }), []string{"other:refs/tags/new"}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWire(t, nil)
			dir := w.repo("a")
			stock(t, dir, "branch", "ramus/a", "main")
			stock(t, dir, "tag", "old", "main")
			c := w.clone(dir)
			stock(t, c, "checkout", "-q", "--orphan", "other")
			addFile(t, c, "o", "o")
			stock(t, c, "checkout", "-q", "main")
			addFile(t, c, "n", "n")
			before := stock(t, dir, "for-each-ref")
			out, err := stockTry(c, append([]string{"push", w.url("a", w.token(tt.grant))}, tt.push...)...)
			after := stock(t, dir, "for-each-ref")
			if tt.why == "" {
				if err != nil {
					t.Fatal(err)
				}
				if after == before {
					t.Fatal("nothing was changed")
				}
			} else {
				refused(t, out, err, tt.why)
				if after != before {
					t.Fatalf("refs were changed:\n%s\n%s", before, after)
				}
			}
			fsck(t, dir)
		})
	}
}

// TestReadScope checks that hidden refs are not listed, and that their commits
// cannot be fetched by hash.
func TestReadScope(t *testing.T) {
	w := newWire(t, nil)
	dir := w.repo("a")
	c := w.clone(dir)
	secret := addFile(t, c, "secret", "s")
	stock(t, c, "push", "-q", "origin", "HEAD:refs/heads/secret")
	limited := Grant{Repo: "a", Scopes: []string{ScopeWrite}, Read: []string{"refs/heads/main"},
		Write: []string{"refs/heads/ramus/a"}}
	grantOnly := limited
	grantOnly.Subject = "run:a"
	door := httptest.NewServer(w.GrantHandler(grantOnly))
	defer door.Close()
	for what, url := range map[string]string{"token": w.url("a", w.token(limited)), "door": door.URL + "/a.git"} {
		for _, v := range []string{"0", "2"} {
			out := stock(t, c, "-c", "protocol.version="+v, "ls-remote", url)
			if strings.Contains(out, "secret") || strings.Contains(out, secret) || !strings.Contains(out, "refs/heads/main") {
				t.Errorf("%s, v%s: %s", what, v, out)
			}
			empty := t.TempDir()
			stock(t, empty, "init", "-q")
			out, err := stockTry(empty, "-c", "protocol.version="+v, "fetch", url, secret)
			refused(t, out, err, secret)
			stock(t, empty, "-c", "protocol.version="+v, "fetch", "-q", url, "main")
		}
	}
	// A HEAD that names a hidden branch would show its tip.
	stock(t, dir, "symbolic-ref", "HEAD", "refs/heads/secret")
	if out := stock(t, c, "ls-remote", w.url("a", w.token(limited))); strings.Contains(out, secret) {
		t.Errorf("HEAD shows a hidden commit:\n%s", out)
	}
}

func TestWhoMayComeIn(t *testing.T) {
	w := newWire(t, nil)
	w.repo("private")
	stock(t, w.repo("public"), "config", "ramus.anonymous", "true")
	w.repo("other")
	other, err := stranger(t)
	if err != nil {
		t.Fatal(err)
	}
	read := w.token(Grant{Repo: "private"})
	ended := w.token(Grant{Repo: "private", Expires: time.Now().Add(-time.Minute)})
	foreign, err := other.Sign(Grant{Subject: "x", Repo: "*", Write: []string{"refs/*"}, Expires: time.Now().Add(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		repo, token, service string
		status               int
		text                 string
	}{
		{"private", "", "git-upload-pack", 401, "token is needed"},
		{"missing", "", "git-upload-pack", 401, "token is needed"},
		{"public", "", "git-upload-pack", 200, ""},
		{"public", "", "git-receive-pack", 401, "token is needed"},
		{"public", "rubbish", "git-upload-pack", 401, "refused"},
		{"private", read, "git-upload-pack", 200, ""},
		{"private", read, "git-receive-pack", 403, "may only read"},
		{"other", read, "git-upload-pack", 404, "not found"},
		{"missing", read, "git-upload-pack", 404, "not found"},
		{"public", read, "git-upload-pack", 200, ""},
		{"public", read, "git-receive-pack", 404, "not found"},
		{"private", ended, "git-upload-pack", 401, "refused"},
		{"private", foreign, "git-upload-pack", 401, "refused"},
		{"private", read, "", 403, "dumb"},
		{"private", read, "git-upload-archive", 403, "dumb"},
		{"../root/private", read, "git-upload-pack", 404, ""},
		{"-x", w.token(full), "git-upload-pack", 404, "not found"},
		{"a..b", w.token(full), "git-upload-pack", 404, "not found"},
		{"x.lock", w.token(full), "git-upload-pack", 404, "not found"},
		{"x%00", w.token(full), "git-upload-pack", 404, "not found"},
		{"x%0a", w.token(full), "git-upload-pack", 404, "not found"},
		{"a%2f%2e%2e%2fprivate", w.token(full), "git-upload-pack", 404, "not found"},
	} {
		for _, scheme := range []string{"Basic", "Bearer"} {
			req, err := http.NewRequest("GET", w.http.URL+"/"+tt.repo+".git/info/refs?service="+tt.service, nil)
			if err != nil {
				t.Fatal(err)
			}
			if tt.token != "" {
				req.Header.Set("Authorization", "Bearer "+tt.token)
				if scheme == "Basic" {
					req.SetBasicAuth("any", tt.token)
				}
			}
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			text, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			if resp.StatusCode != tt.status || !strings.Contains(string(text), tt.text) {
				t.Errorf("%s %s %s: %d %q, want %d %q", scheme, tt.repo, tt.service, resp.StatusCode, text,
					tt.status, tt.text)
			}
			if (resp.StatusCode == 401) != (resp.Header.Get("WWW-Authenticate") != "") {
				t.Errorf("%s: %d with WWW-Authenticate %q", tt.repo, resp.StatusCode, resp.Header.Get("WWW-Authenticate"))
			}
		}
	}
	// Stock git shows these errors.
	out, err := stockTry("", "ls-remote", w.url("other", read))
	refused(t, out, err, "not found")
	out, err = stockTry(w.clone(w.url("private", read)), "push", "origin", "main:x")
	refused(t, out, err, "remote: this token may only read private")
}

// stranger is a second server, with a key of its own.
func stranger(t *testing.T) (*Server, error) {
	s := &Server{Root: t.TempDir()}
	err := s.Open(t.Context())
	t.Cleanup(func() { s.Close() })
	return s, err
}
