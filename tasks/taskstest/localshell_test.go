package taskstest_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/tasks"
	"github.com/ramus-dev/ramus/tasks/taskstest"
)

func TestLocalShell(t *testing.T) {
	taskstest.Shell(t, func(t *testing.T) tasks.Shell { return taskstest.GitTree(t, nil) })
}

func TestLocalShellWithoutGit(t *testing.T) {
	dir := t.TempDir()
	taskstest.WriteTree(t, dir, map[string]string{"a": "1", "b/c": "2"})
	l := &taskstest.LocalShell{Dir: dir}
	names, err := l.ListFiles(t.Context(), "**/c")
	if err != nil || len(names) != 1 || names[0] != "b/c" {
		t.Errorf("got %q, %v", names, err)
	}
	if _, err := l.Commit(t.Context(), "x", nil); err == nil {
		t.Error("committed without a repository")
	}
	if b := l.Branch(); b != "" {
		t.Errorf("branch %q", b)
	}
}

// A folder inside somebody's repository is not a work tree of its own: a commit
// there would go to the repository around it.
func TestLocalShellBelowARepository(t *testing.T) {
	outer := taskstest.GitTree(t, map[string]string{"sub/a": "1"})
	l := &taskstest.LocalShell{Dir: filepath.Join(outer.Dir, "sub"), Env: outer.Env}
	taskstest.WriteTree(t, l.Dir, map[string]string{"b": "2"})
	if hash, err := l.Commit(t.Context(), "x", nil); err == nil {
		t.Errorf("committed %s", hash)
	}
}

func TestLocalShellEnvironmentIsScrubbed(t *testing.T) {
	t.Setenv("RAMUS_SECRET_FOR_TEST", "hunter2")
	l := &taskstest.LocalShell{Dir: t.TempDir()}
	r, err := l.Exec(t.Context(), "env", 0)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(r.Stdout, "hunter2") {
		t.Error("a secret of this process reached a command")
	}
}

func TestLocalShellNowIsTheClock(t *testing.T) {
	at := time.Unix(0, 0)
	l := &taskstest.LocalShell{Dir: t.TempDir(), Now: func() time.Time { at = at.Add(time.Second); return at }}
	r, err := l.Exec(t.Context(), "true", 0)
	if err != nil || r.DurationMS != 1000 {
		t.Errorf("got %d ms, %v", r.DurationMS, err)
	}
}

func TestLocalShellRunsNoHooks(t *testing.T) {
	l := taskstest.GitTree(t, nil)
	for _, hook := range []string{"pre-commit", "commit-msg", "pre-push", "post-commit"} {
		name := filepath.Join(l.Dir, ".git", "hooks", hook)
		if err := os.WriteFile(name, []byte("#!/bin/sh\ntouch hooked\nexit 1\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	taskstest.WriteTree(t, l.Dir, map[string]string{"a": "1"})
	if hash, err := l.Commit(t.Context(), "Add a", nil); err != nil || hash == "" {
		t.Fatalf("got %q, %v", hash, err)
	}
	if err := l.Push(t.Context(), "", ""); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(l.Dir, "hooked")); err == nil {
		t.Error("a hook ran")
	}
}

// A background process that holds the output open does not hold up the command.
func TestLocalShellDoesNotWaitForBackground(t *testing.T) {
	l := &taskstest.LocalShell{Dir: t.TempDir()}
	// It is in a session of its own, out of reach, before the command ends.
	r, err := l.Exec(t.Context(),
		"setsid sh -c 'echo $$ >new && mv new pid && exec sleep 600' & until [ -e pid ]; do sleep 0.01; done; echo done", time.Minute)
	if err != nil || r.Stdout != "done\n" || r.TimedOut || r.ExitCode != 0 {
		t.Errorf("got %+v, %v", r, err)
	}
	text, err := os.ReadFile(filepath.Join(l.Dir, "pid"))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Errorf("what runs in the background: %v", err)
	}
}
