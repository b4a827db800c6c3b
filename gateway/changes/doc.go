// Package changes shows the differences that a caller made, file by file.
//
// # Nouns
//
// A [Set] is a part of the changed files between two commits. Each [File] of it has an id, which stays the same as long as its path does, and
// a key, which changes with its content. A [Window] chooses the part. [Changes] reads it.
//
// # Invariants
//
// A set has at most [MaxFiles] files and [MaxLines] lines. Large files have their lines only if the window names them. The number of files
// and lines that differ counts all of them. A set is a pure function of its commits and its window.
//
// # Untrusted input
//
// Paths and lines come from commits. The package passes them on as they are, bounded.
package changes
