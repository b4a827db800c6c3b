// Package background reaches the programs that run in the containers of callers between commands and next to them.
//
// # Nouns
//
// A process is a command that was started in the background. A port is a TCP port at which a program of the container
// listens. [Programs] lists processes, copies their output and ends them, and connects people to ports.
//
// # Invariants
//
// No container is made or woken. A connection to a port keeps its container awake, and [Programs.Close] ends it.
package background
