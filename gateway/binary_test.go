package gateway_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

var binary struct {
	once sync.Once
	dir  string
	err  error
}

// ramusBinary builds the program whose runner is process 1 of containers, once.
func ramusBinary(t *testing.T) string {
	t.Helper()
	binary.once.Do(func() {
		if binary.dir, binary.err = os.MkdirTemp("", "gw-bin"); binary.err != nil {
			return
		}
		// Containers of another user must be able to start it.
		if binary.err = os.Chmod(binary.dir, 0o755); binary.err != nil {
			return
		}
		cmd := exec.Command("go", "build", "-o", filepath.Join(binary.dir, "ramus"), "../cmd/ramus")
		cmd.Stderr = os.Stderr
		binary.err = cmd.Run()
	})
	if binary.err != nil {
		t.Fatalf("cannot build ramus: %v", binary.err)
	}
	return filepath.Join(binary.dir, "ramus")
}

func TestMain(m *testing.M) {
	code := m.Run()
	if binary.dir != "" {
		os.RemoveAll(binary.dir)
	}
	os.Exit(code)
}
