package worktree

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/gitd"
)

// TestIdentity gives a commit without an author to the bot.
func TestIdentity(t *testing.T) {
	i := Identity{Bot: gitd.Person{Name: "ramus", Email: "ramus@localhost"}}
	for _, test := range []struct{ given, want gitd.Person }{
		{gitd.Person{}, i.Bot},
		{gitd.Person{Name: "Ada"}, gitd.Person{Name: "Ada", Email: "ramus@localhost"}},
		{gitd.Person{Name: "Ada", Email: "ada@example.org"}, gitd.Person{Name: "Ada", Email: "ada@example.org"}},
	} {
		if got := i.Author(test.given); got != test.want {
			t.Errorf("Author(%v) = %v, want %v", test.given, got, test.want)
		}
		env := i.Env(test.given)
		for _, want := range []string{"GIT_AUTHOR_NAME=" + test.want.Name, "GIT_AUTHOR_EMAIL=" + test.want.Email,
			"GIT_COMMITTER_NAME=ramus", "GIT_COMMITTER_EMAIL=ramus@localhost"} {
			if !slices.Contains(env, want) {
				t.Errorf("%v lacks %s", env, want)
			}
		}
	}
	if env := i.signing(); slices.ContainsFunc(env, func(v string) bool { return strings.HasPrefix(v, "RAMUS_SIGN=") }) {
		t.Errorf("a server without a key signs: %v", env)
	}
	i.Key = "ssh-ed25519 AAAA"
	if env := i.signing(); !slices.Contains(env, "RAMUS_SIGN="+i.Key) {
		t.Errorf("a server with a key does not sign: %v", env)
	}
}

// TestScriptFault distinguishes a full disk and a missing program from a script that
// failed.
func TestScriptFault(t *testing.T) {
	if err := scriptFault(containers.Exit{}, "a warning"); err != nil {
		t.Errorf("a script that ended well: %v", err)
	}
	if err := scriptFault(containers.Exit{Code: 1, Reason: containers.ReasonDiskFull, Message: "2 GiB of 1 GiB"},
		""); !errors.Is(err, ErrDiskFull) ||
		!strings.Contains(err.Error(), "2 GiB") {
		t.Errorf("a full disk: %v", err)
	}
	for _, test := range []struct {
		exit   containers.Exit
		stderr string
		lacks  bool
		want   string
	}{
		{containers.Exit{Code: 127}, "sh: git: not found\n", true, "lacks a program"},
		{containers.Exit{Code: scriptNoGit}, "ramus: the container's image has no git", true, "has no git"},
		{containers.Exit{Code: scriptPush}, "error: refused\nramus: cannot push main\n", false,
			"cannot push main (error: refused)"},
		{containers.Exit{Code: 1}, "ramus: no", false, "no"},
	} {
		var s *ScriptError
		err := scriptFault(test.exit, test.stderr)
		if !errors.As(err, &s) || s.LacksGit() != test.lacks || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%d, %q: %v, want %q", test.exit.Code, test.stderr, err, test.want)
		}
	}
}

// TestIsScript finds the scripts among the commands of a container.
func TestIsScript(t *testing.T) {
	id := NewScriptID()
	for _, test := range []struct {
		c    containers.CommandState
		want bool
	}{
		{containers.CommandState{ID: id, Running: true}, true},
		{containers.CommandState{ID: id}, false},
		{containers.CommandState{ID: id, Running: true, Background: true}, false},
		{containers.CommandState{ID: "0123456789abcdef0123-1", Running: true}, false},
	} {
		if got := IsScript(test.c); got != test.want {
			t.Errorf("%+v: %t", test.c, got)
		}
	}
}
