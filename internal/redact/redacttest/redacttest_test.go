package redacttest

import (
	"encoding/base64"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/internal/redact"
)

const value = "a/secret+value&more"

// TestFolder: a search that finds nothing must be known to find something.
func TestFolder(t *testing.T) {
	dir := t.TempDir()
	run := func(args ...string) {
		t.Helper()
		cmd := exec.Command("git", append([]string{"-c", "user.name=a", "-c", "user.email=a@example.org"}, args...)...)
		cmd.Dir = filepath.Join(dir, "repo")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("repo/file", "clean")
	run("init", "-q")
	run("add", ".")
	run("commit", "-q", "-m", "clean")
	if hits, err := Folder(t.Context(), dir, value); err != nil || len(hits) > 0 {
		t.Fatalf("found %q, %v in a clean folder", hits, err)
	}
	run("commit", "-q", "--allow-empty", "-m", "It is "+value)
	write("repo/file", value)
	run("add", ".")
	write("repo/file", "clean")
	run("reset", "-q", "--hard", "HEAD~1")
	run("reflog", "expire", "--expire=now", "--all")
	write("wrapped", strings.Join(strings.SplitAfter(base64.StdEncoding.EncodeToString([]byte("xx"+value)), "V"), "\n"))
	write(fmt.Sprintf("%x", value), "")
	write("skipped/file", value)
	if err := os.Symlink(value, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	hits, err := Folder(t.Context(), dir, value, "skipped")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"repo/.git: commit ", "repo/.git: blob ", "wrapped (base64 at 2)", "the name 6", "the link link"} {
		if !strings.Contains(strings.Join(hits, "\n"), want) {
			t.Errorf("%q is not among %q", want, hits)
		}
	}
	if strings.Contains(fmt.Sprint(hits), "skipped") {
		t.Errorf("found %q", hits)
	}
}

// TestForms: what is searched for is removed.
func TestForms(t *testing.T) {
	for _, value := range []string{value, `it's "quoted" <&> \ $x äö`, "12345678"} {
		s, _ := redact.New(map[string]string{"A": value})
		for name, form := range Forms(value) {
			if got := s.String("x " + form + " y"); strings.Contains(got, form) {
				t.Errorf("%s: %s is left", name, got)
			}
		}
	}
}
