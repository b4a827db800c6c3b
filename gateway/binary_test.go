package gateway_test

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/ramus-dev/ramus/internal/programs"
)

var binary struct {
	once sync.Once
	dir  string
	err  error
}

// ramusBinary returns the path of the program whose runner is process 1 of containers. It builds the program once.
func ramusBinary(t *testing.T) string {
	t.Helper()
	binary.once.Do(func() {
		if binary.dir, binary.err = os.MkdirTemp("", "gw-bin"); binary.err == nil {
			binary.err = programs.Into(binary.dir, "cmd/ramus")
		}
	})
	if binary.err != nil {
		t.Fatal(binary.err)
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
