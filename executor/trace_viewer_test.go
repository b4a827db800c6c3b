package executor_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/ramus-dev/ramus/executor"
)

// TestTraceViewer fetches the viewer from a sidecar once. It is kept, and is one folder even
// if there were remains of an earlier attempt.
func TestTraceViewer(t *testing.T) {
	onEngines(t, func(t *testing.T, engine string) {
		w := browserWorld(t, engine, nil)
		home := filepath.Join(w.x.Data, "trace-viewer")
		if err := os.MkdirAll(filepath.Join(home, "next-left"), 0o700); err != nil {
			t.Fatal(err)
		}
		files, err := w.x.TraceViewer(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"index.html", "sw.bundle.js"} {
			if b, err := fs.ReadFile(files, name); err != nil || len(b) == 0 {
				t.Errorf("%s: %d bytes, %v", name, len(b), err)
			}
		}
		list, err := os.ReadDir(home)
		if err != nil || len(list) != 1 || len(list[0].Name()) != 64 {
			t.Errorf("kept %v, %v", list, err)
		}
	})
}

func TestNoTraceViewer(t *testing.T) {
	w := newWorld(t, nil)
	if _, err := w.x.TraceViewer(t.Context()); !errors.Is(err, executor.ErrUnavailable) {
		t.Errorf("without a browser: %v", err)
	}
}
