// Package document reads YAML files that people write.
//
// # Nouns
//
// A [Format] is a kind of file. Its Parse returns a tree of [Value]s, which know their positions, and a [Document],
// which collects mistakes. The reader of the tree reports mistakes with [Document.At] and continues, so that a person
// sees all mistakes at once, each with its line.
//
// # Invariants
//
// Bytes, tokens, depth, and the size of the expanded aliases of a file are bounded. Tags, merge keys, keys that are not
// plain text, and repeated keys are mistakes.
package document
