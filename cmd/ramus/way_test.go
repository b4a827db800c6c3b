package main

import (
	"cmp"
	"os"
)

// testWay returns the part of a test server's environment that depends on the run
// of the tests. RAMUS_POOL is the number of waiting containers. The default is 0,
// which is cheaper. RAMUS_WORK_TREE selects how containers get their work trees. With
// RAMUS_TEST_ENGINE=kubernetes containers are pods of the cluster of make cluster.
func testWay() []string {
	way := []string{
		"RAMUS_POOL=" + cmp.Or(os.Getenv("RAMUS_POOL"), "0"),
		"RAMUS_WORK_TREE=" + cmp.Or(os.Getenv("RAMUS_WORK_TREE"), "auto"),
	}
	if onCluster() {
		way = append(way, clusterConfig()...)
	}
	return way
}
