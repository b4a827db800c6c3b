//go:build ramusrunner

package main

import _ "embed"

// runnerProgram is ramus-runner, as `make build` has just built it.
//
//go:embed ramus-runner
var runnerProgram []byte
