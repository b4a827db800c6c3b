package sandbox_test

import (
	"os"
	"testing"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/containers/containerstest"
	"github.com/ramus-dev/ramus/containers/layer"
	"github.com/ramus-dev/ramus/containers/runner"
	"github.com/ramus-dev/ramus/containers/sandbox"
)

// The test program is its own runner, as ramus is, and a ramus that dies while a sidecar runs.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "runner" {
		os.Exit(runner.Main(os.Args[2:]))
	}
	if len(os.Args) > 1 && os.Args[1] == "sidecar" {
		os.Exit(sidecarMain(os.Args[2], os.Args[3]))
	}
	os.Exit(m.Run())
}

func TestSandbox(t *testing.T) {
	dir := t.TempDir()
	open := func(*testing.T) containers.Engine { return &sandbox.Engine{Dir: dir} }
	containerstest.Run(t, open, containerstest.Options{
		Lacks: (&sandbox.Engine{Dir: dir}).Lacks(),
		Left: func(string) (left []string) {
			entries, _ := os.ReadDir(dir)
			for _, e := range entries {
				left = append(left, e.Name())
			}
			return left
		},
	})
}

func TestSandboxCallers(t *testing.T) {
	dir := t.TempDir()
	containerstest.Callers(t, &sandbox.Engine{Dir: dir}, func(root string) layer.Keeper { return layer.NewLocal(root) })
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestSandboxDisk(t *testing.T) {
	containerstest.Disk(t, &sandbox.Engine{Dir: t.TempDir()}, func(root string) layer.Keeper { return layer.NewLocal(root) })
}
