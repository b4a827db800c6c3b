package executor

import (
	"context"
	"io/fs"
	"net"
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

// TraceViewer is Playwright's trace viewer, static files that come with the driver,
// taken from the browser's sidecar once and kept in Data. Without a browser it is ErrUnavailable.
func (x *Executor) TraceViewer(ctx context.Context) (fs.FS, error) { panic("not built") }

// Ports lists the TCP ports that listen in a caller's container, the door's left
// out. A caller without a container is ErrGone; it is not woken up.
func (x *Executor) Ports(ctx context.Context, c Caller) ([]int, error) { panic("not built") }

// DialPort connects to a port of a caller's container, on its loopback. The container
// stays awake until the connection is closed. A caller without one is ErrGone.
func (x *Executor) DialPort(ctx context.Context, c Caller, port int) (net.Conn, error) {
	panic("not built")
}
