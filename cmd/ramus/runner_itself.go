//go:build !ramusrunner

package main

// runnerProgram is empty in a ramus that the go command built without the tag ramusrunner.
var runnerProgram []byte
