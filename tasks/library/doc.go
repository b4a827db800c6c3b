// Package library has the tasks of ramus: tests, lint, build, files, git and the browser.
//
// # Nouns
//
// [All] returns all tasks, and [Lookup] one by its name. A project is the part of a work tree that determines the test
// runner, linter or build tool. A job is the command line that a task runs, with the parser of its output.
//
// # Invariants
//
// A task uses the work tree only through its tasks.Shell. Returns tasks.ErrNoWay if a work tree has nothing that a task
// can run. The error names the files that were searched.
//
// # Untrusted input
//
// The files of the work tree are hostile: package.json, Makefiles, names of scripts and targets. Values from them are
// quoted before they become part of a command.
package library
