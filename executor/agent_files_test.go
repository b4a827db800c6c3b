package executor

import (
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestFileNamed(t *testing.T) {
	taken := map[string]bool{}
	for _, x := range []struct{ name, want string }{
		{"note.txt", "note.txt"},
		{"NOTE.txt", "NOTE-2.txt"}, // for those whose file systems do not tell them apart
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
		{"a." + strings.Repeat("y", 100), "a." + strings.Repeat("y", 100)},
	} {
		if got := fileNamed(x.name, taken); got != x.want {
			t.Errorf("%q is named %q, want %q", x.name, got, x.want)
		}
	}
}

func FuzzFileNamed(f *testing.F) {
	for _, name := range []string{"a.txt", "../x", ".git", "git~1", "\x00", "a/b\\c", "–.–", strings.Repeat("é", 200), "x." + strings.Repeat("z", 40)} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		taken := map[string]bool{}
		first, second := fileNamed(name, taken), fileNamed(name, taken)
		if first == second {
			t.Fatalf("two files are named %q", first)
		}
		for _, got := range []string{first, second} {
			if got != filepath.Base(got) || !filepath.IsLocal(got) || !gitCanHold(got) || !utf8.ValidString(got) || len(got) > 200 || strings.HasPrefix(got, "-") || strings.HasPrefix(got, ".") {
				t.Errorf("%q is named %q", name, got)
			}
		}
	})
}

func TestCheckAgents(t *testing.T) {
	command := []string{"agent"}
	for name, x := range map[string]struct {
		agent Agent
		want  string
	}{
		"good":  {Agent{Command: command, State: []string{"~/.agent/sessions/", "one/file"}, Checks: []string{"lib_run_tests"}, Env: []string{"A=b"}}, ""},
		"empty": {Agent{}, "no command"},
		"Upper": {Agent{Command: command}, "lower-case"},
		"named": {Agent{Name: "other", Command: command}, `calls itself "other"`},
		"up":    {Agent{Command: command, State: []string{"../x"}}, "below the home folder"},
		"all":   {Agent{Command: command, State: []string{"~"}}, ""},
		"root":  {Agent{Command: command, State: []string{"/etc"}}, "below the home folder"},
		"home":  {Agent{Command: command, State: []string{"~/"}}, "below the home folder"},
		"git":   {Agent{Command: command, State: []string{".gitconfig"}}, "below the home folder"},
		"check": {Agent{Command: command, Checks: []string{"lib_nothing"}}, "there is no task"},
		"env":   {Agent{Command: command, Env: []string{"=x"}}, "NAME=VALUE"},
	} {
		agents, err := checkAgents(map[string]Agent{name: x.agent})
		switch {
		case x.want == "" && err != nil, x.want != "" && (err == nil || !strings.Contains(err.Error(), x.want)):
			t.Errorf("%s: %v, want %q", name, err, x.want)
		case name == "good" && (agents[name].Name != "good" || agents[name].State[0] != ".agent/sessions"):
			t.Errorf("%+v", agents[name])
		}
	}
}
