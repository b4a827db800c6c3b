package attachment

import (
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/ramus-dev/ramus/executor/record"
)

func TestFileNamed(t *testing.T) {
	taken := map[string]bool{}
	for _, x := range []struct{ name, want string }{
		{"note.txt", "note.txt"},
		{"NOTE.txt", "NOTE-2.txt"}, // for file systems that ignore case
		{"../../etc/passwd", "passwd"},
		{`C:\temp\shot.png`, "shot.png"},
		{"", "file"},
		{"..", "file-2"},
		{"/", "_"},
		{"-rf", "rf"},
		{".git", "git"},
		{".gitattributes", "gitattributes"},
		{"git~1", "file-3"},
		{"a\nb\x00c", "a_b_c"},
		{"$(reboot).txt", "_(reboot).txt"},
		{"\xff.bin", "_.bin"},
		{"Bildschirmfoto 2024 – Übersicht.png", "Bildschirmfoto 2024 – Übersicht.png"},
		{strings.Repeat("x", 300) + ".tar", strings.Repeat("x", 120) + ".tar"},
		{strings.Repeat("x", 300) + "." + strings.Repeat("y", 15), strings.Repeat("x", 120) + "." + strings.Repeat("y", 15)},
		{"a." + strings.Repeat("y", 100), "a." + strings.Repeat("y", 100)},
	} {
		if got := fileNamed(x.name, taken); got != x.want {
			t.Errorf("%q is named %q, want %q", x.name, got, x.want)
		}
	}
}

func FuzzFileNamed(f *testing.F) {
	for _, name := range []string{"a.txt", "../x", ".git", "git~1", "\x00", "a/b\\c", "–.–", strings.Repeat("é", 200),
		"x." + strings.Repeat("z", 40)} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		taken := map[string]bool{}
		first, second := fileNamed(name, taken), fileNamed(name, taken)
		if first == second {
			t.Fatalf("two files are named %q", first)
		}
		for _, got := range []string{first, second} {
			if got != filepath.Base(got) || !filepath.IsLocal(got) || !record.GitCanHold(got) ||
				!utf8.ValidString(got) || len(got) > 200 || strings.HasPrefix(got, "-") || strings.HasPrefix(got, ".") {
				t.Errorf("%q is named %q", name, got)
			}
		}
	})
}
