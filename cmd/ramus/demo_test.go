package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/containers/sandbox"
)

// TestDemo follows the first steps of the README. It runs the tests of internal/ in a
// sandbox without a network. They need only the standard library, because nothing else is
// available there.
func TestDemo(t *testing.T) {
	binary := buildRamus(t)
	sandbox := &sandbox.Engine{Dir: t.TempDir(), Runner: binary}
	if err := sandbox.Check(t.Context()); err != nil {
		t.Skipf("cannot run here: sandboxes: %v", err)
	}
	if err := exec.Command("git", "rev-parse", "HEAD").Run(); err != nil {
		t.Skipf("cannot run here: this is no checkout: %v", err)
	}
	demo := exec.CommandContext(t.Context(), abs(t, "../../scripts/demo.sh"))
	demo.Env = append(os.Environ(), "RAMUS="+binary, "TMPDIR="+t.TempDir())
	out, err := demo.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "== done: main has it, and the branch stays") {
		t.Errorf("%v\n%s", err, out)
	}
}
