package tasks_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/tasks"
	"github.com/ramus-dev/ramus/tasks/taskstest"
)

// gitTree makes a work tree with one commit on branch work, and a bare origin.
func gitTree(t testing.TB, files map[string]string) *tasks.LocalShell {
	t.Helper()
	base := t.TempDir()
	dir := filepath.Join(base, "tree")
	home := filepath.Join(base, "home")
	for _, d := range []string{dir, home} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	writeTree(t, dir, files)
	env := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "LANG=C.UTF-8", "GIT_CONFIG_NOSYSTEM=1"}
	// Caches of tools stay warm between tests; no tool reads more of the user's home.
	for _, k := range []string{"GOCACHE", "GOMODCACHE", "CARGO_HOME", "RUSTUP_HOME", "PYENV_ROOT"} {
		if v := toolEnv(k); v != "" {
			env = append(env, k+"="+v)
		}
	}
	for _, args := range [][]string{
		{"init", "-q", "--bare", filepath.Join(base, "origin.git")},
		{"init", "-q", "-b", "work", dir},
		{"-C", dir, "remote", "add", "origin", filepath.Join(base, "origin.git")},
		{"-C", dir, "add", "-A"},
		{"-C", dir, "-c", "user.name=t", "-c", "user.email=t@localhost", "commit", "-q", "--allow-empty", "-m", "Start"},
	} {
		cmd := exec.Command("git", args...)
		cmd.Env = env
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %q: %v\n%s", args, err, out)
		}
	}
	return &tasks.LocalShell{Dir: dir, Env: env}
}

func toolEnv(k string) string {
	if v := os.Getenv(k); v != "" {
		return v
	}
	home, _ := os.UserHomeDir()
	for name, dir := range map[string]string{"CARGO_HOME": ".cargo", "RUSTUP_HOME": ".rustup", "PYENV_ROOT": ".pyenv"} {
		if k == name {
			return filepath.Join(home, dir)
		}
	}
	out, _ := exec.Command("go", "env", k).Output()
	return strings.TrimSpace(string(out))
}

func writeTree(t testing.TB, dir string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestLocalShell(t *testing.T) {
	taskstest.Shell(t, func(t *testing.T) tasks.Shell { return gitTree(t, nil) })
}

func TestLocalShellWithoutGit(t *testing.T) {
	dir := t.TempDir()
	writeTree(t, dir, map[string]string{"a": "1", "b/c": "2"})
	l := &tasks.LocalShell{Dir: dir}
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
	outer := gitTree(t, map[string]string{"sub/a": "1"})
	l := &tasks.LocalShell{Dir: filepath.Join(outer.Dir, "sub"), Env: outer.Env}
	writeTree(t, l.Dir, map[string]string{"b": "2"})
	if hash, err := l.Commit(t.Context(), "x", nil); err == nil {
		t.Errorf("committed %s", hash)
	}
}

func TestLocalShellEnvironmentIsScrubbed(t *testing.T) {
	t.Setenv("RAMUS_SECRET_FOR_TEST", "hunter2")
	l := &tasks.LocalShell{Dir: t.TempDir()}
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
	l := &tasks.LocalShell{Dir: t.TempDir(), Now: func() time.Time { at = at.Add(time.Second); return at }}
	r, err := l.Exec(t.Context(), "true", 0)
	if err != nil || r.DurationMS != 1000 {
		t.Errorf("got %d ms, %v", r.DurationMS, err)
	}
}

func TestLocalShellRunsNoHooks(t *testing.T) {
	l := gitTree(t, nil)
	for _, hook := range []string{"pre-commit", "commit-msg", "pre-push", "post-commit"} {
		name := filepath.Join(l.Dir, ".git", "hooks", hook)
		if err := os.WriteFile(name, []byte("#!/bin/sh\ntouch hooked\nexit 1\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	writeTree(t, l.Dir, map[string]string{"a": "1"})
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
	l := &tasks.LocalShell{Dir: t.TempDir()}
	// It is in a session of its own, out of reach, before the command ends.
	r, err := l.Exec(t.Context(), "setsid sh -c 'echo $$ >new && mv new pid && exec sleep 600' & until [ -e pid ]; do sleep 0.01; done; echo done", time.Minute)
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
