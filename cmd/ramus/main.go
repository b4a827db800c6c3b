// Command ramus is the one binary of ramus: server, command line and runner.
//
// The commands speak REST to a server: the one that RAMUS_URL and RAMUS_TOKEN
// name, or the one at the unix socket of the data folder. Where none runs
// there, a command starts one inside its own process, does its work through it
// and shuts it down again: same code, same socket, no daemon needed.
//
// Exit statuses: 0 done; 1 failed, or found invalid; 2 wrong usage, or input
// that cannot be read; 3 not found; 4 in the way of something else (conflict,
// not allowed, ambiguous); 5 the server or the container engine is away; 130
// interrupted. `ramus exec` has the command's own status, and 125 when ramus
// itself could not do its part.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/ramus-dev/ramus/containers/layer"
	"github.com/ramus-dev/ramus/containers/runner"
)

// version is set when a release is built.
var version string

func main() {
	// Before anything else: process 1 of a container starts here, where it is not ramus-runner.
	if code, known := runner.Command(os.Args); known {
		os.Exit(code)
	}
	// With root's rights beside the engine, for a ramus that has none.
	if len(os.Args) > 1 && os.Args[1] == "layers" {
		os.Exit(layer.Main(os.Args[2:]))
	}
	os.Exit(Main())
}

// Main runs one command line and returns its exit status.
func Main() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// The second interrupt is the kernel's own: nobody has to wait for a
	// clean-up that hangs.
	context.AfterFunc(ctx, stop)
	return run(ctx, os.Args[1:], stdio{os.Stdin, os.Stdout, os.Stderr}, os.Environ())
}

// stdio is what a command reads and writes.
type stdio struct {
	in       io.Reader
	out, err io.Writer
}

// buildVersion is the release, or what the Go tool knows of the build.
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
