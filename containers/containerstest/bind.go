package containerstest

import (
	"os"
	"syscall"
	"testing"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/containers/proc"
)

// testProcess tests that the engine names process 1 of its containers, including those that an earlier engine started,
// and the user of commands. Both are needed to bind a work tree from outside.
func testProcess(s *suite, t *testing.T) {
	b := s.start(t, containers.Limits{})
	b.ok(t, "echo mine > "+containers.WorkDir+"/mine")
	pid, start, err := s.processes.Process(t.Context(), b.c.ID)
	if err != nil {
		t.Fatal(err)
	}
	if now, err := proc.Start(pid); err != nil || now != start {
		t.Errorf("process %d started at %d, %v; the engine says %d", pid, now, err, start)
	}
	second := s.open(t)
	defer second.Close()
	if p, st, err := second.(containers.Processes).Process(t.Context(), b.c.ID); err != nil || p != pid || st != start {
		t.Errorf("another engine says %d, started at %d, %v; not %d and %d", p, st, err, pid, start)
	}
	if os.Geteuid() == 0 { // others may not look
		fi, err := os.Stat(procFile(pid, "root"+containers.WorkDir+"/mine"))
		if err != nil {
			t.Fatalf("the process is another's: %v", err)
		}
		if st := fi.Sys().(*syscall.Stat_t); int(st.Uid) != s.user.TaskUID() || int(st.Gid) != s.user.TaskUID() {
			t.Errorf("the file of a command belongs to %d:%d, not to %d", st.Uid, st.Gid, s.user.TaskUID())
		}
	}
	if _, _, err := s.processes.Process(t.Context(), "no-such-container"); !isGone(err) {
		t.Errorf("the process of no container: %v", err)
	}
	for _, e := range []containers.Engine{s.engine, second} {
		if err := e.Remove(t.Context(), b.c.ID); err != nil {
			t.Fatal(err)
		}
		if _, _, err := e.(containers.Processes).Process(t.Context(), b.c.ID); !isGone(err) {
			t.Errorf("the process of a removed container: %v", err)
		}
	}
}

// The folders that the engine names are file systems of their own inside, and the folder of the host is there.
func testVolumes(s *suite, t *testing.T) {
	b := s.start(t, containers.Limits{})
	inside, storage := s.volumes.Volumes(t.Context())
	if len(inside) == 0 {
		t.Error("no folder is named")
	}
	for _, path := range inside {
		if got := b.ok(t, "grep -c ' "+path+" ' /proc/self/mountinfo"); got != "1" {
			t.Errorf("%s is mounted %s times", path, got)
		}
	}
	if storage == "" {
		return
	}
	if fi, err := os.Stat(storage); err != nil || !fi.IsDir() {
		t.Errorf("the storage is %s: %v", storage, err)
	}
}

// testAssign tests that a running container can get a caller. From then on List returns the new key with the new labels
// or, if the engine cannot change them, the old ones, never a mixture.
func testAssign(s *suite, t *testing.T) {
	b := s.start(t, containers.Limits{})
	key, labels := b.spec.Key+"-assigned", map[string]string{"ramus.test": "assigned"}
	if err := s.assigner.Assign(t.Context(), b.c.ID, key, labels); err != nil {
		t.Fatal(err)
	}
	second := s.open(t)
	defer second.Close()
	for _, e := range []containers.Engine{s.engine, second} {
		list, err := e.List(t.Context(), s.owner)
		if err != nil || len(list) != 1 {
			t.Fatalf("%+v, %v", list, err)
		}
		got := [2]string{list[0].Key, list[0].Labels["ramus.test"]}
		if got != [2]string{key, "assigned"} && got != [2]string{b.spec.Key, b.spec.Labels["ramus.test"]} {
			t.Errorf("it is listed as %q", got)
		}
		if s.engine.Name() == "sandbox" && got[0] != key {
			t.Errorf("it is listed as %q", got)
		}
	}
	b.usable(t)
}
