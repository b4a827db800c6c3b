package gitd

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	gossh "golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
)

// password serves a repository to clients with the secret, and redirects
// requests for /away/ to elsewhere.
func password(t *testing.T, secret, elsewhere string) (url string) {
	t.Helper()
	w := newWire(t, func(s *Server) { s.Anonymous = true })
	w.repo("r")
	s := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, q *http.Request) {
		if _, pw, ok := q.BasicAuth(); !ok || pw != secret {
			rw.Header().Set("WWW-Authenticate", `Basic realm="x"`)
			// Some servers quote the refused credentials.
			http.Error(rw, "refused: "+q.Header.Get("Authorization"), http.StatusUnauthorized)
			return
		}
		if strings.HasPrefix(q.URL.Path, "/away/") {
			http.Redirect(rw, q, elsewhere+strings.TrimPrefix(q.URL.Path, "/away")+"?"+q.URL.RawQuery, http.StatusFound)
			return
		}
		q.Header.Del("Authorization")
		w.Handler().ServeHTTP(rw, q)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func TestCredentialOverHTTP(t *testing.T) {
	const secret = "a-password-of-some-length"
	heard := make(chan string, 10)
	thief := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		select {
		case heard <- q.Header.Get("Authorization"):
		default:
		}
		http.NotFound(w, q)
	}))
	t.Cleanup(thief.Close)
	url := password(t, secret, thief.URL)
	s := newServer(t)
	ctx := t.Context()
	asked := 0
	up := Upstream{URL: url + "/r.git", Credential: func(context.Context) (Credential, error) {
		asked++
		return Credential{User: "x", Password: secret}, nil
	}}
	r, err := s.ImportFrom(ctx, "r", up, false, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.RefreshFrom(ctx, "r", up, "", nil); err != nil {
		t.Fatal(err)
	}
	if asked != 2 {
		t.Errorf("the credential was asked for %d times, want once a conversation", asked)
	}
	if _, err := s.Refresh(ctx, "r", nil); !errors.Is(err, ErrUpstream) {
		t.Errorf("without it: %v", err)
	}
	up.Credential = func(context.Context) (Credential, error) {
		return Credential{User: "x", Password: "another-password"}, nil
	}
	if _, err := s.RefreshFrom(ctx, "r", up, "", nil); !errors.Is(err, ErrUpstream) ||
		strings.Contains(err.Error(), "another-password") ||
		strings.Contains(err.Error(), "eDphbm90aGVyLXBhc3N3b3Jk") {
		t.Errorf("with another: %v", err)
	}
	up.URL, up.Credential = url+"/away/r.git",
		func(context.Context) (Credential, error) { return Credential{User: "x", Password: secret}, nil }
	if _, err := s.RefreshFrom(ctx, "r", up, "", nil); err == nil {
		t.Error("a redirect to nowhere gave a repository")
	}
	select {
	case got := <-heard:
		if got != "" {
			t.Errorf("a redirect carried %q away", got)
		}
	default:
		t.Error("git did not follow the redirect: nothing is tested")
	}
	err = filepath.WalkDir(r.Dir(), func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if b, err := os.ReadFile(path); err != nil || strings.Contains(string(b), secret) {
			t.Errorf("%s: %v", path, err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	failing := errors.New("the vault is closed")
	up.Credential = func(context.Context) (Credential, error) { return Credential{}, failing }
	if _, err := s.RefreshFrom(ctx, "r", up, "", nil); !errors.Is(err, failing) || !errors.Is(err, ErrUpstream) {
		t.Error(err)
	}
}

func TestCredentialOverSSH(t *testing.T) {
	_, ada, file := sshKey(t)
	sshGit(t, file) // or skip
	w := newSSHWire(t, ada+" ada@example.org")
	w.repo("r")
	addr := w.serveSSH("127.0.0.1")
	var host gossh.PublicKey
	client, err := gossh.Dial("tcp", addr,
		&gossh.ClientConfig{User: "git", HostKeyCallback: func(_ string, _ net.Addr, key gossh.PublicKey) error {
			host = key
			return errors.New("only looking")
		}})
	if err == nil {
		client.Close()
	}
	dir := filepath.Join(t.TempDir(), "with a space")
	known := filepath.Join(dir, "known")
	write(t, known, knownhosts.Line([]string{addr}, host)+"\n")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	key := filepath.Join(dir, "key")
	if err := os.WriteFile(key, text, 0o600); err != nil {
		t.Fatal(err)
	}
	with := func(c Credential) Upstream {
		return Upstream{URL: "ssh://git@" + addr + "/r.git",
			Credential: func(context.Context) (Credential, error) { return c, nil }}
	}
	s := newServer(t)
	if _, err := s.ImportFrom(t.Context(), "r", with(Credential{KeyFile: key, KnownHosts: known}), true, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := s.RefreshFrom(t.Context(), "r", with(Credential{KeyFile: key, KnownHosts: known}), "", nil); err != nil {
		t.Error(err)
	}
	_, _, wrong := sshKey(t)
	_, other, _ := sshKey(t)
	stranger := filepath.Join(dir, "stranger")
	write(t, stranger, "["+strings.Replace(addr, ":", "]:", 1)+" "+other+"\n")
	for name, c := range map[string]Credential{
		"a key that nobody knows": {KeyFile: wrong, KnownHosts: known},
		"another host":            {KeyFile: key, KnownHosts: stranger},
		"a relative path":         {KeyFile: "key", KnownHosts: known},
		"a quote":                 {KeyFile: key + `'; touch x; '`, KnownHosts: known},
		"a variable":              {KeyFile: "/$HOME/key", KnownHosts: known},
	} {
		if _, err := s.RefreshFrom(t.Context(), "r", with(c), "", nil); !errors.Is(err, ErrUpstream) && !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestRefreshToACommit(t *testing.T) {
	ctx := t.Context()
	s := newServer(t)
	src := work(t)
	r, err := s.ImportFrom(ctx, "r", Upstream{URL: src, Branch: "main"}, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	if at, err := r.RefreshedAt(ctx); err != nil || at.IsZero() {
		t.Error(at, err)
	}
	next := func(message string) Hash {
		t.Helper()
		git(t, src, "commit", "-q", "--allow-empty", "-m", message)
		return Hash(git(t, src, "rev-parse", "HEAD"))
	}
	two := next("two")
	three := next("three")
	git(t, src, "checkout", "-q", "-b", "aside")
	aside := next("aside")
	git(t, src, "checkout", "-q", "main")
	if res, err := s.RefreshFrom(ctx, "r", Upstream{}, two, nil); err != nil || res.New != two || res.Commit != two {
		t.Fatal(res, err)
	}
	// git would serve the commit by its name.
	if res, err := s.RefreshFrom(ctx, "r", Upstream{}, aside, nil); !errors.Is(err, ErrNotFound) {
		t.Error(res, err)
	}
	if _, err := s.RefreshFrom(ctx, "r", Upstream{}, "HEAD", nil); !errors.Is(err, ErrInvalid) {
		t.Error(err)
	}
	if res, err := s.RefreshFrom(ctx, "r", Upstream{}, three, nil); err != nil || res.Old != two || res.New != three {
		t.Error(res, err)
	}
	if res, err := s.RefreshFrom(ctx, "r", Upstream{}, two, nil); err != nil || res.New != three || res.Commit != two {
		t.Error("an older commit:", res, err)
	}
	// The base may follow another branch of upstream.
	if res, err := s.RefreshFrom(ctx, "r", Upstream{URL: src, Branch: "aside"}, "", nil); err != nil ||
		res.New != aside || res.Branch != "main" {
		t.Error(res, err)
	}
	if _, err := s.RefreshFrom(ctx, "r", Upstream{URL: src, Branch: "none"}, "", nil); !errors.Is(err, ErrUpstream) {
		t.Error(err)
	}
	for _, branch := range []string{"-x", "a..b", "x y", "HEAD"} {
		if _, err := s.RefreshFrom(ctx, "r", Upstream{URL: src, Branch: branch}, "", nil); !errors.Is(err, ErrInvalid) {
			t.Errorf("branch %q: %v", branch, err)
		}
	}
	// The remains of a killed server are removed.
	if err := r.Update(ctx, RefUpdate{Name: incomingRefs + "/X/heads/main", New: two}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Refresh(ctx, "r", nil); err == nil || !errors.Is(err, ErrConflict) {
		if err != nil {
			t.Error(err)
		}
	}
	if refs, err := r.Refs(ctx, "refs/ramus"); err != nil || len(refs) > 0 {
		t.Error(refs, err)
	}
}

func TestShallowImport(t *testing.T) {
	ctx := t.Context()
	s := newServer(t)
	src := work(t)
	for _, m := range []string{"two", "three"} {
		git(t, src, "commit", "-q", "--allow-empty", "-m", m)
	}
	git(t, src, "branch", "other", "HEAD~1")
	git(t, src, "branch", "more", "HEAD~1")
	git(t, src, "branch", "ramus/run-merged", "HEAD~1") // pushed from here, and removed here
	git(t, src, "tag", "v1", "HEAD~1")
	r, err := s.ImportFrom(ctx, "r", Upstream{URL: src}, true, nil)
	if err != nil {
		t.Fatal(err)
	}
	if !r.Shallow() || git(t, r.Dir(), "rev-list", "--all", "--count") != "1" {
		t.Error("it is not shallow")
	}
	if err := r.Maintain(ctx); err != nil {
		t.Error(err)
	}
	// The first branch is worked on. The second has a name that upstream has
	// as well.
	mine := commit(t, r, "ramus/run-x", "Mine", "b", "1")
	if err := r.Update(ctx, RefUpdate{Name: "refs/heads/other", New: mine}); err != nil {
		t.Fatal(err)
	}
	if res, err := s.Refresh(ctx, "r", nil); err != nil || res.Old != res.New {
		t.Fatal(res, err)
	}
	if r.Shallow() || git(t, r.Dir(), "rev-list", "--count", "main") != "3" {
		t.Error("it is shallow still")
	}
	if h, err := r.Resolve(ctx, "refs/heads/ramus/run-merged"); !errors.Is(err, ErrNotFound) {
		t.Error("a branch of a caller came back from upstream:", h, err)
	}
	v1 := git(t, src, "rev-parse", "v1")
	for rev, want := range map[string]string{"refs/heads/other": string(mine), "refs/heads/more": v1, "refs/tags/v1": v1} {
		if h, err := r.Resolve(ctx, rev); string(h) != want || err != nil {
			t.Errorf("%s is at %s, want %s: %v", rev, h, want, err)
		}
	}
	git(t, r.Dir(), "fsck", "--strict")
	clone := t.TempDir()
	git(t, clone, "-c", "protocol.version=0", "clone", "-q", "--no-local", "--single-branch", "-b", "main", r.Dir(), "w")
	if n := git(t, filepath.Join(clone, "w"), "rev-list", "--count", "HEAD"); n != "3" {
		t.Errorf("a clone has %s commits, want 3", n)
	}

	git(t, src, "checkout", "-q", "--detach")
	if _, err := s.ImportFrom(ctx, "d", Upstream{URL: src}, true, nil); !errors.Is(err, ErrInvalid) {
		t.Error("a HEAD that names no branch:", err)
	}
	if _, err := s.ImportFrom(ctx, "d", Upstream{URL: src, Branch: "none"}, false, nil); !errors.Is(err, ErrNotFound) &&
		!errors.Is(err, ErrInvalid) {
		t.Error(err)
	}
	if r, err := s.ImportFrom(ctx, "d", Upstream{URL: src, Branch: "other"}, true, nil); err != nil {
		t.Error(err)
	} else if base, err := r.Base(ctx); base != "other" || err != nil {
		t.Error(base, err)
	}
}
