package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/containers/sandbox"
	"github.com/ramus-dev/ramus/internal/giteaserver"
)

// TestDemoTeam runs make demo-team, which checks its own result, with a Gitea that was built before.
func TestDemoTeam(t *testing.T) {
	t.Parallel()
	program, err := giteaserver.Find()
	if os.Getenv("RAMUS_TEST") != "full" || err != nil {
		t.Skip("runs with RAMUS_TEST=full:", err)
	}
	for _, name := range []string{"psql", "curl", "jq"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skip("cannot run here:", err)
		}
	}
	binary := buildRamus(t)
	if err := (&sandbox.Engine{Dir: t.TempDir(), Runner: binary}).Check(t.Context()); err != nil {
		t.Skipf("cannot run here: sandboxes: %v", err)
	}
	demo := exec.CommandContext(t.Context(), abs(t, "../../scripts/demo-team.sh"))
	demo.Env = append(os.Environ(), "RAMUS="+binary, "RAMUS_GITEA="+program.Path, "TMPDIR="+t.TempDir())
	out, err := demo.CombinedOutput()
	t.Logf("%s", out)
	if err != nil || !strings.Contains(string(out), "no commit is lost in 20 pushes in the middle of merges") {
		t.Error(err)
	}
}
