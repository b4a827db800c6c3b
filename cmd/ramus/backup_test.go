package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/containers/sandbox"
	"github.com/ramus-dev/ramus/internal/programs"
	"github.com/ramus-dev/ramus/internal/remains"
)

// backupClient pushes commits to a branch of its own, or runs commands for a caller of its own.
type backupClient struct {
	dir    string // of its clone; empty for a client that runs commands
	branch string

	mu    sync.Mutex // guards the fields below
	acked []string   // the commits of its branch that were acknowledged
	runs  []string   // the names of its runs that were acknowledged
}

// last returns the newest commit and all runs that were acknowledged.
func (c *backupClient) last() (commit string, runs []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := len(c.acked); n > 0 {
		commit = c.acked[n-1]
	}
	return commit, append([]string(nil), c.runs...)
}

// TestBackupUnderLoad makes backups while eight clients push and run commands, and restores each in an empty folder.
// Everything that was acknowledged before a backup is in it. RAMUS_TEST=full makes 20 rounds instead of 2.
func TestBackupUnderLoad(t *testing.T) {
	t.Parallel()
	rounds := 2
	if os.Getenv("RAMUS_TEST") == "full" {
		rounds = 20
	}
	w := newBackupWorld(t)
	ctx, stop := context.WithCancel(t.Context())
	var work sync.WaitGroup
	defer work.Wait()
	defer stop()
	clients := make([]*backupClient, 8)
	for i := range clients {
		c := &backupClient{branch: fmt.Sprintf("ramus/run-client-%d", i)}
		clients[i] = c
		if i >= 2 {
			c.dir, c.branch = filepath.Join(w.dir, fmt.Sprint("clone", i)), fmt.Sprintf("client-%d", i)
			w.run(w.dir, "git", "clone", "-q", w.url+"/app.git", c.dir)
		}
		work.Go(func() { w.work(ctx, c, i) })
	}
	for round := range rounds {
		// Each client has something new.
		before := make([]int, len(clients))
		for i, c := range clients {
			c.mu.Lock()
			before[i] = len(c.acked)
			c.mu.Unlock()
		}
		for until := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
			all := true
			for i, c := range clients {
				c.mu.Lock()
				all = all && len(c.acked) > before[i]
				c.mu.Unlock()
			}
			if all {
				break
			}
			if time.Now().After(until) || t.Failed() {
				t.Fatal("a client has nothing acknowledged")
			}
		}
		w.round(clients, filepath.Join(w.dir, fmt.Sprint("restored", round)), round == rounds-1)
	}
}

// backupWorld is a server with a repository.
type backupWorld struct {
	t             *testing.T
	dir, bin, url string
	env           []string
}

func newBackupWorld(t *testing.T) *backupWorld {
	w := &backupWorld{t: t, dir: t.TempDir()}
	if err := programs.Into(filepath.Join(w.dir, "bin"), "cmd/ramus"); err != nil {
		t.Fatal(err)
	}
	w.bin = filepath.Join(w.dir, "bin", "ramus")
	engine := &sandbox.Engine{Dir: t.TempDir(), Runner: w.bin}
	if err := engine.Check(t.Context()); err != nil {
		t.Skipf("cannot run here: sandboxes: %v", err)
	}
	t.Cleanup(func() { remains.Check(t, w.dir) })
	w.env = append(os.Environ(),
		append(testWay(), "RAMUS_DATA="+filepath.Join(w.dir, "data"), "HOME="+w.dir, "GIT_CONFIG_NOSYSTEM=1",
			"GIT_AUTHOR_NAME=Ada", "GIT_AUTHOR_EMAIL=ada@example.org", "GIT_COMMITTER_NAME=Ada",
			"GIT_COMMITTER_EMAIL=ada@example.org")...)
	server := exec.Command(w.bin, "serve", "--listen", "127.0.0.1:0")
	server.Env = w.env
	var log lockedBuffer
	server.Stderr = &log
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Process.Signal(os.Interrupt)
		if err := server.Wait(); err != nil {
			t.Errorf("the server: %v\n%s", err, log.text())
		}
		w.run(w.dir, w.bin, "ps") // ends the containers that the server left
	})
	for until := time.Now().Add(time.Minute); w.url == ""; time.Sleep(5 * time.Millisecond) {
		if m := serving.FindStringSubmatch(log.text()); m != nil {
			w.url = "http://" + m[1]
		} else if time.Now().After(until) {
			t.Fatal("the server does not serve: ", log.text())
		}
	}
	w.run(w.dir, "git", "init", "-q", "-b", "main", "up")
	w.run(filepath.Join(w.dir, "up"), "git", "commit", "-q", "--allow-empty", "-m", "begin")
	w.run(w.dir, w.bin, "repo", "import", "app", filepath.Join(w.dir, "up"))
	token := strings.Fields(w.run(w.dir, w.bin, "token", "create", "--subject", "x", "--repo", "app", "--scope",
		"write", "--ref", "refs/heads/*"))[0]
	w.run(w.dir, "git", "config", "--global", "http.extraHeader", "Authorization: Bearer "+token)
	return w
}

