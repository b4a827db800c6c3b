// Package document reads files that people write in YAML. A [Format] makes of one a tree
// of [Value]s that know their places, and a [Document] that gathers mistakes: whoever
// makes sense of the tree notes what is wrong with [Document.At] and reads on, so that
// a person sees all mistakes at once, each with its line.
//
// Files are bounded in bytes, tokens, depth, and in what their aliases amount to. Tags,
// merge keys, keys that are no plain text, and keys that stand twice are mistakes.
package document
