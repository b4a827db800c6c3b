package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/containers/sandbox"
	"github.com/ramus-dev/ramus/gateway/web/webtest"
)

// TestDemoWeb runs make demo-web and make demo-review, which check their own results. RAMUS_BINARY is a ramus with the scripts of its pages,
// which tests do not build.
func TestDemoWeb(t *testing.T) {
	t.Parallel()
	binary := os.Getenv("RAMUS_BINARY")
	if os.Getenv("RAMUS_TEST") != "full" || binary == "" {
		t.Skip("runs with RAMUS_TEST=full, and with RAMUS_BINARY (make build)")
	}
	webtest.Find(t)
	if err := (&sandbox.Engine{Dir: t.TempDir(), Runner: binary}).Check(t.Context()); err != nil {
		t.Skipf("cannot run here: sandboxes: %v", err)
	}
	for script, end := range map[string]string{"demo-web.sh": "no word and no byte lost", "demo-review.sh": "comments that followed their lines"} {
		demo := exec.CommandContext(t.Context(), abs(t, "../../scripts/"+script))
		// The machine runs other tests meanwhile.
		demo.Env = append(os.Environ(), "RAMUS="+binary, "MOST=5m", "OUT="+t.TempDir(), "TMPDIR="+t.TempDir())
		out, err := demo.CombinedOutput()
		t.Logf("%s", out)
		if err != nil || !strings.Contains(string(out), end) {
			t.Error(script, err)
		}
	}
}
