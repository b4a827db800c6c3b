package gitd

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	gogit "github.com/go-git/go-git/v5"
	gogitconfig "github.com/go-git/go-git/v5/config"
	gogithttp "github.com/go-git/go-git/v5/plumbing/transport/http"
)

// gitClient is one implementation of a Git client.
type gitClient struct {
	name string
	// shallow is set if the client can clone shallowly, deepen if it can get
	// the rest later.
	shallow, deepen bool
	// do runs one operation. Depth 0 means all history.
	//
	//	clone URL DIR DEPTH
	//	push DIR URL SRC:DST (full names; empty SRC deletes)
	//	fetch DIR URL DEPTH
	do func(ctx context.Context, op string, args ...string) (string, error)
}

// gitClients returns the clients. t skips those that are not installed.
func gitClients(t *testing.T) []gitClient {
	program := func(env []string, name string, args ...string) func(context.Context, string, ...string) (string, error) {
		return func(ctx context.Context, op string, more ...string) (string, error) {
			cmd := exec.CommandContext(ctx, name, append(append(append([]string{}, args...), op), more...)...)
			cmd.Env = append(append(stockEnv(), "HOME="+t.TempDir()), env...)
			out, err := cmd.CombinedOutput()
			if err != nil {
				err = fmt.Errorf("%s %s: %w\n%s", name, op, err, out)
			}
			return string(out), err
		}
	}
	script := func(name string) string {
		path, err := filepath.Abs(filepath.Join("testdata", "clients", name))
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	var list []gitClient
	for _, v := range []string{"0", "1", "2"} {
		list = append(list, gitClient{"git v" + v, true, true,
			func(ctx context.Context, op string, args ...string) (string, error) {
				version := "protocol.version=" + v
				switch op {
				case "clone":
					a := []string{"-c", version, "clone", "-q", args[0], args[1]}
					if args[2] != "0" {
						a = append(a, "--depth", args[2])
					}
					return stockTry("", a...)
				case "push":
					return stockTry(args[0], "-c", version, "push", "-q", args[1], args[2])
				}
				a := []string{"-c", version, "fetch", "-q", args[1], "+refs/heads/*:refs/remotes/origin/*"}
				if args[2] == "0" {
					if _, err := os.Stat(filepath.Join(args[0], ".git", "shallow")); err == nil {
						a = append(a, "--unshallow")
					}
				}
				return stockTry(args[0], a...)
			}})
	}
	list = append(list,
		gitClient{"JGit", false, false, jgit(t)},
		gitClient{"dulwich", true, true,
			program([]string{"PYTHONDONTWRITEBYTECODE=1"}, "/usr/bin/python3", script("with_dulwich.py"))},
		gitClient{"libgit2", false, false,
			program([]string{"PYTHONDONTWRITEBYTECODE=1"}, "/usr/bin/python3", script("with_libgit2.py"))},
		gitClient{"isomorphic-git", true, true,
			program([]string{"NODE_PATH=" + isomorphic(t)}, "node", script("with_isomorphic.cjs"))},
		gitClient{"go-git", true, false, goGit},
	)
	return list
}

// jgit runs JGit's own command line program. The start script of some
// distributions forgets half of its class path.
func jgit(t *testing.T) func(context.Context, string, ...string) (string, error) {
	jars, err := filepath.Glob("/usr/share/java/*.jar")
	if err != nil {
		t.Fatal(err)
	}
	return func(ctx context.Context, op string, args ...string) (string, error) {
		// Its program takes passwords from ~/.netrc only, or from a window.
		home := t.TempDir()
		for _, arg := range args {
			if u, err := url.Parse(arg); err == nil && u.User != nil {
				password, _ := u.User.Password()
				write(t, filepath.Join(home, ".netrc"),
					fmt.Sprintf("machine %s login %s password %s\n", u.Hostname(), u.User.Username(), password))
			}
		}
		var a []string
		switch op {
		case "clone":
			a = []string{"clone", args[0], args[1]}
		case "push":
			a = []string{"--git-dir", filepath.Join(args[0], ".git"), "push", args[1], args[2]}
		case "fetch":
			a = []string{"--git-dir", filepath.Join(args[0], ".git"), "fetch", args[1],
				"+refs/heads/*:refs/remotes/origin/*"}
		}
		// A virtual machine lives for one operation, and starts in half the processor time without its second compiler.
		cmd := exec.CommandContext(ctx, "java", append([]string{"-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC",
			"-cp", strings.Join(jars, ":"), "-Duser.home=" + home, "org.eclipse.jgit.pgm.Main"}, a...)...)
		cmd.Env = stockEnv()
		out, err := cmd.CombinedOutput()
		// It reports rejected refs with status 0.
		if err == nil && (bytes.Contains(out, []byte("[rejected]")) || bytes.Contains(out, []byte("[remote rejected]"))) {
			err = errors.New("rejected")
		}
		if err != nil {
			err = fmt.Errorf("jgit %s: %w\n%s", op, err, out)
		}
		return string(out), err
	}
}

// isomorphicVersion is the tested release of isomorphic-git.
const isomorphicVersion = "1.44.11"

// isomorphic installs the library into the user's cache, once.
func isomorphic(t *testing.T) string {
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(cache, "ramus-test", "isomorphic-git-"+isomorphicVersion)
	modules := filepath.Join(dir, "node_modules")
	if _, err := os.Stat(filepath.Join(dir, "installed")); err == nil {
		return modules
	}
	if _, err := exec.LookPath("npm"); err != nil {
		return modules
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "npm", "install", "--prefix", dir, "--no-audit", "--no-fund", "--ignore-scripts",
		"isomorphic-git@"+isomorphicVersion)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Logf("npm install: %v\n%s", err, out)
		return modules
	}
	write(t, filepath.Join(dir, "installed"), "")
	return modules
}

