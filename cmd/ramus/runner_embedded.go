//go:build ramusrunner

package main

import _ "embed"

// runnerProgram is ramus-runner, as `make build` has just built and compressed it with gzip.
//
//go:embed ramus-runner.gz
var runnerProgram []byte
