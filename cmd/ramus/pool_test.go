package main

import (
	"cmp"
	"os"
)

// testPool is how many containers wait in the servers of tests: none, which is
// cheaper, unless the run is asked to try it.
func testPool() string { return cmp.Or(os.Getenv("RAMUS_POOL"), "0") }