// lockedBuffer is a buffer that may be read while it is written.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) text() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// run runs a program and returns its output.
func (w *backupWorld) run(dir, name string, args ...string) string {
	w.t.Helper()
	out, err := w.try(context.Background(), dir, name, args...)
	if err != nil {
		w.t.Errorf("%s %q: %v\n%s", filepath.Base(name), args, err, out)
	}
	return out
}

func (w *backupWorld) try(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = dir, w.env
	out, err := cmd.CombinedOutput()
	return string(out), err
}

var runOf = regexp.MustCompile(`"run": ?"([^"]+)"`)

// work is a client until ctx ends.
func (w *backupWorld) work(ctx context.Context, c *backupClient, i int) {
	for n := 0; ctx.Err() == nil; n++ {
		var commit, run string
		if c.dir == "" {
			caller := fmt.Sprintf("client-%d", i)
			out, err := w.try(context.WithoutCancel(ctx), w.dir, w.bin, "exec", caller, "--repo", "app", "--json", "--",
				fmt.Sprintf("echo %d > file", n))
			if err != nil {
				w.t.Errorf("exec of %s: %v\n%s", caller, err, out)
				return
			}
			if m := runOf.FindStringSubmatch(out); m != nil {
				run = m[1]
			}
			commit = strings.TrimSpace(w.run(w.dir, "git", "-C", "data/repos/app.git", "rev-parse", c.branch))
		} else {
			out, err := w.try(context.WithoutCancel(ctx), c.dir, "sh", "-c", fmt.Sprintf(
				"echo %d > file && git add file && git commit -q -m %d && git push -q origin HEAD:refs/heads/%s && git rev-parse HEAD", n, n, c.branch))
			if err != nil {
				w.t.Errorf("push of %s: %v\n%s", c.branch, err, out)
				return
			}
			commit = strings.TrimSpace(out)
		}
		c.mu.Lock()
		c.acked = append(c.acked, commit)
		if run != "" {
			c.runs = append(c.runs, run)
		}
		c.mu.Unlock()
	}
}

// round makes a backup, restores it, and compares it with what was acknowledged before.
func (w *backupWorld) round(clients []*backupClient, data string, open bool) {
	w.t.Helper()
	type state struct {
		commit string
		runs   []string
	}
	want := make([]state, len(clients))
	for i, c := range clients {
		want[i].commit, want[i].runs = c.last()
	}
	safe := filepath.Join(w.dir, "safe")
	w.run(w.dir, w.bin, "backup", safe)
	w.run(w.dir, w.bin, "restore", safe, "--data", data)
	repo := filepath.Join(data, "repos", "app.git")
	w.run(w.dir, "git", "-C", repo, "fsck", "--strict", "--no-progress")
	refs := w.run(w.dir, "git", "-C", repo, "for-each-ref", "--format=%(refname)")
	for i, c := range clients {
		if out, err := w.try(context.Background(), repo, "git", "merge-base", "--is-ancestor", want[i].commit, c.branch); err != nil {
			w.t.Errorf("the acknowledged commit %s is not on %s: %v %s", want[i].commit, c.branch, err, out)
		}
		for _, run := range want[i].runs {
			_, id, _ := strings.Cut(run, "/")
			if !strings.Contains(refs, id+"\n") {
				w.t.Errorf("the acknowledged run %s is not there", run)
			}
		}
	}
	if open { // a server continues from it
		out := w.run(w.dir, w.bin, "ps", "--runs", "-n", "10000", "--json", "--data", data)
		for i := range clients {
			for _, run := range want[i].runs {
				if _, id, _ := strings.Cut(run, "/"); !strings.Contains(out, id) {
					w.t.Errorf("the server does not list the run %s", run)
				}
			}
		}
		w.run(w.dir, "git", "-C", repo, "fsck", "--strict", "--no-progress")
	}
}