// goGit is a client made of go-git, the library with which ramus itself reads
// repositories.
func goGit(ctx context.Context, op string, args ...string) (string, error) {
	auth := func(url string) (string, *gogithttp.BasicAuth) {
		rest, _ := strings.CutPrefix(url, "http://")
		user, host, ok := strings.Cut(rest, "@")
		if !ok {
			return url, nil
		}
		name, password, _ := strings.Cut(user, ":")
		return "http://" + host, &gogithttp.BasicAuth{Username: name, Password: password}
	}
	var progress bytes.Buffer
	err := func() error {
		switch op {
		case "clone":
			url, a := auth(args[0])
			o := &gogit.CloneOptions{URL: url, Progress: &progress}
			fmt.Sscan(args[2], &o.Depth)
			if a != nil {
				o.Auth = a
			}
			_, err := gogit.PlainCloneContext(ctx, args[1], false, o)
			return err
		case "push", "fetch":
			url, a := auth(args[1])
			r, err := gogit.PlainOpen(args[0])
			if err != nil {
				return err
			}
			remote := gogit.NewRemote(r.Storer, &gogitconfig.RemoteConfig{Name: "origin", URLs: []string{url}})
			if op == "push" {
				o := &gogit.PushOptions{RefSpecs: []gogitconfig.RefSpec{gogitconfig.RefSpec(args[2])}, Progress: &progress}
				if a != nil {
					o.Auth = a
				}
				return remote.PushContext(ctx, o)
			}
			o := &gogit.FetchOptions{RefSpecs: []gogitconfig.RefSpec{"+refs/heads/*:refs/remotes/origin/*"},
				Progress: &progress}
			if a != nil {
				o.Auth = a
			}
			if err := remote.FetchContext(ctx, o); !errors.Is(err, gogit.NoErrAlreadyUpToDate) {
				return err
			}
		}
		return nil
	}()
	if err != nil {
		return progress.String(), fmt.Errorf("go-git %s: %w\n%s", op, err, progress.String())
	}
	return progress.String(), nil
}

// missing returns the name of a program that the client lacks, or "".
func (c gitClient) missing() string {
	check := func(name string, args ...string) bool { return exec.Command(name, args...).Run() == nil }
	switch c.name {
	case "JGit":
		if jars, _ := filepath.Glob("/usr/share/java/org.eclipse.jgit.pgm.jar"); len(jars) == 0 || !check("java", "-version") {
			return "jgit-cli"
		}
	case "dulwich":
		if !check("/usr/bin/python3", "-c", "import dulwich, urllib3") {
			return "python3-dulwich"
		}
	case "libgit2":
		if !check("/usr/bin/python3", "-c", "import pygit2") {
			return "python3-pygit2"
		}
	case "isomorphic-git":
		cache, _ := os.UserCacheDir()
		if _, err := os.Stat(filepath.Join(cache, "ramus-test", "isomorphic-git-"+isomorphicVersion,
			"installed")); err != nil || !check("node", "-v") {
			return "node, npm and the package isomorphic-git"
		}
	}
	return ""
}

// TestClients has every client do the usual work, on a repository of its own.
// The client clones, pushes, pushes much, fetches, clones shallowly and
// deepens, and is refused. RAMUS_PUSH_MB is the size of the large push.
// TestLargePush pushes 100 MB in any case.
func TestClients(t *testing.T) {
	size := int64(4 << 20)
	if n, err := strconv.Atoi(os.Getenv("RAMUS_PUSH_MB")); err == nil {
		size = int64(n) << 20
	}
	large := filepath.Join(t.TempDir(), "large")
	f, err := os.Create(large)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.CopyN(f, rand.Reader, size); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	clients := gitClients(t)
	for _, c := range clients {
		t.Run(c.name, func(t *testing.T) {
			if what := c.missing(); what != "" {
				t.Skip("cannot run here: " + what + " is not installed")
			}
			testClient(t, c, large)
		})
	}
}

