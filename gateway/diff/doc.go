// Package diff reads the differences that git writes, and compares texts.
//
// # Nouns
//
// A [File] is the difference of one file. It has [Hunk]s, which have [Line]s. A [Pair] has two lines that stand next to each other. A
// [Span] is a part of a line.
//
// # Invariants
//
// All functions are pure and bounded. The lines of a hunk have the numbers that they have in the files, also if earlier lines are left out.
// The equal and deleted lines of a text that was compared are the first text, and the equal and added ones are the second.
//
// # Untrusted input
//
// Paths and lines come from commits. The package passes them on as they are, cut to a length. [Read] takes any bytes.
package diff
