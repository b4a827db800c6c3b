package agent

import (
	"testing"

	"github.com/ramus-dev/ramus/executor/record"
)

// TestGranted permits a command once, as a line or as the argument of a shell.
func TestGranted(t *testing.T) {
	var g granted
	g.add(record.Command{Shell: "git push"})
	for _, args := range [][]string{{"sh", "-c", "git push -f"}, {"sh", "-x", "git push"}, {"env", "-c", "git push"}} {
		if g.takePermission(record.Command{Args: args}) {
			t.Errorf("%q is permitted", args)
		}
	}
	shell := record.Command{Args: []string{"/bin/bash", "-lc", "git push"}}
	if !g.takePermission(shell) || g.takePermission(shell) {
		t.Error("it is not permitted once")
	}
}
