// Package browsertest finds the driver of a real browser, for tests of several rooms.
package browsertest

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Driver is Playwright's package as `make browser` leaves it below root, the
// repository's folder as the test sees it, with the programs of a browser and of Node.
// Where one is missing the test is skipped.
func Driver(t *testing.T, root string) (pkg, chromium, node string) {
	t.Helper()
	pkg, err := filepath.Abs(filepath.Join(root, "bin/browser/driver/package"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(pkg, "cli.js")); err != nil {
		t.Skipf("cannot run here: `make browser` has not put Playwright's driver into bin/browser: %v", err)
	}
	for _, name := range []string{"/usr/lib/chromium/chromium-headless-shell", "/usr/lib/chromium/chromium"} {
		if _, err := os.Stat(name); err == nil {
			chromium = name
			break
		}
	}
	if chromium == "" {
		t.Skip("cannot run here: Debian's chromium-headless-shell is not installed")
	}
	if node, err = exec.LookPath("node"); err != nil {
		t.Skipf("cannot run here: %v", err)
	}
	return pkg, chromium, node
}
