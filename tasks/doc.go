// Package tasks defines a task, and the abilities that a task needs.
//
// # Nouns
//
// A [Task] is one Go value: a name, a doc comment, a parameter struct whose JSON Schema checks YAML, documents the task and is its tool
// schema, and a function over a [Shell]. A Shell is a work tree and a way to run commands in it. Package library has the tasks of
// ramus, package workflow the language that puts them together, package results the parsers of their output.
//
// # Invariants
//
// Nothing here runs a container or touches a repository by itself: the caller provides the Shell. Paths of files are checked by
// [CleanPath] and [ResolvePath], and values become words of a command only by [Quote].
//
// # What is hostile
//
// All names and contents of a work tree, and all values of parameters.
package tasks
