// Package gittest runs stock git in tests, which compare its results with those of gitd.
package gittest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Run runs git in dir and returns its output without surrounding white space. It ends the
// test if git fails.
func Run(t testing.TB, dir string, args ...string) string {
	t.Helper()
	out, err := Try(dir, args...)
	if err != nil {
		t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(out)
}

// Try runs git in dir with a fixed author and committer and without configuration outside of the
// repository. It returns stdout and stderr together.
func Try(dir string, args ...string) (string, error) { return TryEnv(nil, dir, args...) }

// TryEnv is Try with further environment variables.
func TryEnv(env []string, dir string, args ...string) (string, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "LC_ALL=C", "GIT_EDITOR=true",
		"GIT_AUTHOR_NAME=A", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=C", "GIT_COMMITTER_EMAIL=c@example.com")
	cmd.Env = append(cmd.Env, env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// ObjectFiles returns the paths of all files and folders of objects of a repository, one a line.
func ObjectFiles(t testing.TB, dir string) string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(filepath.Join(dir, "objects"), func(path string, _ os.DirEntry, err error) error {
		all = append(all, path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(all, "\n")
}
