package environment

import (
	"strings"
	"testing"
)

func TestAddSetup(t *testing.T) {
	for text, want := range map[string]string{
		"":                                     "setup:\n  - \"a: 'b'\"\n  - \"c\"\n",
		"env: {A: b}":                          "env: {A: b}\nsetup:\n  - \"a: 'b'\"\n  - \"c\"\n",
		"setup: c\n\n# Limits.\ntimeout: 1m\n": "setup:\n  - \"c\"\n  - \"a: 'b'\"\n\n# Limits.\ntimeout: 1m\n",
		"# All.\nsetup:\n- x # why\n- |\n  y\n  z\nenv: {}\n": "# All.\nsetup:\n  - \"x\"\n  - \"y\\nz\\n\"\n  - \"a: 'b'\"\n  - \"c\"\nenv: {}\n",
		"setup: [\n  x,\n]\nagent: codex\n":                   "setup:\n  - \"x\"\n  - \"a: 'b'\"\n  - \"c\"\nagent: codex\n",
	} {
		got, err := AddSetup([]byte(text), []string{"a: 'b'", "c", "c"})
		if err != nil || string(got) != want {
			t.Errorf("%q becomes\n%s\n%v, want\n%s", text, got, err, want)
		}
	}
	if got, err := AddSetup(nil, []string{"a < b && c"}); err != nil || string(got) != "setup:\n  - \"a < b && c\"\n" {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := AddSetup([]byte("setup:\n\n\nagent: codex\n"), []string{"c"}); err != nil ||
		string(got) != "setup:\n  - \"c\"\n\n\nagent: codex\n" {
		t.Errorf("an empty list: %q, %v", got, err)
	}
	same := "setup: c # as it is\n"
	if got, err := AddSetup([]byte(same), []string{"c"}); err != nil || string(got) != same {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := AddSetup([]byte("setpu: a"), []string{"c"}); err == nil || !strings.Contains(err.Error(), "setpu") {
		t.Errorf("a file with a mistake: %v", err)
	}
}

// FuzzAddSetup checks that every addition to a good file leaves a good file that has it.
func FuzzAddSetup(f *testing.F) {
	f.Add(whole, "make")
	f.Add("setup: a", "b\n'\"\\")
	f.Fuzz(func(t *testing.T, text, command string) {
		before, err := Parse(Path, []byte(text))
		if err != nil {
			return
		}
		got, err := AddSetup([]byte(text), []string{command})
		if err != nil {
			return
		}
		after, err := Parse(Path, got)
		if err != nil || len(after.Setup) < len(before.Setup) || len(after.Env) != len(before.Env) {
			t.Fatalf("%q with %q becomes %q: %v", text, command, got, err)
		}
	})
}
