package containers_test

import (
	"os"
	"testing"

	"github.com/ramus-dev/ramus/containers/runner"
)

// TestMain makes the test program its own runner, as ramus is.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "runner" {
		os.Exit(runner.Main(os.Args[2:]))
	}
	os.Exit(m.Run())
}
