package evidence

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/ramus-dev/ramus/gateway/render"
	"github.com/ramus-dev/ramus/gitd"
)

// TestDiffHeadIsGits checks that diffHead returns the line of git for every file of a diff.
func TestDiffHeadIsGits(t *testing.T) {
	dir := t.TempDir()
	git := func(args ...string) string {
		t.Helper()
		cmd := exec.Command("git", append([]string{"-c", "user.name=A", "-c", "user.email=a@example.org"}, args...)...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	names := []string{"plain", "with space", `quo"te`, `back\slash`, "tab\tbed", "new\nline", "ünï", "\x01\x7f",
		"\xff\xfe", "a/b/c", " lead", "trail "}
	git("init", "-q")
	git("commit", "-q", "--allow-empty", "-m", "begin")
	for _, name := range names {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("one\ndiff --git a/x b/x\n@@ -1 +1 @@\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	git("add", "-A")
	parts, whole, err := readDiff(strings.NewReader(git("diff", "--cached")))
	if err != nil || !whole || len(parts) != len(names) {
		t.Errorf("%d parts of %d files, whole %v, %v", len(parts), len(names), whole, err)
	}
	for _, name := range names {
		lines := parts[diffHead(gitd.Change{Path: name})]
		added := 0
		for _, l := range lines {
			if l.Class == "add" {
				added++
			}
		}
		if added != 3 {
			t.Errorf("%q: %d lines added, want 3: %v", name, added, lines)
		}
	}
}

func FuzzReadDiff(f *testing.F) {
	f.Add("diff --git a/a b/a\nindex 1..2\n--- a/a\n+++ b/a\n@@ -1 +1 @@\n-x\n+y\n\\ No newline at end of file\n")
	f.Add("diff --git a/b b/b\nnew file mode 100644\nGIT binary patch\nliteral 3\nKcmZQzWMT#Y01f~L\n\nliteral 0\nHcmV?d00001\n\n")
	f.Add("+++\n@@\n" + strings.Repeat("x", 3*diffLine))
	f.Add("diff --git \xff\x1b[31m\u202e")
	f.Fuzz(func(t *testing.T, text string) {
		parts, _, err := readDiff(strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		for head, lines := range parts {
			if !strings.HasPrefix(head, "diff --git ") {
				t.Errorf("a part that begins with %q", head)
			}
			for _, l := range lines {
				if len(l.Text) > 3*diffLine+10 || strings.Contains(l.Text, "\x1b") {
					t.Errorf("a line %q", l.Text)
				}
			}
		}
	})
}

func FuzzClean(f *testing.F) {
	f.Add("a\x1b[31;1mb\x1b[0m\r\nc\rd\x00\u202e\u2066e\xff\x1b]0;title\x07f\x1b")
	f.Add("\x1b]8;;http://example.org\x1b\\link\x1b]8;;\x1b\\")
	f.Fuzz(func(t *testing.T, s string) {
		got := render.Clean(s)
		if !utf8.ValidString(got) {
			t.Fatalf("%q is not UTF-8", got)
		}
		for _, r := range got {
			if r != '\n' && r != '\t' && r != '\u200d' && unicode.In(r, unicode.Cc, unicode.Cf) {
				t.Fatalf("%U in %q", r, got)
			}
		}
		if again := render.Clean(got); again != got {
			t.Errorf("%q becomes %q", got, again)
		}
	})
}
