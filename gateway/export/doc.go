// Package export serves the work of callers as files that git clone opens. It takes such files in. Package executor/export does the work.
//
// # Invariants
//
// An export has only runs that the caller of the request sees.
package export
