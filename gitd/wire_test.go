package gitd

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// stockEnv returns the environment of the clients. They run real git, without
// the settings of the user.
func stockEnv() []string {
	return []string{
		"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "LC_ALL=C", "GIT_CONFIG_NOSYSTEM=1",
		"GIT_CONFIG_GLOBAL=/dev/null", "GIT_TERMINAL_PROMPT=0",
		"GIT_AUTHOR_NAME=Ada", "GIT_AUTHOR_EMAIL=ada@example.org", "GIT_AUTHOR_DATE=1700000000 +0000",
		"GIT_COMMITTER_NAME=Ada", "GIT_COMMITTER_EMAIL=ada@example.org", "GIT_COMMITTER_DATE=1700000000 +0000",
	}
}

// stockTry runs a client's git and returns all its output.
func stockTry(dir string, args ...string) (string, error) {
	return stockEnvTry(nil, dir, args...)
}

func stockEnvTry(env []string, dir string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir = dir
	cmd.Env = append(stockEnv(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("git %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return string(out), err
}

// stock is stockTry for commands that must succeed.
func stock(t testing.TB, dir string, args ...string) string {
	t.Helper()
	out, err := stockTry(dir, args...)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(out)
}

// wire is a server with a repository, reached over loopback.
type wire struct {
	*Server
	t    testing.TB
	http *httptest.Server
}

// newWire opens a server. options changes its options before that.
func newWire(t testing.TB, options func(*Server)) *wire {
	t.Helper()
	before := runtime.NumGoroutine()
	w := &wire{t: t, Server: &Server{Root: filepath.Join(t.TempDir(), "root")}}
	if testing.Verbose() {
		w.Log = slog.New(slog.NewTextHandler(testWriter{t}, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	if options != nil {
		options(w.Server)
	}
	if err := w.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.http = httptest.NewServer(w.Handler())
	t.Cleanup(func() {
		w.http.CloseClientConnections()
		w.http.Close()
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
		if err := w.Close(); err != nil {
			t.Error(err)
		}
		noLeak(t, before)
	})
	return w
}

type testWriter struct{ t testing.TB }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Logf("%s", bytes.TrimSpace(p))
	return len(p), nil
}

// noLeak waits until the goroutines of a test have ended.
func noLeak(t testing.TB, before int) {
	t.Helper()
	if within(time.Minute, func() bool { return runtime.NumGoroutine() <= before }) {
		return
	}
	buf := make([]byte, 1<<20)
	t.Errorf("%d goroutines before, %d after:\n%s", before, runtime.NumGoroutine(), buf[:runtime.Stack(buf, true)])
}

// repo makes the bare repository name with one commit on main.
func (w *wire) repo(name string) string {
	w.t.Helper()
	dir := filepath.Join(w.Root, name+".git")
	stock(w.t, "", "init", "-q", "--bare", "-b", "main", dir)
	work := w.t.TempDir()
	stock(w.t, work, "init", "-q", "-b", "main")
	write(w.t, filepath.Join(work, "README"), "hello\n")
	stock(w.t, work, "add", ".")
	stock(w.t, work, "commit", "-q", "-m", "first")
	stock(w.t, work, "push", "-q", dir, "main")
	return dir
}

func write(t testing.TB, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// addFile adds one file in a work tree and commits it.
func addFile(t testing.TB, work, file, content string) string {
	t.Helper()
	write(t, filepath.Join(work, file), content)
	stock(t, work, "add", "-A")
	stock(t, work, "commit", "-q", "-m", "add "+file)
	return stock(t, work, "rev-parse", "HEAD")
}

// token signs a grant that ends in an hour.
func (w *wire) token(g Grant) string {
	w.t.Helper()
	if g.Expires.IsZero() {
		g.Expires = time.Now().Add(time.Hour)
	}
	if g.Subject == "" {
		g.Subject = "test"
	}
	if g.Scopes == nil {
		g.Scopes = []string{ScopeRead}
		if len(g.Write) > 0 {
			g.Scopes = []string{ScopeWrite}
		}
	}
	token, err := w.Sign(g)
	if err != nil {
		w.t.Fatal(err)
	}
	return token
}

// full grants everything.
var full = Grant{Subject: "admin", Repo: "*", Scopes: []string{ScopeAdmin}, Write: []string{"refs/*", "refs/ramus/*"},
	Force: true, Delete: true}

// url returns a repository's address with a token in it, or without one if
// token is empty.
func (w *wire) url(name, token string) string {
	host := strings.TrimPrefix(w.http.URL, "http://")
	if token != "" {
		host = "x:" + token + "@" + host
	}
	return "http://" + host + "/" + name + ".git"
}

// clone clones into a new folder.
func (w *wire) clone(url string, args ...string) string {
	w.t.Helper()
	dir := filepath.Join(w.t.TempDir(), "clone")
	stock(w.t, "", append(append([]string{"clone", "-q"}, args...), url, dir)...)
	return dir
}

// fsck checks a repository. Each test of a repository ends with it.
func fsck(t testing.TB, dir string) {
	t.Helper()
	if out := stock(t, dir, "fsck", "--strict", "--no-dangling"); strings.Contains(out, "error") {
		t.Fatal(out)
	}
}

// refused checks that a git command failed and that its user saw each text.
func refused(t testing.TB, out string, err error, texts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("was not refused:\n%s", out)
	}
	for _, s := range texts {
		if !strings.Contains(out, s) {
			t.Errorf("the user was not shown %q:\n%s", s, out)
		}
	}
}
