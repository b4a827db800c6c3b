// Command ramus is the one binary of ramus: server, command line and runner.
package main

import (
	"os"

	"github.com/ramus-dev/ramus/containers/runner"
)

func main() {
	// Before anything else: process 1 of a container starts here.
	if len(os.Args) > 1 && os.Args[1] == "runner" {
		os.Exit(runner.Main(os.Args[2:]))
	}
}
