// Package tasks defines a task, and the abilities that a task needs.
//
// # Nouns
//
// A [Task] is one Go value. It has a name, a doc comment, a parameter struct and a function over a [Shell]. The JSON
// Schema of the struct checks YAML, documents the task and is its tool schema. A Shell is a work tree and a way to run
// commands in it. Package library has the tasks of ramus, package workflow the language that combines them, and package
// results the parsers of their output.
//
// # Invariants
//
// The packages run no container and touch no repository by themselves. The caller provides the Shell. [CleanPath] and
// [ResolvePath] check all paths of files. Values become words of a command only by [Quote].
//
// # Untrusted input
//
// All names and contents of a work tree and all values of parameters are hostile.
package tasks
