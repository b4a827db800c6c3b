package runner_test

import (
	"testing"

	"github.com/ramus-dev/ramus/containers"
)

// each runs a test in both modes.
func each(t *testing.T, f func(t *testing.T, b *box)) {
	for _, mode := range two {
		t.Run(mode, func(t *testing.T) { f(t, newBox(t, mode)) })
	}
}

func TestExitCodes(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		h := b.host(nil)
		for _, c := range []struct {
			name   string
			cmd    containers.Command
			code   int
			signal string
			out    string
		}{
			{"true", containers.Command{Args: []string{"true"}}, 0, "", ""},
			{"exit 3", containers.Command{Shell: "exit 3"}, 3, "", ""},
			{"exit 255", containers.Command{Shell: "exit 255"}, 255, "", ""},
			{"signal", containers.Command{Shell: "kill -KILL $$"}, 137, "KILL", ""},
			{"segv", containers.Command{Shell: "kill -SEGV $$"}, 139, "SEGV", ""},
			{"not found", containers.Command{Args: []string{"no-such-program"}}, 127, "", ""},
			{"not executable", containers.Command{Args: []string{"/etc/passwd"}}, 126, "", ""},
			{"folder", containers.Command{Args: []string{"/etc"}}, 126, "", ""},
			{"shell not found", containers.Command{Shell: "no-such-program"}, 127, "", ""},
			{"arguments", containers.Command{Args: []string{"printf", "%s|", "a b", "", "$x", "\xff"}}, 0, "", "a b||$x|\xff|"},
			{"environment", containers.Command{Shell: "echo $A $HOME $IMAGE", Env: []string{"A=1", "A=2"}}, 0, "", "2 /cache/home yes\n"},
		} {
			exit, out, errs := run(t, h, c.cmd)
			if exit.Code != c.code || exit.Signal != c.signal || exit.Reason != "" || out != c.out {
				t.Errorf("%s: %+v, stdout %q, stderr %q", c.name, exit, out, errs)
			}
			if c.code > 125 && c.code < 128 && errs == "" {
				t.Errorf("%s: nothing on stderr", c.name)
			}
		}
	})
}
