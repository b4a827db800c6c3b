// Package library has the tasks of ramus: tests, lint, build, files, git and the browser.
//
// # Nouns
//
// [All] returns all tasks, [Lookup] one by its name. A project is the part of a work tree that decides which test runner, linter or
// build tool is used. A job is the command line that a task runs, with the parser of its output.
//
// # Invariants
//
// A task uses the work tree only through its tasks.Shell. A work tree in which a task finds nothing to run is tasks.ErrNoWay, and the
// error names the files that were looked for.
//
// # What is hostile
//
// The files of the work tree: package.json, Makefiles, names of scripts and targets. Values from there are quoted before they become part
// of a command.
package library
