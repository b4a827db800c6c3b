// Package tasks is the task library and the workflow language: what can be
// done, and how it is put together. It parses, checks and expands; it never
// runs a container or touches a repository by itself.
//
// # Nouns
//
// A [Task] is one Go value: a name, a doc comment, a parameter struct whose
// JSON Schema checks YAML, documents the task and is its tool schema, and a
// function over a [Shell]. A [Workflow] is a parsed and checked YAML file. A
// [Machine] is the state of one run of it: a pure value that says which steps
// come next and takes their results, so that a journal of results rebuilds it
// at any point.
package tasks
