// Package results reads the output of test runners and linters.
//
// # Nouns
//
// [Tests], [Lint] and [Build] are the values of tasks. A parser takes the output of one framework and returns Tests, and false if the
// output is not of that framework or cannot be read.
//
// # Invariants
//
// Parsers are pure functions. They keep bounded parts: the names of 200 failed tests, the texts of 20 failures, 100 findings. All texts
// are valid UTF-8. The time of a parser grows with the text.
//
// # Untrusted input
//
// All input: programs of the work tree print it. No output makes a parser fail or take long.
package results
