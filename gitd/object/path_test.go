package object

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestSplitPath(t *testing.T) {
	if parts, err := SplitPath("a/b c/d"); err != nil || !slices.Equal(parts, []string{"a", "b c", "d"}) {
		t.Errorf("%q, %v", parts, err)
	}
	if _, err := SplitPath(strings.Repeat("a", 4096)); err != nil {
		t.Error(err)
	}
	for _, path := range []string{"", "/", "a//b", "/a", "a/", ".", "a/.", "..", "a/../b", "a\x00", strings.Repeat("a", 4097)} {
		if parts, err := SplitPath(path); !errors.Is(err, ErrInvalid) {
			t.Errorf("%q: %q, %v", path, parts, err)
		}
	}
}

func TestIsDotGit(t *testing.T) {
	for name, want := range map[string]bool{
		".git": true, ".GIT": true, "git~1": true, "GIT~1": true, ".git.": true, ".git ": true, ".git::$INDEX": true,
		".g\u200cit": true, "\ufeff.git": true, ".gi\u206at": true, ".g\u202ait": true,
		"": false, "git": false, ".gitignore": false, "git~2": false, ".git\u2010": false, "a.git": false,
	} {
		if got := IsDotGit(name); got != want {
			t.Errorf("%q: %v", name, got)
		}
	}
	// HFS+ ignores exactly these characters.
	for _, r := range [][2]rune{{0x200c, 0x200f}, {0x202a, 0x202e}, {0x206a, 0x206f}, {0xfeff, 0xfeff}} {
		for c := r[0]; c <= r[1]; c++ {
			if !IsDotGit(".g" + string(c) + "it") {
				t.Errorf("%U is not ignored", c)
			}
		}
		for _, c := range []rune{r[0] - 1, r[1] + 1} {
			if IsDotGit(".g" + string(c) + "it") {
				t.Errorf("%U is ignored", c)
			}
		}
	}
	if got := FoldName(":x"); got != "" {
		t.Errorf("%q", got)
	}
	if got := FoldName("A.txt.. :x"); got != "A.txt.. " {
		t.Errorf("%q", got)
	}
}
