package executor_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/tasks"
	"github.com/ramus-dev/ramus/tasks/taskstest"
)

// TestShell runs the conformance suite of Shells on the executor's Shell.
func TestShell(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	var n atomic.Int64
	taskstest.Shell(t, func(t *testing.T) tasks.Shell {
		return executor.OpenShell(t, w.x, caller(t, fmt.Sprintf("run:shell-%d", n.Add(1))), "demo")
	})
}
