// Package export serves the work of callers as files that git clone opens. Package executor/export makes them.
//
// # Invariants
//
// An export has only runs that the caller of the request sees.
package export
