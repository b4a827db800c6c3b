package executor_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/record"
)

// TestSealedLater runs a command whose run cannot be sealed at its end. The
// same process seals the run as soon as possible. The caller works meanwhile.
func TestSealedLater(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(x *executor.Executor) { x.SetSealEvery(20 * time.Millisecond) })
	// A folder is in the place of a file that sealing writes. Like a full disk
	// it stops the seal after the command and before the ref.
	block := filepath.Join(w.data, "live", "run-late", "k.output", "changes.diff")
	if err := os.MkdirAll(block, 0o700); err != nil {
		t.Fatal(err)
	}
	r, err := w.x.Submit(t.Context(), record.Request{Repo: "demo", Caller: caller(t, "run:late"), Key: "k",
		Command: &record.Command{Shell: "echo x > x"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range w.x.Events(t.Context(), r.Name(), 0, true) {
		if err != nil {
			t.Fatal(err)
		}
	}
	if r, err = w.x.Run(t.Context(), r.Name()); err != nil || r.State != record.StateComplete {
		t.Errorf("state %s (%v), want complete: what a run came to is known at once", r.State, err)
	}
	w.exec("run:late", "test -e x")
	if refs := w.inRepo("show", "refs/ramus/runs/run-late/k:run.json"); strings.Contains(refs, `"complete"`) {
		t.Fatal("it was sealed although it could not be")
	}
	if err := os.Remove(block); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); !strings.Contains(w.inRepo("show", "refs/ramus/runs/run-late/k:run.json"), `"complete"`); {
		if time.Now().After(deadline) {
			t.Fatal("it is not sealed")
		}
		time.Sleep(10 * time.Millisecond)
	}
	w.inRepo("cat-file", "-e", "refs/ramus/runs/run-late/k:evidence/changes.diff")
}
