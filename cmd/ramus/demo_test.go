package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestDemo does what the README says first. It runs the tests of internal/ in a sandbox that
// reaches nobody: what they need more than the standard library they would not find there.
func TestDemo(t *testing.T) {
	demo := exec.CommandContext(t.Context(), abs(t, "../../scripts/demo.sh"))
	demo.Env = append(os.Environ(), "RAMUS="+buildRamus(t), "TMPDIR="+t.TempDir())
	out, err := demo.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "== done: main has it, and the branch stays") {
		t.Errorf("%v\n%s", err, out)
	}
}
