package main

import (
	"cmp"
	"os"
)

// testWay returns the part of a test server's environment that depends on the run
// of the tests. RAMUS_POOL is the number of waiting containers. The default is 0,
// which is cheaper. RAMUS_WORK_TREE selects how containers get their work trees.
func testWay() []string {
	return []string{
		"RAMUS_POOL=" + cmp.Or(os.Getenv("RAMUS_POOL"), "0"),
		"RAMUS_WORK_TREE=" + cmp.Or(os.Getenv("RAMUS_WORK_TREE"), "auto"),
	}
}