func testClient(t *testing.T, c gitClient, large string) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	var asked pushes
	w := newWire(t, func(s *Server) { s.Expect = asked.expect })
	bare := w.repo("a")
	url := w.url("a", w.token(full))
	do := func(op string, args ...string) {
		t.Helper()
		if _, err := c.do(ctx, op, args...); err != nil {
			t.Fatal(err)
		}
	}
	notDone := func(why, op string, args ...string) {
		t.Helper()
		out, err := c.do(ctx, op, args...)
		if err == nil {
			t.Errorf("%s %v was not refused\n%s", op, args[len(args)-1], out)
		} else if !strings.Contains(err.Error(), why) {
			t.Errorf("%s %v: the user was not told %q: %v", op, args[len(args)-1], why, err)
		}
	}
	mine := filepath.Join(t.TempDir(), "mine")
	do("clone", url, mine, "0")
	if got := stock(t, mine, "status", "--porcelain"); got != "" {
		t.Errorf("the clone is not clean:\n%s", got)
	}
	for i := range 3 {
		addFile(t, mine, fmt.Sprint("f", i), strings.Repeat("x", i))
	}
	do("push", mine, url, "refs/heads/main:refs/heads/main")
	// Every client can ask for work by the name of a ref, again and again.
	for _, ref := range []string{AskRefs + "ci", AskRefs + "ci", ReviewRefs + "main"} {
		do("push", mine, url, "refs/heads/main:"+ref)
		at := Hash(stock(t, mine, "rev-parse", "HEAD"))
		var list []Push
		for len(list) == 0 && ctx.Err() == nil { // some clients do not wait for the work
			list = asked.take()
			runtime.Gosched()
		}
		if len(list) != 1 || !slices.Equal(list[0].Refs, []PushedRef{{Name: ref, Commit: at}}) {
			t.Errorf("a push to %s: %+v", ref, list)
		}
	}

	start := time.Now()
	stock(t, mine, "config", "core.compression", "0")
	if err := os.Link(large, filepath.Join(mine, "large")); err != nil {
		t.Fatal(err)
	}
	stock(t, mine, "add", ".")
	stock(t, mine, "commit", "-q", "-m", "large")
	do("push", mine, url, "refs/heads/main:refs/heads/large")
	t.Logf("large push: %v", time.Since(start).Round(time.Second))
	head := stock(t, mine, "rev-parse", "HEAD")
	if got := stock(t, bare, "rev-parse", "large"); got != head {
		t.Fatalf("large is at %s, want %s", got, head)
	}
	// Other people push, and the client gets the new commits. The large branch
	// is deleted first, because one pass through each client's pack reader is
	// enough.
	stock(t, bare, "update-ref", "-d", "refs/heads/large")
	other := w.clone(url)
	theirs := addFile(t, other, "theirs", "t")
	stock(t, other, "push", "-q", "origin", "HEAD:main")
	do("fetch", mine, url, "0")
	if got := stock(t, mine, "rev-parse", "refs/remotes/origin/main"); got != theirs {
		t.Errorf("fetched %s, want %s", got, theirs)
	}
	fsck(t, mine)
	if c.shallow {
		thin := filepath.Join(t.TempDir(), "thin")
		do("clone", url, thin, "1")
		if n := stock(t, thin, "rev-list", "--count", "HEAD"); n != "1" {
			t.Errorf("%s commits in a clone of depth 1", n)
		}
		addFile(t, thin, "thin", "t")
		do("push", thin, url, "refs/heads/main:refs/heads/thin")
		if c.deepen {
			do("fetch", thin, url, "0")
			if n := stock(t, thin, "rev-list", "--count", "refs/remotes/origin/main"); n != "5" {
				t.Errorf("%s commits after fetching the rest", n)
			}
		}
		fsck(t, thin)
	}
	do("push", mine, url, "refs/heads/main:refs/heads/gone")
	do("push", mine, url, ":refs/heads/gone")
	if refs := stock(t, bare, "for-each-ref", "refs/heads/gone"); refs != "" {
		t.Errorf("a deleted branch is still there: %s", refs)
	}

	before := stock(t, bare, "for-each-ref")
	run := w.url("a", w.token(Grant{Subject: "run:a", Repo: "a", Read: []string{"refs/heads/main"},
		Write: []string{"refs/heads/ramus/a"}}))
	reader := w.url("a", w.token(Grant{Subject: "reader", Repo: "a"}))
	w.repo("b")
	notDone("this token may write only refs/heads/ramus/a", "push", mine, run, "refs/heads/main:refs/heads/other")
	notDone("", "push", mine, run, ":refs/heads/main")
	notDone("", "push", mine, reader, "refs/heads/main:refs/heads/other")
	notDone("", "clone", w.url("b", w.token(Grant{Repo: "a"})), filepath.Join(t.TempDir(), "b"), "0")
	notDone("", "clone", w.url("a", ""), filepath.Join(t.TempDir(), "a"), "0")
	if after := stock(t, bare, "for-each-ref"); after != before {
		t.Errorf("refs were changed:\n%s\n%s", before, after)
	}
	do("push", mine, run, "refs/heads/main:refs/heads/ramus/a")
	fsck(t, bare)
}
