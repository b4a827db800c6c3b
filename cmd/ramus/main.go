// Command ramus is the binary of ramus. It is the server, the command line and the runner.
//
// The commands send REST requests to a server. It is the one that RAMUS_URL and RAMUS_TOKEN name, or the one at the
// unix socket of the data folder. If none runs there, a command starts one inside its own process, works through it and
// shuts it down again. The code and the socket are the same, and no daemon is needed.
//
// The exit status is 0 after success, 1 after a failure or for invalid input, 2 for wrong usage or unreadable input, 3
// if something is not found, 4 if something is in the way (conflict, not allowed, ambiguous), 5 if the server or the
// container engine does not answer, and 130 after an interrupt. `ramus exec` exits with the command's own status, and
// with 125 if ramus itself failed.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/ramus-dev/ramus/containers/kubernetes/way"
	"github.com/ramus-dev/ramus/containers/layer"
	"github.com/ramus-dev/ramus/containers/runner"
)

// version is set when a release is built.
var version string

func main() {
	// Process 1 of a container starts here if it is not ramus-runner.
	if code, known := runner.Command(os.Args); known {
		os.Exit(code)
	}
	// `ramus way` runs a command of package way in a pod.
	if len(os.Args) > 1 && os.Args[1] == "way" {
		os.Exit(way.Main(os.Args[2:]))
	}
	// `ramus layers` has root's rights on the engine's machine, for a ramus without them.
	if len(os.Args) > 1 && os.Args[1] == "layers" {
		os.Exit(layer.Main(os.Args[2:]))
	}
	os.Exit(Main())
}

// Main runs one command line and returns its exit status.
func Main() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// A second interrupt ends the process, so that nobody has to wait for a clean-up that hangs.
	context.AfterFunc(ctx, stop)
	return run(ctx, os.Args[1:], stdio{os.Stdin, os.Stdout, os.Stderr}, os.Environ())
}

// stdio has the standard streams of a command.
type stdio struct {
	in       io.Reader
	out, err io.Writer
}

// buildVersion returns the release, or the revision that the Go tool has recorded.
func buildVersion() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	revision, dirty := "", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value[:min(len(s.Value), 12)]
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "-dirty"
		}
	}
	if revision != "" {
		return revision + dirty
	}
	if info.Main.Version != "" {
		return info.Main.Version
	}
	return "unknown"
}
