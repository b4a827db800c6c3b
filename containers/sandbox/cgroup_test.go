package sandbox

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/containers/cgroup"
)

// A process is cloned into a group of version 2 by its descriptor, as another
// user and from a mount namespace of its own.
func TestSandboxUnifiedGroup(t *testing.T) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	var point string
	for line := range strings.Lines(string(mounts)) {
		if before, after, ok := strings.Cut(line, " - "); ok && strings.HasPrefix(after, "cgroup2 ") {
			point = strings.Fields(before)[4]
		}
	}
	dir := filepath.Join(point, "ramus-test-"+newContainerID())
	if point == "" || os.Mkdir(dir, 0o755) != nil {
		t.Skip("cannot run here: no cgroup version 2 that may be written")
	}
	defer func() {
		if err := cgroup.Remove(t.Context(), []string{dir}); err != nil {
			t.Error(err)
		}
	}()
	s := &Engine{Dir: t.TempDir()}
	probe, _, err := s.probe(t.Context())
	if err != nil {
		t.Skipf("cannot run here: engine sandbox: %v", err)
	}
	b, err := s.newBox(probe, "", containers.Limits{}.WithDefaults())
	if err != nil {
		t.Fatal(err)
	}
	defer b.close()
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	cmd := b.command(nil, nil, []string{"/bin/cat"})
	cmd.Stdin = in
	if err := b.start(cmd, cgroup.Unified(filepath.Dir(dir)), []string{dir}); err != nil {
		t.Fatal(err)
	}
	in.Close()
	procs, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil || len(strings.Fields(string(procs))) == 0 {
		t.Errorf("the group holds %q, %v", procs, err)
	}
	out.Close()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}
