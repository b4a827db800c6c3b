//go:build ramusrunner

package main

import _ "embed"

// runnerProgram is the ramus-runner that `make build` has built.
//
//go:embed ramus-runner
var runnerProgram []byte
