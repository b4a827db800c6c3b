// Package settings determines the environment that a repository's containers have.
//
// # Nouns
//
// The [Bounds] come from the server's configuration. They have the values for all repositories, and the values that a repository
// may choose. The file [environment.Path] of a base chooses. [Resolve] makes [Settings] of both, a pure function. A
// [Reader] finds the file.
//
// # Invariants
//
// The file is read from the base, never from a branch under work. A file never widens the bounds. A value that they do
// not allow is replaced by the server's, and [Settings.Warnings] tells it. A file with a mistake has no effect: the
// newest earlier file of the base without one is used.
package settings
