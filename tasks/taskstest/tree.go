package taskstest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// GitTree makes a work tree with one commit on branch work, and a bare origin.
func GitTree(t testing.TB, files map[string]string) *LocalShell {
	t.Helper()
	base := t.TempDir()
	dir := filepath.Join(base, "tree")
	home := filepath.Join(base, "home")
	for _, d := range []string{dir, home} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	WriteTree(t, dir, files)
	env := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "LANG=C.UTF-8", "GIT_CONFIG_NOSYSTEM=1"}
	// Caches of tools stay warm between tests. No tool reads more of the user's home.
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
	return &LocalShell{Dir: dir, Env: env}
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

// WriteTree writes files into a folder, with the folders that they need.
func WriteTree(t testing.TB, dir string, files map[string]string) {
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
