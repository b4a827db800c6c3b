package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/containers/sandbox"
	"github.com/ramus-dev/ramus/internal/remains"
)

// TestDemo follows the first steps of the README. It runs the tests of internal/ in a
// sandbox without a network. They need only the standard library, because nothing else is
// available there.
func TestDemo(t *testing.T) {
	t.Parallel()
	if err := exec.Command("git", "rev-parse", "HEAD").Run(); err != nil {
		t.Skipf("cannot run here: this is no checkout: %v", err)
	}
	runDemo(t, "demo.sh", "== done: main has it, and the branch stays")
}

// TestDemoTime runs make demo-time, which compares its answers with stock git.
func TestDemoTime(t *testing.T) {
	runDemo(t, "demo-time.sh", "s: each answer is the planted one")
}

// runDemo runs a script of the folder scripts, which has to succeed and to print a text.
func runDemo(t *testing.T, script, want string) {
	binary := buildRamus(t)
	if err := (&sandbox.Engine{Dir: t.TempDir(), Runner: binary}).Check(t.Context()); err != nil {
		t.Skipf("cannot run here: sandboxes: %v", err)
	}
	dir := t.TempDir()
	demo := exec.CommandContext(t.Context(), abs(t, "../../scripts/"+script))
	demo.Env = append(os.Environ(), "RAMUS="+binary, "TMPDIR="+dir)
	out, err := demo.CombinedOutput()
	if err != nil || !strings.Contains(string(out), want) {
		t.Errorf("%v\n%s", err, out)
	}
	remains.Check(t, dir)
}
