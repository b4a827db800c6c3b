//go:build !ramusrunner

package main

// runnerProgram is empty in a ramus that the Go tool built alone.
var runnerProgram []byte
