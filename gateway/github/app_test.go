package github_test

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/gateway/forge"
	"github.com/ramus-dev/ramus/gateway/github"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/clocktest"
	"github.com/ramus-dev/ramus/internal/standin/githubtest"
)

func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", append([]string{"-C", dir, "-c", "user.name=T", "-c", "user.email=t@example.org", "-c",
		"init.defaultBranch=main"}, args...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

type world struct {
	hub   *githubtest.Server
	app   *github.App
	clock *clocktest.Clock
	work  string // a clone that upstream is pushed from
}

func newWorld(t *testing.T) *world {
	t.Helper()
	before := runtime.NumGoroutine()
	w := &world{clock: clocktest.At(time.Now().Truncate(time.Second)), work: t.TempDir()}
	w.hub = &githubtest.Server{Root: t.TempDir(), Now: w.clock.Now}
	if err := w.hub.Start(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.hub.Close(); err != nil {
			t.Error(err)
		}
		for range 6000 {
			if runtime.NumGoroutine() <= before {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Errorf("%d goroutines are left of %d", runtime.NumGoroutine(), before)
	})
	if err := os.MkdirAll(filepath.Dir(w.hub.Dir("app")), 0o755); err != nil {
		t.Fatal(err)
	}
	git(t, w.work, "init", "-q")
	git(t, w.work, "commit", "-q", "--allow-empty", "-m", "begin")
	git(t, w.work, "clone", "-q", "--bare", w.work, w.hub.Dir("app"))
	w.app = &github.App{ID: w.hub.App, Installation: w.hub.Installation, Key: w.hub.Key, URL: w.hub.URL(), Now: w.clock.Now}
	return w
}

func (w *world) upstream() gitd.Upstream {
	url := w.hub.Upstream("app")
	return gitd.Upstream{URL: url, Credential: github.Credential(w.app, url, github.AccessRead)}
}

func (w *world) name(repo string) forge.Name { return forge.Name{Owner: w.hub.Account, Repo: repo} }

// push moves upstream by one commit and returns it.
func (w *world) push(t *testing.T) gitd.Hash {
	t.Helper()
	git(t, w.work, "commit", "-q", "--allow-empty", "-m", "more")
	git(t, w.work, "push", "-q", w.hub.Dir("app"), "main")
	return gitd.Hash(git(t, w.work, "rev-parse", "main"))
}

func TestTokensReachGitAndNothingElse(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	root := t.TempDir()
	s := &gitd.Server{Root: root}
	if err := s.Open(ctx); err != nil {
		t.Fatal(err)
	}
	defer s.Close() // once more, where the test ends early
	var progress strings.Builder
	if _, err := s.ImportFrom(ctx, "app", w.upstream(), false, &progress); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		want := w.push(t)
		if res, err := s.RefreshFrom(ctx, "app", w.upstream(), "", &progress); err != nil || res.New != want {
			t.Fatal(res, err)
		}
	}
	if n := w.hub.Minted(); n != 1 {
		t.Errorf("%d tokens for four conversations within an hour, want 1", n)
	}
	w.clock.Add(46 * time.Minute) // a clone that begins now could outlast the token
	want := w.push(t)
	if res, err := s.RefreshFrom(ctx, "app", w.upstream(), want, &progress); err != nil || res.New != want {
		t.Fatal(res, err)
	}
	if n := w.hub.Minted(); n != 2 {
		t.Errorf("%d tokens, want a second one before the first expires", n)
	}
	if err := s.Close(); err != nil { // what it does in the background would take files away that are just being read
		t.Fatal(err)
	}
	for _, token := range w.hub.Tokens() {
		if strings.Contains(progress.String(), token) {
			t.Error("a token in the progress")
		}
		err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			b, err := os.ReadFile(path)
			if strings.Contains(string(b), token) {
				t.Errorf("a token in %s", path)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
	if c := w.hub.Complaints(); len(c) > 0 {
		t.Error(c)
	}
}

func TestRefusals(t *testing.T) {
	other, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*world){
		"another key":          func(w *world) { w.app.Key = other },
		"another App":          func(w *world) { w.app.ID++ },
		"another installation": func(w *world) { w.app.Installation++ },
		"a clock far ahead": func(w *world) {
			w.app.Now = func() time.Time { return w.clock.Now().Add(time.Hour) }
		},
		"a clock far behind": func(w *world) {
			w.app.Now = func() time.Time { return w.clock.Now().Add(-time.Hour) }
		},
		"down":    func(w *world) { w.hub.Set(githubtest.Weather{Down: true}) },
		"limited": func(w *world) { w.hub.Set(githubtest.Weather{Limited: time.Minute}) },
		"no API":  func(w *world) { w.app.URL = "ftp://example.org" },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			change(w)
			if token, err := w.app.Token(t.Context(), w.name("app"), github.AccessRead); err == nil {
				t.Errorf("token %q", token)
			} else if strings.Contains(err.Error(), "Bearer") {
				t.Errorf("the error quotes the assertion: %v", err)
			} else {
				t.Log(err)
			}
		})
	}
	w := newWorld(t)
	if _, err := w.app.Token(t.Context(), w.name("none"), github.AccessRead); err == nil {
		t.Error("a token for a repository that is not there")
	}
	// A clock that is a little behind is common.
	w.app.Now = func() time.Time { return w.clock.Now().Add(30 * time.Second) }
	if _, err := w.app.Token(t.Context(), w.name("app"), github.AccessRead); err != nil {
		t.Error(err)
	}
	for _, url := range []string{"", "git@github.com:acme/app.git", "ssh://git@github.com/acme/app.git", "/srv/app.git",
		"https://github.com/"} {
		if _, err := github.Credential(w.app, url, github.AccessRead)(t.Context()); err == nil {
			t.Errorf("a token for %q", url)
		}
	}
}

func TestManyAskAtOnce(t *testing.T) {
	w := newWorld(t)
	slow := make(chan struct{})
	w.hub.Set(githubtest.Weather{Slow: slow})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := w.app.Token(ctx, w.name("app"), github.AccessRead); err == nil {
		t.Error("a token without an answer")
	}
	var group sync.WaitGroup
	for range 20 {
		group.Go(func() {
			if _, err := w.app.Token(context.Background(), w.name("app"), github.AccessRead); err != nil {
				t.Error(err)
			}
		})
	}
	close(slow)
	group.Wait()
	if n := w.hub.Minted(); n > 2 {
		t.Errorf("%d tokens for twenty at once", n)
	}
}

func TestParseKey(t *testing.T) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, der := range map[string][]byte{"RSA PRIVATE KEY": x509.MarshalPKCS1PrivateKey(key), "PRIVATE KEY": pkcs8} {
		got, err := github.ParseKey(pem.EncodeToMemory(&pem.Block{Type: name, Bytes: der}))
		if err != nil || !got.Equal(key) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, text := range []string{"", "key", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"} {
		if _, err := github.ParseKey([]byte(text)); err == nil {
			t.Errorf("%q is taken for a key", text)
		}
	}
}

func FuzzParseKey(f *testing.F) {
	f.Add([]byte("-----BEGIN RSA PRIVATE KEY-----\nMAA=\n-----END RSA PRIVATE KEY-----\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if key, err := github.ParseKey(text); err == nil && key == nil {
			t.Error("neither a key nor an error")
		}
	})
}
