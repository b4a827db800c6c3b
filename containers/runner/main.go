// Package runner is process 1 of every container: an SSH server that starts
// commands, remembers what they printed and how they ended, and outlives them.
package runner

import (
	"fmt"
	"os"
)

// Main is `ramus runner JSON`: JSON is a [Config]. It returns the exit status.
func Main(args []string) int {
	fmt.Fprintln(os.Stderr, "cannot run the runner: not built")
	return 1
}
