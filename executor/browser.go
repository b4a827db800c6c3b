package executor

import (
	"context"
	"time"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/tasks/browser"
)

// Browser says how pages are looked at; see [Executor.Browser].
type Browser struct {
	// Image of the browser's sidecar; the Sandbox uses the host's programs. Default ramus/browser:latest.
	Image  string
	Limits containers.Limits // of a sidecar; default 1 GiB, 2 CPUs, 256 processes
	// Timeout is the longest that one check may take in the browser; default 15 min.
	Timeout time.Duration
}

// What the rooms above the executor see of checks by a browser.
type (
	BrowserCheck = browser.Check
	BrowserView  = browser.View
	BrowserDiff  = browser.Diff
	BrowserSpec  = browser.Spec
)

// The verdicts of checks by a browser.
const (
	BrowserPass       = browser.Pass
	BrowserFail       = browser.Fail
	BrowserUnverified = browser.Unverified
)

// browserFolder is where checks by a browser lie among a run's artifacts. What a
// container puts into a folder of that name in /artifacts is no evidence and is left out.
const browserFolder = "browser"

// Browse does one check in the step's container; see [tasks.Browser].
func (s *taskShell) Browse(ctx context.Context, spec browser.Spec) (browser.Check, error) {
	panic("not built")
}
