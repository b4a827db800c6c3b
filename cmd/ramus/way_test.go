package main

import (
	"cmp"
	"os"
)

// testWay is the part of a test server's environment that the run of the tests
// decides: how many containers wait (none, which is cheaper, unless RAMUS_POOL says
// more), and how they get their work trees.
func testWay() []string {
	return []string{
		"RAMUS_POOL=" + cmp.Or(os.Getenv("RAMUS_POOL"), "0"),
		"RAMUS_WORK_TREE=" + cmp.Or(os.Getenv("RAMUS_WORK_TREE"), "auto"),
	}
}
