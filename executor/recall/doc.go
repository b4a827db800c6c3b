// Package recall keeps the results of checks, and finds them again.
//
// # Nouns
//
// A [Subject] is everything that the result of a check depends on: the tree of the files, the image, the command and
// the environment. A [Result] is the end of a check with its outputs. A [Book] keeps the results of a repository by
// their subjects, each as one commit at a ref.
//
// # Invariants
//
// A result is found only if its run is there. A result that was different when its run was replayed is never found
// again, and no later result takes its place. Results of callers that are hidden are found by nobody else.
package recall
