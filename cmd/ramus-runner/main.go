// Command ramus-runner is the part of ramus that works inside containers: process 1
// there, and what git asks to sign its commits and which files changed. `ramus` can do
// all of it too, but it is the server with all its libraries: a tenth of the size
// starts in a tenth of the time, and of that there is one in every container. `make build` puts
// it into ramus, which puts it into containers.
package main

import (
	"fmt"
	"os"

	"github.com/ramus-dev/ramus/containers/runner"
)

func main() {
	if code, known := runner.Command(os.Args); known {
		os.Exit(code)
	}
	fmt.Fprintln(os.Stderr, "ramus-runner: it is started by ramus, in containers")
	os.Exit(2)
}
