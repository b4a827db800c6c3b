// Command ramus is as much of ramus as containers start: smaller than all of it, and
// built sooner.
package main

import (
	"os"

	"github.com/ramus-dev/ramus/containers/layer"
	"github.com/ramus-dev/ramus/containers/runner"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "runner" {
		os.Exit(runner.Main(os.Args[2:]))
	}
	if len(os.Args) > 1 && os.Args[1] == "layers" {
		os.Exit(layer.Main(os.Args[2:]))
	}
	os.Exit(2)
}
