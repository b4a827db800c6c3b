package containers

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Sweep does at once what time would bring.
func Sweep(f *Fleet) { f.sweep() }

// Owner is the id of a fleet's installation.
func Owner(f *Fleet) string { return f.owner }

// KillSandbox ends process 1 of a container, from outside, and returns when that is seen by
// the engine as well.
func KillSandbox(t *testing.T, dir, id string) {
	t.Helper()
	s := &Sandbox{Dir: dir}
	st, err := s.load(id)
	if err != nil {
		t.Fatal(err)
	}
	if !s.alive(&st) {
		t.Fatalf("container %s is dead", id)
	}
	if err := unix.Kill(st.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); s.alive(&st); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("container %s does not die", id)
		}
	}
}

// SetCleanGrace shortens the wait for an engine that hangs.
func SetCleanGrace(t *testing.T, d time.Duration) {
	old := cleanGrace
	cleanGrace = d
	t.Cleanup(func() { cleanGrace = old })
}
